"""Tests small files: their values follow the file; faults are reported and never raised."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.small_file import RACY_NS, SmallFile, stamp


def parse(data: bytes) -> int:
    if not data.isdigit():
        raise CorruptError("no digits", position=0)
    return int(data)


@pytest.fixture
def number(tmp_path: Path) -> SmallFile[int]:
    return SmallFile(DirFd(str(tmp_path)), "number", 10, parse, -1)


def write(path: Path, data: bytes, age_ns: int = 10**10) -> None:
    """Writes as Kafka does: to a temporary file, then renamed over the old one."""
    temporary = path / "number.tmp"
    temporary.write_bytes(data)
    written = time.time_ns() - age_ns
    os.utime(temporary, ns=(written, written))
    temporary.rename(path / "number")


def test_the_value_follows_the_file(tmp_path: Path, number: SmallFile[int]) -> None:
    for value in (1, 2, 3):
        write(tmp_path, b"%d" % value)
        assert (number.value(), number.problem()) == (value, "")


def test_an_unchanged_file_is_not_read_again(
    tmp_path: Path, number: SmallFile[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, b"1")
    assert number.value() == 1
    monkeypatch.setattr(DirFd, "read_small", None)
    assert number.value() == 1


def test_a_file_changed_just_now_is_read_again(tmp_path: Path, number: SmallFile[int]) -> None:
    write(tmp_path, b"1", age_ns=0)
    assert number.value() == 1
    status = os.stat(tmp_path / "number")
    (tmp_path / "number").write_bytes(b"2")
    os.utime(tmp_path / "number", ns=(status.st_atime_ns, status.st_mtime_ns))  # one clock tick
    assert number.value() == 2


def test_what_is_wrong_is_told_and_ends_with_its_cause(
    tmp_path: Path, number: SmallFile[int]
) -> None:
    path = f"{tmp_path}/number"
    assert (number.value(), number.problem()) == (-1, f"{path}: missing")
    write(tmp_path, b"x")
    assert (number.value(), number.problem()) == (-1, f"{path}: position 0: no digits")
    write(tmp_path, b"1" * 11)
    assert number.problem() == f"{path}: larger than 10 bytes, the limit for this file"
    (tmp_path / "number").unlink()
    (tmp_path / "number").mkdir()
    assert number.problem() == f"{path}: a directory, not a regular file"
    (tmp_path / "number").rmdir()
    os.mkfifo(tmp_path / "number")
    assert number.problem() == f"{path}: a FIFO, not a regular file"
    write(tmp_path, b"5")
    assert (number.value(), number.problem()) == (5, "")


def test_a_failing_disk_is_a_problem(
    tmp_path: Path, number: SmallFile[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error", str(tmp_path / "number"))

    write(tmp_path, b"1")
    monkeypatch.setattr(DirFd, "read_small", fail)
    assert (number.value(), number.problem()) == (-1, f"{tmp_path}/number: Input/output error")


def test_a_stamp_is_safe_only_when_the_clock_has_moved_on(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()
    now = time.time_ns()
    os.utime(path, ns=(now, now - 2 * RACY_NS))
    assert stamp(os.stat(path)) is not None
    for written in (now, now + 10**12):
        os.utime(path, ns=(now, written))
        assert stamp(os.stat(path)) is None
