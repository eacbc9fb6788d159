"""Requests as lines of `.kafkafs/control`, and back."""

from __future__ import annotations

import pytest

from kafkafs.mount.control.lines import (
    described,
    erasing,
    is_forwardable,
    lines_of,
    row_of,
    selecting,
    undeleting,
)
from kafkafs.mount.vfs.errnos import Invalid
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.operations.append import AppendedLines, AppendLines
from kafkafs.storage.operations.compact import Compact
from kafkafs.storage.operations.erase import Erase
from kafkafs.storage.operations.expire import Expire
from kafkafs.storage.operations.purge import Purge
from kafkafs.storage.operations.request import PartitionFailed, PartitionsRequest
from kafkafs.storage.operations.topics import ConfigureTopic, CreateTopic, DeleteTopics
from kafkafs.storage.operations.undelete import ListDeleted, Undelete
from kafkafs.storage.operations.verify import Verify

SOME = Selection.of("orders/0,payments,force")


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        (Expire(), b"expire \n"),
        (Expire(SOME, everything=True), b"expire orders/0 payments/ force/ all\n"),
        (Compact(SOME, force=True), b"compact orders/0 payments/ force/ force\n"),
        (Purge(strays=True, dry_run=True), b"purge stray dry-run\n"),
        (ListDeleted(SOME), b"deleted orders/0 payments/ force/\n"),
    ],
)
def test_what_selects_partitions(request_: PartitionsRequest, line: bytes) -> None:
    assert lines_of(request_) == [line]
    assert selecting(type(request_), line.decode().split()[1:]) == request_


@pytest.mark.parametrize(
    "request_",
    [
        Erase(SOME, keys=frozenset([b"k"])),
        Erase(SOME, keys=frozenset([b""])),
        Erase(SOME, prefix=b"\xff\n", dry_run=True),
        Erase(Selection.of("orders/0"), offset=7),
    ],
)
def test_what_erases(request_: Erase) -> None:
    (line,) = lines_of(request_)
    verb, text = line.decode().split(" ", 1)
    assert verb == "erase"
    assert erasing(text) == request_


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "needs exactly one of a key, a prefix and an offset"),
        ('{"keys": ["k"]}', "needs TOPIC or TOPIC/PARTITION"),
        ('{"partitions": ["t/x"], "keys": ["k"]}', "needs TOPIC or TOPIC/PARTITION"),
        ('{"partitions": [5], "keys": ["k"]}', "needs TOPIC or TOPIC/PARTITION"),
        ('{"partitions": ["t"], "keys": 5}', "'keys' is not one of partitions, keys, "),
        ('{"partitions": ["t"], "keys": [{"base64": "?"}]}', "a key must be a string or "),
        ('{"partitions": ["t"], "keyPrefix": {}}', "a key must be a string or "),
        ('{"partitions": ["t"], "offset": 1}', "an offset needs exactly one TOPIC/PARTITION"),
    ],
)
def test_what_erases_nothing(text: str, why: str) -> None:
    with pytest.raises(Invalid) as caught:
        erasing(text)
    assert why in str(caught.value)


def test_a_line_for_each_name() -> None:
    lines = lines_of(Undelete(Selection.of("a/1,b"), 7))
    assert lines == [b"undelete a/1 7\n", b"undelete b/ 7\n"]
    assert undeleting(["a/1", "7"]) == Undelete(Selection.of("a/1"), 7)
    assert undeleting(["b/"]) == Undelete(Selection.of("b"))
    assert lines_of(DeleteTopics(("a", "b", "a"))) == [b"delete-topic a\n", b"delete-topic b\n"]


@pytest.mark.parametrize(
    "request_",
    [
        CreateTopic("t", 3, {"flush.ms": "7"}, "id", unregistered=True),
        ConfigureTopic("t", {"flush.ms": None}),
        AppendLines("t", 1, "lines", "=", "zstd", 99, size=3, lines=5, sync=True),
    ],
)
def test_what_a_json_object_describes(
    request_: CreateTopic | ConfigureTopic | AppendLines,
) -> None:
    (line,) = lines_of(request_)
    found = line.decode().split(" ", 1)[1]
    assert described(type(request_), found) == request_


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "needs a JSON object: "),
        ("[]", "needs a JSON object"),
        ('{"tpoic": "t"}', "'tpoic' is not one of topic, partition, "),
        ('{"topic": 1}', "or has a wrong type"),
        ('{"format": "xml"}', "format must be lines or jsonl"),
        ('{"compression": "lzma"}', "compression must be none, "),
        ('{"batchSize": 0}', "batchSize must be at least 1"),
    ],
)
def test_what_describes_no_append(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        described(AppendLines, text)


@pytest.mark.parametrize("words", [[], ["a", "b", "c"], ["a", "-1"], ["a", "x"], ["a/x"]])
def test_what_cannot_be_undeleted(words: list[str]) -> None:
    with pytest.raises(Invalid):
        undeleting(words)


def test_rows() -> None:
    request = AppendLines("t", 0)
    row = AppendedLines(0, -1, -1, 4, "line 5: no")
    assert row_of(request, row.as_json()) == row
    failed = PartitionFailed("no", "UnknownTopic", "t-0")
    assert row_of(request, failed.as_json()) == failed
    assert is_forwardable(request)
    assert not is_forwardable(Verify())
