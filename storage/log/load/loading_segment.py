"""A segment while its partition is loaded: the present place of its bytes, and how it changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import CorruptError, SegmentGone
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...io.directory import Directory, ReadableFile
from ...segment.extent import Extent, Fault
from ...segment.offset_index import OffsetIndex
from ...segment.walk import walk_headers
from ..read.lookup import header_at
from ..read.markers import read_end_txn_marker


def check_log_size(size: int, path: str) -> None:
    """Raises CorruptError if a `.log` of `size` bytes has 2 GiB or more: positions are int32."""
    if size > MAX_INT32:
        raise CorruptError(f"{size} bytes, more than the {MAX_INT32} that a segment can have", path)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a log: the offset after its last batch, and whether the file ends there, too."""

    next_offset: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The new contents of a segment's files, and `why` it was scanned: the size of the `.log` in
    bytes, and the three indexes."""

    why: str
    size: int
    next_offset: int
    offsets: bytes
    times: bytes
    aborted: bytes


@dataclass(slots=True)
class LoadingSegment:
    """Bytes [`start`, `end`) of the file `name`: a whole `.log`, or (`is_part`) a part that will
    become one in a split. `index` is its offset index file, "" if there is none.

    `limit_offset`: the next segment's base offset. `rebuilt` is None while the segment is left as
    it is; `fault` is the reason why it gets shorter.
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
    _file: ReadableFile | None = None  # open during a scan

    @property
    def size(self) -> int:
        """Its size in bytes after the load."""
        return self.end - self.start if self.rebuilt is None else self.rebuilt.size

    @contextmanager
    def opened(self) -> Iterator[ReadableFile]:
        """Opens its file for the `with` block; `read_marker` uses the same file."""
        self._file = self.directory.open(self.name)
        try:
            yield self._file
        finally:
            self._file = None

    def extent(self, file: ReadableFile, position: int = 0) -> Extent:
        """Returns its bytes from the batch boundary `position` on."""
        return Extent(
            file,
            self.base_offset,
            self.start + position,
            self.start + self.size,
            self.max_batch_bytes,
            limit_offset=self.limit_offset,
        )

    def tables(self, from_offset: int) -> Iterator[BatchTable]:
        """Yields its batches, beginning at or before `from_offset`. Damaged ones are skipped."""
        with self.opened() as file:
            for part in walk_headers(self.extent(file, self._position(file, from_offset))):
                if not isinstance(part, Fault):
                    yield part

    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        """Reads the marker in a batch of the current scan."""
        assert self._file is not None
        return read_end_txn_marker(self._file, header)

    def find_end(self) -> End:
        """Finds the end of its batches, from the last index entry unless it was rebuilt."""
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

    def _position(self, file: ReadableFile, offset: int) -> int:
        """Returns a batch boundary at or before `offset`, from the index if it is valid."""
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
