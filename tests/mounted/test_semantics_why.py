"""The promises of SEMANTICS.md about why.json, one by one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.mounted.conftest import Mounting
from tests.mounted.promises import promise

HOUR_MS = 3_600_000


def write(path: Path, **settings: str) -> tuple[int, int]:
    """Writes topic t with a segment for each of the last five hours, the last but one with an open
    transaction. Returns the time of the first record, and the producer ID."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    first = time.time_ns() // 1_000_000 - 5 * HOUR_MS
    clock = SetClock(first)
    with LogManager(str(path), clock=clock) as engine:
        engine.create_topic("t", configs={"segment.ms": "1000", **named})
        producer = TransactionalProducer(engine)
        for number in range(5):
            records = RecordColumns.from_values([b"v"], keys=[b"k"], timestamp=clock.now_ms())
            if number == 3:
                producer.begin()
                producer.append("t", 0, records)
            else:
                engine.writer("t", 0).append_records(records)
            clock.advance(HOUR_MS)
        return first, producer.producer_id


def why(point: Path, topic: str = "t") -> Any:
    return json.loads((point / topic / "0" / "why.json").read_text())


@promise(
    "`why.json` in a partition is a JSON object that names for each segment the rule by which"
    " retention deletes it now, or what retains it, and when or after how many more bytes a rule"
    " would delete it."
)
def test_retention(tmp_path: Path, mount: Mounting) -> None:
    first, _ = write(
        tmp_path / "data", retention_ms=str(4 * HOUR_MS + HOUR_MS // 2), retention_bytes="1000000"
    )
    found = why(mount(tmp_path / "data").point)
    retention = [segment["retention"] for segment in found["segments"]]
    assert [each["rule"] for each in retention] == ["retention.ms", None, None, None, None]
    assert [each["hold"] for each in retention] == [None, *["no rule is breached"] * 4]
    assert [each["expiresAt"] for each in retention[1:]] == [
        first + number * HOUR_MS + int(4.5 * HOUR_MS) + 1 for number in range(1, 5)
    ]
    sizes = [segment["size"] for segment in found["segments"]]
    assert [each["bytesToCome"] for each in retention[1:]] == [
        1_000_000 - sum(sizes[number + 1 :]) for number in range(1, 5)
    ]
    assert found["compaction"] is None


@promise(
    'If `cleanup.policy` includes "compact", it says of each segment whether it was cleaned, can'
    " be cleaned, or is held back: as the active segment, as too young and until when, or by an"
    " open transaction and of which producer."
)
def test_compaction(tmp_path: Path, mount: Mounting) -> None:
    lag = int(3.5 * HOUR_MS)
    first, producer = write(
        tmp_path / "data", cleanup_policy="compact", min_compaction_lag_ms=str(lag)
    )
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    found = why(mount(tmp_path / "data").point)
    standing = [segment["compaction"] for segment in found["segments"]]
    assert [each["state"] for each in standing] == ["clean", "dirty", "lag", "unstable", "active"]
    assert standing[2]["cleanableAt"] == first + 2 * HOUR_MS + lag
    assert standing[3]["producerId"] == producer
    assert found["oldestTransaction"]["producerId"] == producer


@promise(
    "It then also names the dirty ratio, the ratio that cleaning requires, and for each segment"
    " the time from which cleaning deletes the next of its tombstones and transaction markers."
)
def test_ratio_and_tombstones(corpus: Callable[[str], Path], mount: Mounting) -> None:
    found = why(mount(corpus("compact-before2")).point, "cmp-tomb")
    assert 0 < found["compaction"]["dirtyRatio"] < 1
    assert found["compaction"]["minCleanableDirtyRatio"] == 0.01
    assert found["compaction"]["isEligible"] is True
    goes = {segment["compaction"]["tombstonesGoAt"] for segment in found["segments"]}
    # One pass stamped all that it retained; later records have no horizon yet.
    assert len(goes) == 2
    assert None in goes


@promise("A segment that a cleaner has made but not yet swapped in is marked as being written.")
def test_being_written(tmp_path: Path, mount: Mounting) -> None:
    write(tmp_path / "data", cleanup_policy="compact")
    (tmp_path / "data" / "t-0" / f"{0:020}.log.cleaned").write_bytes(b"half a batch")
    found = why(mount(tmp_path / "data").point)
    written = [segment["compaction"]["isBeingWritten"] for segment in found["segments"]]
    assert written == [True, False, False, False, False]
