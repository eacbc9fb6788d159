"""A segment while its partition is loaded: where its bytes are now, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..disk import Directory, OpenFile
from ..errors import CorruptError, SegmentGone
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable
from ..format.control import EndTxnMarker, parse_end_txn_marker
from ..format.layout import MAX_OFFSET
from ..segment.extent import Extent, Fault
from ..segment.offset_index import OffsetIndex
from ..segment.walk import walk_headers
from .lookup import header_at

# A marker's batch has 78 bytes as Kafka writes it; one of more than this is no marker.
_MARKER_BYTES = 512


@dataclass(frozen=True, slots=True)
class End:
    """Where a log ends: the offset after its last batch, and whether the file ends there, too."""

    next_offset: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a segment's files are to hold, and `why` it was gone through: bytes of the `.log`, and
    the three indexes."""

    why: str
    size: int
    next_offset: int
    offsets: bytes
    times: bytes
    aborted: bytes


@dataclass(slots=True)
class LoadingSegment:
    """Bytes [`start`, `end`) of the file `name`: all of a `.log` or (`is_part`) what is to become
    one when it is split. Its offset index is the file `index`, "" when there is none.

    `limit_offset`: the next segment's base. `rebuilt` is None as long as it is taken as it is;
    `fault` is why less of it stays than there was.
    """

    directory: Directory
    base_offset: int
    name: str
    index: str
    start: int
    end: int
    limit_offset: int
    max_batch_bytes: int
    is_part: bool = False
    rebuilt: Rebuilt | None = None
    fault: CorruptError | None = None
    _file: OpenFile | None = None  # kept while it is gone through

    @property
    def size(self) -> int:
        """Bytes that it is to have."""
        return self.end - self.start if self.rebuilt is None else self.rebuilt.size

    @contextmanager
    def opened(self) -> Iterator[OpenFile]:
        """Its file, open as long as the `with` takes; what is asked for meanwhile uses it, too."""
        self._file = self.directory.open(self.name)
        try:
            yield self._file
        finally:
            self._file = None

    def extent(self, file: OpenFile, position: int = 0) -> Extent:
        """Its bytes from `position` on, a batch boundary."""
        return Extent(
            file,
            self.base_offset,
            self.start + position,
            self.start + self.size,
            self.max_batch_bytes,
            limit_offset=self.limit_offset,
        )

    def tables(self, from_offset: int) -> Iterator[BatchTable]:
        """Its batches, from some that is not behind `from_offset` on. What is damaged is left
        out."""
        with self.opened() as file:
            for part in walk_headers(self.extent(file, self._position(file, from_offset))):
                if not isinstance(part, Fault):
                    yield part

    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        """What one of the batches says that it is just gone through for."""
        assert self._file is not None
        position, size = header.position, min(header.size, _MARKER_BYTES)
        return parse_end_txn_marker(self._file.read(position, size))

    def find_end(self) -> End:
        """The end of its batches, by the last entry of its index where it was not gone through."""
        if self.rebuilt is not None:
            return End(self.rebuilt.next_offset, True)
        next_offset, is_whole, at = self.base_offset, True, self.start
        with self.opened() as file:
            at += self._position(file, MAX_OFFSET)
            for part in walk_headers(self.extent(file, at - self.start)):
                if isinstance(part, Fault):
                    is_whole = False
                    continue
                last = part.rows[-1]
                next_offset, at = int(last[b.LAST_OFFSET]) + 1, int(last[b.POSITION] + last[b.SIZE])
        return End(next_offset, is_whole and at == self.end)

    def _position(self, file: OpenFile, offset: int) -> int:
        """A batch boundary at or before the batch of `offset`, by the index if that holds."""
        if not self.index or self.rebuilt is not None or offset <= self.base_offset:
            return 0
        try:
            index = OffsetIndex.open(self.directory, self.index, self.base_offset)
        except (SegmentGone, CorruptError):
            return 0
        found = index.lookup(offset, self.end)
        header = header_at(file, found.position) if found.position else None
        if header is None or not self.base_offset <= header.last_offset <= found.offset:
            return 0
        return found.position
