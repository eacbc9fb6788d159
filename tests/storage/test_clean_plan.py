"""Tests what can be cleaned and how segments are grouped, also against a copy of Kafka's code."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.cleaner.plan import Bound, CleanableLog, group, plan
from kafkafs.storage.config.kafka import TopicConfig

NOW = 1_700_000_000_000
COMPACT = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.5)


@dataclass(frozen=True)
class Piece:
    base_offset: int
    size: int = 100
    largest_timestamp: int = NOW
    first_timestamp: int = NOW
    index_bytes: int = 8
    time_index_bytes: int = 12


def log_of(
    *segments: Piece, stable: int = 1000, checkpoint: int | None = None, start: int = 0
) -> CleanableLog:
    return CleanableLog(segments, start, 1000, stable, checkpoint)


def test_all_but_the_active_segment_of_a_new_log_can_be_cleaned() -> None:
    planned = plan(log_of(Piece(0), Piece(10), Piece(20)), COMPACT, NOW)
    assert (planned.first_dirty, planned.first_uncleanable) == (0, 20)
    assert planned.bounds == (Bound.DIRTY, Bound.DIRTY, Bound.ACTIVE)
    assert (planned.clean_bytes, planned.cleanable_bytes, planned.ratio) == (0, 200, 1.0)
    assert planned.is_eligible
    assert not planned.resets_checkpoint


def test_a_log_with_one_segment_has_nothing_to_clean() -> None:
    planned = plan(log_of(Piece(0)), COMPACT, NOW)
    assert (planned.cleanable_bytes, planned.ratio, planned.is_eligible) == (0, 0.0, False)
    empty = plan(CleanableLog((), 7, 7, 7, None), COMPACT, NOW)
    assert (empty.first_dirty, empty.first_uncleanable, empty.is_eligible) == (7, 7, False)


def test_the_ratio_counts_a_segment_that_was_cleaned_in_part_twice() -> None:
    log = log_of(Piece(0), Piece(10), Piece(20), Piece(30), checkpoint=15)
    planned = plan(log, COMPACT, NOW)
    assert planned.bounds == (Bound.CLEAN, Bound.DIRTY, Bound.DIRTY, Bound.ACTIVE)
    assert (planned.clean_bytes, planned.cleanable_bytes) == (200, 200)
    assert not planned.is_eligible  # the dirty ratio must exceed the minimum
    assert plan(log, replace(COMPACT, min_cleanable_dirty_ratio=0.49), NOW).is_eligible


def test_an_open_transaction_keeps_the_segment_that_it_begins_in_and_all_behind_it() -> None:
    pieces = Piece(0), Piece(10), Piece(20), Piece(30)
    planned = plan(log_of(*pieces, stable=19), COMPACT, NOW)
    assert planned.first_uncleanable == 10
    assert planned.bounds == (Bound.DIRTY, Bound.UNSTABLE, Bound.UNSTABLE, Bound.ACTIVE)
    assert plan(log_of(*pieces, stable=20), COMPACT, NOW).first_uncleanable == 20


def test_what_is_younger_than_the_lag_stays_and_what_lies_behind_it() -> None:
    old, young = NOW - 100, NOW - 99
    pieces = Piece(0, 100, old), Piece(10, 100, young), Piece(20, 100, old), Piece(30)
    planned = plan(log_of(*pieces), replace(COMPACT, min_compaction_lag_ms=100), NOW)
    assert planned.bounds == (Bound.DIRTY, Bound.LAG, Bound.OLDER_STAYS, Bound.ACTIVE)
    assert planned.first_uncleanable == 10
    # The lag does not apply below the checkpoint: that part has already been cleaned.
    log = replace(log_of(*pieces), checkpoint=20)
    assert plan(log, replace(COMPACT, min_compaction_lag_ms=100), NOW).first_uncleanable == 30


def test_max_compaction_lag_demands_a_cleaning_that_the_ratio_does_not() -> None:
    pieces = Piece(0, 10_000), Piece(10, first_timestamp=NOW - 501), Piece(20)
    log = log_of(*pieces, checkpoint=10)
    for lag, is_overdue in ((500, True), (501, False)):
        planned = plan(log, replace(COMPACT, max_compaction_lag_ms=lag), NOW)
        assert planned.overdue_at_ms == NOW - 501 + lag + 1
        assert planned.is_overdue is planned.is_eligible is is_overdue
    assert plan(log, COMPACT, NOW).overdue_at_ms is None
    without_time = replace(log, segments=(pieces[0], Piece(10, first_timestamp=-1), pieces[2]))
    planned = plan(without_time, replace(COMPACT, max_compaction_lag_ms=1), NOW)
    assert planned.overdue_at_ms is None


@pytest.mark.parametrize(("checkpoint", "start"), [(9, 10), (1001, 10)])
def test_a_checkpoint_that_cannot_be_right_is_not_believed(checkpoint: int, start: int) -> None:
    planned = plan(log_of(Piece(0), Piece(20), checkpoint=checkpoint, start=start), COMPACT, NOW)
    assert (planned.first_dirty, planned.resets_checkpoint) == (start, True)


@st.composite
def any_logs(draw: st.DrawFn) -> CleanableLog:
    bases = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=6)))
    times = st.integers(-1, 40)
    pieces = [Piece(base, draw(st.integers(0, 5)), draw(times), draw(times)) for base in bases]
    start = draw(st.integers(bases[0], 35))
    end = draw(st.integers(max(start, bases[-1]), 40))
    checkpoint = draw(st.none() | st.integers(0, 45))
    return CleanableLog(pieces, start, end, draw(st.integers(start, end)), checkpoint)


def values(log: CleanableLog, low: int, high: int) -> list[Piece]:
    """Returns the segments from the one that holds `low` to `high`, as Kafka's
    `LogSegments.values`."""
    below = [s.base_offset for s in log.segments if s.base_offset <= low]
    floor = below[-1] if below else -1
    pieces = [s for s in log.segments if isinstance(s, Piece)]
    return [] if low == high else [s for s in pieces if floor <= s.base_offset < high]


@given(any_logs(), st.integers(0, 20), st.integers(1, 60))
def test_the_plan_is_that_of_kafkas_cleaner_manager(
    log: CleanableLog, lag: int, overdue: int
) -> None:
    config = replace(COMPACT, min_compaction_lag_ms=lag, max_compaction_lag_ms=overdue)
    now, active = 40, log.segments[-1].base_offset
    dirty = log.start_offset if log.checkpoint is None else log.checkpoint
    if not log.start_offset <= dirty <= log.end_offset:
        dirty = log.start_offset
    not_active = values(log, dirty, active) if dirty <= active else []
    young = [s.base_offset for s in not_active if lag and s.largest_timestamp > now - lag]
    bound = max(dirty, min([log.last_stable_offset, active, *young[:1]]))
    above = values(log, bound, active) if bound <= active else []
    first_uncleanable = above[0].base_offset if above else active
    low = min(dirty, first_uncleanable)
    planned = plan(log, config, now)
    assert (planned.first_dirty, planned.first_uncleanable) == (dirty, first_uncleanable)
    cleanable = sum(s.size for s in values(log, low, first_uncleanable))
    assert planned.cleanable_bytes == cleanable
    assert planned.clean_bytes == sum(s.size for s in values(log, -1, dirty))
    times = [s.first_timestamp for s in not_active if s.first_timestamp > 0]
    assert planned.is_overdue == bool(times and min(times) < now - overdue)


def test_segments_that_fit_into_one_become_one() -> None:
    config = replace(COMPACT, internal_segment_bytes=250)
    pieces = [Piece(10 * n, 100) for n in range(5)]
    bases = [[s.base_offset for s in part] for part in group(pieces, 45, 50, config)]
    assert bases == [[0, 10], [20, 30], [40]]
    # Only segments that the pass has reached are grouped.
    assert [len(part) for part in group(pieces, 20, 50, config)] == [2]
    assert group(pieces, 0, 50, config) == []


def test_indexes_and_offsets_must_fit_too() -> None:
    config = replace(COMPACT, segment_index_bytes=24)
    pieces = [Piece(10 * n) for n in range(4)]
    assert [len(part) for part in group(pieces, 40, 40, config)] == [2, 2]
    config = COMPACT
    far = [Piece(0), Piece(10), Piece(20)]
    assert [len(part) for part in group(far, 30, 2**31, config)] == [3]
    assert [len(part) for part in group(far, 30, 2**31 + 1, config)] == [2, 1]
    # An empty segment has no offsets that could be too far apart.
    assert [len(part) for part in group([*far[:2], Piece(20, 0)], 30, 2**40, config)] == [3]


def test_a_segment_too_large_for_any_group_is_one_by_itself() -> None:
    config = replace(COMPACT, internal_segment_bytes=100)
    pieces = [Piece(0, 0), Piece(10, 900), Piece(20, 0), Piece(30, 50)]
    bases = [[s.base_offset for s in part] for part in group(pieces, 40, 40, config)]
    assert bases == [[0], [10], [20, 30]]
