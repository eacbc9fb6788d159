"""An open `append` file, without a kernel: durability, and errors in the middle of a write."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.mount.nodes.append import AppendFile
from kafkafs.mount.vfs.errnos import Invalid
from kafkafs.mount.writes.appending import AppendHandle
from kafkafs.storage.errors import UnknownPartition
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log.append.appending import LogAppendInfo
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_manager import LogManager
from tests.mount.nodes import node_of, writable_tree
from tests.reading import read


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LogManager]:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 1)
        yield engine


def opened(engine: LogManager, name: str = "append") -> AppendHandle:
    return node_of(writable_tree(engine), f"t/0/{name}", AppendFile).open_writing(os.O_WRONLY)


def values(engine: LogManager) -> list[bytes | None]:
    return [record.value for record in read(engine.log("t", 0).view())]


def test_what_was_synced_is_below_the_recovery_point(engine: LogManager) -> None:
    handle = opened(engine)
    assert handle.write(0, b"a\nb\nc") == 5
    assert engine.writer("t", 0).recovery_point == 0
    handle.sync()
    assert engine.writer("t", 0).recovery_point == 2
    handle.flush()
    handle.close()
    assert values(engine) == [b"a", b"b", b"c"]


def test_a_partition_made_anew_under_the_same_name_is_another(engine: LogManager) -> None:
    handle = opened(engine)
    handle.write(0, b"a\nb")
    engine.delete_topic("t")
    engine.create_topic("t", 1)
    for call in (handle.flush, handle.sync, lambda: handle.write(0, b"c\n")):
        with pytest.raises(UnknownPartition):
            call()
    assert values(engine) == []


class Disk:
    """A disk that rejects appends of more than `most` records without naming one; `fails` other
    appends succeed before it is full."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int, fails: int) -> None:
        self.fails = fails
        append = LogWriter.append_records

        def limited(writer: LogWriter, records: RecordColumns) -> LogAppendInfo:
            if len(records) > most:
                from kafkafs.storage.errors import RecordListTooLarge

                raise RecordListTooLarge("too many")
            self.fails -= 1
            if self.fails < 0:
                raise OSError(errno.ENOSPC, "no space left on device")
            return append(writer, records)

        patch.setattr(LogWriter, "append_records", limited)


@pytest.mark.parametrize("begun", [b"", b"be", b"beg"])
def test_what_was_appended_before_the_disk_was_full_is_taken(
    engine: LogManager, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    handle = opened(engine)
    handle.write(0, begun)
    disk = Disk(monkeypatch, most=2, fails=2)
    data = (
        b"begun"[len(begun) :] + b"\n" + b"".join(b"%d\r\n" % number for number in range(7)) + b"x"
    )
    taken = handle.write(0, data)
    assert begun + data[:taken] == b"begun\n0\r\n1\r\n2\r\n"
    assert values(engine) == [b"begun", b"0\r", b"1\r", b"2\r"]
    data = data[taken:]
    with pytest.raises(OSError, match="no space"):
        handle.write(0, data)
    handle.flush()  # nothing of it is pending
    disk.fails = 100
    while data:
        data = data[handle.write(0, data) :]
    handle.flush()
    assert values(engine)[4:] == [b"3\r", b"4\r", b"5\r", b"6\r", b"x"]


def test_lines_before_a_bad_one_count_across_writes(engine: LogManager) -> None:
    handle = opened(engine, "append.jsonl")
    handle.write(0, b'{"value":"a"}\n{"value":"b"}\n{"val')
    for _ in range(2):
        with pytest.raises(Invalid, match=r"^t/0/append\.jsonl: line 4: invalid JSON"):
            handle.write(0, b'ue":"c"}\nx\n{"value":"d"}\n')
    for call in (handle.flush, handle.sync):
        with pytest.raises(Invalid, match="line 4"):
            call()
    handle.close()
    assert values(engine) == [b"a", b"b", b"c"]
