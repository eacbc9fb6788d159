"""Directories in archives (tar, also compressed, and zip), through ratarmountcore."""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any, Final

from ....errors import CorruptError, LogDirError, SegmentGone
from ....wording import printable
from ... import openat
from ...directory import FileType
from ...disk import OpenFile, located
from ..block_source import BlockSource
from ..settings import RemoteSettings
from ..source import Listed, Snapshot, SnapshotNode, number_of
from ..store import INSTALL
from .index import NOWHERE, index_path, making, note_use

_OPEN_MEMBERS: Final = 16
_ZEROS: Final = bytes(512)
_BUFFER: Final = 4 << 20
_AHEAD: Final = 16 << 20


class ArchiveFile(io.RawIOBase, ABC):
    """The file of an archive. It has a position of its own, so that it may be used after a fork.
    `version` changes with its content."""

    def __init__(self, path: str, size: int, version: str) -> None:
        super().__init__()
        self.path = path
        self.size = size
        self.version = version
        self._position = 0

    @abstractmethod
    def again(self) -> ArchiveFile:
        """Opens the same file once more. Raises SegmentGone if it is another one by now."""

    @abstractmethod
    def read_at(self, position: int, view: memoryview) -> int:
        """Reads at least one byte, of those within the size; returns how many. Raises SegmentGone
        if the file was changed."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}
        self._position = max(start[whence] + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view = view[: max(min(len(view), self.size - self._position), 0)]
        count = self.read_at(self._position, view) if len(view) else 0
        self._position += count
        return count


class LocalArchiveFile(ArchiveFile):
    """An archive on this machine."""

    def __init__(self, path: str) -> None:
        """Raises SegmentGone, CorruptError if it is not a regular file, and OSError."""
        with located(path, CorruptError):
            self.file = OpenFile(openat.open_given(path), path)
        status = self.file.stat()
        self._state = (status.st_size, status.st_mtime_ns)
        super().__init__(path, status.st_size, " ".join(map(str, self.file.identity + self._state)))

    def again(self) -> LocalArchiveFile:
        opened = LocalArchiveFile(self.path)
        if opened.version != self.version:
            raise SegmentGone(self.path)
        return opened

    def read_at(self, position: int, view: memoryview) -> int:
        self.check()
        return self.file.read_into(position, view)

    def check(self) -> None:
        """Raises SegmentGone if the file was changed in place."""
        status = self.file.stat()
        if (status.st_size, status.st_mtime_ns) != self._state:
            raise SegmentGone(self.path)


class ObjectArchiveFile(ArchiveFile):
    """An archive that is an object of a store."""

    def __init__(self, path: str, node: SnapshotNode, store: BlockSource) -> None:
        super().__init__(path, node.size, " ".join((node.version, str(node.status.st_mtime_ns))))
        self._node = node
        self._store = store

    def again(self) -> ObjectArchiveFile:
        return ObjectArchiveFile(self.path, self._node, self._store)

    def read_at(self, position: int, view: memoryview) -> int:
        end = position + len(view)
        ahead = min(_AHEAD, self.size - end)
        if ahead > 0:
            self._store.will_read(self.path, self._node, end, ahead)
        self._store.read(self.path, self._node, position, view)
        return len(view)


class Archive(BlockSource):
    """The members of an archive."""

    is_parallel = False  # a decompressor is at one place at a time

    def __init__(self, file: ArchiveFile, settings: RemoteSettings) -> None:
        """Raises LogDirError if it is not an archive."""
        super().__init__(settings)
        self.location = file.path
        self._file = file
        self._reading = threading.Lock()  # guards the archive's file, and the open members
        self._members: OrderedDict[str, IO[bytes]] = OrderedDict()
        self._reader = os.getpid()
        self._mounted = _opened(file, settings, self)
        self._snapshot = Snapshot(file.path, self._listed())
        if _is_truncated(self._mounted):
            self._snapshot.problems.append(f"{printable(file.path)}: the archive is truncated")

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def fetch(self, path: str, node: SnapshotNode, position: int, size: int) -> bytes:
        if self._reader != os.getpid():  # after a fork, descriptors are shared with the parent
            self._reader, self._reading = os.getpid(), threading.Lock()
            self._members.clear()
            self._file = self._file.again()
            self._mounted = _opened(self._file, self.settings, self)
        with self._reading:
            try:
                if isinstance(self._file, LocalArchiveFile):
                    self._file.check()
                member = self._member(path, node.handle)
                member.seek(position)
                data = _read(member, size)
            except (SegmentGone, OSError) as error:
                if isinstance(error, SegmentGone) or error.filename:
                    raise  # of the archive itself
                raise self._damaged(path, position) from None
            except Exception:  # noqa: BLE001 - each decompressor has its own
                raise self._damaged(path, position) from None
        if len(data) < size:
            raise self._damaged(path, position + len(data))
        return data

    def _damaged(self, path: str, position: int) -> OSError:
        why = f"the archive is damaged or truncated (at byte {position} of this file)"
        return OSError(errno.EIO, why, path)

    def _member(self, path: str, info: Any) -> IO[bytes]:
        member = self._members.pop(path, None)
        if member is None:
            member = self._mounted.open(info, buffering=0)
        self._members[path] = member
        if len(self._members) > _OPEN_MEMBERS:
            self._members.popitem(last=False)[1].close()
        return member

    def _listed(self) -> Iterator[Listed]:
        pending = [""]
        while pending:
            above = pending.pop()
            for name, info in (self._mounted.list(f"/{above}") or {}).items():
                path = f"{above}/{name}" if above else name
                kind = FileType.of(info.mode)
                if kind is FileType.DIRECTORY:
                    pending.append(path)
                mtime_ns, version = round(info.mtime * 1e9), self._file.version
                yield Listed(path, kind, info.size, mtime_ns, version, info)


def _opened(file: ArchiveFile, settings: RemoteSettings, owner: Archive) -> Any:
    """Returns the members of an archive, as ratarmountcore has them. Its file is closed with
    `owner`."""
    path = file.path
    # It prints to stdout what it does, unless its log is off.
    logging.getLogger("ratarmountcore").setLevel(logging.CRITICAL)
    index = index_path(number_of(path, file.version), settings)
    try:
        # What is wrong with the archive, not with an index or its disk, is raised again at the end.
        if os.path.exists(index):
            with suppress(Exception):
                mounted = _mounted(file, index, owner)
                note_use(index)
                return mounted
        if index != NOWHERE:
            with suppress(Exception), making(index) as new:
                mounted = _mounted(file, new, owner)
                if _is_truncated(mounted):  # or it could not be read to its end this time
                    raise CorruptError("a truncated archive")
                return mounted
        return _mounted(file, NOWHERE, owner)
    except (SegmentGone, LogDirError):
        raise
    except ImportError:
        why = f"reading archives needs ratarmountcore: {INSTALL}"
        raise LogDirError(path, why) from None
    except OSError as error:
        if error.filename and error.errno:
            raise
        raise _not_an_archive(path, error) from None
    except Exception as error:  # noqa: BLE001 - each decompressor has its own
        raise _not_an_archive(path, error) from None


def _mounted(file: ArchiveFile, index: str, owner: Archive) -> Any:
    from ratarmountcore.mountsource.formats.tar import SQLiteIndexedTar
    from ratarmountcore.mountsource.formats.zip import ZipMountSource

    # The decompressor of zstd reads by a descriptor.
    is_zstd = file.path.lower().endswith(".zst")
    opened = _on_disk(file) if is_zstd else io.BufferedReader(file, _BUFFER)
    weakref.finalize(owner, opened.close)
    if file.path.lower().endswith(".zip"):
        return ZipMountSource(opened, indexFilePath=index)
    return SQLiteIndexedTar(
        fileObject=opened,
        indexFilePath=index,
        prioritizedBackends=["indexed_gzip", "indexed_zstd"],
    )


def _not_an_archive(path: str, error: Exception) -> LogDirError:
    return LogDirError(path, f"not an archive, or a damaged one ({type(error).__name__})")


def _on_disk(file: ArchiveFile) -> IO[bytes]:
    """Returns a file with a descriptor and the same content, which is copied if it has none."""
    if isinstance(file, LocalArchiveFile):
        return os.fdopen(os.dup(file.file.fd), "rb")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the archive
    shutil.copyfileobj(file, copy, _BUFFER)
    copy.seek(0)
    return copy


def _read(member: IO[bytes], size: int) -> bytes:
    parts = []
    while size and (data := member.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _is_truncated(mounted: Any) -> bool:
    """Returns whether a tar lacks its end, a block of zeros."""
    file = getattr(mounted, "tarFileObject", None)
    if file is None:
        return False
    try:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - len(_ZEROS), 0))
        return _read(file, len(_ZEROS)) != _ZEROS
    except Exception:  # noqa: BLE001 - each decompressor has its own
        return True
