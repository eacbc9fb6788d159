"""Caches a small file's parsed value, and reads it again after the file has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from os import stat_result
from typing import Generic, TypeVar

from ..errors import CorruptError, SegmentGone, StorageError
from ..wording import printable
from .directory import Directory, HeldDirectory

T = TypeVar("T")

# File systems timestamp changes with a clock that ticks every 1 to 10 ms, so two changes can have
# one timestamp. A file changed this recently before it was read may have changed again unnoticed,
# and is read again next time (git guards its index against the same race).
RACY_NS = 50_000_000

Stamp = tuple[int, int, int]


def stamp(status: stat_result) -> Stamp | None:
    """Returns a value that differs after any change, to compare with a later call's; None if a very
    recent change makes that unsafe. Call it before reading the content that it stands for."""
    if time.time_ns() - status.st_mtime_ns < RACY_NS:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_value(
    directory: Directory | HeldDirectory, name: str, limit: int, parse: Callable[[bytes], T]
) -> T:
    """Reads and parses a file of at most `limit` bytes. Raises SegmentGone if there is none; adds
    the file's path to a CorruptError of `parse`."""
    data = directory.read_small(name, limit)
    try:
        return parse(data)
    except CorruptError as error:
        raise error.at(directory.path_of(name)) from None


def lines_of(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yields the lines of a text: the number of each, from 1, the position of its first byte, and
    its content, with U+FFFD for invalid UTF-8. A last line without a line end counts."""
    position = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        yield number, position, line.decode("utf-8", "replace").rstrip("\r\n")
        position += len(line)


class SmallFile(Generic[T]):
    """The value of the file `name`, or `empty` while it is absent or cannot be read."""

    def __init__(
        self,
        directory: Directory,
        name: str,
        limit: int,
        parse: Callable[[bytes], T],
        empty: T,
        optional: bool = False,
    ) -> None:
        """Files of more than `limit` bytes are refused. A missing `optional` file is not a
        problem."""
        self._directory = directory
        self._name = name
        self._limit = limit
        self._parse = parse
        self._empty = empty
        self._optional = optional
        self.mtime_ns = 0  # of the value's file; 0 while there is none
        # Value, problem, and their stamp, in one tuple, so that any thread may read them.
        self._state: tuple[T, str, Stamp | None] = (empty, "", None)

    def value(self) -> T:
        """Returns the current value. One system call if the file has not changed."""
        return self._refreshed()[0]

    def problem(self) -> str:
        """Returns why there is no value, in one line; "" if the value is the file's."""
        return self._refreshed()[1]

    def _refreshed(self) -> tuple[T, str, Stamp | None]:
        state = self._state
        modified = 0
        try:
            status = self._directory.stat(self._name)
            now = stamp(status)
            if now is None or now != state[2]:
                value = read_value(self._directory, self._name, self._limit, self._parse)
                state = (value, "", now)
            modified = status.st_mtime_ns
        except SegmentGone:
            path = self._directory.path_of(self._name)
            problem = "" if self._optional else f"{printable(path)}: missing"
            state = (self._empty, problem, None)
        except StorageError as error:
            state = (self._empty, str(error), None)
        except OSError as error:
            state = (self._empty, f"{printable(str(error.filename))}: {error.strerror}", None)
        self._state, self.mtime_ns = state, modified
        return state
