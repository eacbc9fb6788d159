"""Tests that errors print as one line and can be pickled."""

from __future__ import annotations

import pickle
import re

import pytest

from kafkafs.storage import errors
from kafkafs.storage.errors import (
    ConfigError,
    CorruptError,
    LogDirError,
    OffsetNotFound,
    PartitionNotOpened,
    SegmentGone,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from kafkafs.storage.wording import printable

ERRORS = [
    (CorruptError("bad CRC", "/d/t-0/0.log", 61), "/d/t-0/0.log: position 61: bad CRC"),
    (CorruptError("bad CRC"), "bad CRC"),
    (OffsetNotFound(7, "no record at offset 7"), "no record at offset 7"),
    (UnknownTopic("t"), "no topic t"),
    (UnknownTopic("ordres", ("orders",)), "no topic ordres; did you mean orders?"),
    (
        UnknownTopic("t", (), ("t-3.a-stray/3",)),
        "no topic t; a broker set its partitions aside as stray, read them as t-3.a-stray/3",
    ),
    (UnknownPartition("t", 3), "t has no partition 3"),
    (UnknownPartition("t", 3, (0, 1, 2, 5)), "t has no partition 3 (it has 0 to 2, 5)"),
    (PartitionNotOpened("t", 3, "a FIFO"), "t-3 could not be opened for writing: a FIFO"),
    (LogDirError("/d", "no such directory"), "/d: no such directory"),
    (SegmentGone("/d/t-0/0.log"), "/d/t-0/0.log: the file was removed or replaced"),
    (ConfigError("segment.bytes", "0 is not at least 14"), "segment.bytes: 0 is not at least 14"),
]


@pytest.mark.parametrize(("error", "line"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_is_one_line_that_says_what_and_where(error: StorageError, line: str) -> None:
    assert str(error) == line


@pytest.mark.parametrize(("error", "line"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_pickles_with_its_attributes(error: StorageError, line: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), line, vars(error))


def test_a_corrupt_error_is_located_by_the_caller_that_knows_the_file() -> None:
    located = CorruptError("bad varint", position=9).at("/d/t-0/0.log", 1000)
    assert (located.file, located.position, located.what) == ("/d/t-0/0.log", 1009, "bad varint")
    assert CorruptError("short").at("/f").position == 0


def test_no_name_can_break_the_line_or_reach_the_terminal() -> None:
    hostile = b"a\nb\x1b[2J\xff\xe2\x80\xae".decode("utf-8", "surrogateescape")
    assert printable(hostile) == r"a\nb\x1b[2J\xff\u202e"
    assert str(SegmentGone(hostile)).isprintable()
    printable(hostile).encode("utf-8")


def test_the_tree_of_errors_has_every_class() -> None:
    found = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.StorageError)
    }
    assert found - set(re.findall(r"\w+", errors.__doc__ or "")) == set()
