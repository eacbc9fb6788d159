"""Tests of `kafkafs cluster`."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of

#: Before the broker of groups43 began to shut down.
OFFSET = 529
TIME = "2026-11-23T22:53:03.475Z"


@pytest.fixture
def root(corpus: Corpus) -> Path:
    return corpus("groups43")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_summary(kafkafs: Kafkafs, root: Path) -> None:
    found = dict(map(cells, lines_of(kafkafs("cluster", "--offset", OFFSET, root))))
    assert found["STATE"] == "after offset 528 of the metadata log, 2026-11-23T22:53:03.127Z"
    assert found["CONTROLLER"] == "node 1"
    assert found["BROKERS"] == "1 (0 fenced)"
    assert found["PARTITIONS"] == "23 (0 without a leader, 0 under-replicated)"
    assert found["CONFIGS"] == (
        "16 resources (topics, brokers, groups or client metrics) have configs of their own"
    )
    assert found["USERS"] == "2 users have SCRAM credentials"
    found = dict(map(cells, lines_of(kafkafs("cluster", root))))
    assert found["PARTITIONS"] == "23 (all without a leader, all under-replicated)"
    found = dict(map(cells, lines_of(kafkafs("cluster", "--offset", 0, root))))
    assert found["STATE"] == "before the first record of the metadata log"
    assert (found["CONTROLLER"], found["PARTITIONS"], found["USERS"]) == ("unknown", "0", "0")
    (row,) = rows_of(kafkafs("cluster", "--json", "--at", TIME, root))
    assert (row["offset"], row["topics"], row["metadataVersion"]) == (OFFSET, 11, 30)


@pytest.mark.parametrize(
    ("words", "line", "row"),
    [
        (
            "topics grown",
            "grown  3  1  0  1  1  -  a4JM0f_VRYqMNUwmOadnyw  -",
            {"topic": "grown", "isInternal": False, "configs": {"compression.type": "lz4"}},
        ),
        (
            "brokers",
            "1  broker  active  -  PLAINTEXT://127.0.0.1:29192  _yKDSkBxPkp41kBBfh8fcA",
            {"node": 1},
        ),
        (
            "configs 1",
            "broker  1  max.connections.per.ip  440",
            {"resourceType": "broker", "resourceName": "1"},
        ),
        (
            "quotas",
            "client-id (default), user birch  request_percentage  200",
            {"entity": {"client-id": None, "user": "birch"}},
        ),
        (
            "quotas|user (default)",
            "user (default)  consumer_byte_rate  7654321",
            {"entity": {"user": None}},
        ),
        (
            "acls User:copper",
            "CLUSTER  kafka-cluster  LITERAL  User:copper  10.0.0.7  ALTER_CONFIGS  DENY",
            {"permission": "DENY", "principal": "User:copper"},
        ),
        (
            "users amber",
            "amber  SCRAM-SHA-512  8432 iterations",
            {"user": "amber"},
        ),
        ("features", "metadata.version  30  7 to 30", {"supported": [0, 1]}),
        ("voters", "1  yes  2  -  CONTROLLER://127.0.0.1:29193", {"voter": 1}),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_a_table_of_each_subject(
    kafkafs: Kafkafs, root: Path, words: str, line: str, row: dict[str, object]
) -> None:
    arguments = ("--offset", OFFSET, root, *words.split("|" if "|" in words else None))
    assert cells(line) in map(cells, lines_of(kafkafs("cluster", *arguments))[1:])
    first = rows_of(kafkafs("cluster", "--json", *arguments))[0]
    assert {name: first[name] for name in row} == row


def test_the_log(kafkafs: Kafkafs, root: Path, cut_off: Path) -> None:
    lines = lines_of(kafkafs("cluster", "log", root))
    assert "     421  2026-11-23T22:52:15.335Z  topic doomed deleted, with 2 partitions" in lines
    assert lines == lines_of(kafkafs("cluster", root, "log"))
    row = rows_of(kafkafs("cluster", "log", "--json", "--at", TIME, root))[-1]
    assert (row["offset"], row["change"], row["set"]) == (
        485, "configsChanged", {"retention.ms": "-1"}
    )  # fmt: skip
    first = lines_of(kafkafs("cluster", "log", cut_off))[0]
    assert "changes before offset 433 are only known as their sum" in first


@pytest.fixture
def cut_off(writable_corpus: Corpus) -> Path:
    """Makes a directory whose metadata log ends where its newest snapshot does."""
    path = writable_corpus("groups43")
    log = path / "__cluster_metadata-0"
    for file in log.glob("00000000000000000000.*"):
        file.unlink()
    (log / "00000000000000000433.log").touch()
    return path


def test_an_empty_table_is_explained(kafkafs: Kafkafs, root: Path, cut_off: Path) -> None:
    for subject, what in (
        ("topics", "kafkafs: the cluster had no topics\n"),
        ("users", "kafkafs: the cluster had no users with SCRAM credentials, and no delegation"),
        ("voters", "kafkafs: the metadata log does not name the voters of that time, and quorum"),
    ):
        found = kafkafs("cluster", "--offset", 0, root, subject)
        assert (found.exit_code, found.stdout) == (0, "")
        assert found.stderr.startswith(what)
    assert cells(lines_of(kafkafs("cluster", cut_off, "voters"))[1])[:3] == ["1", "yes", "2"]


def test_what_cannot_be_shown_is_named_with_what_can(
    kafkafs: Kafkafs, root: Path, cut_off: Path, corpus: Corpus
) -> None:
    error = stderr_of(kafkafs("cluster", "--offset", 3, cut_off))
    assert "the state of the cluster at offset 3 is unknown: the log and its snapshots" in error
    assert "reach from offset 433 (2026-11-23T22:52:18.082Z) to 433" in error
    assert "there are earlier snapshots at offset 168" in error
    assert lines_of(kafkafs("cluster", "--offset", 168, cut_off, "users"))[-1].startswith("temp")
    error = stderr_of(kafkafs("cluster", "--at", "2020-01-01", root, "topics"))
    assert "at 2020-01-01T00:00:00.000Z is unknown: the log and its snapshots reach from" in error
    error = stderr_of(kafkafs("cluster", root, "topics", "mein"))
    assert error == "kafkafs: the topics of the cluster include no mein; did you mean main?\n"
    error = stderr_of(kafkafs("cluster", root, "quotas", "birch"))
    assert "the quotas of the cluster include no birch; there are" in error
    assert ", user birch, client-id birch, " in error
    assert "no __cluster_metadata-0" in stderr_of(kafkafs("cluster", corpus("kafka28")))
    error = stderr_of(kafkafs("cluster", root, "topic"), 2)
    assert "'topic' is not one of topics, brokers, configs" in error
    assert stderr_of(kafkafs("cluster", "--offset", 3, root, "log"), 2)


def test_a_name_makes_neither_lines_nor_colours(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    """Even in a pipe: `cluster log | grep` finds one line for each change."""
    root = writable_corpus("groups43")
    name, value = b"a\n\x1b[31m", b"1 topic x deleted\n"
    config = bytes([1, 4, 0, 4, len(name) + 1]) + name + b"\2n" + bytes([len(value) + 1]) + value
    append(root, config + b"\0")
    (line,) = lines_of(kafkafs("cluster", root, "configs", name.decode()))[1:]
    assert line == r"broker    a\n\x1b[31m  n       1 topic x deleted\n"
    assert lines_of(kafkafs("cluster", "log", root))[-1].endswith(
        r"configs of broker a\n\x1b[31m: n=1 topic x deleted\n set"
    )


def test_an_ipv6_address_and_a_quota_that_is_no_number(
    kafkafs: Kafkafs, writable_corpus: Corpus
) -> None:
    root = writable_corpus("groups43")
    endpoint = b"\2" + b"\2S" + b"\4::1" + b"\0\x09" + b"\0\1" + b"\0"
    broker = b"\1\0\0" + b"\0\0\0\7" + bytes(24) + endpoint + b"\1" + b"\0" + b"\0" + b"\0"
    entity = b"\2" + b"\5user" + b"\2z" + b"\0"
    quota = b"\1\x0e\0" + entity + b"\2q" + struct.pack(">d", float("nan")) + b"\0" + b"\0"
    append(root, broker, quota)
    assert "S://[::1]:9" in lines_of(kafkafs("cluster", root, "brokers", "7"))[1]
    arguments = (root, "quotas", "user z")
    assert lines_of(kafkafs("cluster", *arguments))[1].split() == ["user", "z", "q", "NaN"]
    (line,) = lines_of(kafkafs("cluster", "--json", *arguments))
    assert json.loads(line, parse_constant=pytest.fail)["quotas"] == {"q": "NaN"}


def append(root: Path, *values: bytes) -> None:
    """Appends records to the metadata log of groups43."""
    batch = build_batch([SimpleRecord(value=each) for each in values], BatchFields(base_offset=555))
    with (root / "__cluster_metadata-0" / f"{0:020}.log").open("ab") as log:
        log.write(batch)


def test_a_directory_called_log(
    kafkafs: Kafkafs, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").symlink_to(root)
    rows = rows_of(kafkafs("cluster", "--json", "log", "voters"))
    assert [row["voter"] for row in rows] == [1]
    assert json.loads(kafkafs("cluster", "--json", "log", "log").stdout.splitlines()[0])["text"]
