"""In-memory scratch files that editors create next to `config.properties` while changing it.

Editors write a swap file, a backup copy, or the new text under another name that they then rename
over the old file. Number and size of these files are bounded, and they vanish with the mount.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Final

from ..node import AttributeChanges
from ..vfs.errnos import Exists, NoSpace, NoSuchName, NotPermitted, Stale, TooLarge
from ..vfs.handles import Data
from ..vfs.inodes import InodeKind, pack
from ..vfs.write_handle import WriteHandle

#: The most bytes of one file.
MAX_FILE: Final = 1 << 20
#: The most files of a topic.
MAX_FILES: Final = 32
#: The most bytes of all files of all topics; each file counts as at least one block.
MAX_BYTES: Final = 16 << 20
_BLOCK: Final = 4096
# Only the owner, unless a program uses chmod(2).
_MODE: Final = 0o600


class Buffer:
    """Bytes that can be read and written at any position. Not thread-safe."""

    def __init__(self, data: Data = b"") -> None:
        self._data = bytearray(data)

    def __len__(self) -> int:
        return len(self._data)

    def read(self, position: int = 0, size: int = MAX_FILE) -> bytes:
        return bytes(self._data[position : position + size])

    def write(self, position: int, data: Data) -> None:
        """Writes `data`; a gap between the end and `position` is filled with zeros. Raises TooLarge
        beyond MAX_FILE."""
        self.truncate(max(len(self), position + len(data)))
        self._data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        """Cuts or zero-fills to `size`. Raises TooLarge beyond MAX_FILE."""
        if size > MAX_FILE:
            raise TooLarge(f"{size} bytes; a file here may have at most {MAX_FILE}")
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))


@dataclass(slots=True)
class KeptAttributes:
    """Mode and mtime of a file that has its own ones; kept until the mount ends."""

    mode: int
    mtime_ns: int

    def change(self, changes: AttributeChanges) -> None:
        """Applies `changes`. Raises NotPermitted for an owner other than that of the mount."""
        if changes.uid not in (None, os.getuid()) or changes.gid not in (None, os.getgid()):
            raise NotPermitted("all files here belong to the user who mounted")
        if changes.mode is not None:
            self.mode = changes.mode & 0o777
        if changes.mtime_ns is not None:
            self.mtime_ns = changes.mtime_ns


class ScratchFile:
    """A scratch file. Only `ScratchFiles` changes it, except for its attributes."""

    def __init__(self, number: int) -> None:
        """`number` is unique until the mount ends."""
        self.number = number
        self.inode = pack(InodeKind.SCRATCH, 0, number)
        self.buffer = Buffer()
        self.attributes = KeptAttributes(_MODE, time.time_ns())
        self.opened = 0
        #: The place of the topic and the name in it; None after it was removed.
        self.at: tuple[int, str] | None = None

    @property
    def charge(self) -> int:
        """The bytes that it counts as."""
        return max(len(self.buffer), _BLOCK)


class ScratchFiles:
    """The scratch files of all topics. A topic is given as the number of its place. Any thread may
    use it."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, str], ScratchFile] = {}
        self._by_inode: dict[int, ScratchFile] = {}
        self._numbers = itertools.count()
        self._used = 0
        self._lock = threading.Lock()  # guards the above and the files' bytes

    def names(self, topic: int) -> list[tuple[str, ScratchFile]]:
        """Returns a topic's files with their names, the oldest first."""
        with self._lock:
            found = [(at[1], file) for at, file in self._files.items() if at[0] == topic]
        return sorted(found, key=lambda each: each[1].number)

    def find(self, topic: int, name: str) -> ScratchFile:
        """Returns the file. Raises NoSuchName if it does not exist."""
        with self._lock:
            return self._found(topic, name)

    def by_inode(self, inode: int) -> ScratchFile:
        """Returns a file, also a removed one that is still open. Raises Stale if there is none."""
        with self._lock:
            if inode not in self._by_inode:
                raise Stale
            return self._by_inode[inode]

    def create(self, topic: int, name: str) -> ScratchFile:
        """Creates a file. Raises Exists, NoSpace, or NotPermitted for the name of a possible
        partition."""
        refuse_number(name)
        with self._lock:
            if (topic, name) in self._files:
                raise Exists(name)
            return self._create(topic, name)

    def put(self, topic: int, name: str, data: Data, attributes: KeptAttributes) -> None:
        """Creates a file, replacing one of that name. Raises TooLarge, or as `create` does."""
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
        """Writes at `position`, None for the end. Raises TooLarge or NoSpace."""
        with self._lock:
            at = len(file.buffer) if position is None else position
            size = max(len(file.buffer), at + len(data))
            self._resize(file, size)
            file.buffer.write(at, data)

    def read(self, file: ScratchFile, position: int, size: int) -> bytes:
        with self._lock:
            return file.buffer.read(position, size)

    def truncate(self, file: ScratchFile, size: int) -> None:
        """Cuts or zero-fills to `size`. Raises TooLarge or NoSpace."""
        with self._lock:
            self._resize(file, size)

    def remove(self, topic: int, name: str) -> None:
        """Removes a file. Raises NoSuchName if it does not exist."""
        with self._lock:
            self._unlink(self._found(topic, name))

    def rename(self, topic: int, name: str, new_topic: int, new_name: str) -> None:
        """Renames a file, replacing one of the new name. Raises NoSuchName, NoSpace, or
        NotPermitted as `create` does."""
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
            self._drop_if_unused(file)

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
            raise NoSpace(f"editors' scratch files may have at most {MAX_BYTES} bytes in total")
        self._used += more

    def _refuse_more(self, topic: int) -> None:
        if sum(at[0] == topic for at in self._files) >= MAX_FILES:
            raise NoSpace(f"a topic may have at most {MAX_FILES} scratch files of editors")

    def _unlink(self, file: ScratchFile) -> None:
        if file.at is not None:
            del self._files[file.at]
            file.at = None
        self._drop_if_unused(file)

    def _drop_if_unused(self, file: ScratchFile) -> None:
        if file.at is None and not file.opened:
            del self._by_inode[file.inode]
            self._used -= file.charge


class ScratchHandle(WriteHandle):
    """An open scratch file. The kernel enforces whether it may be read or written."""

    def __init__(self, files: ScratchFiles, file: ScratchFile, *, appends: bool = False) -> None:
        """`appends`: every write appends, as with O_APPEND."""
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
    """Raises NotPermitted if `name` is, or might become, the name of a partition."""
    if name.isascii() and name.isdigit():
        raise NotPermitted(f"{name} is reserved for a partition")
