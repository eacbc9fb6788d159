"""Tests the lock on a log directory, against other processes and within this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkafs.storage.errors import LogDirLocked
from kafkafs.storage.io.durable import WritableDirFd, WritableFile
from kafkafs.storage.io.lock import DirectoryLock, who_holds

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""

TRY = """
import sys
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.errors import LogDirLocked
from kafkafs.storage.io.lock import DirectoryLock, who_holds
try:
    DirectoryLock(WritableDirFd(sys.argv[1])).release()
except LogDirLocked as error:
    print(error.pid)
else:
    print("free")
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[int]:
    """Locks `path` in another process, as Java's FileChannel.tryLock does; yields its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid


def tried_elsewhere(path: Path) -> str:
    """Returns what another process prints that tries to lock the directory `path`."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, path], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_another_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    lock = DirectoryLock(WritableDirFd(tmp_path))
    assert os.path.getsize(tmp_path / ".lock") == 0
    assert tried_elsewhere(tmp_path) == str(os.getpid())
    lock.release()
    assert tried_elsewhere(tmp_path) == "free"
    assert os.listdir(tmp_path) == []


def test_a_broker_s_lock_is_respected(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / ".lock") as pid:
        with pytest.raises(LogDirLocked, match=f"process {pid} has it locked") as caught:
            DirectoryLock(WritableDirFd(tmp_path))
        assert caught.value.pid == pid
        assert caught.value.path == str(tmp_path)
        assert (tmp_path / ".lock").exists()
    with DirectoryLock(WritableDirFd(tmp_path)):  # a file that a killed broker left
        assert tried_elsewhere(tmp_path) == str(os.getpid())


def test_the_error_of_a_refusal_holds_no_descriptor(tmp_path: Path) -> None:
    """Closing such a descriptor later would release a lock acquired in the meantime."""
    with held_elsewhere(tmp_path / ".lock"):
        with pytest.raises(LogDirLocked) as caught:
            DirectoryLock(WritableDirFd(tmp_path))
        names = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        assert str(tmp_path / ".lock") not in names
        assert caught.value.__traceback__ is not None


def test_the_same_process_is_refused_and_the_lock_stays(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    with DirectoryLock(WritableDirFd(tmp_path / "data")):
        for path in (tmp_path / "data", tmp_path / "link"):
            with pytest.raises(LogDirLocked, match="this process") as caught:
                DirectoryLock(WritableDirFd(path))
            assert caught.value.pid == os.getpid()
        assert tried_elsewhere(tmp_path / "data") == str(os.getpid())
    DirectoryLock(WritableDirFd(tmp_path / "link")).release()


def test_releasing_twice_takes_nothing_from_the_next_holder(tmp_path: Path) -> None:
    first = DirectoryLock(WritableDirFd(tmp_path))
    first.release()
    with DirectoryLock(WritableDirFd(tmp_path)):
        first.release()
        assert tried_elsewhere(tmp_path) == str(os.getpid())


def test_a_lock_file_that_is_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder released it between our open and our lock."""
    opened: list[WritableFile] = []

    def writable(self: WritableDirFd, name: str, create: bool = False) -> WritableFile:
        file = original(self, name, create)
        opened.append(file)
        if len(opened) == 1:
            os.unlink(tmp_path / name)
        return file

    original = WritableDirFd.writable
    monkeypatch.setattr(WritableDirFd, "writable", writable)
    with DirectoryLock(WritableDirFd(tmp_path)):
        assert len(opened) == 2
        opened.clear()
        assert tried_elsewhere(tmp_path) == str(os.getpid())


def test_a_directory_that_cannot_be_written_is_no_lock(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        WritableDirFd(tmp_path / "nowhere").writable(".lock", create=True)
    (tmp_path / ".lock").mkdir()
    with pytest.raises(IsADirectoryError):
        DirectoryLock(WritableDirFd(tmp_path))
    (tmp_path / ".lock").rmdir()
    DirectoryLock(WritableDirFd(tmp_path)).release()


def test_who_holds_a_directory_can_be_asked_without_a_trace(tmp_path: Path) -> None:
    directory = WritableDirFd(str(tmp_path))
    assert who_holds(directory) == 0
    assert list(tmp_path.iterdir()) == []
    with DirectoryLock(directory):
        assert who_holds(directory) == os.getpid()
        code = (
            "import sys; from kafkafs.storage.io.disk import DirFd;"
            "from kafkafs.storage.io.lock import who_holds; print(who_holds(DirFd(sys.argv[1])))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert int(done.stdout) == os.getpid()
    (tmp_path / ".lock").touch()  # left by a killed process
    assert who_holds(directory) == 0
