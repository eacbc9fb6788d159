"""Tests the aborted transactions of a segment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.txn_index import ENTRY, AbortedTxn, TransactionIndex

NAME = "00000000000000000000.txnindex"
VECTOR = bytes.fromhex("000000000000000003e8000000000000006e00000000000000730000000000000074")


def write(path: Path, data: bytes) -> TransactionIndex:
    (path / NAME).write_bytes(data)
    return TransactionIndex.open(DirFd(str(path)), NAME)


def test_an_entry_that_kafka_wrote(tmp_path: Path) -> None:
    assert list(write(tmp_path, VECTOR).entries()) == [AbortedTxn(1000, 110, 115, 116)]


def test_a_short_tail_is_ignored(tmp_path: Path) -> None:
    index = write(tmp_path, VECTOR * 3 + VECTOR[:33])
    assert len(index) == len(list(index.entries())) == 3


def test_many_entries_are_read_in_blocks_and_from_any_number(tmp_path: Path) -> None:
    index = write(tmp_path, b"".join(ENTRY.pack(0, 1, n, n, n) for n in range(5000)))
    assert [entry.first_offset for entry in index.entries()] == list(range(5000))
    assert [entry.first_offset for entry in index.entries(first=4990)] == list(range(4990, 5000))
    assert list(index.entries(first=5000)) == []


def test_growth_is_seen_by_the_next_call(tmp_path: Path) -> None:
    index = write(tmp_path, VECTOR)
    with (tmp_path / NAME).open("ab") as broker:
        broker.write(VECTOR)
    assert len(list(index.entries())) == 2


def test_a_later_version_is_refused_with_its_place(tmp_path: Path) -> None:
    index = write(tmp_path, VECTOR + b"\1" + VECTOR[1:])
    entries = index.entries()
    assert next(entries).producer_id == 1000
    with pytest.raises(
        CorruptError, match=r"txnindex: position 34: aborted transaction of version 1"
    ):
        next(entries)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_entries_or_corrupt(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    index = write(tmp_path_factory.getbasetemp(), data)
    versions = data[: len(data) // 34 * 34 : 34]
    if any(0 < version < 128 for version in versions):  # a signed byte, as in Java
        with pytest.raises(CorruptError):
            list(index.entries())
    else:
        assert len(list(index.entries())) == len(versions)
