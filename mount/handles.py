"""Open files: what a handle can do, the simple ones, and the table of their numbers."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from kafkafs.storage.disk import OpenFile

#: How long a read may wait for what is to come before it ends with EINTR.
IDLE_SECONDS: Final = 1.0

Data = bytes | bytearray | memoryview
OpenT = TypeVar("OpenT")


class Handle(ABC):
    """An open file. Calls come from one thread at a time unless the class says otherwise.

    `direct_io`: reads go past the kernel's page cache, which size 0 requires. `keep_cache`: what
    the kernel kept of an earlier reading still holds. `seekable`: whether any position can be read,
    or only what follows on the last read.
    """

    direct_io = False
    keep_cache = True
    seekable = True

    @abstractmethod
    def read(self, position: int, size: int) -> Data:
        """`size` bytes from `position`, fewer only at the end of the file or before damage. May
        wait for the disk."""

    def at_hand(self, position: int, size: int) -> Data | None:
        """The same without waiting, or None when `read` must be asked."""
        return None

    def close(self) -> None:  # noqa: B027 - most handles hold nothing but memory
        """Gives back what the handle holds. No call may follow."""


class BytesHandle(Handle):
    """A file whose bytes are known since it was opened."""

    def __init__(self, data: Data, *, direct_io: bool = False) -> None:
        self.data = memoryview(data)
        self.direct_io = direct_io

    def read(self, position: int, size: int) -> Data:
        return self.data[position : position + size]

    def at_hand(self, position: int, size: int) -> Data | None:
        return self.data[position : position + size]


class FileHandle(Handle):
    """A file of the log directory. Any number of threads may read."""

    def __init__(self, file: OpenFile, *, is_final: bool) -> None:
        """`is_final`: whether the file's bytes will stay."""
        self._file = file
        self.keep_cache = is_final

    def read(self, position: int, size: int) -> Data:
        return self._file.read(position, size)


class Table(Generic[OpenT]):
    """Numbers for what is open. The event loop alone uses it."""

    def __init__(self) -> None:
        self._open: dict[int, OpenT] = {}
        self._numbers = itertools.count(1)

    def add(self, opened: OpenT) -> int:
        number = next(self._numbers)
        self._open[number] = opened
        return number

    def __getitem__(self, number: int) -> OpenT:
        return self._open[number]

    def remove(self, number: int) -> OpenT:
        return self._open.pop(number)

    def __len__(self) -> int:
        return len(self._open)

    def values(self) -> list[OpenT]:
        return list(self._open.values())
