"""Tests explanations of segments: retention's forecast and the cleaner's plan of one log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.cleaner.plan import Bound
from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log.delete.retention import Hold, Rule
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.why import ExplainedPartition, OldestTransaction, explained
from kafkafs.storage.transactions.producer import TransactionalProducer

THEN = 1_790_000_000_000
HOUR_MS = 3_600_000


class Made:
    """A log directory with topic `t`. Each segment has one batch, an hour after the one before."""

    def __init__(self, path: Path, settings: Mapping[str, str]) -> None:
        self.path = path
        self.clock = SetClock(THEN)
        self.engine = LogManager(str(path), clock=self.clock)
        self.engine.create_topic("t", configs={"segment.ms": "1000", **settings})

    def append(self, *values: bytes | None, producer: TransactionalProducer | None = None) -> None:
        keys = [b"k%d" % n for n in range(len(values))]
        records = RecordColumns.from_values(list(values), keys=keys, timestamp=self.clock.now_ms())
        if producer is None:
            self.engine.writer("t", 0).append_records(records)
        else:
            producer.append("t", 0, records)
        self.clock.advance(HOUR_MS)

    def why(self, checkpoint: int | None = None, now_ms: int | None = None) -> ExplainedPartition:
        reader = Engine(str(self.path))
        view = reader.log("t", 0).view()
        now_ms = self.clock.now_ms() if now_ms is None else now_ms
        return explained(view, reader.topic_config("t").config, checkpoint, now_ms)


Make = Callable[..., Made]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Returns `make(settings)`, a log directory that is open for writing until the test ends."""
    made: list[Made] = []

    def start(**settings: str) -> Made:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(Made(tmp_path / f"data-{len(made)}", named))
        return made[-1]

    yield start
    for each in made:
        each.engine.close()


def bounds(found: ExplainedPartition) -> list[Bound | None]:
    return [s.standing.bound if s.standing is not None else None for s in found.segments]


def segments(found: ExplainedPartition) -> Any:
    """Returns the segments as `why.json` has them."""
    return json.loads(json.dumps(found.as_json()))["segments"]


def test_a_log_that_is_only_deleted_from(make: Make) -> None:
    made = make(retention_ms=str(2 * HOUR_MS))
    for _ in range(4):
        made.append(b"v")
    found = made.why()
    assert found.plan is None
    assert found.as_json()["compaction"] is None
    assert bounds(found) == [None] * 4
    assert [each.outlook.rule for each in found.segments] == [Rule.TIME, Rule.TIME, None, None]
    assert [each["retention"]["expiresAt"] for each in segments(found)] == [
        None, None, THEN + 4 * HOUR_MS + 1, THEN + 5 * HOUR_MS + 1,
    ]  # fmt: skip
    assert [each["upperBound"] for each in segments(found)] == [1, 2, 3, 4]


def test_retention_may_delete_what_was_explained(make: Make) -> None:
    """Nothing is read later, as a broker under load deletes a segment per second."""
    made = make(retention_bytes="1")
    made.append(b"a")
    made.append(b"b")
    found = made.why()
    for path in (made.path / "t-0").iterdir():
        path.unlink()
    assert [each["largestTimestamp"] for each in found.as_json()["segments"]] == [
        THEN,
        THEN + HOUR_MS,
    ]


def test_clean_dirty_and_active(make: Make) -> None:
    made = make(cleanup_policy="compact", min_cleanable_dirty_ratio="0.6")
    for _ in range(4):
        made.append(b"v", b"w")
    found = made.why(checkpoint=4)
    assert bounds(found) == [Bound.CLEAN, Bound.CLEAN, Bound.DIRTY, Bound.ACTIVE]
    assert {each.outlook.hold for each in found.segments} == {Hold.POLICY}
    compaction = found.as_json()["compaction"]
    assert compaction["dirtyRatio"] == pytest.approx(1 / 3, abs=1e-4)
    assert compaction["minCleanableDirtyRatio"] == 0.6
    assert compaction["isEligible"] is False
    assert (compaction["firstDirtyOffset"], compaction["firstUncleanableOffset"]) == (4, 6)
    assert made.why(checkpoint=None).as_json()["compaction"]["isEligible"] is True


def test_too_young_and_until_when(make: Make) -> None:
    made = make(cleanup_policy="compact,delete", min_compaction_lag_ms=str(4 * HOUR_MS))
    for _ in range(5):
        made.append(b"v")
    found = made.why()
    assert bounds(found) == [Bound.DIRTY, Bound.DIRTY, Bound.LAG, Bound.LAG, Bound.ACTIVE]
    until = [each["compaction"]["cleanableAt"] for each in segments(found)]
    assert until == [None, None, THEN + 6 * HOUR_MS, THEN + 7 * HOUR_MS, None]
    # The forecast holds exactly, and not a moment earlier.
    assert bounds(made.why(now_ms=until[2]))[2] is Bound.DIRTY
    assert bounds(made.why(now_ms=until[2] - 1))[2] is Bound.LAG


def test_overdue(make: Make) -> None:
    made = make(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="1.0",
        max_compaction_lag_ms=str(6 * HOUR_MS),
    )
    for _ in range(3):
        made.append(b"v")
    assert made.why().as_json()["compaction"]["isEligible"] is False
    due = made.why().as_json()["compaction"]["overdueAt"]
    assert THEN + 6 * HOUR_MS <= due <= THEN + 6 * HOUR_MS + 1
    assert made.why(now_ms=due - 1).as_json()["compaction"]["isOverdue"] is False
    assert made.why(now_ms=due).as_json()["compaction"]["isOverdue"] is True
    assert made.why(now_ms=due).as_json()["compaction"]["isEligible"] is True


def test_an_open_transaction_and_whose(make: Make) -> None:
    made = make(cleanup_policy="compact")
    made.append(b"v")
    first, second = TransactionalProducer(made.engine), TransactionalProducer(made.engine)
    for producer in (first, second):
        producer.begin()
    made.append(b"w", b"x", producer=first)
    made.append(b"y", producer=second)
    made.append(b"z")
    found = made.why()
    assert bounds(found) == [Bound.DIRTY, Bound.UNSTABLE, Bound.UNSTABLE, Bound.ACTIVE]
    assert found.transaction == OldestTransaction(
        first.producer_id, first.producer_epoch, 1, THEN + HOUR_MS
    )
    assert [each["compaction"]["producerId"] for each in segments(found)] == [
        None, first.producer_id, first.producer_id, None,
    ]  # fmt: skip
    first.commit()
    later = made.why()
    assert later.transaction is not None
    assert later.transaction.producer_id == second.producer_id
    second.abort()
    assert made.why().transaction is None


def test_a_segment_that_a_cleaner_is_writing(make: Make) -> None:
    made = make(cleanup_policy="compact")
    for _ in range(3):
        made.append(b"v")
    (made.path / "t-0" / f"{1:020}.log.cleaned").write_bytes(b"half a batch")
    (made.path / "t-0" / f"{0:020}.index.cleaned").touch()
    written = [each["compaction"]["isBeingWritten"] for each in segments(made.why())]
    assert written == [False, True, False]


def test_a_partition_without_records(make: Make) -> None:
    for policy in ("compact", "delete"):
        made = make(cleanup_policy=policy)
        (only,) = made.why().segments
        assert (only.outlook.hold, only.upper_bound) == (Hold.EMPTY, 0)
        assert bounds(made.why()) == [Bound.ACTIVE if policy == "compact" else None]


def test_a_partition_without_segments(make: Make) -> None:
    made = make(cleanup_policy="compact")
    made.engine.close()
    for file in (made.path / "t-0").iterdir():
        file.unlink()
    assert made.why().segments == ()
    assert made.why().as_json()["segments"] == []


def test_asking_changes_nothing(corpus: Callable[[str], Path]) -> None:
    """Covers every partition of a broker that cleaned; the fixture compares the files."""
    reader = Engine(str(corpus("compact-after2")))
    for topic in reader.topics():
        log = reader.log(topic, 0)
        checkpoint = reader.partition_dir(topic, 0).log_dir.cleaner_offsets.get((topic, 0))
        found = explained(log.view(), reader.topic_config(topic).config, checkpoint, THEN)
        assert len(found.segments) == len(log.view().segments)
        if topic.startswith("cmp-") and topic != "cmp-lag":
            assert bounds(found)[-1] is Bound.ACTIVE
            assert Bound.LAG not in bounds(found)
