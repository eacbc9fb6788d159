"""Files whose bytes are fixed when their name is looked up, each with an inode number of its own.

The kernel keeps one size for each inode, for all open handles. So where a name's content changes
with its log, every state of it is another file: its number, size and bytes never change, and two
handles of different states do not share an inode.

Numbers are never reused. Only the files looked up last are remembered; a forgotten number is
`Stale`, unless the file is open, and the kernel then looks the name up again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from .errnos import Stale
from .inodes import InodeKind, pack

#: The place of all these files in an inode number of InodeKind.TOP.
CONTENT_PLACE: Final = 1
_MOST_FILES: Final = 4096
_MOST_BYTES: Final = 16 << 20


class FileContent(Protocol):
    """A file with fixed bytes."""

    @property
    def memory(self) -> int:
        """Memory used, in bytes, roughly."""


ContentT = TypeVar("ContentT", bound=FileContent)


class Contents(Generic[ContentT]):
    """The files looked up most recently. Any thread may use it."""

    def __init__(self, most_files: int = _MOST_FILES, most_bytes: int = _MOST_BYTES) -> None:
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._lock = threading.Lock()  # guards what follows
        self._files: OrderedDict[Hashable, tuple[int, ContentT]] = OrderedDict()
        self._keys: dict[int, Hashable] = {}  # by number
        self._next = 0
        self._bytes = 0

    def file(self, key: Hashable, make: Callable[[int], ContentT]) -> ContentT:
        """Returns the remembered file for `key`, or the one that `make` creates for the inode
        number passed to it. `make` must be quick."""
        with self._lock:
            known = self._files.get(key)
            if known is not None:
                self._files.move_to_end(key)
                return known[1]
            number, self._next = self._next, self._next + 1
            made = make(pack(InodeKind.TOP, CONTENT_PLACE, number))
            self._files[key] = number, made
            self._keys[number] = key
            self._bytes += made.memory
            self._forget_oldest()
            return made

    def _forget_oldest(self) -> None:
        while len(self._files) > 1 and (
            len(self._files) > self._most_files or self._bytes > self._most_bytes
        ):
            _, (number, forgotten) = self._files.popitem(last=False)
            del self._keys[number]
            self._bytes -= forgotten.memory

    def __getitem__(self, number: int) -> ContentT:
        """Returns the file by its inode number's `number`. Raises Stale if it is forgotten."""
        with self._lock:
            try:
                return self._files[self._keys[number]][1]
            except KeyError:
                raise Stale from None
