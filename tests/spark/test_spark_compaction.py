"""Tests of compaction by many tasks: it produces the same bytes as the cleaner, however a log is
cut and whatever process is killed.

Most tests use `in_turn` instead of Spark, which runs the same pieces one after another.
"""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.spark.jobs import tasks
from kafkafs.spark.jobs.compaction import job as compaction_job
from kafkafs.spark.jobs.compaction import pieces
from kafkafs.spark.jobs.compaction.job import CompactionJob, CompactOptions
from kafkafs.spark.jobs.job_log_dirs import JobLogDirs
from kafkafs.spark.jobs.report import Report
from kafkafs.storage.cleaner.preview.compacted_view import REASONS
from kafkafs.storage.cleaner.split import key_entries, split_pass, split_plan
from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import LogDirError, LogDirLocked
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.compact import Compact, CompactedLog, compact
from kafkafs.storage.operations.verifier import Verifier
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.faults import FailingCalls
from tests.storage.test_cleaning_corpora import PASSES_MS
from tests.writing import Unsynced

NOW = 1_790_000_000_000
TOPIC = "t"
SETTINGS = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "1000",
    "internal.segment.bytes": "4000",
    "index.interval.bytes": "200",
}


# -- any log --------------------------------------------------------------------------------------


class Workload:
    """A topic generated from a seed: records with and without keys, values and headers, in all
    codecs, in committed, aborted and open transactions, cleaned now and then."""

    def __init__(self, engine: LogManager, clock: SetClock, seed: int) -> None:
        self.engine = engine
        self.clock = clock
        self.chance = random.Random(seed)
        self.producers = [TransactionalProducer(engine) for _ in range(3)]
        self.open: set[int] = set()
        self.may_be_keyless = True

    def run(self, partitions: int, steps: int) -> None:
        self.engine.create_topic(TOPIC, partitions)
        for step in range(steps):
            if step == steps // 4:  # from here on every record has a key
                self.engine.set_topic_config(TOPIC, {"cleanup.policy": "compact"})
                self.may_be_keyless = False
            for number in range(partitions):
                self.send(number)
            if self.chance.random() < 0.2:
                self.begin_or_end()
            if step in (steps // 3, steps // 2):
                self.clean(self.chance.randrange(partitions))
            self.clock.advance(self.chance.choice([1, 50]))
        for number in sorted(self.open)[: self.chance.randrange(2)]:
            self.producers[number].abort()

    def send(self, partition: int) -> None:
        plan = BatchPlan(codec=self.chance.choice(list(Codec)), batch_bytes=400)
        made = list(self.records())
        number = self.chance.randrange(-1, len(self.producers))
        if number < 0:
            writer = self.engine.writer(TOPIC, partition)
            writer.append_records(RecordColumns.from_records(made), plan)
        else:
            self.producers[number].append(TOPIC, partition, made, plan)

    def records(self) -> Iterator[SimpleRecord]:
        chance = self.chance
        for _ in range(chance.randrange(1, 12)):
            value = None if chance.random() < 0.2 else b"%d" % chance.getrandbits(60)
            is_keyless = self.may_be_keyless and chance.random() < 0.1
            key = None if is_keyless else b"key-%d" % chance.randrange(60)
            headers = [("h", b"%d" % chance.randrange(9))] * chance.randrange(3)
            yield SimpleRecord(self.clock.now_ms() - chance.randrange(100), key, value, headers)

    def begin_or_end(self) -> None:
        if self.open:
            number = self.open.pop()
            producer = self.producers[number]
            producer.commit() if self.chance.random() < 0.5 else producer.abort()
        else:
            number = self.chance.randrange(len(self.producers))
            self.producers[number].begin()
            self.open.add(number)

    def clean(self, partition: int) -> None:
        engine = self.engine
        compacted(engine, Selection(((TOPIC, partition),)))


def write(directory: Path, seed: int, partitions: int = 1, steps: int = 120) -> SetClock:
    """Writes a log directory with a clean shutdown; returns its clock."""
    clock = SetClock(NOW)
    settings = {name: value for name, value in SETTINGS.items() if name != "cleanup.policy"}
    with LogManager(str(directory), settings, clock) as engine:
        Workload(engine, clock, seed).run(partitions, steps)
    clock.advance(1500)  # some delete horizons have passed
    return clock


def by_the_cleaner(
    directory: Path, clock: SetClock, settings: Mapping[str, str] = SETTINGS
) -> dict[tuple[str, int], CompactedLog]:
    """Compacts the directory as `kafkafs compact --force` does."""
    with LogManager(str(directory), settings, clock) as engine:
        return {(each.topic, each.partition): each for each in compacted(engine, Selection())}


def compacted(engine: LogManager, selection: Selection) -> list[CompactedLog]:
    """Compacts logs as the cleaner does; returns the logs that changed."""
    found = []
    for row in compact(engine, Compact(selection, force=True)):
        assert isinstance(row, CompactedLog), row
        found.append(row)
    return found


def reports_alike(report: Report, found: Mapping[tuple[str, int], CompactedLog]) -> bool:
    """Returns whether a report agrees with the cleaner's results."""
    ours = [
        (
            (row["topic"], row["partition"]),
            *(row[name] for name in ("segments", "segments_after", "bytes", "bytes_after")),
            *(row[name] for name in (*REASONS, "markers")),
        )
        for row in report.rows
    ]
    theirs = [
        (
            key,
            *(each.before.segments, each.after.segments, each.before.bytes, each.after.bytes),
            *(*(each.gone[name] for name in REASONS), each.markers_gone),
        )
        for key, each in found.items()
    ]
    return ours == theirs


def in_turn(
    what: str,
    units: Sequence[Any],
    work: Callable[[Any], Any],
    size: Callable[[Any], int] | None = None,
) -> list[Any]:
    """Runs the units in this process, pickling units and results as Spark does."""
    work = pickle.loads(pickle.dumps(work))
    return [pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(u))))) for u in units]


def by_tasks(
    directory: Path,
    clock: SetClock,
    run: Callable[..., list[Any]] = in_turn,
    *,
    split_bytes: int | None = 1 << 30,
    configs: Mapping[str, str] = SETTINGS,
) -> Report:
    options = CompactOptions(force=True, split_bytes=split_bytes, processors=3)
    place = JobLogDirs.of(str(directory), configs)
    with LogManager(place.log_dirs, configs, clock) as engine:
        return CompactionJob(engine, place, options, run).compact(())


def content(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Returns all files below, with their bytes and, for segments, modification times. The lines of
    checkpoints are sorted, because their order depends on when partitions were added."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and ".deleted" not in path.name:
            data = path.read_bytes()
            if path.name.endswith("checkpoint"):
                data = b"".join(sorted(data.splitlines(keepends=True)))
            age = path.stat().st_mtime_ns if path.suffix == ".log" else 0
            found[str(path.relative_to(directory))] = (data, age)
    return found


def check(directory: Path) -> None:
    """Verifies the directory, and that nothing is left next to it."""
    with LogManager(str(directory), SETTINGS, SetClock(NOW)) as engine:
        verifier = Verifier(engine)
        for key in engine.writers():
            assert list(verifier.partition(engine.partition_dir(*key))) == []
    assert [path.name for path in directory.parent.glob(".*")] == []


@pytest.fixture(autouse=True)
def unsynced() -> Iterator[None]:
    """Disables fsync, because these tests simulate no power failure."""
    with replaced(Unsynced()):
        yield


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuts small logs into many ranges, runs and slices."""
    monkeypatch.setattr(compaction_job, "_LEAST_RANGE_BYTES", 700)
    monkeypatch.setattr(compaction_job, "_RANGES_A_PROCESSOR", 1 << 20)
    monkeypatch.setattr(split_plan, "_SLICE_KEYS", 50)
    monkeypatch.setattr(split_pass, "FIRST_BYTES", 100)
    monkeypatch.setattr(key_entries, "RUN_ENTRIES", 37)


def records(directory: Path) -> dict[tuple[str, int, Isolation], list[Any]]:
    """Returns all records of all partitions at both isolation levels."""
    engine = Engine(str(directory), SETTINGS)
    found: dict[tuple[str, int, Isolation], list[Any]] = {}
    for topic, numbers in engine.topics().items():
        for number in numbers:
            view = engine.log(topic, number).view()
            for isolation in Isolation:
                rows = found[topic, number, isolation] = []
                for part in view.read(isolation=isolation):
                    for record in map(part.record, range(len(part))):
                        rows.append((record.offset, record.timestamp, record.key, record.value))
    return found


@contextmanager
def copies(tmp_path: Path, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Yields two copies of a log directory with the same modification times."""
    made = tmp_path / "one" / "log", tmp_path / "two" / "log"
    for each in made:
        shutil.rmtree(each.parent, ignore_errors=True)
        shutil.copytree(directory, each)
    yield made


@pytest.mark.parametrize("seed", range(3))
def test_whole_partitions_come_to_what_the_cleaner_leaves(tmp_path: Path, seed: int) -> None:
    clock = write(tmp_path / "log", seed, partitions=3, steps=60)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        found = by_the_cleaner(theirs, clock)
        report = by_tasks(ours, clock)
        assert content(ours) == content(theirs)
        assert reports_alike(report, found)
        assert report.rows
        assert (report.exit_code, {row["tasks"] for row in report.rows}) == (0, {1})
        check(ours)


@pytest.mark.parametrize("seed", range(5))
def test_pieces_come_to_what_the_cleaner_leaves(tmp_path: Path, cut_small: None, seed: int) -> None:
    clock = write(tmp_path / "log", seed, partitions=1 + seed % 2)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        found = by_the_cleaner(theirs, clock)
        report = by_tasks(ours, clock, split_bytes=0)
        assert content(ours) == content(theirs)
        assert reports_alike(report, found)
        assert min(row["tasks"] for row in report.rows) > 20
        again = content(ours)
        assert by_tasks(ours, clock, split_bytes=0).rows == []
        assert content(ours) == again
        check(ours)


@pytest.mark.parametrize(("partitions", "is_cut"), [(1, True), (3, False)])
def test_a_partition_is_cut_where_processors_would_wait(
    tmp_path: Path,
    cut_small: None,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    is_cut: bool,
) -> None:
    """There are three processors."""
    monkeypatch.setattr(pieces, "LEAST_BYTES", 0)
    clock = write(tmp_path / "log", 2, partitions=partitions, steps=60)
    report = by_tasks(tmp_path / "log", clock, split_bytes=None)
    assert [row["tasks"] > 1 for row in report.rows] == [is_cut] * partitions
    check(tmp_path / "log")


@pytest.mark.slow
@pytest.mark.parametrize("split_bytes", [0, 1 << 30])
def test_what_brokers_wrote(
    corpus: Callable[[str], Path], tmp_path: Path, cut_small: None, split_bytes: int
) -> None:
    """Compacts topics with all codecs, magics and kinds of transactions, by the configs in their
    cluster's metadata."""
    name = "compact-before"
    clock = SetClock(PASSES_MS[name])
    with copies(tmp_path, corpus(name)) as (ours, theirs):
        found = by_the_cleaner(theirs, clock, {})
        report = by_tasks(ours, clock, split_bytes=split_bytes, configs={})
        assert report.wrong == []
        assert reports_alike(report, found)
        assert len(report.rows) > 10
        assert content(ours) == content(theirs)


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize("split_bytes", [0, 1 << 30])
def test_damage_is_told_and_holds_up_nobody_else(
    tmp_path: Path, cut_small: None, split_bytes: int
) -> None:
    clock = write(tmp_path / "log", 1, partitions=3, steps=40)
    broken = sorted((tmp_path / "log" / f"{TOPIC}-1").glob("*.log"))[1]
    data = bytearray(broken.read_bytes())
    data[-1] ^= 1
    broken.write_bytes(data)
    before = content(broken.parent)
    report = by_tasks(tmp_path / "log", clock, split_bytes=split_bytes)
    (wrong,) = report.wrong
    assert (wrong["partition"], wrong["file"], report.exit_code) == (1, str(broken), 1)
    assert 0 < wrong["position"] < len(data)
    assert content(broken.parent) == before
    assert [row["partition"] for row in report.rows] == [0, 2]
    assert list(tmp_path.glob(".*")) == []


def test_a_topic_that_is_not_compacted_is_told_if_it_is_named(tmp_path: Path) -> None:
    settings = {**SETTINGS, "cleanup.policy": "delete"}
    clock = write(tmp_path / "log", 1, steps=10)
    place = JobLogDirs.of(str(tmp_path / "log"), settings)
    with LogManager(place.log_dirs, settings, clock) as engine:
        job = CompactionJob(engine, place, CompactOptions(force=True), in_turn)
        assert job.compact(()).exit_code == 0
        report = job.compact([(TOPIC, None)])
    assert [row["what"] for row in report.wrong] == ['cleanup.policy does not include "compact"']


@pytest.mark.spark
def test_a_directory_that_somebody_holds_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    clock = write(tmp_path / "log", 1, steps=10)
    with LogManager(str(tmp_path / "log"), SETTINGS, clock), pytest.raises(LogDirLocked):
        jobs.compact(spark, str(tmp_path / "log"), configs=SETTINGS)
    assert list(tmp_path.glob(".*")) == []


def same_device(one: str, other: Path) -> bool:
    return os.stat(one).st_dev == other.stat().st_dev


def test_a_staging_place_on_another_file_system_is_refused(tmp_path: Path) -> None:
    clock = write(tmp_path / "log", 1, steps=40)
    before = content(tmp_path / "log" / f"{TOPIC}-0")
    is_elsewhere = [place for place in ("/dev/shm", "/var/tmp") if not same_device(place, tmp_path)]
    with TemporaryDirectory(dir=is_elsewhere[0]) as elsewhere:
        options = CompactOptions(force=True, staging=elsewhere)
        with LogManager(str(tmp_path / "log"), SETTINGS, clock) as engine:
            job = CompactionJob(
                engine, JobLogDirs.of(str(tmp_path / "log"), SETTINGS), options, in_turn
            )
            with pytest.raises(LogDirError, match="not on the file system of"):
                job.compact(())
    assert content(tmp_path / "log" / f"{TOPIC}-0") == before


def test_a_staging_place_can_be_chosen(tmp_path: Path) -> None:
    clock = write(tmp_path / "log", 1, steps=40)
    chosen = tmp_path / "staging"
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        options = CompactOptions(force=True, staging=str(chosen))
        with LogManager(str(ours), SETTINGS, clock) as engine:
            CompactionJob(engine, JobLogDirs.of(str(ours), SETTINGS), options, in_turn).compact(())
        assert content(ours) == content(theirs)
        assert list(chosen.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("kind", ["move", "rename"])
def test_an_exchange_that_fails_leaves_a_log_that_can_be_cleaned(
    tmp_path: Path, cut_small: None, kind: str, at: int
) -> None:
    clock = write(tmp_path / "log", 4)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        with replaced(FailingCalls(at, errno.EIO, [kind], lasting=True)):
            assert is_told(lambda: by_tasks(ours, clock, split_bytes=0))
        by_tasks(ours, clock, split_bytes=0)
        assert records(ours) == records(theirs)
        check(ours)


def is_told(work: Callable[[], Report]) -> bool:
    """Returns whether the report has an error, or the directory failed altogether."""
    try:
        return work().exit_code == 1
    except (LogDirError, OSError):
        return True


# -- what is killed -------------------------------------------------------------------------------


class KilledAtRename(Unsynced):
    """Kills the process at a rename within or a move into a partition."""

    def __init__(self, at: int) -> None:
        self.left = at

    def move(self, name: str, source: int, target: int) -> None:
        self.count()
        super().move(name, source, target)

    def rename(self, old: str, new: str, directory: int) -> None:
        if ".cleaned" in old or ".swap" in old or ".deleted" in new:
            self.count()
        super().rename(old, new, directory)

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            kill()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], object]) -> None:
    """Runs `work` in a child process, which must be killed before it finishes."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def killed_in(step: str, done: int) -> Callable[..., list[Any]]:
    """Returns a runner that is killed after `done` units of a step."""

    def run(what: str, units: Sequence[Any], work: Callable[[Any], Any], size: Any = None) -> Any:
        if what.endswith(step):
            in_turn(what, units[:done], work)
            kill()
        return in_turn(what, units, work)

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "done"), [("learn keys", 9), ("decide", 3), ("copy", 2), ("copy", 99)]
)
def test_a_driver_that_is_killed_has_changed_nothing(
    tmp_path: Path, cut_small: None, step: str, done: int
) -> None:
    """The next driver reuses the finished offset maps and decisions."""
    clock = write(tmp_path / "log", 7)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        before = content(ours / f"{TOPIC}-0")
        killed(lambda: by_tasks(ours, clock, killed_in(step, done), split_bytes=0))
        assert content(ours / f"{TOPIC}-0") == before
        kept = finished(ours.parent)
        assert kept
        clock.advance(1)
        again: dict[str, int] = {}

        def run(what: str, units: Sequence[Any], *more: Any) -> list[Any]:
            found = in_turn(what, units, *more)
            again.update(finished(ours.parent))
            return found

        by_tasks(ours, clock, run, split_bytes=0)
        assert again.items() >= kept.items()
        assert records(ours) == records(theirs)
        check(ours)


def finished(place: Path) -> dict[str, int]:
    """Returns the files of finished pieces and their modification times."""
    found = [*place.glob(".*/*/*.keys"), *place.glob(".*/*/*.newest")]
    return {path.name: path.stat().st_mtime_ns for path in found}


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 3, 4, 7, 14])
def test_a_driver_that_is_killed_in_an_exchange_leaves_whole_segments(
    tmp_path: Path, cut_small: None, at: int
) -> None:
    """Segments are old or new ones, as after the cleaner is killed there."""
    clock = write(tmp_path / "log", 8)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        after = records(theirs)
        before = records(ours)

        def work() -> None:
            with replaced(KilledAtRename(at)):
                by_tasks(ours, clock, split_bytes=0)

        killed(work)
        left = records(ours)
        assert all(set(after[key]) <= set(left[key]) <= set(before[key]) for key in after)
        by_tasks(ours, clock, split_bytes=0)
        assert records(ours) == after
        check(ours)


# -- Spark ----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_does_the_same_after_a_worker_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Compacts small and large partitions in one job, which fails in local mode if a worker
    does."""
    clock = write(tmp_path / "log", 5, partitions=3, steps=60)
    smallest = min(sizes(tmp_path / "log").values())
    flag = tmp_path / "was-killed"

    def kill_once(work: Callable[[Any], Any], unit: Any) -> Any:
        if isinstance(unit, tuple) and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return work(unit)

    def run(what: str, units: Sequence[Any], work: Callable[[Any], Any], *size: Any) -> Any:
        return tasks.run(spark, what, units, partial(kill_once, work), *size)

    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        before = {name: content(ours / name) for name in sizes(ours)}
        with pytest.raises(Exception, match="worker"):
            by_tasks(ours, clock, run, split_bytes=smallest)
        large = [name for name, size in sizes(ours).items() if size > smallest]
        assert all(content(ours / name) == before[name] for name in large)
        report = by_tasks(ours, clock, run, split_bytes=smallest)
        assert sorted(f"{TOPIC}-{row['partition']}" for row in report.rows) == sorted(large)
        assert min(row["tasks"] for row in report.rows) > 1
        assert records(ours) == records(theirs)
        check(ours)


def sizes(directory: Path) -> dict[str, int]:
    """Returns the bytes in rolled segments of each partition."""
    return {
        each.name: sum(path.stat().st_size for path in sorted(each.glob("*.log"))[:-1])
        for each in directory.glob(f"{TOPIC}-*")
    }


@pytest.mark.spark
def test_the_job_as_a_function(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "log", 5, partitions=2, steps=40)
    reported: list[tuple[int, int]] = []
    report = jobs.compact(
        spark,
        str(tmp_path / "log"),
        [(TOPIC, 1)],
        force=True,
        configs=SETTINGS,
        on_progress=lambda *how_far: reported.append(how_far),
    )
    assert [(row["topic"], row["partition"]) for row in report.rows] == [(TOPIC, 1)]
    assert report.rows[0]["bytes_after"] < report.rows[0]["bytes"]
    assert reported
    check(tmp_path / "log")
