"""Tests which logs an engine cleans, and truncation, deletion, damage and new configs meanwhile."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kafkafs.storage.cleaner.cleaning import CleaningResult
from kafkafs.storage.cleaner.cleaning_state import LogCleaningState
from kafkafs.storage.cleaner.manager import CleaningCandidate
from kafkafs.storage.clock import SetClock
from kafkafs.storage.concurrency.scheduler import TaskStatus
from kafkafs.storage.errors import CleaningAborted, ConfigError, CorruptError, UnknownTopic
from kafkafs.storage.format.files.checkpoints import format_offsets, parse_offsets
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_manager import LogManager
from tests.faults import FailingCalls
from tests.reading import read
from tests.threads import repeating
from tests.waiting import PATIENCE_SECONDS, wait_until

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1000",
    "segment.ms": str(1000 * DAY_MS),
    "min.cleanable.dirty.ratio": "0.1",
}


@pytest.fixture
def engine(root: Path) -> Iterator[LogManager]:
    with LogManager(str(root), clock=SetClock(NOW)) as engine:
        yield engine


def append(engine: LogManager, topic: str, count: int = 60, keys: int = 5, size: int = 40) -> None:
    """Appends `count` records, each in its own batch; each value contains its offset."""
    writer = engine.writer(topic, 0)
    for number in range(writer.end_offset, writer.end_offset + count):
        value = b"%d:" % number + bytes(size)
        made = [SimpleRecord(engine.clock.now_ms(), b"k%d" % (number % keys), value)]
        writer.append_records(RecordColumns.from_records(made), BatchPlan())


def make(engine: LogManager, topic: str, count: int = 60, **changes: str) -> None:
    settings = {name.replace("_", "."): value for name, value in changes.items()}
    engine.create_topic(topic, 1, {**COMPACT, **settings})
    append(engine, topic, count)


def offsets(engine: LogManager, topic: str) -> list[int]:
    found = list(read(engine.log(topic, 0).view()))
    assert all((each.value or b"").split(b":")[0] == b"%d" % each.offset for each in found)
    return [each.offset for each in found]


def latest(engine: LogManager, topic: str) -> dict[bytes | None, int]:
    return {each.key: each.offset for each in read(engine.log(topic, 0).view())}


def checkpoint(root: Path) -> Mapping[tuple[str, int], int]:
    return parse_offsets((root / "cleaner-offset-checkpoint").read_bytes())


def chosen(engine: LogManager, topic: str) -> CleaningCandidate:
    found = engine.cleaner.candidate((topic, 0))
    assert found is not None
    return found


def clean(
    engine: LogManager, topic: str, meanwhile: Callable[[], object] | None = None
) -> CleaningResult:
    """Runs one pass; calls `meanwhile` once, while the offset map is built."""
    waiting = [meanwhile] if meanwhile else []

    def told(done: int, of: int) -> None:
        if done and waiting:
            waiting.pop()()

    return engine.cleaner.clean(chosen(engine, topic), engine.cleaner.new_map(), told)


def files(root: Path, partition: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / partition).iterdir()}


def unfinished(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*") if path.suffix in (".cleaned", ".swap")]


# -- cleaning -------------------------------------------------------------------------------------


def test_what_is_due_is_cleaned(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    make(engine, "plain", cleanup_policy="delete", retention_ms="-1")
    before = latest(engine, "a")
    engine.run("cleaner")
    active = engine.writer("a", 0).rolled().end_offset
    assert offsets(engine, "a") == [*range(active - 5, active), *range(active, 60)]
    assert latest(engine, "a") == before
    assert offsets(engine, "plain") == list(range(60))
    assert checkpoint(root) == {("a", 0): active}
    assert engine.problems == []
    assert unfinished(root) == []
    assert engine.cleaner.due() == []
    with pytest.raises(KeyError):
        engine.run("cleaning")


def test_what_was_cleaned_is_there_the_next_time_and_grows_together(root: Path) -> None:
    with LogManager(str(root), clock=SetClock(NOW)) as engine:
        make(engine, "a")
        engine.run("cleaner")
        append(engine, "a")
        engine.run("cleaner")
        expected = offsets(engine, "a")
        bases = [each.base_offset for each in engine.writer("a", 0).rolled().segments]
    logs = sorted(int(path.stem) for path in (root / "a-0").glob("*.log"))
    assert logs[:-1] == bases
    snapshots = [int(path.stem) for path in (root / "a-0").glob("*.snapshot")]
    assert set(snapshots) <= {*logs, 120}
    with LogManager(str(root), clock=SetClock(NOW)) as engine:
        assert engine.problems == []
        assert offsets(engine, "a") == expected
        append(engine, "a", 10)
        assert offsets(engine, "a")[-10:] == list(range(120, 130))


def test_the_dirtiest_comes_first(engine: LogManager) -> None:
    for topic, count in (("a", 60), ("b", 60), ("c", 60)):
        make(engine, topic, count)
    engine.run("cleaner")
    for topic, count in (("a", 20), ("b", 90), ("c", 50)):
        append(engine, topic, count, keys=90)
    due = engine.cleaner.due()
    assert [each.key[0] for each in due] == ["b", "c", "a"]
    assert [each.plan.ratio for each in due] == sorted(each.plan.ratio for each in due)[::-1]


def test_the_ratio_and_the_longest_lag_decide(engine: LogManager) -> None:
    clock = engine.clock
    assert isinstance(clock, SetClock)
    make(engine, "a", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=str(DAY_MS))
    assert engine.cleaner.due() == []
    engine.run("cleaner")
    assert offsets(engine, "a") == list(range(60))
    clock.advance(DAY_MS + 1)
    assert [each.key for each in engine.cleaner.due()] == [("a", 0)]
    engine.run("cleaner")
    assert len(offsets(engine, "a")) < 30


def test_compacted_logs_are_left_by_retention_and_deleted_from_by_the_cleaner(
    engine: LogManager,
) -> None:
    clock = engine.clock
    assert isinstance(clock, SetClock)
    for topic, policy in (("both", "compact,delete"), ("compacted", "compact")):
        day = str(DAY_MS)
        make(
            engine, topic, cleanup_policy=policy, retention_ms=day, min_cleanable_dirty_ratio="1.0"
        )
    clock.advance(2 * DAY_MS)
    assert engine.run("retention") == {}
    assert offsets(engine, "both") == list(range(60))
    engine.run("cleaner")
    assert offsets(engine, "both") == []
    assert offsets(engine, "compacted") == list(range(60))
    engine.set_topic_config("compacted", {"cleanup.policy": "delete"})
    assert engine.run("retention") != {}
    assert offsets(engine, "compacted") == []


@pytest.mark.parametrize("wrong", [3, 5000])
def test_a_checkpoint_that_cannot_be_is_put_right(
    root: Path, engine: LogManager, wrong: int
) -> None:
    make(engine, "a", min_cleanable_dirty_ratio="1.0", cleanup_policy="compact,delete")
    engine.writer("a", 0).delete_records(20)
    data = format_offsets({("a", 0): wrong, ("gone", 7): 4})
    (root / "cleaner-offset-checkpoint").write_bytes(data)
    assert engine.cleaner.due() == []
    assert checkpoint(root) == {("a", 0): 20}


def test_a_map_without_room_for_all_keys_takes_several_passes(root: Path) -> None:
    few = {"log.cleaner.dedupe.buffer.size": "1048600", "log.cleaner.io.buffer.load.factor": "2e-4"}
    with LogManager(str(root), few, SetClock(NOW)) as engine:
        make(engine, "a", 0)
        append(engine, "a", 80, keys=20)
        assert engine.cleaner.new_map().capacity == 8
        first = clean(engine, "a")
        assert first.end_offset == 8
        engine.run("cleaner")
        active = engine.writer("a", 0).rolled().end_offset
        assert checkpoint(root) == {("a", 0): active}
        assert len(offsets(engine, "a")) == 20 + 80 - active


def test_a_buffer_without_room_for_a_key_is_refused(root: Path) -> None:
    with LogManager(str(root), {"log.cleaner.dedupe.buffer.size": "10"}) as engine:
        make(engine, "a")
        with pytest.raises(ConfigError, match="dedupe"):
            engine.run("cleaner")


# -- the background task --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "off", [{}, {"log.cleaner.enable": "false"}, {"log.cleaner.threads": "0"}], ids=str
)
def test_it_runs_by_itself_unless_it_is_off(root: Path, off: dict[str, str]) -> None:
    settings = {"log.cleaner.backoff.ms": "10", "log.initial.task.delay.ms": "10", **off}
    every = {**settings, "log.retention.check.interval.ms": "10"}
    with LogManager(str(root), every, maintain=True) as engine:
        make(engine, "a")
        make(engine, "plain", cleanup_policy="delete", retention_ms="1")
        engine.start()
        wait_until(lambda: engine.writer("plain", 0).start_offset > 0)
        if off:
            assert offsets(engine, "a") == list(range(60))
        else:
            wait_until(lambda: ("a", 0) in checkpoint(root))
            append(engine, "a")
            wait_until(lambda: checkpoint(root)["a", 0] > 60)


def test_the_first_pass_is_at_once(root: Path) -> None:
    with LogManager(str(root), maintain=True) as engine:
        make(engine, "a")
        engine.start()
        wait_until(lambda: ("a", 0) in checkpoint(root))

        def cleaner() -> TaskStatus:
            return next(each for each in engine.task_status() if each.name == "cleaner")

        wait_until(lambda: cleaner().next_run_ms > cleaner().last_run_ms)  # until it is planned
        backoff_ms = 15_000  # log.cleaner.backoff.ms
        assert cleaner().next_run_ms >= cleaner().last_run_ms + backoff_ms
        assert cleaner().runs == 1


@pytest.mark.parametrize("rate", ["0", "-1"])
def test_a_rate_at_which_nothing_is_read_is_refused(root: Path, rate: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.cleaner\.io\.max\.bytes\.per\.second: .* 0"):
        LogManager(str(root), {"log.cleaner.io.max.bytes.per.second": rate})
    assert not root.exists()


def test_closing_ends_a_cleaning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkafs.storage.cleaner.cleaning._CHECK_MS", 0)
    # At this rate the pass would take more than an hour.
    slow = {"log.cleaner.io.max.bytes.per.second": "10", "log.cleaner.backoff.ms": "1"}
    with LogManager(str(root), slow, maintain=True) as engine:
        make(engine, "a", 600)
        engine.start()
        wait_until(lambda: not engine.cleaner.cleaning_state.is_idle(("a", 0)))
    assert unfinished(root) == []
    assert checkpoint(root) == {}
    with LogManager(str(root)) as engine:
        assert latest(engine, "a") == {b"k%d" % (n % 5): n for n in range(595, 600)}
        assert len(offsets(engine, "a")) > 500


def test_a_rate_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait moves the clock by so much, and everything else by a millisecond."""

    class Clock(SetClock):
        def now_ms(self) -> int:
            self.value += 1
            return self.value

    def wait(cleaning_state: LogCleaningState, key: object, seconds: float) -> None:
        clock.advance(round(seconds * 1000))

    clock = Clock(NOW)
    monkeypatch.setattr("kafkafs.storage.cleaner.cleaning._CHECK_MS", 0)
    monkeypatch.setattr(LogCleaningState, "wait", wait)
    rate = {"log.cleaner.io.max.bytes.per.second": "300000"}
    with LogManager(str(root), rate, clock) as engine:
        make(engine, "a", 0, internal_segment_bytes="30000")
        append(engine, "a", 300, size=500)
        start = clock.value
        result = clean(engine, "a")
        assert clock.value - start > result.bytes_before / 300


# -- concurrent changes ---------------------------------------------------------------------------


def in_a_thread(work: Callable[[], object]) -> Callable[[], None]:
    """Returns a function that starts `work`, which then waits for the pass to be aborted."""
    return lambda: threading.Thread(target=work).start()


def refused(engine: LogManager, topic: str, meanwhile: Callable[[], object], why: str) -> None:
    with pytest.raises(CleaningAborted, match=why):
        clean(engine, topic, meanwhile)


def test_a_truncation_gives_it_up(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    done = threading.Event()

    def truncate() -> None:
        engine.truncate_to("a", 0, 15)
        done.set()

    def meanwhile() -> None:
        threading.Thread(target=truncate).start()
        wait_until(lambda: not engine.cleaner.cleaning_state.is_idle(("a", 0)))
        wait_until(lambda: engine.cleaner.cleaning_state._pauses[("a", 0)] > 0)

    refused(engine, "a", meanwhile, "truncated")
    assert done.wait(PATIENCE_SECONDS)
    assert engine.writer("a", 0).end_offset == 15
    assert unfinished(root) == []
    assert checkpoint(root) == {}
    assert {0, 1, 2, 3, 4} & {offset % 5 for offset in offsets(engine, "a")} == {0, 1, 2, 3, 4}
    append(engine, "a")
    engine.run("cleaner")
    assert engine.problems == []


def test_a_log_that_was_cut_otherwise_is_not_exchanged(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    refused(engine, "a", lambda: engine.writer("a", 0).truncate_to(58), "meanwhile")
    assert offsets(engine, "a") == list(range(58))
    assert unfinished(root) == []


def test_deleted_segments_are_not_exchanged(root: Path, engine: LogManager) -> None:
    make(engine, "a", cleanup_policy="compact,delete")
    writer = engine.writer("a", 0)

    def retain() -> None:
        writer.delete_records(30)
        writer.retain()

    refused(engine, "a", retain, "the log changed|meanwhile")
    assert offsets(engine, "a") == list(range(30, 60))
    assert unfinished(root) == []
    assert engine.cleaner.uncleanable == {}
    engine.run("cleaner")
    assert latest(engine, "a") == {b"k%d" % (n % 5): n for n in range(55, 60)}


def test_the_deletion_of_the_topic_gives_it_up(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    make(engine, "b")
    engine.cleaner.uncleanable["a", 0] = "damage"
    assert engine.cleaner.candidate(("a", 0)) is None
    del engine.cleaner.uncleanable["a", 0]
    deleted = threading.Thread(target=engine.delete_topic, args=("a",))

    def meanwhile() -> None:
        deleted.start()
        wait_until(lambda: engine.cleaner.cleaning_state._pauses[("a", 0)] > 0)

    refused(engine, "a", meanwhile, "truncated, deleted")
    deleted.join(PATIENCE_SECONDS)
    assert list(engine.topics()) == ["b"]
    engine.cleaner.uncleanable["b", 0] = "damage"
    engine.delete_topic("b")
    assert engine.cleaner.uncleanable == {}
    assert engine.cleaner.due() == []


def test_a_topic_that_was_just_deleted_is_no_problem(
    engine: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(engine, "a")
    found = chosen(engine, "a")

    def view_of(key: tuple[str, int]) -> View:
        raise UnknownTopic(key[0])

    monkeypatch.setattr(engine.cleaner, "_view_of", view_of)
    assert engine.cleaner.due() == []
    with pytest.raises(CleaningAborted, match="no topic a"):
        engine.cleaner.clean(found, engine.cleaner.new_map())
    assert engine.problems == []


def test_another_policy_gives_it_up(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    configure = threading.Thread(
        target=engine.set_topic_config, args=("a", {"cleanup.policy": "delete"})
    )

    def meanwhile() -> None:
        configure.start()
        wait_until(lambda: engine.cleaner.cleaning_state._pauses[("a", 0)] > 0)

    refused(engine, "a", meanwhile, "configured")
    configure.join(PATIENCE_SECONDS)
    assert offsets(engine, "a") == list(range(60))
    assert engine.cleaner.candidate(("a", 0)) is None


def test_who_has_it_is_not_disturbed(engine: LogManager) -> None:
    make(engine, "a", cleanup_policy="compact,delete")
    found = chosen(engine, "a")
    with engine.cleaner.cleaning_state.in_progress(("a", 0)):
        assert engine.cleaner.due() == []
        assert engine.cleaner.candidate(("a", 0)) is None
        assert engine.cleaner.retain(("a", 0), found.writer) is None
        with pytest.raises(CleaningAborted, match="already being cleaned"):
            engine.cleaner.clean(found, engine.cleaner.new_map())
    engine.cleaner.clean(found, engine.cleaner.new_map())


def test_appends_and_reads_go_on(engine: LogManager) -> None:
    make(engine, "a", 300)
    log, before = engine.log("a", 0), latest(engine, "a")

    def read_all() -> None:
        found = [(each.offset, each.key) for each in read(log.view())]
        seen = [offset for offset, _ in found]
        newest = {key: offset for offset, key in found}
        assert seen == sorted(set(seen))
        assert all(newest.get(key, -1) >= offset for key, offset in before.items())

    def append_more() -> None:
        if engine.writer("a", 0).end_offset < 800:  # a slow machine must not clean ever more
            append(engine, "a", 5)
        time.sleep(0.005)

    with repeating(read_all, read_all, append_more):
        for _ in range(5):
            clean(engine, "a")
    end = engine.writer("a", 0).end_offset
    assert latest(engine, "a") == {b"k%d" % (n % 5): n for n in range(end - 5, end)}
    assert engine.problems == []


# -- failures -------------------------------------------------------------------------------------


def test_damage_makes_a_log_uncleanable_and_no_other(root: Path, engine: LogManager) -> None:
    for topic in ("a", "b"):
        make(engine, topic)
    segment = engine.writer("a", 0).rolled().segments[2]
    log = root / "a-0" / f"{segment.base_offset:020}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    before = files(root, "a-0")
    engine.run("cleaner")
    [problem] = engine.problems
    assert str(log) in problem
    assert "position 0" in problem
    assert problem.startswith("a-0: not cleaned")
    assert files(root, "a-0") == before
    assert checkpoint(root).keys() == {("b", 0)}
    append(engine, "a")
    engine.run("cleaner")
    assert engine.cleaner.candidate(("a", 0)) is None
    assert checkpoint(root).keys() == {("b", 0)}


def test_damage_is_raised_for_who_asks_for_a_pass(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    log = root / "a-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptError) as raised:
        clean(engine, "a")
    assert (raised.value.file, raised.value.position) == (str(log), 0)
    assert unfinished(root) == []


def test_a_full_disk_holds_it_up_until_there_is_room(root: Path, engine: LogManager) -> None:
    for topic in ("a", "b"):
        make(engine, topic, 0)
        append(engine, topic, keys=60)  # all are retained
    before = files(root, "a-0") | files(root, "b-0")
    calls = FailingCalls(0, errno.ENOSPC, ("pwritev",), lasting=True)
    with replaced(calls), pytest.raises(OSError, match="No space"):
        engine.run("cleaner")
    assert len(calls.failed) >= 2  # both logs were tried
    assert files(root, "a-0") | files(root, "b-0") == before
    assert engine.problems == []
    engine.run("cleaner")
    assert checkpoint(root).keys() == {("a", 0), ("b", 0)}


def test_a_failing_disk_takes_the_directory_offline(root: Path, engine: LogManager) -> None:
    make(engine, "a")
    with replaced(FailingCalls(0, errno.EIO, ("fsync",))):
        engine.run("cleaner")
    assert "offline" in engine.problems[0]
    assert engine.cleaner.due() == []
    engine.run("cleaner")
