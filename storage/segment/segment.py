"""A segment of a log: its files, and how a view interprets them.

``SegmentFiles`` is shared by all views of the same files; ``Segment`` is one view's immutable
interpretation of them. The view decides how much of the ``.log`` counts (``size``): all of a rolled
segment, the whole batches of the active one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar, cast

from ..errors import CorruptError, SegmentGone, fresh
from ..format.files.names import FileKind, FileState, segment_file
from ..io.directory import Directory, HeldDirectory, NoFile, ReadableFile
from ..io.file_cache import FileCache
from .offset_index import OffsetIndex
from .time_index import TimeIndex

T = TypeVar("T")
Index = TypeVar("Index", OffsetIndex, TimeIndex)

# Open files and indexes, keyed by the identity of their segment's `.log` and their suffix, and open
# directories, keyed by themselves.
FilePool = FileCache[Hashable, object]
_REMOVABLE = (HeldDirectory, ReadableFile, OffsetIndex, TimeIndex)
_LOG, _INDEX, _TIMEINDEX = map(str, (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX))


def is_removed(value: object) -> bool:
    """Returns whether a value of a pool is a directory or file that has been removed, or an index
    of such a file."""
    return isinstance(value, _REMOVABLE) and value.is_removed()


class HeldFile:
    """Keeps a file open.

    Weak references refer to this object rather than to the file: a file is closed by its
    destructor, and until that has run, a weak reference could still return a file being closed.
    """

    __slots__ = ("__weakref__", "file")

    def __init__(self, file: ReadableFile) -> None:
        self.file = file


class SegmentFiles:
    """The files of one base offset in a partition directory.

    ``identity`` is (device, inode) of the ``.log``: another file of the same name is another
    segment. ``state`` is LIVE, or SWAP for a cleaner's output that was committed but not renamed.
    Files are opened when first needed, and stay open in ``pool`` until it evicts them.
    """

    __slots__ = (
        "_held", "_lock", "_memory", "_pool", "base_offset", "directory", "identity", "state"
    )  # fmt: skip

    def __init__(
        self,
        directory: Directory,
        base_offset: int,
        identity: tuple[int, int],
        pool: FilePool,
        state: FileState = FileState.LIVE,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.identity = identity
        self.state = state
        self._pool = pool
        self._lock = threading.Lock()  # guards _memory and _held
        self._held: weakref.ref[HeldFile] | None = None
        self._memory: dict[object, tuple[object, object]] = {}

    def name(self, kind: FileKind) -> str:
        return segment_file(self.base_offset, kind, self.state)

    def path(self, kind: FileKind = FileKind.LOG) -> str:
        return self.directory.path_of(self.name(kind))

    def log(self) -> ReadableFile:
        """Returns the ``.log``, or a NoFile if that is not a regular file. Raises SegmentGone if it
        is no longer the file that was listed, unless that is still held open."""
        try:
            opened = self._pool.get((self.identity, _LOG), self._open_log)
        except CorruptError as error:
            # Not kept in the pool: a file that replaces it may get the same inode number.
            return NoFile(self.directory.stat(self.name(FileKind.LOG)), fresh(error))
        assert isinstance(opened, ReadableFile)
        return opened

    def _open(self, kind: FileKind) -> ReadableFile:
        """Opens the file of that kind in the directory as last listed: a listing that finds a
        change removes the directory from the pool."""
        held = self._pool.get(self.directory, self.directory.hold)
        assert isinstance(held, HeldDirectory)
        return held.open(self.name(kind))

    def _open_log(self) -> ReadableFile:
        held = self._held() if self._held is not None else None
        if held is not None:
            return held.file
        opened = self._open(FileKind.LOG)
        if opened.identity != self.identity:
            raise SegmentGone(opened.path)
        return opened

    def hold(self) -> HeldFile:
        """Opens the ``.log``, and keeps it readable for every user as long as the result exists."""
        opened = self.log()
        with self._lock:
            held = self._held() if self._held is not None else None
            if held is None:
                held = HeldFile(opened)
                self._held = weakref.ref(held)
            return held

    def offset_index(self) -> OffsetIndex | None:
        return self._index(_INDEX, FileKind.INDEX, OffsetIndex)

    def time_index(self) -> TimeIndex | None:
        return self._index(_TIMEINDEX, FileKind.TIMEINDEX, TimeIndex)

    def _index(self, suffix: str, kind: FileKind, what: type[Index]) -> Index | None:
        """Returns None if the file is missing, is not a regular file, or may not be read: indexes
        are optional."""

        def open_index() -> Index:
            return what(self._open(kind), self.base_offset)

        try:
            index = self._pool.get((self.identity, suffix), open_index)
        except (SegmentGone, CorruptError, OSError):
            return None
        assert isinstance(index, what)
        return index

    def remember(self, what: object, state: object, compute: Callable[[], T]) -> T:
        """Returns ``compute()``, cached for each ``what`` until ``state``, that of the log,
        changes."""
        with self._lock:
            known = self._memory.get(what)
        if known is not None and known[0] == state:
            return cast(T, known[1])
        value = compute()
        with self._lock:
            self._memory[what] = (state, value)
        return value


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """Where a segment ended at an earlier time: before ``offset``. ``largest_timestamp``: of its
    records before that, in ms, -1 if none has one. ``is_split``: its last batch has others, too."""

    offset: int
    largest_timestamp: int
    is_split: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as one view serves it.

    ``size``: bytes of the ``.log`` that hold whole batches. ``next_base``: base offset of the
    segment after it, -1 for the active one. ``mtime_ns`` is that of the ``.log``. ``end``: for the
    active segment of an earlier time, whose ``.log`` may have more batches.
    """

    files: SegmentFiles
    size: int
    mtime_ns: int
    next_base: int = -1
    end: SegmentEnd | None = None

    @property
    def state(self) -> tuple[int, int]:
        """A value that changes whenever the bytes of the log do."""
        return self.size, self.mtime_ns

    def offset_index(self) -> OffsetIndex | None:
        """Returns the up-to-date index, None if the file is missing or not a regular file."""
        index = self.files.offset_index()
        if index is not None and self.is_active:
            index.refresh()
        return index

    def time_index(self) -> TimeIndex | None:
        """Returns the time index, as ``offset_index`` does."""
        index = self.files.time_index()
        if index is not None and self.is_active:
            index.refresh()
        return index

    @property
    def base_offset(self) -> int:
        return self.files.base_offset

    @property
    def is_active(self) -> bool:
        return self.next_base < 0

    @property
    def is_remote(self) -> bool:
        """Whether its files are in remote storage."""
        return self.files.directory.is_remote(self.files.name(FileKind.LOG))

    @property
    def path(self) -> str:
        return self.files.path()
