"""Tests the file of decided transactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.files.names import is_legal_topic
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.transactions.decisions import (
    TRANSACTIONS_FILE,
    Decision,
    TransactionLog,
    format_decisions,
    parse_decisions,
    read_decisions,
)

ONE = Decision(2**61 + 5, 7, (("orders", 0), ("payments", 2)))
OTHER = Decision(2**61 + 9, 0, (("orders", 1),))
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(is_legal_topic)
DECISIONS = st.builds(
    Decision,
    st.integers(2**61, 2**62 - 1),
    st.integers(0, 2**15 - 1),
    st.lists(st.tuples(TOPICS, st.integers(0, 9999)), min_size=1, max_size=4).map(tuple),
)


@given(st.lists(DECISIONS, max_size=5, unique_by=lambda one: (one.producer_id, one.producer_epoch)))
def test_decisions_are_read_as_they_were_written(decisions: list[Decision]) -> None:
    assert parse_decisions(format_decisions(decisions)) == decisions


def test_how_the_file_looks() -> None:
    assert format_decisions([ONE]).decode() == (
        "0\n2305843009213693957 7 orders 0\n2305843009213693957 7 payments 2\n"
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "line 1: not version 0"),
        (b"1\n", "line 1: not version 0"),
        (b"0\n1 2 orders\n", "line 2: must be producer id, epoch, topic"),
        (b"0\n1 2 orders 0\nx 2 orders 0\n", "line 3"),
        (b"0\n1 2 orders 0 0\n", "line 2"),
        (b"0\n\xff\xff\n", "line 2"),
        (b"0\n%d 2 orders 0\n" % 2**63, "line 2"),
        (b"0\n-1 2 orders 0\n", "line 2"),
        (b"0\n1 32768 orders 0\n", "line 2"),
        (b"0\n1 2 ../x 0\n", "line 2.*move the file away"),
        (b"0\n1 2 orders %d\n" % 2**31, "line 2"),
    ],
)
def test_what_is_no_such_file(data: bytes, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        parse_decisions(data)


def test_what_is_noted_is_there_for_who_comes_next(tmp_path: Path) -> None:
    directory = WritableDirFd(str(tmp_path))
    assert read_decisions(directory) == []
    log = TransactionLog(lambda: [directory])
    log.note(ONE)
    log.note(OTHER)
    assert read_decisions(DirFd(str(tmp_path))) == [ONE, OTHER]
    log.finished(ONE)
    third = Decision(OTHER.producer_id, 1, (("orders", 1),))
    log.note(third)
    assert read_decisions(directory) == [OTHER, third]


def test_the_next_directory_takes_what_the_first_does_not(tmp_path: Path) -> None:
    directories = [WritableDirFd(str(tmp_path / name)) for name in ("gone", "there")]
    (tmp_path / "there").mkdir()
    TransactionLog(lambda: directories).note(ONE)
    assert read_decisions(directories[1]) == [ONE]


def test_a_decision_that_no_directory_takes_is_none(tmp_path: Path) -> None:
    live = [WritableDirFd(str(tmp_path / "gone"))]
    log = TransactionLog(lambda: live)
    with pytest.raises(OSError, match="gone"):
        log.note(ONE)
    live[:] = [WritableDirFd(str(tmp_path))]
    log.note(OTHER)
    assert read_decisions(live[0]) == [OTHER]
    live.clear()
    with pytest.raises(OSError, match="no log directory is online"):
        log.note(ONE)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / TRANSACTIONS_FILE).write_bytes(b"0\nwhat\n")
    with pytest.raises(CorruptError, match=r"kafkafs\.transactions: position 2: line 2"):
        read_decisions(DirFd(str(tmp_path)))
