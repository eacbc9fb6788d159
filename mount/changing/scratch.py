"""Small files that programs make beside `config.properties` while they change it, in memory.

Editors write a swap file, a copy of what was there, or the new text under another name that then
takes the place of the old one. All of it is bounded, and gone when the mount ends.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Final

from ..errnos import Exists, Forbidden, NoRoom, NoSuchName, Stale, TooLarge
from ..handles import Data
from ..inodes import Kind, pack
from ..nodes.node import AttributeChanges
from ..write_handle import WriteHandle

#: Bytes that one file may have.
MAX_FILE: Final = 1 << 20
#: Files that a topic may have.
MAX_FILES: Final = 32
#: Bytes of all files of all topics, each of which counts for a block at least.
MAX_BYTES: Final = 16 << 20
_BLOCK: Final = 4096
# Who made a file decides with chmod(2) whether others may read it.
_MODE: Final = 0o600


class Buffer:
    """Bytes that are read and written anywhere. Not for several threads."""

    def __init__(self, data: Data = b"") -> None:
        self._data = bytearray(data)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, position: int = 0, size: int = MAX_FILE) -> bytes:
        return bytes(self._data[position : position + size])

    def write(self, position: int, data: Data) -> None:
        """What lies between the end and `position` is zeros. TooLarge beyond MAX_FILE."""
        self.truncate(max(len(self), position + len(data)))
        self._data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        """TooLarge beyond MAX_FILE."""
        if size > MAX_FILE:
            raise TooLarge(f"{size} bytes; a file here has {MAX_FILE} at most")
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))


@dataclass(slots=True)
class KeptAttributes:
    """Mode and time of a file that has some of its own, as long as the mount lasts."""

    mode: int
    mtime_ns: int

    def change(self, changes: AttributeChanges) -> None:
        """Forbidden for another owner than that of the whole mount."""
        if changes.uid not in (None, os.getuid()) or changes.gid not in (None, os.getgid()):
            raise Forbidden("all files here belong to who mounted")
        if changes.mode is not None:
            self.mode = changes.mode & 0o777
        if changes.mtime_ns is not None:
            self.mtime_ns = changes.mtime_ns


class ScratchFile:
    """One of them. Only `ScratchFiles` changes it, but for its attributes."""

    def __init__(self, number: int) -> None:
        """`number`: no other has it as long as the mount lasts."""
        self.number = number
        self.inode = pack(Kind.SCRATCH, 0, number)
        self.buffer = Buffer()
        self.attributes = KeptAttributes(_MODE, time.time_ns())
        self.opened = 0
        #: The place of the topic and the name in it; None when it was removed.
        self.at: tuple[int, str] | None = None

    @property
    def charge(self) -> int:
        """The bytes that it counts for."""
        return max(len(self.buffer), _BLOCK)


class ScratchFiles:
    """Those of all topics; a topic is named by the number of its place. Any thread may use it."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, str], ScratchFile] = {}
        self._by_inode: dict[int, ScratchFile] = {}
        self._numbers = itertools.count()
        self._used = 0
        self._lock = threading.Lock()  # guards all of it, and the files' bytes

    def names(self, topic: int) -> list[tuple[str, ScratchFile]]:
        """A topic's, the oldest first."""
        with self._lock:
            found = [(at[1], file) for at, file in self._files.items() if at[0] == topic]
        return sorted(found, key=lambda each: each[1].number)

    def find(self, topic: int, name: str) -> ScratchFile:
        """NoSuchName."""
        with self._lock:
            return self._found(topic, name)

    def by_inode(self, inode: int) -> ScratchFile:
        """Also one that was removed, as long as it is open. Stale."""
        with self._lock:
            if inode not in self._by_inode:
                raise Stale
            return self._by_inode[inode]

    def create(self, topic: int, name: str) -> ScratchFile:
        """Exists, NoRoom, Forbidden for a name that could be a partition's."""
        refuse_number(name)
        with self._lock:
            if (topic, name) in self._files:
                raise Exists(name)
            return self._create(topic, name)

    def put(self, topic: int, name: str, data: Data, attributes: KeptAttributes) -> None:
        """Makes one, in the place of one of that name. TooLarge; otherwise as `create`."""
        refuse_number(name)
        with self._lock:
            if (topic, name) in self._files:
                self._unlink(self._files[topic, name])
            file = self._create(topic, name)
            self._resize(file, len(data))
            file.buffer.write(0, data)
            file.attributes = replace(attributes)

    def _create(self, topic: int, name: str) -> ScratchFile:
        self._refuse_more(topic)
        file = ScratchFile(next(self._numbers))
        self._account(file.charge)
        self._files[topic, name] = self._by_inode[file.inode] = file
        file.at = (topic, name)
        return file

    def write(self, file: ScratchFile, position: int | None, data: Data) -> None:
        """At the end without a `position`. TooLarge, NoRoom."""
        with self._lock:
            at = len(file.buffer) if position is None else position
            size = max(len(file.buffer), at + len(data))
            self._resize(file, size)
            file.buffer.write(at, data)

    def read(self, file: ScratchFile, position: int, size: int) -> bytes:
        with self._lock:
            return file.buffer.read(position, size)

    def truncate(self, file: ScratchFile, size: int) -> None:
        """TooLarge, NoRoom."""
        with self._lock:
            self._resize(file, size)

    def remove(self, topic: int, name: str) -> None:
        """NoSuchName."""
        with self._lock:
            self._unlink(self._found(topic, name))

    def rename(self, topic: int, name: str, new_topic: int, new_name: str) -> None:
        """What has the new name is removed. NoSuchName, NoRoom, Forbidden as by `create`."""
        refuse_number(new_name)
        with self._lock:
            file = self._found(topic, name)
            replaced = self._files.get((new_topic, new_name))
            if replaced is file:
                return
            if replaced is not None:
                self._unlink(replaced)
            elif new_topic != topic:
                self._refuse_more(new_topic)
            del self._files[topic, name]
            self._files[new_topic, new_name] = file
            file.at = (new_topic, new_name)

    def note_opened(self, file: ScratchFile) -> None:
        with self._lock:
            file.opened += 1

    def note_closed(self, file: ScratchFile) -> None:
        with self._lock:
            file.opened -= 1
            self._drop_if_gone(file)

    def _found(self, topic: int, name: str) -> ScratchFile:
        try:
            return self._files[topic, name]
        except KeyError:
            raise NoSuchName(name, lambda: f"the topic has no file {name}") from None

    def _resize(self, file: ScratchFile, size: int) -> None:
        before = file.charge
        if size > len(file.buffer) and size <= MAX_FILE:
            self._account(max(size, _BLOCK) - before)
            before = max(size, _BLOCK)
        file.buffer.truncate(size)
        self._used += file.charge - before
        file.attributes.mtime_ns = time.time_ns()

    def _account(self, more: int) -> None:
        if more > 0 and self._used + more > MAX_BYTES:
            raise NoRoom(f"files of editors have {MAX_BYTES} bytes at most, all together")
        self._used += more

    def _refuse_more(self, topic: int) -> None:
        if sum(at[0] == topic for at in self._files) >= MAX_FILES:
            raise NoRoom(f"a topic has {MAX_FILES} files of editors at most")

    def _unlink(self, file: ScratchFile) -> None:
        if file.at is not None:
            del self._files[file.at]
            file.at = None
        self._drop_if_gone(file)

    def _drop_if_gone(self, file: ScratchFile) -> None:
        if file.at is None and not file.opened:
            del self._by_inode[file.inode]
            self._used -= file.charge


class ScratchHandle(WriteHandle):
    """An open one, for reading or writing or both as the kernel sees to."""

    def __init__(self, files: ScratchFiles, file: ScratchFile, *, appends: bool = False) -> None:
        """`appends`: every write goes to the end, as with O_APPEND."""
        files.note_opened(file)
        self._files = files
        self._file = file
        self._appends = appends

    def read(self, position: int, size: int) -> Data:
        return self._files.read(self._file, position, size)

    def write(self, position: int, data: bytes) -> int:
        self._files.write(self._file, None if self._appends else position, data)
        return len(data)

    def truncate(self, size: int) -> None:
        self._files.truncate(self._file, size)

    def close(self) -> None:
        self._files.note_closed(self._file)


def refuse_number(name: str) -> None:
    """Forbidden for what is, or might become, the name of a partition."""
    if name.isascii() and name.isdigit():
        raise Forbidden(f"{name} is kept for a partition")
