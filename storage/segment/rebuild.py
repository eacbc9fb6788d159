"""Reads a segment for recovery: finds its valid prefix and rebuilds its indexes.

The rule is that of Kafka's LogSegment.recover: the batches before the first one that is cut off or
fails its checksum are valid, everything after them is truncated, and both indexes are rebuilt.
Records are not decoded.

Kafka accepts a batch with a right checksum whatever its offset, and empties the whole segment if
its index then rejects an entry. Here a batch whose offset does not follow ends the segment like any
other damage: the batches before it are retained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..errors import CorruptError
from ..format.layout import MAX_INT32, RECORD_BATCH_OVERHEAD
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from .extent import Extent, Fault
from .index_builder import IndexBuilder
from .salvage import has_right_checksum
from .walk import read_runs


class Rebuild:
    """The rebuild of one segment, or of a part that is to become a segment of its own.

    Iterating over `tables` fills the other attributes: `size` is the number of bytes of valid
    batches, which end before `next_offset`; `offsets` and `times` are the bytes of the two indexes.
    The valid batches are followed by `fault`, if not None, or, if `overflows`, by a batch whose
    offset is too far from the base for an index: it belongs into another segment (KAFKA-6264).
    """

    def __init__(self, extent: Extent, builder: IndexBuilder) -> None:
        self.size = 0
        self.next_offset = extent.base_offset
        self.fault: CorruptError | None = None
        self.overflows = False
        self._extent = extent
        self._builder = builder
        self._offsets: list[bytes] = []
        self._times: list[bytes] = []

    @property
    def offsets(self) -> bytes:
        return b"".join(self._offsets)

    @property
    def times(self) -> bytes:
        return b"".join(self._times)

    def tables(self) -> Iterator[BatchTable]:
        """Yields the valid batches in order; each table is valid until the next is requested."""
        for found in _valid_batches(self._extent):
            if isinstance(found, CorruptError):
                self.fault = found
                break
            fitting = found.select(slice(0, self._fitting(found)))
            if len(fitting):
                yield self._taken(fitting)
            if len(fitting) < len(found):
                self.overflows = True
                break
        self._times.append(self._builder.finish())

    def _fitting(self, table: BatchTable) -> int:
        """Returns how many of a table's batches the segment can hold."""
        highest = self._extent.base_offset + MAX_INT32
        return int(np.searchsorted(table.column(b.LAST_OFFSET), highest, side="right"))

    def _taken(self, table: BatchTable) -> BatchTable:
        placed = table
        if self._extent.start:
            placed = BatchTable(table.rows.copy())
            placed.rows[:, b.POSITION] -= self._extent.start
        entries = self._builder.add(placed)
        self._offsets.append(entries.offsets)
        self._times.append(entries.times)
        last = placed.rows[-1]
        self.size = int(last[b.POSITION] + last[b.SIZE])
        self.next_offset = int(last[b.LAST_OFFSET]) + 1
        return table


def _valid_batches(extent: Extent) -> Iterator[BatchTable | CorruptError]:
    """Yields the valid batches of an extent as tables, and the error if they end before it."""
    while extent.start < extent.end:
        fault: Fault | None = None
        position, previous = extent.start, extent.previous_offset
        for part in read_runs(extent):
            if isinstance(part, Fault):
                fault = part
                break
            yield part.table
            last = part.table.rows[-1]
            position = int(last[b.POSITION] + last[b.SIZE])
            previous = int(last[b.LAST_OFFSET])
        if fault is None:
            if position < extent.end:
                yield extent.error("the file was truncated while it was read", position)
            return
        large = large_batch(replace(extent, start=position, previous_offset=previous))
        if large is None:
            yield fault.error
            return
        yield large
        header = large[0]
        extent = replace(extent, start=header.next_position, previous_offset=header.last_offset)


def large_batch(extent: Extent) -> BatchTable | None:
    """Returns the batch at an extent's start if it is valid but exceeds `max_batch_bytes`."""
    head = extent.file.read(extent.start, RECORD_BATCH_OVERHEAD)
    table, _ = b.scan(
        head,
        len(head),
        extent.start,
        BatchTable.empty(1),
        previous_offset=extent.previous,
        whole=False,
    )
    if not len(table):
        return None
    header = table[0]
    is_large = extent.max_batch_bytes < header.size <= extent.end - extent.start
    if not is_large or header.last_offset >= extent.limit_offset:
        return None
    return table if has_right_checksum(extent.file, header) else None
