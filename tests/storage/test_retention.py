"""Tests which segments retention deletes, case by case and against Kafka's own three loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.log.delete.retention import (
    Hold,
    Outlook,
    RetentionDeletion,
    RetentionState,
    Rule,
    outlook,
    plan,
)

NOW = 1_700_000_000_000
KEEP = TopicConfig(retention_ms=-1, retention_bytes=-1)


@dataclass(frozen=True)
class Piece:
    base_offset: int
    size: int = 100
    largest_timestamp: int = NOW


def log_of(
    *segments: Piece, end: int = 1000, start: int = 0, mark: int | None = None
) -> RetentionState:
    return RetentionState(segments, start, end, end if mark is None else mark)


def test_without_limits_nothing_goes() -> None:
    state = log_of(Piece(0, largest_timestamp=0), Piece(10))
    planned = plan(state, KEEP, NOW)
    assert (planned.count, planned.rolls, planned.start_offset) == (0, False, 0)
    assert {future.hold for future in outlook(state, KEEP, NOW)} == {Hold.NO_BREACH}


def test_a_segment_below_the_log_start_offset_goes_whatever_the_policy() -> None:
    state = log_of(Piece(0), Piece(10), Piece(20), start=20)
    for policy in (("delete",), ("compact",), ("compact", "delete")):
        planned = plan(state, replace(KEEP, cleanup_policy=policy), NOW)
        assert planned.deletions == (RetentionDeletion(Rule.LOG_START, 2),)
        assert planned.start_offset == 20
    assert plan(replace(state, start_offset=19), KEEP, NOW).count == 1
    # The last one has no next segment, so the log start offset alone never deletes it.
    assert plan(replace(state, start_offset=1000), KEEP, NOW).count == 2


def test_size_leaves_as_much_as_it_shall_keep() -> None:
    state = log_of(Piece(0), Piece(10), Piece(20))
    for keep, count in ((301, 0), (300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (1, 2)):
        planned = plan(state, replace(KEEP, retention_bytes=keep), NOW)
        assert planned.count == count, keep
    everything = plan(state, replace(KEEP, retention_bytes=0), NOW)
    assert (everything.count, everything.rolls, everything.start_offset) == (3, True, 1000)


def test_time_takes_what_is_older_than_it_by_its_largest_timestamp() -> None:
    config = replace(KEEP, retention_ms=50)
    old, just = Piece(0, largest_timestamp=NOW - 51), Piece(10, largest_timestamp=NOW - 50)
    assert plan(log_of(old, just), config, NOW).deletions == (RetentionDeletion(Rule.TIME, 1),)
    # One segment from the future retains all segments after it.
    future = Piece(5, largest_timestamp=NOW + 10**9)
    assert plan(log_of(old, future, replace(old, base_offset=10)), config, NOW).count == 1


def test_all_segments_expired_roll_first_but_an_empty_last_one_stays() -> None:
    config = replace(KEEP, retention_ms=0)
    old = Piece(0, largest_timestamp=1)
    planned = plan(log_of(old, end=7), config, NOW)
    assert (planned.count, planned.rolls, planned.start_offset) == (1, True, 7)
    planned = plan(log_of(old, Piece(7, 0, 1), end=7), config, NOW)
    assert (planned.count, planned.rolls, planned.start_offset) == (1, False, 7)
    assert plan(log_of(Piece(0, 0, 1), end=0), config, NOW).count == 0


def test_nothing_above_the_high_watermark_goes() -> None:
    config = replace(KEEP, retention_ms=0)
    pieces = [Piece(base, largest_timestamp=1) for base in (0, 10, 20)]
    for mark, count in ((9, 0), (10, 1), (19, 1), (20, 2), (999, 2), (1000, 3)):
        assert plan(log_of(*pieces, mark=mark), config, NOW).count == count


def test_a_compacted_log_keeps_what_is_old_and_what_is_much() -> None:
    config = TopicConfig(retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    state = log_of(Piece(0, largest_timestamp=1), Piece(10, largest_timestamp=1))
    assert plan(state, config, NOW).count == 0
    assert {future.hold for future in outlook(state, config, NOW)} == {Hold.POLICY}
    assert plan(state, replace(config, cleanup_policy=("compact", "delete")), NOW).count == 2


def test_three_passes_in_kafkas_order() -> None:
    config = TopicConfig(retention_ms=50, retention_bytes=250)
    times = (NOW, NOW, NOW - 99, NOW - 99, NOW)
    pieces = [Piece(10 * n, largest_timestamp=time) for n, time in enumerate(times)]
    planned = plan(log_of(*pieces, start=10), config, NOW)
    assert planned.deletions == (
        RetentionDeletion(Rule.LOG_START, 1),
        RetentionDeletion(Rule.SIZE, 1),
        RetentionDeletion(Rule.TIME, 2),
    )
    assert (planned.count, planned.start_offset) == (4, 40)


def test_local_segments_go_only_when_remote_storage_has_them() -> None:
    config = TopicConfig(
        retention_ms=-1, retention_bytes=0, local_retention_ms=50, local_retention_bytes=-1
    )
    old = [Piece(10 * n, largest_timestamp=NOW - 99) for n in range(3)]
    for copied, count in ((0, 0), (9, 0), (10, 1), (20, 2), (999, 2), (1000, 3)):
        state = replace(log_of(*old), copied_until=copied)
        planned = plan(state, config, NOW)
        assert planned.count == count, copied
        holds = [future.hold for future in outlook(state, config, NOW)[count:]]
        assert set(holds) <= {Hold.NOT_COPIED}
    state = replace(log_of(*old, start=10), copied_until=20)
    assert plan(state, config, NOW).deletions == (
        RetentionDeletion(Rule.LOG_START, 1),
        RetentionDeletion(Rule.LOCAL_TIME, 1),
    )


def test_local_limits_follow_the_others_unless_they_are_set() -> None:
    state = replace(log_of(Piece(0), Piece(10), Piece(20)), copied_until=1000)
    derived = TopicConfig(retention_ms=-1, retention_bytes=100)
    assert plan(state, derived, NOW).deletions == (RetentionDeletion(Rule.LOCAL_SIZE, 2),)
    assert plan(state, replace(derived, local_retention_bytes=200), NOW).count == 1
    assert plan(state, replace(derived, local_retention_bytes=-1), NOW).count == 0
    coming = outlook(state, replace(derived, local_retention_bytes=250), NOW)
    assert [future.bytes_to_come for future in coming] == [50, 150, 250]
    # An empty cleanup.policy retains records for ever, in remote storage; "compact" does not.
    for policy, count in (((), 2), (("compact",), 0)):
        assert plan(state, replace(derived, cleanup_policy=policy), NOW).count == count


def test_outlook_says_when() -> None:
    config = TopicConfig(retention_ms=50, retention_bytes=150)
    state = log_of(
        Piece(0, largest_timestamp=NOW - 99),
        Piece(10, largest_timestamp=NOW - 10),
        Piece(20, largest_timestamp=NOW - 90),
        Piece(30, 0, NOW - 5),
    )
    gone, first, second, last = outlook(state, config, NOW)
    assert gone == Outlook(state.segments[0], rule=Rule.SIZE)
    assert (first.hold, first.expires_at_ms, first.bytes_to_come) == (
        Hold.NO_BREACH,
        NOW + 41,
        50,
    )
    # It is old enough by itself, but cannot be deleted before the segment in front of it.
    assert (second.hold, second.expires_at_ms, second.bytes_to_come) == (
        Hold.OLDER_STAYS,
        NOW + 41,
        150,
    )
    assert last == Outlook(state.segments[3], hold=Hold.EMPTY)


def kafkas_passes(state: RetentionState, config: TopicConfig, now: int) -> list[tuple[Rule, int]]:
    """Runs the loops of UnifiedLog as Kafka has them: on a shrinking list, with a running
    difference."""
    segments = list(state.segments)
    deleted = []

    def one_pass(rule: Rule, should_delete: object) -> None:
        assert callable(should_delete)
        count = 0
        for number, segment in enumerate(segments):
            next_segment = segments[number + 1] if number + 1 < len(segments) else None
            empty = next_segment is None and segment.size == 0
            upper = next_segment.base_offset if next_segment else state.end_offset
            answer = state.high_watermark >= upper and should_delete(segment, next_segment)
            if not answer or empty:
                break
            count += 1
        if count:
            deleted.append((rule, count))
            if count == len(segments):
                segments.append(Piece(state.end_offset, 0, now))
            del segments[:count]

    one_pass(
        Rule.LOG_START,
        lambda _, following: following is not None and following.base_offset <= state.start_offset,
    )
    if "delete" not in config.cleanup_policy:
        return deleted
    size = sum(segment.size for segment in segments)
    if config.retention_bytes >= 0 and size >= config.retention_bytes:
        diff = size - config.retention_bytes

        def too_much(segment: Piece, _: Piece | None) -> bool:
            nonlocal diff
            if diff - segment.size >= 0:
                diff -= segment.size
                return True
            return False

        one_pass(Rule.SIZE, too_much)
    if config.retention_ms >= 0:
        one_pass(
            Rule.TIME,
            lambda segment, _: now - segment.largest_timestamp > config.retention_ms,
        )
    return deleted


small = st.integers(0, 5)
states = st.builds(
    lambda rows, start, tail, mark: RetentionState(
        [Piece(10 * n, size, NOW - age) for n, (size, age) in enumerate(rows)],
        start,
        10 * (len(rows) - 1) + (tail + 1 if rows[-1][0] else 0),
        mark,
    ),
    st.lists(st.tuples(small, small), min_size=1, max_size=6),
    st.integers(0, 60),
    small,
    st.sampled_from([10, 30, 70]),
)
configs = st.builds(
    TopicConfig,
    retention_ms=st.integers(-1, 5),
    retention_bytes=st.integers(-1, 12),
    cleanup_policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
)


@given(states, configs)
def test_the_same_as_kafkas_loops(state: RetentionState, config: TopicConfig) -> None:
    planned = plan(state, config, NOW)
    assert [(deletion.rule, deletion.count) for deletion in planned.deletions] == kafkas_passes(
        state, config, NOW
    )
    assert planned.rolls == (planned.count == len(state.segments))


@given(states, configs)
def test_what_stays_goes_exactly_when_it_was_foretold(
    state: RetentionState, config: TopicConfig
) -> None:
    count = plan(state, config, NOW).count
    futures = outlook(state, config, NOW)
    assert [future.rule is not None for future in futures] == [
        number < count for number in range(len(state.segments))
    ]
    for number, future in enumerate(futures):
        assert (future.rule is None) == (future.hold is not None)
        if future.hold in (Hold.NO_BREACH, Hold.OLDER_STAYS) and future.expires_at_ms is not None:
            assert plan(state, config, future.expires_at_ms).count > number
            assert plan(state, config, future.expires_at_ms - 1).count <= number
