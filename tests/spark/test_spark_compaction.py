"""Compaction by many tasks: the bytes that the cleaner leaves, however a log is cut, and whatever
is killed.

Most of it is done without Spark, by `in_turn`, which has the same pieces done one after the other.
"""

from __future__ import annotations

import importlib
import pickle
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkafs.spark.jobs.compact import Compaction, Options
from kafkafs.spark.jobs.places import Place
from kafkafs.spark.jobs.report import Report
from kafkafs.storage import compaction
from kafkafs.storage.cleaner import key_entries, split_pass
from kafkafs.storage.clock import SetClock
from kafkafs.storage.durable import replaced
from kafkafs.storage.format.builder import SimpleRecord
from kafkafs.storage.format.encoder import BatchPlan, RecordColumns
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.transactional import TransactionalProducer
from kafkafs.storage.verify import Verifier
from kafkafs.storage.writable_engine import WritableEngine
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
    """What a seed makes of a topic: records with and without keys, values and headers, in all
    codecs, in transactions that end either way or not at all, cleaned now and then."""

    def __init__(self, engine: WritableEngine, clock: SetClock, seed: int) -> None:
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
        compaction.compact(engine, (TOPIC, partition), engine.cleaner.new_map(), is_forced=True)


def write(directory: Path, seed: int, partitions: int = 1, steps: int = 120) -> SetClock:
    """A log directory, closed in good order; its clock."""
    clock = SetClock(NOW)
    settings = {name: value for name, value in SETTINGS.items() if name != "cleanup.policy"}
    with WritableEngine(str(directory), settings, clock) as engine:
        Workload(engine, clock, seed).run(partitions, steps)
    clock.advance(1500)  # some horizons have come
    return clock


def by_the_cleaner(directory: Path, clock: SetClock, settings: dict[str, str] = SETTINGS) -> None:
    """One pass over every log."""
    with WritableEngine(str(directory), settings, clock) as engine:
        for key in sorted(engine.writers()):
            found = engine.cleaner.candidate(key)
            if found is not None and found.plan.first_dirty < found.plan.first_uncleanable:
                engine.cleaner.clean(found, engine.cleaner.new_map())


def in_turn(
    what: str,
    units: Sequence[Any],
    work: Callable[[Any], Any],
    size: Callable[[Any], int] | None = None,
) -> list[Any]:
    """What Spark does, without it: everything is pickled on its way."""
    work = pickle.loads(pickle.dumps(work))
    return [pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(u))))) for u in units]


def by_tasks(
    directory: Path,
    clock: SetClock,
    run: Callable[..., list[Any]] = in_turn,
    *,
    split_bytes: int = 1 << 30,
    settings: dict[str, str] = SETTINGS,
) -> Report:
    options = Options(force=True, split_bytes=split_bytes, processors=3)
    place = Place.of(str(directory), settings)
    with WritableEngine(place.log_dirs, settings, clock) as engine:
        return Compaction(engine, place, options, run).compact(())


def content(directory: Path) -> dict[str, tuple[bytes, int]]:
    """All files below, with their bytes and, of segments, when they were written."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and ".deleted" not in path.name:
            age = path.stat().st_mtime_ns if path.suffix == ".log" else 0
            found[str(path.relative_to(directory))] = (path.read_bytes(), age)
    return found


def check(directory: Path) -> None:
    """It verifies, and nothing is left beside it."""
    with WritableEngine(str(directory), SETTINGS, SetClock(NOW)) as engine:
        verifier = Verifier(engine)
        for key in engine.writers():
            assert list(verifier.partition(engine.partition_dir(*key))) == []
    assert [path.name for path in directory.parent.glob(".*")] == []


@pytest.fixture(autouse=True)
def unsynced() -> Iterator[None]:
    """Nobody cuts the power here."""
    with replaced(Unsynced()):
        yield


@pytest.fixture
def cut_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small logs in many ranges, runs and slices."""
    job = importlib.import_module("kafkafs.spark.jobs.compact")  # hidden by its function
    monkeypatch.setattr(job, "_LEAST_RANGE_BYTES", 700)
    monkeypatch.setattr(job, "_RANGES_A_PROCESSOR", 1 << 20)
    monkeypatch.setattr(split_pass, "_SLICE_KEYS", 50)
    monkeypatch.setattr(split_pass, "FIRST_BYTES", 100)
    monkeypatch.setattr(key_entries, "RUN_ENTRIES", 37)


@contextmanager
def copies(tmp_path: Path, directory: Path) -> Iterator[tuple[Path, Path]]:
    """Two copies of a log directory, with the same times."""
    made = tmp_path / "one" / "log", tmp_path / "two" / "log"
    for each in made:
        shutil.rmtree(each.parent, ignore_errors=True)
        shutil.copytree(directory, each)
    yield made


@pytest.mark.parametrize("seed", range(6))
def test_whole_partitions_come_to_what_the_cleaner_leaves(tmp_path: Path, seed: int) -> None:
    clock = write(tmp_path / "log", seed, partitions=3, steps=60)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        report = by_tasks(ours, clock)
        assert content(ours) == content(theirs)
        assert report.rows
        assert (report.exit_code, {row["tasks"] for row in report.rows}) == (0, {1})
        check(ours)


@pytest.mark.parametrize("seed", range(12))
def test_pieces_come_to_what_the_cleaner_leaves(tmp_path: Path, cut_small: None, seed: int) -> None:
    clock = write(tmp_path / "log", seed, partitions=1 + seed % 2)
    with copies(tmp_path, tmp_path / "log") as (ours, theirs):
        by_the_cleaner(theirs, clock)
        report = by_tasks(ours, clock, split_bytes=0)
        assert content(ours) == content(theirs)
        assert min(row["tasks"] for row in report.rows) > 20
        again = content(ours)
        assert by_tasks(ours, clock, split_bytes=0).rows == []
        assert content(ours) == again
        check(ours)
