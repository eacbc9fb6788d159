"""Reads a whole segment for the cleaner; any damage is an error."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from ..errors import CorruptError, fresh
from ..format.layout import MAX_INT32
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from ..format.records.columns import Columns
from ..format.records.decoder import BadBatch, Decoder
from ..log.read.lookup import extent_from
from ..log.read.scan import misplaced
from ..segment.extent import Fault
from ..segment.segment import Segment
from ..segment.walk import BatchRun, read_runs


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive batches of a segment with valid checksums; `run` is valid until the next chunk is
    requested. `reached`: the end offset of the batch before them."""

    segment: Segment
    run: BatchRun
    reached: int

    @property
    def table(self) -> BatchTable:
        return self.run.table

    @property
    def nbytes(self) -> int:
        """The size of the batches in bytes."""
        return _end_of(self.table) - int(self.table.rows[0, b.POSITION])

    def decode(self, table: BatchTable, decoder: Decoder) -> Iterator[Columns]:
        """Yields the records of some of the batches. Raises CorruptError if a batch cannot be
        decoded."""
        for part in decoder.decode(self.run.data, self.run.base, table, self.segment.path):
            if isinstance(part, Columns):
                part = misplaced(part, self.table, self.reached) or part
            if isinstance(part, BadBatch):
                raise part.error.at(self.segment.path)
            yield part


def read_chunks(
    segment: Segment,
    position: int,
    max_batch_bytes: int,
    *,
    end: int | None = None,
    stay_valid: bool = False,
    together: bool = False,
) -> Generator[Chunk]:
    """Yields all batches of a segment from byte `position` to byte `end`, both batch boundaries, or
    to the end of the segment. Raises CorruptError if a batch is malformed or has a wrong checksum.
    For `stay_valid` and `together` see `read_runs`."""
    reached = segment.base_offset
    extent = extent_from(segment, position, max_batch_bytes)
    if end is not None:
        extent = replace(extent, end=end)
    for run in read_runs(extent, stay_valid=stay_valid, together=together):
        if isinstance(run, Fault):
            raise fresh(run.error)
        _check_offsets(segment, run.table)
        yield Chunk(segment, run, reached)
        position = _end_of(run.table)
        reached = int(run.table.rows[-1, b.LAST_OFFSET]) + 1
    if position < extent.end:
        what = f"the file ends here; it had {segment.size} bytes"
        raise CorruptError(what, segment.path, position)


def _check_offsets(segment: Segment, table: BatchTable) -> None:
    """Raises CorruptError if an offset is too far above the segment's base offset for its
    indexes."""
    last_offset = int(table.rows[-1, b.LAST_OFFSET])
    if last_offset - segment.base_offset <= MAX_INT32:
        return
    at = int(table.column(b.LAST_OFFSET).searchsorted(segment.base_offset + MAX_INT32 + 1))
    what = f"offset {table[at].last_offset} is too far above the base of its segment"
    raise CorruptError(what, segment.path, table[at].position)


def _end_of(table: BatchTable) -> int:
    """Returns the end position of the last batch."""
    last = table.rows[-1]
    return int(last[b.POSITION] + last[b.SIZE])
