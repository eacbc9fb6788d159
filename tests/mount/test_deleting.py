"""Deleting through the tree: what may precede the first visible record, and disk faults."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from kafkafs.mount.nodes.member import MemberDirectory
from kafkafs.mount.options import MountOptions
from kafkafs.mount.partition import MountedPartition
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NotPermitted
from kafkafs.mount.writes.changes import Changes
from kafkafs.storage.errors import LogDirOffline, OffsetNotFound
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.faults import FailingCalls, RecordingCalls, crash_states

_PID = 77
_SEGMENTS, _EACH = 3, 10


class Writable:
    """The tree of a writable mount, without the mount."""

    def __init__(self, root: Path, isolation: Isolation = Isolation.READ_COMMITTED) -> None:
        self.engine = LogManager(str(root))
        options = MountOptions(isolation=isolation, writable=True)
        self.changes = Changes(self.engine, options)
        self.tree = Tree(self.engine, options, changes=self.changes)

    def create(self) -> LogWriter:
        self.engine.create_topic("t", configs={"retention.ms": "-1"})
        return self.engine.writer("t", 0)

    @property
    def partition(self) -> MountedPartition:
        return self.tree.catalog.partition("t", 0)

    @property
    def is_emptied(self) -> bool:
        return self.changes.deletions.is_emptied(self.partition)

    def directory(self, path: str) -> MemberDirectory:
        node = self.tree.resolve(path)
        assert isinstance(node, MemberDirectory)
        return node

    def remove(self, name: str) -> None:
        self.directory("t/0/offset").remove(name, _PID)

    def close(self) -> None:
        self.changes.close()
        self.engine.close()


@pytest.fixture
def writable(tmp_path: Path) -> Iterator[Writable]:
    mount = Writable(tmp_path / "data")
    yield mount
    mount.close()


@pytest.fixture
def uncommitted(tmp_path: Path) -> Iterator[Writable]:
    mount = Writable(tmp_path / "data", Isolation.READ_UNCOMMITTED)
    yield mount
    mount.close()


def fill(writer: LogWriter) -> None:
    for segment in range(_SEGMENTS):
        if segment:
            writer.roll()
        writer.append_records(RecordColumns.from_values([b"v" * 100] * _EACH))


_TRANSACTION = BatchPlan(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)


def begin(writer: LogWriter, sequence: int = 0) -> None:
    """Appends two records of a transaction."""
    plan = replace(_TRANSACTION, base_sequence=sequence)
    writer.append_records(RecordColumns.from_values([b"t"] * 2), plan)


def test_a_marker_in_front(writable: Writable) -> None:
    writer = writable.create()
    begin(writer)
    writer.end_transaction(5, 0, commit=True)
    writer.append_records(RecordColumns.from_values([b"v"]))
    writable.remove("1")
    assert writer.start_offset == 2  # the marker's
    assert writable.partition.end(is_last=False) == 3
    with pytest.raises(OffsetNotFound):
        writable.remove("2")
    assert not writable.is_emptied
    writable.remove("last")
    assert writable.is_emptied


def test_what_is_hidden_goes_with_what_is_behind_it(writable: Writable) -> None:
    writer = writable.create()
    begin(writer)
    writer.end_transaction(5, 0, commit=False)
    writer.append_records(RecordColumns.from_values([b"v"] * 2))
    with pytest.raises(OffsetNotFound):
        writable.remove("0")
    writable.remove("3")
    assert writer.start_offset == 4


def test_an_open_transaction_is_not_removed_by_who_cannot_see_it(writable: Writable) -> None:
    writer = writable.create()
    writer.append_records(RecordColumns.from_values([b"v"]))
    begin(writer)
    writable.remove("last")
    assert (writer.start_offset, writer.end_offset) == (1, 3)
    with pytest.raises(OffsetNotFound):
        writable.remove("2")
    assert not writable.is_emptied
    writer.end_transaction(5, 0, commit=False)
    assert writable.is_emptied


def test_an_open_transaction_is_removed_by_who_can(uncommitted: Writable) -> None:
    writer = uncommitted.create()
    begin(writer)
    begin(writer, 2)
    uncommitted.remove("2")
    assert writer.start_offset == 3
    assert [
        part.offsets.tolist()
        for part in uncommitted.partition.view().read(isolation=Isolation.READ_UNCOMMITTED)
    ] == [[3]]
    writer.end_transaction(5, 0, commit=True)
    uncommitted.remove("3")
    assert uncommitted.is_emptied


def test_damage_keeps_a_partition_from_being_empty(tmp_path: Path) -> None:
    first = Writable(tmp_path / "data")
    fill(first.create())
    first.close()
    log = tmp_path / "data/t-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    again = Writable(tmp_path / "data")
    again.engine.writer("t", 0).delete_records(_EACH - 1)
    assert not again.is_emptied
    again.remove("last")
    assert again.is_emptied
    again.close()


def test_the_quorums_own_log_stays(tmp_path: Path) -> None:
    mount = Writable(tmp_path / "data")
    fill(mount.create())
    mount.close()
    (tmp_path / "data/t-0").rename(tmp_path / "data/__cluster_metadata-0")
    again = Writable(tmp_path / "data")
    directory = again.directory("__cluster_metadata/0/offset")
    with pytest.raises(NotPermitted, match="quorum's own log"):
        directory.remove("5", _PID)
    assert directory.child("0").attributes().size == 100
    again.close()


def test_files_that_were_removed_take_no_room(writable: Writable, tmp_path: Path) -> None:
    fill(writable.create())
    writable.engine.set_topic_config("t", {"file.delete.delay.ms": "0"})
    offsets = writable.directory("t/0/offset")
    for offset in range(_SEGMENTS * _EACH):  # opens all segments
        offsets.child(str(offset))
    writable.partition.view().offset_for_time(0)
    writable.remove("25")
    offsets.sync()
    writable.engine.run("deletion")
    writable.engine.context.close_removed()
    here = [
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)
    ]
    own = f"{tmp_path}/data/t-0/"  # other tests of this process may have left theirs
    removed = [path for path in here if path.endswith("(deleted)") and path.startswith(own)]
    assert removed == []
    assert [path for path in here if path == f"{own}{20:020}.log"] != []
    assert offsets.child("26").attributes().size == 100


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_a_disk_that_fails(tmp_path: Path) -> None:
    mount = Writable(tmp_path / "data")
    fill(mount.create())
    mount.engine.writer("t", 0).flush()
    mount.remove("3")
    mount.directory("t/0/offset").sync()
    with replaced(FailingCalls(0, errno.EIO, ("fsync",), lasting=True)):
        mount.remove("12")
        with pytest.raises(LogDirOffline):
            mount.directory("t/0/offset").sync()
        with pytest.raises(LogDirOffline):
            mount.changes.deletions.make_durable(mount.partition)
        (problem,) = mount.changes.problems
        assert problem.startswith("deletions: ")
        mount.close()
    view = Engine(str(tmp_path / "data")).log("t", 0).view()
    assert (view.start_offset, view.end_offset) in ((4, 30), (13, 30))


def test_a_power_cut(tmp_path: Path) -> None:
    """Whatever it leaves, what was durable stays deleted, and no more than was removed."""
    root = tmp_path / "data"
    mount = Writable(root)
    fill(mount.create())
    mount.close()
    recording = RecordingCalls(root)
    mount = Writable(root)
    with replaced(recording):
        for offset in (4, 15, 22):
            for each in range(offset - 3, offset + 1):
                mount.remove(str(each))
            mount.changes.deletions.make_durable(mount.partition)
            recording.mark(offset + 1)
    mount.close()
    count = 0
    prefixes = range(0, len(recording.operations) + 1, 5)
    for number, state in enumerate(crash_states(recording, samples=1, prefixes=prefixes)):
        path = tmp_path / f"state-{number}"
        path.mkdir()
        state.write_to(path)
        with LogManager(str(path)) as engine:
            view = engine.log("t", 0).view()
            durable = cast(int, state.marks[-1]) if state.marks else 0
            assert durable <= view.start_offset <= 23, (state.done, state.how)
            found = [n for part in view.read() for n in part.offsets.tolist()]
            assert found == list(range(view.start_offset, _SEGMENTS * _EACH))
        count += 1
    assert count > 10
