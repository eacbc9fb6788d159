"""Tests DirFd, which opens all files: what it opens, what it rejects, and that it leaks nothing."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError, LogDirError, SegmentGone
from kafkafs.storage.io.directory import FileType
from kafkafs.storage.io.disk import DirFd, OpenFile
from kafkafs.storage.io.file_cache import FileCache, most_open_files
from tests.threads import in_threads


@pytest.fixture
def directory(tmp_path: Path) -> DirFd:
    """Makes a log directory with a partition directory `t-0`, which holds the file `f`."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "f").write_bytes(bytes(range(100)))
    return DirFd(str(tmp_path)).child("t-0")


def open_descriptors(path: Path) -> int:
    """Returns how many of this process's descriptors refer to something under `path`."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found += os.readlink(descriptor).startswith(str(path))
    return found


def test_reads_any_range_and_stops_at_the_end(directory: DirFd) -> None:
    file = directory.open("f")
    assert file.size() == 100
    assert file.read(10, 5) == bytes(range(10, 15))
    assert file.read(95, 50) == bytes(range(95, 100))
    assert file.read(200, 5) == b""
    buffer = bytearray(8)
    assert file.read_into(96, buffer) == 4
    assert buffer == bytes([96, 97, 98, 99, 0, 0, 0, 0])


def test_a_length_that_lies_does_not_allocate_memory(directory: DirFd) -> None:
    assert directory.open("f").read(90, 1 << 60) == bytes(range(90, 100))


def test_short_reads_are_continued(directory: DirFd, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at))
    file = directory.open("f")
    assert file.read(1, 50) == bytes(range(1, 51))
    buffer = bytearray(50)
    assert file.read_into(1, buffer) == 50
    assert buffer == bytes(range(1, 51))


def test_an_open_file_outlives_its_name(directory: DirFd, tmp_path: Path) -> None:
    file = directory.open("f")
    status = os.stat(tmp_path / "t-0" / "f")
    (tmp_path / "t-0" / "f").unlink()
    assert file.read(0, 3) == b"\0\1\2"
    assert file.identity == (status.st_dev, status.st_ino)


def test_a_file_is_closed_when_nobody_holds_it(directory: DirFd, tmp_path: Path) -> None:
    before = open_descriptors(tmp_path)
    file = directory.open("f")
    assert open_descriptors(tmp_path) == before + 1
    del file
    assert open_descriptors(tmp_path) == before


def test_lists_what_is_there_without_following_links(directory: DirFd, tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    (partition / "dir").mkdir()
    (partition / "link").symlink_to("/etc/passwd")
    os.mkfifo(partition / "fifo")
    found = {entry.name: entry for entry in directory.list(lambda name: name == "f")}
    assert {name: entry.kind for name, entry in found.items()} == {
        "f": FileType.FILE,
        "dir": FileType.DIRECTORY,
        "link": FileType.SYMLINK,
        "fifo": FileType.FIFO,
    }
    assert found["f"].is_file
    assert not found["f"].is_dir
    assert found["f"].stat is not None
    assert (found["f"].stat.st_size, found["f"].inode) == (100, found["f"].stat.st_ino)
    assert found["dir"].stat is None


def test_what_has_gone_is_gone(directory: DirFd, tmp_path: Path) -> None:
    with pytest.raises(SegmentGone, match="t-0/nothing"):
        directory.open("nothing")
    with pytest.raises(SegmentGone, match="t-0/nothing"):
        directory.stat("nothing")
    (tmp_path / "t-0").rename(tmp_path / "elsewhere")
    for call in (directory.list, directory.stat, lambda: directory.open("f")):
        with pytest.raises(SegmentGone, match="t-0"):
            call()
    with pytest.raises(SegmentGone):
        DirFd(str(tmp_path / "nowhere")).list()


@pytest.mark.timeout(60)
def test_nothing_but_a_regular_file_is_opened(directory: DirFd, tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    (partition / "link").symlink_to(partition / "f")
    os.mkfifo(partition / "fifo")
    before = open_descriptors(tmp_path)
    with pytest.raises(CorruptError, match="t-0/link: a symbolic link, not a regular file"):
        directory.open("link")
    with pytest.raises(CorruptError, match="t-0/fifo: a FIFO, not a regular file"):
        directory.open("fifo")
    with pytest.raises(CorruptError, match="t-0: a directory, not a regular file"):
        DirFd(str(tmp_path)).open("t-0")
    assert open_descriptors(tmp_path) == before


def test_no_link_leads_out_of_the_log_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "t-0").symlink_to(outside)
    linked = DirFd(str(inside)).child("t-0")
    for call in (linked.list, lambda: linked.open("secret"), lambda: linked.stat("secret")):
        with pytest.raises(LogDirError, match="t-0: a symbolic link, not a directory"):
            call()
    for name in ("..", ".", "", "../outside/secret", "a\0b"):
        with pytest.raises(ValueError, match="not a name"):
            linked.open(name)


def test_a_held_directory_is_what_it_was_wherever_its_name_went(
    directory: DirFd, tmp_path: Path
) -> None:
    held = directory.hold()
    (tmp_path / "t-0").rename(tmp_path / "t-0.x-delete")
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "f").write_bytes(b"another")
    assert held.open("f").read(0, 3) == b"\0\1\2"
    assert held.open("f").path == directory.path_of("f")
    assert directory.open("f").read(0, 3) == b"ano"
    with pytest.raises(SegmentGone, match="t-0/g"):
        held.open("g")


def test_nothing_but_a_regular_file_is_opened_in_a_held_directory(
    directory: DirFd, tmp_path: Path
) -> None:
    held = directory.hold()
    (tmp_path / "t-0" / "link").symlink_to("f")
    os.mkfifo(tmp_path / "t-0" / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(CorruptError, match="not a regular file"):
            held.open(name)
    with pytest.raises(ValueError, match="not a name"):
        held.open("../t-0/f")
    (tmp_path / "linked").symlink_to("t-0")
    with pytest.raises(LogDirError, match="a symbolic link, not a directory"):
        DirFd(str(tmp_path)).child("linked").hold()


def test_a_held_directory_is_closed_when_nobody_holds_it(directory: DirFd, tmp_path: Path) -> None:
    held = directory.hold()
    assert open_descriptors(tmp_path) == 1
    held.open("f")
    assert open_descriptors(tmp_path) == 1
    del held
    assert open_descriptors(tmp_path) == 0


def test_the_log_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    directory = DirFd(str(tmp_path / "link"))
    assert directory.open("f").read(0, 9) == b"x"
    assert directory.stat().st_ino == os.stat(tmp_path / "real").st_ino


def test_reading_leaves_no_access_time(directory: DirFd, tmp_path: Path) -> None:
    paths = (tmp_path, tmp_path / "t-0", tmp_path / "t-0" / "f")
    for path in paths:
        os.utime(path, ns=(1_000, 2_000))  # so old that the kernel would update the atime
    before = [os.stat(path).st_atime_ns for path in paths]
    directory.list()
    directory.open("f").read(0, 100)
    assert [os.stat(path).st_atime_ns for path in paths] == before


def test_files_of_another_owner_are_read_all_the_same(
    directory: DirFd, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refuse_noatime(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, "not the owner", path)
        return real_open(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse_noatime)
    assert directory.open("f").read(0, 1) == b"\0"


def test_a_failing_disk_keeps_its_errno_and_names_the_file(
    directory: DirFd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    file = directory.open("f")
    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)
    for call in (lambda: file.read(0, 1), lambda: file.read_into(0, bytearray(1))):
        with pytest.raises(OSError, match="Input/output error") as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, file.path)


def test_a_forbidden_file_keeps_its_errno_and_is_named(
    directory: DirFd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError) as caught:
        directory.open("f")
    assert caught.value.filename.startswith(directory.path.removesuffix("/t-0"))


def test_a_small_file_has_a_limit(directory: DirFd) -> None:
    assert directory.read_small("f", 100) == bytes(range(100))
    with pytest.raises(CorruptError, match="t-0/f: larger than 99 bytes"):
        directory.read_small("f", 99)


def test_most_open_files_leave_room_for_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert most_open_files() == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_names_need_not_be_utf8(directory: DirFd, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\n")
    (tmp_path / "t-0" / name).write_bytes(b"x")
    assert name in {entry.name for entry in directory.list()}
    assert directory.open(name).read(0, 1) == b"x"


class TestFileCache:
    def test_keeps_what_was_used_last(self) -> None:
        opened: list[str] = []

        def opener(key: str) -> str:
            opened.append(key)
            return key.upper()

        cache: FileCache[str, str] = FileCache(2)
        for key in ("a", "b", "a", "c", "a", "b"):
            assert cache.get(key, partial(opener, key)) == key.upper()
        assert opened == ["a", "b", "c", "b"]
        assert len(cache) == 2

    def test_an_evicted_file_stays_open_for_its_reader(
        self, directory: DirFd, tmp_path: Path
    ) -> None:
        before = open_descriptors(tmp_path)
        cache: FileCache[str, OpenFile] = FileCache(1)
        held = cache.get("f", lambda: directory.open("f"))
        cache.get("g", lambda: directory.open("f"))
        assert open_descriptors(tmp_path) == before + 2
        assert held.read(1, 1) == b"\1"
        del held
        assert open_descriptors(tmp_path) == before + 1
        cache.drop("g")
        cache.drop("never there")
        assert open_descriptors(tmp_path) == before

    def test_drops_by_condition(self) -> None:
        cache: FileCache[int, int] = FileCache(10)
        for key in range(6):
            cache.get(key, partial(abs, key))
        cache.drop_where(lambda key: key % 2 == 0)
        assert len(cache) == 3

    def test_drops_files_that_were_removed(self, directory: DirFd) -> None:
        cache: FileCache[str, OpenFile] = FileCache(3)
        path = Path(directory.path)
        for name in ("one", "two"):
            (path / name).write_bytes(b"data")
            cache.get(name, partial(directory.open, name))
        held = cache.get("two", partial(directory.open, "two"))
        for name in ("one", "two"):
            (path / name).unlink()
        (path / "three").write_bytes(b"data")
        cache.get("three", partial(directory.open, "three"))
        cache.drop_values(OpenFile.is_removed)
        assert len(cache) == 1
        assert held.read(0, 4) == b"data"

    def test_a_failing_open_leaves_nothing_behind(self) -> None:
        cache: FileCache[str, str] = FileCache(2)

        def fail() -> str:
            raise SegmentGone("/f")

        with pytest.raises(SegmentGone):
            cache.get("f", fail)
        assert len(cache) == 0
        assert cache.get("f", lambda: "there") == "there"

    def test_many_threads_share_one(self, directory: DirFd, tmp_path: Path) -> None:
        before = open_descriptors(tmp_path)
        cache: FileCache[int, OpenFile] = FileCache(3)

        def use() -> None:
            for turn in range(200):
                assert cache.get(turn % 7, lambda: directory.open("f")).read(0, 2) == b"\0\1"

        in_threads(*[use] * 4)
        assert len(cache) == 3
        assert open_descriptors(tmp_path) == before + 3
