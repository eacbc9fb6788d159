"""Tests changes to a directory: what each call does, what it rejects, and its error messages."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError, LogDirError
from kafkafs.storage.io.durable import Buffer, Calls, SyncFailed, WritableDirFd, replaced
from tests.faults import FailingCalls, RecordingCalls, crash_states


@pytest.fixture
def partition(root: Path) -> WritableDirFd:
    """Makes the directory `t-0` in a log directory."""
    directory = WritableDirFd(root)
    directory.make_itself()
    return directory.make("t-0")


def test_a_file_is_written_read_cut_and_emptied(root: Path, partition: WritableDirFd) -> None:
    file = partition.create("f")
    file.write(0, b"abc", bytearray(b"def"), memoryview(b"ghi"))
    file.write(2, b"XY")
    assert file.read(0, 100) == b"abXYefghi"
    file.truncate(4)
    file.write(6, b"!")
    file.sync()
    assert (root / "t-0" / "f").read_bytes() == b"abXY\0\0!"
    assert partition.writable("f").size() == 7
    assert partition.create("f").size() == 0


def test_buffers_of_any_item_and_in_any_number(partition: WritableDirFd) -> None:
    file = partition.create("f")
    file.write(0, memoryview(b"12345678").cast("I"), b"")
    assert file.read(0, 100) == b"12345678"
    many = [bytes([i % 251]) for i in range(3000)]
    file.write(4, *many)
    assert file.read(4, 4000) == b"".join(many)


class ShortWrites(Calls):
    """Calls that write at most `limit` bytes at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        joined = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
        return os.pwrite(fd, joined[: self.limit], position)


@pytest.mark.parametrize("limit", [1, 3, 4, 6, 100])
def test_short_writes_are_continued(partition: WritableDirFd, limit: int) -> None:
    file = partition.create("f")
    with replaced(ShortWrites(limit)):
        file.write(5, b"abc", memoryview(b"defghijk").cast("Q"), b"", b"l")
    assert file.read(0, 100) == b"\0\0\0\0\0abcdefghijkl"


@pytest.mark.timeout(60)
def test_a_disk_that_takes_nothing_is_an_error(partition: WritableDirFd) -> None:
    file = partition.create("f")
    with replaced(ShortWrites(0)), pytest.raises(OSError, match="t-0/f") as caught:
        file.write(0, b"abc")
    assert caught.value.errno == errno.EIO


def test_an_atomic_write_replaces_the_whole_file(root: Path, partition: WritableDirFd) -> None:
    partition.write_atomically("c", b"a longer content")
    partition.write_atomically("c", b"short")
    assert (root / "t-0" / "c").read_bytes() == b"short"
    assert os.listdir(root / "t-0") == ["c"]


def test_a_write_in_place_leaves_nothing_of_the_old(root: Path, partition: WritableDirFd) -> None:
    partition.write_in_place("c", b"a longer content")
    partition.write_in_place("c", b"short")
    assert (root / "t-0" / "c").read_bytes() == b"short"


class Traced(Calls):
    """Calls that record the names of those that make changes durable or visible."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.made.append("write")
        return super().pwritev(fd, buffers, position)

    def fsync(self, fd: int) -> None:
        self.made.append("fsync " + os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        super().fsync(fd)

    def rename(self, old: str, new: str, directory: int) -> None:
        self.made.append(f"rename {old} {new}")
        super().rename(old, new, directory)


def test_the_order_of_an_atomic_write(partition: WritableDirFd) -> None:
    calls = Traced()
    with replaced(calls):
        partition.write_atomically("c", b"x")
        partition.rename_child("c", "d")
    assert calls.made == [
        "write",
        "fsync c.tmp",
        "rename c.tmp c",
        "fsync t-0",
        "rename c d",
        "fsync t-0",
    ]


def test_one_of_several_atomic_writes_that_fails_leaves_no_file_behind(
    root: Path, partition: WritableDirFd
) -> None:
    """Its name is random, so no later write would take its place: on a full disk, more and more
    would lie there."""
    at = 0
    while True:
        partition.write_atomically("c", b"old")
        calls = FailingCalls(at, errno.ENOSPC)
        with replaced(calls), suppress(OSError):
            partition.write_atomically("c", b"new", concurrently=True)
        assert os.listdir(root / "t-0") == ["c"]
        if not calls.failed:
            break
        at += 1
    assert (root / "t-0" / "c").read_bytes() == b"new"
    assert at >= 4  # open, write, fsync, rename


def test_names_change_and_go(root: Path, partition: WritableDirFd) -> None:
    partition.create("a").write(0, b"1")
    partition.create("b")
    partition.rename("a", "b")
    assert (root / "t-0" / "b").read_bytes() == b"1"
    partition.remove("b")
    partition.remove("b", missing_ok=True)
    assert os.listdir(root / "t-0") == []
    partition.sync()


def test_a_directory_goes_with_all_that_is_in_it(root: Path, tmp_path: Path) -> None:
    directory = WritableDirFd(root)
    directory.make_itself()
    inside = directory.make("t-0.x-delete").make("inside")
    inside.create("f")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"x")
    (root / "t-0.x-delete" / "link").symlink_to(outside)
    directory.remove_directory("t-0.x-delete")
    assert os.listdir(root) == []
    assert os.listdir(outside) == ["kept"]


def test_a_nest_of_directories_is_refused(root: Path, partition: WritableDirFd) -> None:
    deep = root / "t-0" / "/".join(["d"] * 40)
    deep.mkdir(parents=True)
    with pytest.raises(LogDirError, match="nested more than 32 deep"):
        WritableDirFd(root).remove_directory("t-0")
    assert deep.exists()


def test_the_log_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    WritableDirFd(tmp_path / "a" / "b" / "c").make_itself()
    assert (tmp_path / "a" / "b" / "c").is_dir()
    WritableDirFd(tmp_path / "a" / "b" / "c").make_itself()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="file/x"):
        WritableDirFd(tmp_path / "file" / "x").make_itself()


def test_what_was_made_for_the_log_directory_is_durable(tmp_path: Path) -> None:
    recording = RecordingCalls(tmp_path)
    with replaced(recording):
        WritableDirFd(tmp_path / "a" / "b" / "c").make_itself()
    count = len(recording.operations)
    (state,) = crash_states(recording, prefixes=[count])
    assert list(state.names) == ["a", "a/b", "a/b/c"]


def test_what_is_not_there_is_an_os_error_with_its_path(
    root: Path, partition: WritableDirFd
) -> None:
    for call in (
        lambda: partition.writable("nothing"),
        lambda: partition.remove("nothing"),
        lambda: partition.rename("nothing", "else"),
        lambda: partition.remove_directory("nothing"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert caught.value.filename == str(root / "t-0" / "nothing")
    with pytest.raises(FileExistsError):
        WritableDirFd(root).make("t-0")
    (root / "t-0").rmdir()
    for change in (partition.sync, lambda: partition.create("f"), lambda: partition.make("d")):
        with pytest.raises(FileNotFoundError) as caught:
            change()
        assert caught.value.filename == str(root / "t-0")


@pytest.mark.timeout(60)
def test_no_link_is_followed_and_nothing_but_a_file_written(
    root: Path, partition: WritableDirFd, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"kept")
    (root / "t-0" / "link").symlink_to(outside / "f")
    (root / "t-1").symlink_to(outside)
    os.mkfifo(root / "t-0" / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(CorruptError, match=f"t-0/{name}: a .*, not a regular file"):
            partition.create(name)
    linked = WritableDirFd(root).child("t-1")
    for change in (linked.sync, lambda: linked.create("f"), lambda: linked.remove("f")):
        with pytest.raises(LogDirError, match="t-1: a symbolic link, not a directory"):
            change()
    with pytest.raises(LogDirError, match="symbolic link"):
        WritableDirFd(root).remove_directory("t-1")
    assert (outside / "f").read_bytes() == b"kept"
    partition.remove("link")
    assert (outside / "f").exists()


def test_only_plain_names(partition: WritableDirFd) -> None:
    for name in ("", ".", "..", "a/b", "a\0b"):
        for change in (
            partition.create,
            partition.make,
            partition.remove,
            partition.remove_directory,
            lambda name: partition.rename("x", name),
        ):
            with pytest.raises(ValueError, match="not a name"):
                change(name)


def test_times_are_set(partition: WritableDirFd) -> None:
    file = partition.create("f")
    file.set_mtime_ns(1_700_000_000_123_456_789)
    assert file.stat().st_mtime_ns == 1_700_000_000_123_456_789


class NoFsync(Calls):
    def fsync(self, fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_failed_fsync_is_told_apart(root: Path, partition: WritableDirFd) -> None:
    file = partition.create("f")
    partition.write_atomically("c", b"old")
    with replaced(NoFsync()):
        for call in (file.sync, partition.sync, lambda: partition.write_atomically("c", b"new")):
            with pytest.raises(SyncFailed, match="Input/output error") as caught:
                call()
            assert caught.value.errno == errno.EIO
            assert str(caught.value.filename).startswith(str(root / "t-0"))
    assert (root / "t-0" / "c").read_bytes() == b"old"
    file.sync()


def test_no_descriptor_is_left_open(root: Path, partition: WritableDirFd) -> None:
    gc.collect()  # collects what earlier tests left, so that it is not collected during this one
    before = len(os.listdir("/proc/self/fd"))
    partition.write_atomically("c", b"old")
    partition.make("d")
    partition.remove_directory("d")
    partition.sync()
    with pytest.raises(FileNotFoundError):
        partition.writable("nothing")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_with_two_names(root: Path, partition: WritableDirFd) -> None:
    source = WritableDirFd(root / "source")
    source.make_itself()
    source.create("a").write(0, b"one")
    assert partition.link("b", source, "a")
    partition.writable("b").write(3, b", two")
    assert source.open("a").read(0, 100) == b"one, two"
    source.remove("a")
    assert partition.open("b").read(0, 100) == b"one, two"
    with pytest.raises(FileExistsError):
        partition.link("b", partition, "b")
    with pytest.raises(FileNotFoundError):
        partition.link("c", source, "a")


class CannotLink(Calls):
    def link(self, old: str, source: int, new: str, target: int) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_file_that_cannot_have_two_names(partition: WritableDirFd) -> None:
    """For example because it is another user's, and the kernel protects hard links."""
    partition.create("a")
    with replaced(CannotLink()):
        assert not partition.link("b", partition, "a")
    assert {entry.name for entry in partition.list()} == {"a"}


def test_a_link_is_not_followed_for_another_name(root: Path, partition: WritableDirFd) -> None:
    (root / "secret").write_bytes(b"secret")
    os.symlink(root / "secret", Path(partition.path) / "a")
    partition.link("b", partition, "a")
    assert (Path(partition.path) / "b").is_symlink()
    assert (root / "secret").stat().st_nlink == 1


def test_small_pieces(partition: WritableDirFd) -> None:
    file = partition.create("a")
    file.write(0, bytes(10))
    with replaced(ShortWrites(1)):
        file.write_pieces([(1, b"ab"), (7, memoryview(b"cde"))])
    file.begin_sync(0, 10)
    assert file.read(0, 20) == b"\0ab\0\0\0\0cde"


def test_what_cannot_be_made_is_an_error_where_all_above_is_there() -> None:
    with pytest.raises(FileNotFoundError):
        WritableDirFd("/proc/self/log-dir").make_itself()


def test_nothing_is_made_where_a_link_leads_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    for path in ("link", "link/below"):
        with pytest.raises(FileNotFoundError, match=path):
            WritableDirFd(tmp_path / path).make_itself()
    assert os.listdir(tmp_path) == ["link"]
