"""Ranges of offsets as files of exact size.

A range lies between the log's start and the end of what is served. Its records can only be removed,
by retention or compaction, and then it is another range (`Range.version`); so its files never
change. Finding a file's size takes a pass over the records, made once, by the first caller that
needs the size (`Ranges.pending`).

Invariants:

1. The bytes of a file follow from its records alone, wherever reading begins: a `StreamPiece` is
   the same whenever its source is started there.
2. A file has a size only if every record in it can be read. Damage fails the lookup of the file, or
   the read if the damage appeared later: no read returns fewer bytes than the size promises.

Text and Arrow streams are made as they are read. A Parquet file cannot be, as its metadata is at
its end: it is written to a temporary file first (`copies.py`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from time import monotonic
from typing import Final
from weakref import WeakValueDictionary

from kafkafs.storage import CorruptError, SegmentGone, StorageError, View, fresh

from ..partition import MountedPartition, Scope
from ..vfs.errnos import Ending, Stale, TreeError
from ..vfs.handles import Data, Handle
from ..vfs.inodes import InodeKind, RecentPlaces, pack
from ..vfs.pending import Pending
from .copies import Copies, CopyWriter, TemporaryCopy
from .streams import Checkpoints, StreamHandle, StreamSource

# Number of ranges with an inode number at a time, and of files whose size is remembered.
_MOST_RANGES: Final = 1 << 16
_MOST_FOUND: Final = 1024
_MOST_CHECKPOINTS: Final = 256
# How long a failure is cached: a program makes several requests for each file.
_FAILURE_SECONDS: Final = 5.0
_ATTEMPTS: Final = 8
_MEMBER_BITS: Final = 4


#: The number of no decoders.
NO_SCHEMAS: Final = -1


class RangeMember(IntEnum):
    """The lowest bits of an inode number of InodeKind.RANGE."""

    DIRECTORY = 0
    VALUES = 1
    KEYS = 2
    RECORDS_JSONL = 3
    RECORDS_ARROW = 4
    RECORDS_PARQUET = 5
    DECODED_JSONL = 6
    DECODED_ARROW = 7
    DECODED_PARQUET = 8


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `first` to `last`, both inclusive, of a partition in one of its versions. `schemas`:
    the number of the decoders that make a decoded file; for all else NO_SCHEMAS."""

    partition: MountedPartition
    version: int
    first: int
    last: int
    schemas: int = NO_SCHEMAS

    @property
    def name(self) -> str:
        return f"{self.first}-{self.last}"

    def view(self) -> View:
        """Returns a view that covers the range. Raises Stale if the range is no longer served."""
        seen = self.partition.seen()
        view = seen.view
        is_served = view.start_offset <= self.first and self.last < self.partition.bound(view)
        if not is_served or seen.versions.of(Scope.FILES) != self.version:
            raise Stale
        return view

    def pinned_view(self) -> View:
        """Returns such a view with its segments pinned, so that it stays readable."""
        for _ in range(_ATTEMPTS):
            view = replace(self.view(), _pinned=[])
            try:
                view.pin(self.first, self.last + 1)
            except SegmentGone:  # deleted or replaced since the view was made
                continue
            return view
        raise Stale

    def mtime_ns(self, view: View) -> int:
        """Returns when the segment of the last offset was last written, in ns since 1970."""
        return view.segments[max(view.segments.floor_index(self.last), 0)].mtime_ns


@dataclass(frozen=True, slots=True)
class Streamed:
    """The content of a file that is made piece by piece by `source`, which raises errors."""

    source: Callable[[Range, View], StreamSource]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The content of a file that has to be written in one go."""

    write: Callable[[Range, View, CopyWriter], None]


@dataclass(slots=True, weakref_slot=True)
class MeasuredRangeFile:
    """What is known of a file: size in bytes, time, and checkpoints to start reading from."""

    size: int
    mtime_ns: int
    checkpoints: Checkpoints
    copy: TemporaryCopy | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a file has no size, and when it was found out, by `monotonic`."""

    error: Exception
    at: float


Key = tuple[Range, RangeMember]


class Ranges:
    """The ranges of a mount. Any thread may use it."""

    def __init__(self, most_copied: int) -> None:
        """`most_copied`: limit of the total size of all Parquet files, in bytes."""
        self._numbers: RecentPlaces[Range] = RecentPlaces(_MOST_RANGES)
        self._copies = Copies(most_copied)
        self._lock = threading.Lock()  # guards what follows, for lookups only
        self._found: OrderedDict[Key, MeasuredRangeFile | _Failure] = OrderedDict()
        self._in_use: WeakValueDictionary[Key, MeasuredRangeFile] = WeakValueDictionary()
        self._finding: dict[Key, threading.Lock] = {}
        self._is_ending = False

    def inode(self, range_: Range, member: RangeMember) -> int:
        """Returns the inode number of a range's directory or file."""
        number = self._numbers.number(range_) << _MEMBER_BITS | member
        return pack(InodeKind.RANGE, 0, 0) | number

    def by_inode(self, inode: int) -> Key:
        """Returns the range and member of an inode number. Raises Stale if it is forgotten."""
        number = inode - pack(InodeKind.RANGE, 0, 0)
        try:
            member = RangeMember(number & (1 << _MEMBER_BITS) - 1)
        except ValueError:
            raise Stale from None
        return self._numbers[number >> _MEMBER_BITS], member

    def known(self, key: Key) -> MeasuredRangeFile | None:
        """Returns what is known of a file, or None. Raises the error of a failed measurement of a
        moment ago. Costs nothing."""
        with self._lock:
            found = self._found.get(key) or self._in_use.get(key)
            if isinstance(found, _Failure):
                if monotonic() - found.at < _FAILURE_SECONDS:
                    raise fresh(found.error)
                return None
            if found is not None:
                self._keep(key, found)
            return found

    def at_hand(self, key: Key) -> MeasuredRangeFile | None:
        """Returns the same, but None for a failure."""
        try:
            return self.known(key)
        except (StorageError, TreeError, OSError):
            return None

    def pending(self, key: Key, content: Streamed | WrittenFile) -> Pending | None:
        """Returns the work that `measured` has to do; None if it is done."""
        if self._is_answered(key):
            return None
        return Pending(key, lambda: self._is_answered(key), lambda: self.measured(key, content))

    def _is_answered(self, key: Key) -> bool:
        try:
            return self.known(key) is not None
        except (StorageError, TreeError, OSError):
            return True

    def measured(self, key: Key, content: Streamed | WrittenFile) -> MeasuredRangeFile:
        """Returns what is known of a file, measuring it if necessary, which may take long. Raises
        Stale, and the errors of reading all of it: CorruptError if a record is damaged."""
        with self._finder(key):
            found = self.known(key)
            if found is None:
                found = self._find(key, content)
            return found

    @contextmanager
    def _finder(self, key: Key) -> Iterator[None]:
        """Locks out other threads that would measure the same file."""
        with self._lock:
            one = self._finding.setdefault(key, threading.Lock())
        try:
            with one:
                yield
        finally:
            with self._lock:
                self._finding.pop(key, None)

    def _find(self, key: Key, content: Streamed | WrittenFile) -> MeasuredRangeFile:
        try:
            found = self._measure(key, content)
        except (StorageError, TreeError, OSError) as error:
            with self._lock:
                self._keep(key, _Failure(fresh(error), monotonic()))
            raise
        with self._lock:
            self._keep(key, found)
        return found

    def _keep(self, key: Key, found: MeasuredRangeFile | _Failure) -> None:
        self._found[key] = found
        self._found.move_to_end(key)
        if isinstance(found, MeasuredRangeFile):
            self._in_use[key] = found
        if len(self._found) > _MOST_FOUND:
            _, forgotten = self._found.popitem(last=False)
            if isinstance(forgotten, MeasuredRangeFile) and forgotten.copy is not None:
                self._copies.drop(forgotten.copy)

    def _measure(self, key: Key, content: Streamed | WrittenFile) -> MeasuredRangeFile:
        range_, _ = key
        view = range_.pinned_view()
        mtime_ns = range_.mtime_ns(view)
        if isinstance(content, WrittenFile):
            copy = self._copy(range_, view, content)
            return MeasuredRangeFile(copy.size, mtime_ns, Checkpoints(1), copy)
        size, checkpoints = 0, Checkpoints(_MOST_CHECKPOINTS)
        for piece in content.source(range_, view).pieces(-1):
            self._check_running()
            if isinstance(piece, CorruptError):
                raise fresh(piece)
            checkpoints.add(size, piece.restart)
            size += memoryview(piece.data).nbytes
        return MeasuredRangeFile(size, mtime_ns, checkpoints)

    def _copy(self, range_: Range, view: View, content: WrittenFile) -> TemporaryCopy:
        return self._copies.make(partial(content.write, range_, view), self._check_running)

    def _check_running(self) -> None:
        if self._is_ending:
            raise Ending

    def end(self) -> None:
        """Stops measuring: the mount is shutting down."""
        self._is_ending = True

    def open(self, key: Key, content: Streamed | WrittenFile) -> Handle:
        """Opens a file. Raises what `measured` does."""
        range_, _ = key
        found = self.measured(key, content)
        view = range_.pinned_view()
        if isinstance(content, Streamed):
            return RangeHandle(range_, content.source(range_, view), found)
        with self._finder(key):
            while found.copy is None or not self._copies.acquire(found.copy):
                copy = self._copy(range_, view, content)
                if copy.size != found.size:
                    what = f"range {range_.name} has other bytes than before"
                    raise CorruptError(what, range_.partition.log.path)
                found.copy = copy
            return CopyHandle(self._copies, found, found.copy)


class RangeHandle(StreamHandle):
    """An open file of known size that is made as it is read."""

    def __init__(self, range_: Range, source: StreamSource, measured: MeasuredRangeFile) -> None:
        note_damage = range_.partition.note_damage
        super().__init__(source, note_damage, measured.checkpoints.copy())
        self.direct_io = False
        self._range = range_
        self._measured = measured  # stays known while the file is open

    def at_hand(self, position: int, size: int) -> Data | None:
        served = min(size, self._measured.size - position)
        if served <= 0:
            return b""
        data = super().at_hand(position, served)
        if data is not None and memoryview(data).nbytes < served:
            # The kernel and every program would take it for the end of the file.
            what = f"range {self._range.name} ends before its size of {self._measured.size} bytes"
            raise CorruptError(what, self._range.partition.log.path)
        return data


class CopyHandle(Handle):
    """An open file with the content of a temporary file. Any number of threads may read."""

    def __init__(self, copies: Copies, measured: MeasuredRangeFile, copy: TemporaryCopy) -> None:
        """`copy` must have been acquired; `close` releases it."""
        self._copies = copies
        self._measured = measured  # stays known while the file is open
        self._copy = copy

    def read(self, position: int, size: int) -> Data:
        return self._copy.read(position, size)

    def close(self) -> None:
        self._copies.release(self._copy)
