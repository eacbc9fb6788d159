"""Tests of `kafkafs expire`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.results import Corpus, Kafkafs, rows_of, stderr_of, stdout_of
from tests.conftest import differences, fingerprint

# A time in the past, so that records a day older have expired whenever the test runs.
THEN = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic a with segments 0, 1, 2 of one record each, an hour apart; topic b with one."""
    clock = SetClock(THEN)
    settings = {"segment.ms": "1000", "retention.ms": "-1"}
    with LogManager(str(tmp_path / "data"), clock=clock) as engine:
        for topic in ("a", "b"):
            engine.create_topic(topic, configs=settings)
        for topic in "aaab":
            records = RecordColumns.from_values([b"v"], timestamp=clock.now_ms())
            engine.writer(topic, 0).append_records(records)
            clock.advance(3_600_000)
    return tmp_path / "data"


def bases(data: Path, name: str) -> list[int]:
    return sorted(int(path.stem) for path in (data / name).glob("*.log"))


def test_nothing_to_do(kafkafs: Kafkafs, data: Path) -> None:
    for words in ([], ["--dry-run"]):
        result = kafkafs("expire", data, *words)
        assert (result.exit_code, result.output) == (0, "")
    assert bases(data, "a-0") == [0, 1, 2]


def test_a_pass(kafkafs: Kafkafs, data: Path) -> None:
    size = (data / "a-0" / f"{0:020}.log").stat().st_size
    text = stdout_of(kafkafs("expire", data, "-c", f"retention.bytes={2 * size}"))
    assert text == (
        "TOPIC  PARTITION  SEGMENT  SIZE         LARGEST TIMESTAMP  DELETED BY\n"
        f"a              0        0  {size:4}  2023-11-14T22:13:20.000Z  retention.bytes\n"
    ).replace("         LARGEST TIMESTAMP", "  LARGEST TIMESTAMP       ")
    assert bases(data, "a-0") == [1, 2]
    assert Engine(str(data)).log("a", 0).view().start_offset == 1
    assert kafkafs("verify", data).exit_code == 0


def test_all_of_a_partition(kafkafs: Kafkafs, data: Path) -> None:
    found = rows_of(kafkafs("expire", data, "a", "-c", "retention.ms=1", "--json"))
    assert [(row["topic"], row["baseOffset"], row["rule"]) for row in found] == [
        ("a", base, "retention.ms") for base in range(3)
    ]
    view = Engine(str(data)).log("a", 0).view()
    assert (view.start_offset, view.end_offset) == (3, 3)
    assert bases(data, "b-0") == [0]  # was not selected


def test_a_dry_run_changes_nothing_and_says_why(kafkafs: Kafkafs, data: Path) -> None:
    before = fingerprint(data)
    time = THEN + 3_600_000 + DAY_MS
    found = rows_of(
        kafkafs(
            "expire", "-n", "--all", "--at", time, data, "-c", f"retention.ms={DAY_MS}", "--json"
        )
    )
    assert [(row["topic"], row["baseOffset"], row["rule"], row["hold"]) for row in found] == [
        ("a", 0, "retention.ms", None),
        ("a", 1, None, "no rule is breached"),
        ("a", 2, None, "no rule is breached"),
        ("b", 0, None, "no rule is breached"),
    ]
    assert found[1]["expiresAt"] == time + 1
    text = kafkafs("expire", "-n", "--all", "--at", time, data, "-c", f"retention.ms={DAY_MS}")
    assert "retained: no rule is breached; expires at 2023-11-15T23:13:20.001Z" in text.stdout
    assert differences(before, fingerprint(data)) == []


def test_the_time_as_people_write_it(kafkafs: Kafkafs, data: Path) -> None:
    words = ["expire", "-n", data, "-c", f"retention.ms={DAY_MS}", "--json", "--at"]
    assert rows_of(kafkafs(*words, "2023-11-14")) == []
    assert len(rows_of(kafkafs(*words, "2024-01-01T00:00:00Z"))) == 4


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--at", "5"], 2, "--at requires --dry-run"),
        (["-n", "--at", "soon"], 2, "'soon' is not a time: milliseconds since 1970 or ISO 8601"),
        (["nothing"], 1, "no topic nothing"),
        (["a/1"], 1, "a has no partition 1"),
        (["a/x"], 2, "'a/x' is not TOPIC/PARTITION"),
        (["a/0/0"], 2, "'a/0/0' is not TOPIC/PARTITION"),
    ],
)
def test_wrong_usage(kafkafs: Kafkafs, data: Path, words: list[str], code: int, line: str) -> None:
    assert line in stderr_of(kafkafs("expire", data, *words), code)


def test_a_brokers_directory(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    """A dry run reports what the real run deletes; the metadata quorum's log is excluded."""
    root = writable_corpus("kafka43-clean")
    words = [root, "-c", "retention.ms=1000", "--json"]
    foretold = rows_of(kafkafs("expire", "-n", *words))
    done = rows_of(kafkafs("expire", *words))
    assert done == foretold
    assert {row["topic"] for row in done} & {"orders", "trimmed", "txn"}
    assert "__cluster_metadata" not in {row["topic"] for row in done}
    assert {row["rule"] for row in done if row["topic"] == "trimmed"} >= {"retention.ms"}
    # Retention by time does not apply to compacted topics.
    assert "compacted" not in {row["topic"] for row in done}
    assert rows_of(kafkafs("expire", *words)) == []
