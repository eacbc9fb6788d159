"""Open files: the base class of handles, simple handles, and the table of handle numbers."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from kafkafs.storage import ReadableFile, fresh

#: How long a read may wait for new records before it fails with EINTR.
IDLE_SECONDS: Final = 1.0

Data = bytes | bytearray | memoryview
OpenT = TypeVar("OpenT")


class Handle(ABC):
    """An open file. Calls come from one thread at a time unless the class says otherwise.

    `direct_io`: reads bypass the kernel's page cache, which size 0 requires. `keep_cache`: pages
    cached by an earlier open are still valid. `seekable`: any position can be read, instead of only
    the one after the last read.
    """

    direct_io = False
    keep_cache = True
    seekable = True

    @abstractmethod
    def read(self, position: int, size: int) -> Data:
        """Returns `size` bytes from `position`, fewer only at the end of the file or before damage.
        May block on the disk."""

    def at_hand(self, position: int, size: int) -> Data | None:
        """Returns the same without blocking, or None if `read` must be called."""
        return None

    def close(self) -> None:  # noqa: B027 - most handles hold nothing but memory
        """Releases what the handle holds. The handle must not be used afterwards."""


class BytesHandle(Handle):
    """A file whose bytes are known when it is opened."""

    def __init__(self, data: Data, *, direct_io: bool = False) -> None:
        self.data = memoryview(data)
        self.direct_io = direct_io

    def read(self, position: int, size: int) -> Data:
        return self.data[position : position + size]

    def at_hand(self, position: int, size: int) -> Data | None:
        return self.data[position : position + size]


class FileHandle(Handle):
    """A file of the log directory. Any number of threads may read."""

    def __init__(self, file: ReadableFile, *, is_final: bool) -> None:
        """`is_final`: whether the file's bytes can no longer change."""
        self._file = file
        self.keep_cache = is_final

    def read(self, position: int, size: int) -> Data:
        data = self._file.read(position, size)
        if (error := self._file.error_between(position, position + len(data))) is not None:
            raise fresh(error)
        return data


class Table(Generic[OpenT]):
    """Open objects by number. Only the event loop uses it."""

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
