"""Tests of `kafkafs why`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.cli.results import Corpus, Kafkafs, lines_of, stderr_of, stdout_of
from tests.conftest import differences, fingerprint

THEN = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t with five segments of one record each, an hour apart; one record belongs to an open
    transaction."""
    clock = SetClock(THEN)
    settings = {"segment.ms": "1000", "cleanup.policy": "compact"}
    with LogManager(str(tmp_path / "data"), clock=clock) as engine:
        engine.create_topic("t", configs=settings)
        producer = TransactionalProducer(engine)
        for number in range(5):
            records = RecordColumns.from_values([b"v"], keys=[b"k"], timestamp=clock.now_ms())
            if number == 3:
                producer.begin()
                producer.append("t", 0, records)
            else:
                engine.writer("t", 0).append_records(records)
            clock.advance(3_600_000)
    return tmp_path / "data"


def test_a_table(kafkafs: Kafkafs, data: Path) -> None:
    lag = "min.compaction.lag.ms=10800000"
    lines = lines_of(kafkafs("why", data, "t/0", "--at", THEN + 4 * 3_600_000, "-c", lag))
    first, cleaner, transaction, head, *rows = lines
    assert first == "t/0: offsets 0 to 5, cleanup.policy compact"
    assert "is eligible for cleaning now: dirty ratio 1.0000, must exceed 0.5" in cleaner
    assert "first dirty offset 0, first uncleanable offset 2" in cleaner
    assert "from offset 3, started about 2023-11-15T01:13:20.000Z" in transaction
    assert head.split("  ")[-1] == "DELETE HORIZON"
    cells = [[cell for cell in row.split("  ") if cell] for row in rows]
    producer = transaction.split()[4]
    assert [row[4].strip() for row in cells] == [
        "dirty",
        "dirty",
        "held back: it has records younger than min.compaction.lag.ms;"
        " until 2023-11-15T03:13:20.000Z",
        f"held back: it reaches above the last stable offset; producer {producer}",
        "held back: it is the active segment",
    ]
    assert {row[3].strip() for row in cells} == {"retained: cleanup.policy does not include delete"}


def test_a_log_that_is_only_deleted_from(kafkafs: Kafkafs, data: Path) -> None:
    words = ["-c", "cleanup.policy=delete", "-c", "retention.ms=3600000"]
    result = kafkafs("why", data, "t/0", "--at", THEN + 2 * 3_600_000, *words)
    assert "cleaner:" not in result.stdout
    _, head, *rows = result.stdout.splitlines()  # the transaction began later
    assert head.endswith("RETENTION")
    assert rows[0].endswith("expired: retention.ms")
    assert rows[1].endswith("retained: no rule is breached; expires at 2023-11-15T00:13:20.001Z")


def test_json_is_why_json(kafkafs: Kafkafs, corpus: Corpus) -> None:
    root = corpus("compact-after")
    before = fingerprint(root)
    found = json.loads(stdout_of(kafkafs("why", root, "cmp-tomb/0", "--json")))
    file = json.loads(kafkafs("cat", root, "cmp-tomb/0/why.json").stdout)
    assert found.pop("at") <= file.pop("at")
    assert found == file
    assert differences(before, fingerprint(root)) == []


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["t"], 2, "'t' is not TOPIC/PARTITION"),
        (["t/1"], 1, "t has no partition 1 (it has 0)"),
        (["u/0"], 1, "no topic u"),
        (["t/0", "--at", "soon"], 2, "'soon' is not a time: milliseconds since 1970 or ISO 8601"),
    ],
)
def test_wrong_usage(kafkafs: Kafkafs, data: Path, words: list[str], code: int, line: str) -> None:
    assert line in stderr_of(kafkafs("why", data, *words), code)
