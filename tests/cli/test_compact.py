"""Tests of `kafkafs compact`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kafkafs as package
from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.files.checkpoints import parse_offsets
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of, stdout_of
from tests.conftest import differences, fingerprint
from tests.reading import read

# A time in the past, so that records a day older have expired whenever the test runs.
THEN = 1_700_000_000_000
DAY_MS = 86_400_000
# When Kafka's cleaner cleaned compact-before2 (pairs.json).
PHASE_4 = 1_795_249_053_452
SETTINGS = {
    "internal.segment.bytes": "1000",
    "segment.ms": str(10_000 * DAY_MS),
    "min.cleanable.dirty.ratio": "0.5",
    "retention.ms": "-1",
}


def append(engine: LogManager, topic: str, *keys: bytes, tombstones: bool = False) -> None:
    """Appends one batch per key."""
    for key in keys:
        value = None if tombstones else bytes(100)
        record = SimpleRecord(engine.clock.now_ms(), key, value)
        engine.writer(topic, 0).append_records(RecordColumns.from_records([record]), BatchPlan())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Compacted topics `a` and `b`, of which `b` was cleaned, and `plain`, not compacted."""
    with LogManager(str(tmp_path / "data"), clock=SetClock(THEN)) as engine:
        for topic in ("a", "b"):
            engine.create_topic(topic, 1, {"cleanup.policy": "compact", **SETTINGS})
        engine.create_topic("plain", 1, SETTINGS)
        append(engine, "b", *[b"%d" % number for number in range(60)])
        engine.run("cleaner")
        append(engine, "b", *[b"more"] * 6)
        append(engine, "a", *[b"k", b"l"] * 20)
        append(engine, "plain", *[b"k"] * 20)
    return tmp_path / "data"


def offsets(data: Path, topic: str) -> list[int]:
    return [each.offset for each in read(Engine(str(data)).log(topic, 0).view())]


def contents(partition: Path) -> dict[str, bytes]:
    """Returns the files of a partition, except those scheduled for deletion."""
    return {path.name: path.read_bytes() for path in partition.glob("*[!d]")}


def test_a_compaction(kafkafs: Kafkafs, data: Path) -> None:
    foretold = kafkafs("compact", "-n", data)
    before = contents(data / "b-0")
    text = stdout_of(kafkafs("compact", data))
    assert text == foretold.stdout
    table = [" ".join(line.split()) for line in text.splitlines()]
    stays = "2 newest of their keys, 5 in the active segment"
    assert table == [
        "TOPIC PARTITION SEGMENTS AFTER RECORDS AFTER BYTES AFTER DISCARDED RETAINED",
        f"a 0 8 8 40 7 6840 1197 33 superseded {stays}",
    ]
    assert offsets(data, "a") == [33, 34, *range(35, 40)]
    assert len(offsets(data, "plain")) == 20
    assert parse_offsets((data / "cleaner-offset-checkpoint").read_bytes())["a", 0] == 35
    assert contents(data / "b-0") == before
    assert kafkafs("verify", data).exit_code == 0
    again = kafkafs("compact", data)
    assert (again.exit_code, again.output) == (0, "")


def test_what_is_not_due_is_told_and_forced(kafkafs: Kafkafs, data: Path) -> None:
    a, b = kafkafs("compact", "-n", "--all", "-h", data).stdout.splitlines()[1:]
    assert "6.7K   1.2K  33 superseded  " in a
    assert b.split("  ")[-2] == "not due: dirty ratio 0.15, must exceed 0.50"
    assert b.split("  ")[-1] == "66 not cleaned"
    (row,) = rows_of(kafkafs("compact", "-n", "-a", "--json", data, "b"))
    assert (row["isEligible"], row["isOverdue"], row["passes"]) == (False, False, 0)
    assert row["bytes"]["before"] == row["bytes"]["after"]
    assert rows_of(kafkafs("compact", data, "b/0", "--json")) == []
    foretold = rows_of(kafkafs("compact", "-n", "--force", data, "b/0", "--json"))
    done = rows_of(kafkafs("compact", "--force", data, "b/0", "--json"))
    assert done == foretold
    assert done[0]["gone"] == {
        "superseded": done[0]["records"]["before"] - done[0]["records"]["after"],
        "tombstone": 0,
        "aborted": 0,
        "keyless": 0,
        "expired": 0,
    }
    assert done[0]["bytes"]["after"] < done[0]["bytes"]["before"]
    rest = kafkafs("compact", "--force", "--all", data, "b").stdout.splitlines()[1]
    assert "  nothing to clean  " in rest


def test_a_dry_run_beside_who_writes(kafkafs: Kafkafs, data: Path) -> None:
    with LogManager(str(data), clock=SetClock(THEN)):
        before = fingerprint(data)
        assert len(rows_of(kafkafs("compact", "-n", data, "--json"))) == 1
        assert differences(before, fingerprint(data)) == []
        assert "stop that process, or open" in stderr_of(kafkafs("compact", data))


def test_tombstones_at_another_time(kafkafs: Kafkafs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LogManager(str(data), clock=SetClock(THEN)) as engine:
        settings = {"cleanup.policy": "compact", **SETTINGS, "delete.retention.ms": str(DAY_MS)}
        engine.create_topic("t", 1, settings)
        append(engine, "t", *[b"%d" % number for number in range(10)])
        append(engine, "t", *[b"%d" % number for number in range(9)], tombstones=True)
        append(engine, "t", *[b"%d" % number for number in range(20, 40)])
        engine.run("cleaner")
        append(engine, "t", *[b"%d" % number for number in range(50, 90)])

    def tombstones(*words: str) -> int:
        (row,) = rows_of(kafkafs("compact", "-n", "--json", data, "-f", *words))
        assert sum(row["stays"].values()) == row["records"]["after"]
        assert row["stays"].get("tombstone", 0) + row["gone"]["tombstone"] == 9
        return int(row["gone"]["tombstone"])

    assert tombstones("--at", str(THEN + DAY_MS - 1)) == 0
    assert tombstones("--at", str(THEN + DAY_MS)) == 9
    assert tombstones("--at", "2024-01-01") == 9


def test_what_expires(kafkafs: Kafkafs, data: Path) -> None:
    words = [data, "a", "-c", "cleanup.policy=compact,delete", "-c", f"retention.ms={DAY_MS}"]
    for more in ([], ["-c", "min.cleanable.dirty.ratio=1"]):
        (row,) = rows_of(kafkafs("compact", "-n", "--json", *words, *more))
        assert row["gone"]["expired"] == 40
    (done,) = rows_of(kafkafs("compact", "--json", *words))
    assert (done["gone"], done["records"]) == (row["gone"], row["records"])
    assert offsets(data, "a") == []
    text = kafkafs("compact", "-n", data, "b", *words[2:]).stdout
    assert "66 expired, " in text


def test_damage_in_one_log_holds_up_no_other(kafkafs: Kafkafs, data: Path) -> None:
    log = data / "b-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[80] ^= 1
    log.write_bytes(damaged)
    before = contents(data / "b-0")
    for words in (["-n"], []):
        result = kafkafs("compact", "--force", "--json", data, *words)
        assert result.exit_code == 1
        assert [json.loads(line)["topic"] for line in result.stdout.splitlines()] == ["a"]
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"kafkafs: b-0: {log}: position 0: ")
    assert contents(data / "b-0") == before
    assert parse_offsets((data / "cleaner-offset-checkpoint").read_bytes())["a", 0] == 35


@pytest.mark.parametrize("words", [[], ["-n"]])
def test_what_is_not_compacted(kafkafs: Kafkafs, data: Path, words: list[str]) -> None:
    problem = stderr_of(kafkafs("compact", data, "plain", *words))
    assert problem == 'kafkafs: plain-0: cleanup.policy does not include "compact"\n'
    lines = lines_of(kafkafs("compact", data, "plain", "-c", "cleanup.policy=compact", *words))
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--at", "5"], 2, "--at requires --dry-run"),
        (["-n", "--at", "soon"], 2, "'soon' is not a time: milliseconds since 1970 or ISO 8601"),
        (["nothing"], 1, "no topic nothing"),
        (["a/1"], 1, "a has no partition 1"),
        (["a/x"], 2, "'a/x' is not TOPIC/PARTITION"),
        (["-c", "log.cleaner.dedupe.buffer.size=10"], 2, "log.cleaner.dedupe.buffer.size"),
    ],
)
def test_wrong_usage(kafkafs: Kafkafs, data: Path, words: list[str], code: int, line: str) -> None:
    assert line in stderr_of(kafkafs("compact", data, *words), code)


def test_a_brokers_logs(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    """A dry run reports exactly what the real run removes."""
    root = writable_corpus("compact-before2")
    topics = ["cmp-tomb", "cmp-txn-short", "cmp-producers"]
    (lag,) = rows_of(
        kafkafs("compact", "-n", root, "cmp-lag", "--at", "2026-11-21T20:00:00Z", "--json")
    )
    assert lag["stays"].keys() == {"newest", "tombstone", "lag", "active"}
    then = rows_of(kafkafs("compact", "-n", root, *topics, "--json", "--at", PHASE_4))
    assert [row["gone"]["tombstone"] for row in then] == [1, 0, 0]
    foretold = rows_of(kafkafs("compact", "-n", root, *topics, "--json"))
    done = rows_of(kafkafs("compact", root, *topics, "--json"))
    assert [row["topic"] for row in done] == topics
    # A delete horizon that is set a second later may be encoded a byte longer or shorter.
    sizes = [{**row, "bytes": row["bytes"]["before"]} for row in done]
    assert sizes == [{**row, "bytes": row["bytes"]["before"]} for row in foretold]
    assert done[1]["gone"]["aborted"] == 103
    for row in done:
        gone = row["records"]["before"] - row["records"]["after"]
        assert sum(row["gone"].values()) == gone > 0
        assert sum(row["stays"].values()) == row["records"]["after"]
        assert row["stays"].keys() <= {"newest", "tombstone", "active"}
    assert rows_of(kafkafs("compact", root, *topics, "--json")) == []


def test_the_keys_that_stay(kafkafs: Kafkafs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LogManager(str(data), clock=SetClock(THEN)) as engine:
        settings = {"cleanup.policy": "compact", **SETTINGS, "delete.retention.ms": str(DAY_MS)}
        engine.create_topic("t", 1, settings)
        append(engine, "t", *[b"a", b"b", b"\xff", b"a"], b"b")
        append(engine, "t", b"gone", b"gone", tombstones=True)
        append(engine, "t", *[b"a", b"a", b"a\tb"], *[b"c"] * 5)
    words = ["compact", "-n", "-k", "--at", str(THEN + 5), data, "t/0"]
    before = fingerprint(data)
    assert kafkafs(*words).stdout.splitlines() == [
        "0xff\t2\tnewest of its key",
        "b\t4\tnewest of its key",
        "gone\t6\ttombstone until 2023-11-15T22:13:20.005Z",
        "a\t8\tnewest of its key",
        "a\\tb\t9\tnewest of its key",
        "c\t14\tin the active segment",
    ]
    found = rows_of(kafkafs(*words, "--json"))
    assert found[0] == {"key": {"base64": "/w=="}, "offset": 2, "stays": "newest", "until": None}
    assert found[2]["until"] == THEN + 5 + DAY_MS
    assert found[5] == {"key": "c", "offset": 14, "stays": "active", "until": None}
    assert differences(before, fingerprint(data)) == []
    # Once a pass has set the delete horizon, it does not change.
    with LogManager(str(data), clock=SetClock(THEN + 7)) as engine:
        engine.run("cleaner")
    assert rows_of(kafkafs(*words, "--json"))[2]["until"] == THEN + 7 + DAY_MS


@pytest.mark.parametrize("words", [["a/0"], ["-n"], ["-n", "a"], ["-n", "a/0", "b/0"]])
def test_keys_of_one_partition_only(kafkafs: Kafkafs, data: Path, words: list[str]) -> None:
    problem = stderr_of(kafkafs("compact", "--keys", data, *words), 2)
    assert "--keys requires --dry-run and exactly one TOPIC/PARTITION" in problem


def test_nothing_to_compact_is_said(kafkafs: Kafkafs, tmp_path: Path) -> None:
    with package.open(tmp_path / "data", writable=True) as directory:
        directory.create_topic("a", 1, {"cleanup.policy": "compact"})
    problem = stderr_of(kafkafs("compact", "--dry-run", "--force", tmp_path / "data"), 0)
    assert problem == "kafkafs: nothing to compact: no record would be discarded\n"
