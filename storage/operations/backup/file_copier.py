"""What a copied file is, and how a dry run finds out what would be copied."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...backup.manifest import Piece, SourceState, StoredFile, StoredObject
from ...concurrency.unit_threads import Advance, ignore_advance
from ...errors import CorruptError
from ...io.directory import ReadableFile
from ...log.read.lookup import boundary_before, extent_from
from ...segment.extent import Extent
from ...segment.segment import Segment


@dataclass(frozen=True, slots=True)
class LogBatches:
    """The batches of a segment whose log is copied."""

    segment: Segment
    max_batch_bytes: int

    def extent(self, start: int, end: int) -> Extent:
        """Returns the batches between two boundaries."""
        return replace(extent_from(self.segment, start, self.max_batch_bytes), end=end)

    def boundary(self, position: int) -> int:
        """Returns a boundary at or before a position: 0 if the index knows of none."""
        return boundary_before(self.segment, position)


class Pack:
    """An object for small pieces; `name` is "" until it is stored."""

    def __init__(self) -> None:
        self.name = ""
        self.data = bytearray()
        self.positions: dict[bytes, int] = {}


@dataclass(frozen=True, slots=True)
class PackedPiece:
    """A piece of a pack that may not be stored yet."""

    pack: Pack
    position: int
    size: int

    def piece(self) -> Piece:
        assert self.pack.name
        return Piece(self.pack.name, self.position, self.size)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file as it will be in the manifest. `new_bytes`: those that were stored for it."""

    path: str
    size: int
    mtime_ns: int
    source: SourceState | None
    pieces: Sequence[Piece | PackedPiece]
    new_bytes: int
    faults: Sequence[CorruptError] = field(default=())

    def stored(self) -> StoredFile:
        """Returns the file for the manifest; all packs must be stored."""
        pieces = [each.piece() if isinstance(each, PackedPiece) else each for each in self.pieces]
        return StoredFile(self.path, self.size, self.mtime_ns, pieces, self.source)


class FileCopier(ABC):
    """Copies files. Any thread may use it. `objects`: those of earlier points, and those that are
    new. `stored_bytes`: what was, or would be, stored so far."""

    def __init__(self, objects: dict[str, StoredObject]) -> None:
        self.objects = objects
        self.stored_bytes = 0
        self._lock = threading.Lock()  # guards what the methods change

    @abstractmethod
    def copy(
        self,
        source: ReadableFile,
        path: str,
        size: int,
        prior: StoredFile | None,
        batches: LogBatches | None = None,
        advance: Advance = ignore_advance,
    ) -> CopiedFile:
        """Copies the first `size` bytes of a file; `prior`: what the last point has of it.
        `batches`: those of a log, whose checksums are verified. Raises SegmentGone if the file is
        shorter now."""

    @abstractmethod
    def content(
        self, path: str, data: bytes, mtime_ns: int, prior: StoredFile | None
    ) -> CopiedFile:
        """Stores a small file with content of our own."""

    @abstractmethod
    def finish(self) -> None:
        """Stores what is still in memory."""


class DryCopier(FileCopier):
    """Only tells what would be copied."""

    def copy(
        self,
        source: ReadableFile,
        path: str,
        size: int,
        prior: StoredFile | None,
        batches: LogBatches | None = None,
        advance: Advance = ignore_advance,
    ) -> CopiedFile:
        status = source.stat()
        state = SourceState(status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        has = 0
        if prior is not None and prior.source is not None and prior.source.inode == state.inode:
            has = min(prior.size, size)
        if prior is not None and is_same(prior, state, size):
            has = size
        advance(size)
        with self._lock:
            self.stored_bytes += size - has
        return CopiedFile(path, size, status.st_mtime_ns, state, (), size - has)

    def content(
        self, path: str, data: bytes, mtime_ns: int, prior: StoredFile | None
    ) -> CopiedFile:
        return CopiedFile(path, len(data), mtime_ns, None, (), 0)

    def finish(self) -> None:
        """Does nothing: nothing is stored."""


def is_same(prior: StoredFile, state: SourceState, size: int) -> bool:
    """Returns whether a file looks as it did at the last point."""
    return prior.source == state and prior.size == size
