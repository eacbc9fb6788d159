"""One partition at one moment, for reading: all records are read through this module.

A ``View`` never changes and blocks nothing; a log that grew or was trimmed has a new one. All data
come from ``scan`` (many records, as columns) or ``find`` (one), and both stop where the reader's
isolation requires. Threads may share a view.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import cast

from ...clock import time_text
from ...errors import CorruptError, OffsetNotFound, StorageError, fresh
from ...format.layout import CODEC_MASK, CONTROL_MASK, NO_TIMESTAMP, TRANSACTIONAL_MASK
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.columns import Columns, Damage, Lines, Record
from ...format.records.decoder import (
    BadBatch,
    Decoded,
    checksum_error,
    checksum_is_right,
    decode_alone,
)
from ...segment.extent import Fault
from ...segment.segment import HeldFile, Segment
from ...segment.walk import walk_headers
from ...wording import printable
from . import lookup
from .context import ReadContext
from .point_lookup import FoundBatch, LookupBuffers, point_lookup, value_in
from .scan import (
    BatchSelector,
    ScanRequest,
    are_within,
    lost_batch,
    lost_between,
    misplaced,
    within,
)
from .segments import Segments
from .transactions import AbortedTransactions, Isolation

# Limit on consecutive faults that are reported; the last one then stands for the rest.
_MAX_REPORTED_FAULTS = 1000


class HiddenBatch(StrEnum):
    """Why a reader with ``isolation=read_committed`` does not see a batch."""

    CONTROL = "a control batch"
    ABORTED = "a batch of an aborted transaction"


@dataclass(frozen=True, slots=True)
class View:
    """Records of a partition in [``start_offset``, ``end_offset``).

    ``start_offset`` is the log start offset; ``end_offset`` the offset after the last whole batch
    (the log end offset); ``stable_offset`` the first offset of the oldest open transaction, or the
    end, or a function that finds it when it is needed. ``cuts``: how often the log was found
    without its former last batch, so that other records may have replaced some. ``tail``: damage
    after the last whole batch, if any. ``is_complete``: nothing followed that batch when the view
    was made, not even the start of one. ``ended_at_ms``: the view ends where the log ended at this
    time (ms since 1970), so that nothing is ever appended to it; None for the log's present end.
    """

    topic: str
    partition: int
    segments: Segments
    start_offset: int
    end_offset: int
    stable_offset: int | Callable[[], int]
    context: ReadContext
    tail: Fault | None = None
    cuts: int = 0
    is_complete: bool = True
    ended_at_ms: int | None = None
    _pinned: list[HeldFile] = field(default_factory=list)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset. Raises SegmentGone if it must be found, but a segment no longer
        exists."""
        found = self.stable_offset
        return found if isinstance(found, int) else found()

    def bound(self, isolation: Isolation) -> int:
        """Returns the offset where reading stops. Raises as `last_stable_offset`."""
        if isolation is Isolation.READ_UNCOMMITTED:
            return self.end_offset
        return self.last_stable_offset

    @property
    def name(self) -> str:
        """The partition's display name: `orders/0`."""
        return printable(f"{self.topic}/{self.partition}")

    @property
    def extent(self) -> str:
        """Its offsets for display: `0 to 4096`, with the time of an earlier end."""
        then = "" if self.ended_at_ms is None else f" as of {time_text(self.ended_at_ms)}"
        if self.start_offset == self.end_offset:
            return f"empty{then}, the next offset is {self.end_offset}"
        return f"{self.start_offset} to {self.end_offset - 1}{then}"

    @property
    def size(self) -> int:
        """Total bytes of the ``.log`` files."""
        return sum(segment.size for segment in self.segments)

    @property
    def local_start_offset(self) -> int:
        """The local log start offset: that of the first segment that is not in remote storage."""
        local = (each.base_offset for each in self.segments if not each.is_remote)
        return max(next(local, self.end_offset), self.start_offset)

    @property
    def max_timestamp(self) -> int:
        """Greatest timestamp of any batch, in ms; -1 if none has one."""
        return max(map(self.largest_timestamp, self.segments), default=-1)

    def pin(self, start: int = 0, end: int | None = None) -> None:
        """Opens and holds every ``.log`` with offsets in [``start``, ``end``), to the last for
        None, so that these can be read even if they are deleted."""
        self._pinned[:] = [
            segment.files.hold()
            for segment in self.segments.from_offset(start)
            if end is None or segment.base_offset < end
        ]

    # -- many records ---------------------------------------------------------------------------

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        *,
        ahead: bool = False,
        select: BatchSelector | None = None,
    ) -> Generator[Columns | Damage]:
        """Yields records with ``start`` <= offset < ``end`` that the isolation shows, in order.

        Columns are valid until the next item is read. Unreadable bytes yield a ``Damage``, and the
        scan continues after them. ``ahead``: another thread reads and checks the next data; useful
        for large reads with idle processors. ``select`` selects batches; those of magic 2 that it
        excludes are not decoded.
        """
        request = ScanRequest(isolation, None, ahead, select)
        return cast(Generator[Columns | Damage], self._scan(start, end, request))

    def lines(
        self,
        field: int,
        start: int | None = None,
        end: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        *,
        ahead: bool = False,
    ) -> Generator[Lines | Columns | Damage]:
        """As ``scan``, but yields lines of one field, KEY_START or VALUE_START, wherever possible,
        which halves the cost. Lines remain valid."""
        request = ScanRequest(isolation, field, ahead, None)
        return cast(Generator[Lines | Columns | Damage], self._scan(start, end, request))

    def record_counts(
        self,
        start: int | None = None,
        end: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> Generator[int | Damage]:
        """Yields numbers that add up to the number of records that ``scan`` yields for the same
        arguments, and the damage that prevents counting.

        Only headers are read of batches that have as many records as offsets, so that two fields
        confirm each other: damage of the records themselves is not noticed. Others, such as
        compaction leaves, are read, and their checksums verified; records are decoded only at the
        bounds."""
        request = ScanRequest(isolation, None, ahead=False, select=None, counts=True)
        return cast(Generator[int | Damage], self._scan(start, end, request))

    def _scan(
        self, start: int | None, end: int | None, request: ScanRequest
    ) -> Generator[Lines | Columns | Damage | int]:
        # Control records are never returned: no Kafka consumer gets them, under any isolation.
        bound = self.bound(request.isolation)
        low = self.start_offset if start is None else max(start, self.start_offset)
        high = bound if end is None else min(end, bound)
        read = self._count_segment if request.counts else self._scan_segment
        for segment in self.segments.from_offset(low):
            if segment.base_offset >= high or low >= high:
                break
            yield from read(segment, low, high, request)
        is_asked = end is None or end > self.end_offset
        if self.tail is not None and is_asked and bound == self.end_offset:
            yield Damage(self.tail.error, self.end_offset, -1)

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> Iterator[Columns]:
        """As ``scan``, but raises damage as a CorruptError."""
        for part in self.scan(start, end, isolation):
            if isinstance(part, Damage):
                raise fresh(part.error)
            yield part

    def _scan_segment(
        self, segment: Segment, start: int, end: int, request: ScanRequest
    ) -> Generator[Lines | Columns | Damage]:
        limit = self.context.limits.max_batch_bytes
        position = 0
        if start > segment.base_offset:
            position = lookup.position_for(segment, start, limit)
        transactions = self._transactions(request.isolation)
        reached = segment.base_offset  # offsets below are read, skipped or lost
        faults: list[Fault] = []
        path = segment.path
        with self.context.decoder() as decoder:
            for run in request.runs(lookup.extent_from(segment, position, limit)):
                if isinstance(run, Fault):
                    if len(faults) < _MAX_REPORTED_FAULTS:
                        faults.append(run)
                    continue
                if faults:
                    resumed = self._first_offset(segment, run.table[0])
                    yield from lost_between(faults, reached, resumed, start, end)
                    faults = []
                table = self._visible(run.table, segment, start, end, transactions)
                if request.select is not None:
                    table = table.select(request.select(table))
                field = request.field
                if field is None or not are_within(table, start, end):
                    parts: Decoded = decoder.decode(run.data, run.base, table, path)
                else:
                    parts = decoder.lines(run.data, run.base, table, path, field)
                for part in parts:
                    if isinstance(part, Lines):
                        yield part
                        continue
                    if isinstance(part, Columns):
                        part = misplaced(part, run.table, reached) or part
                    if isinstance(part, BadBatch):
                        yield lost_batch(part, path, run.table, reached, start, end)
                    elif len(trimmed := within(part, start, end)):
                        yield trimmed
                reached = int(run.table.rows[-1, b.LAST_OFFSET]) + 1
                if reached >= end:
                    return
        if faults:
            yield from lost_between(faults, reached, segment.next_base, start, end)

    def _count_segment(
        self, segment: Segment, start: int, end: int, request: ScanRequest
    ) -> Generator[int | Damage]:
        transactions = self._transactions(request.isolation)
        reached = segment.base_offset
        for table in self._counting_headers(segment, start, request):
            if isinstance(table, Fault):
                yield from self._count_decoded(segment, max(start, reached), end, request)
                return
            if table.rows[0, b.BASE_OFFSET] >= end:
                return
            reached = int(table.rows[-1, b.LAST_OFFSET]) + 1
            rows = self._visible(table, segment, start, end, transactions).rows
            first, last, counts = (
                rows[:, column] for column in (b.BASE_OFFSET, b.LAST_OFFSET, b.RECORD_COUNT)
            )
            # A batch across a bound, or with more records than offsets, must be decoded.
            is_told = (first >= start) & (last < end) & (counts <= last - first + 1)
            decoded = rows[~is_told][:, (b.BASE_OFFSET, b.LAST_OFFSET)].tolist()
            yield int(counts[is_told].sum())
            for low, high in decoded:
                yield from self._count_decoded(
                    segment, max(start, low), min(end, high + 1), request
                )

    def _counting_headers(
        self, segment: Segment, start: int, request: ScanRequest
    ) -> Iterator[BatchTable | Fault]:
        """Yields headers from a batch at or before ``start`` on, as long as they are of magic 2.
        From the first whose number of records nothing confirms on, checksums are verified."""
        limit = self.context.limits.max_batch_bytes
        position = 0
        if start > segment.base_offset:
            position = lookup.position_for(segment, start, limit)
        previous = -1
        for table in walk_headers(lookup.extent_from(segment, position, limit)):
            if isinstance(table, Fault) or not _confirm_counts(table):
                break
            yield table
            last = table[len(table) - 1]
            position, previous = last.next_position, last.last_offset
        for run in request.runs(lookup.extent_from(segment, position, limit, previous)):
            if isinstance(run, Fault):
                yield run
                return
            if run.table.summary().least_magic < 2:
                what = "a batch whose header does not tell its records"
                yield Fault(CorruptError(what, segment.path, run.base), run.base)
                return
            yield run.table

    def _count_decoded(
        self, segment: Segment, start: int, end: int, request: ScanRequest
    ) -> Generator[int | Damage]:
        parts = self._scan_segment(segment, start, end, request)
        for part in cast(Generator[Columns | Damage], parts):
            yield len(part) if isinstance(part, Columns) else part

    def _first_offset(self, segment: Segment, header: BatchHeader) -> int:
        """Returns the base offset of a batch; a wrapper must be decoded to find it."""
        if header.record_count < 0:
            try:
                return int(self.batch(segment, header).offsets[0])
            except CorruptError:
                pass
        return header.base_offset

    def _transactions(self, isolation: Isolation) -> AbortedTransactions | None:
        if isolation is Isolation.READ_UNCOMMITTED:
            return None
        return AbortedTransactions(tuple(self.segments), self.context)

    def _visible(
        self,
        table: BatchTable,
        segment: Segment,
        start: int,
        end: int,
        transactions: AbortedTransactions | None,
    ) -> BatchTable:
        """Returns the batches of a table that have records in the range and under the isolation."""
        rows, summary = table.rows, table.summary()
        if (
            start <= rows[0, b.LAST_OFFSET]
            and rows[-1, b.LAST_OFFSET] < end
            and not summary.any_has & (CONTROL_MASK | TRANSACTIONAL_MASK)
            and summary.least_records > 0
        ):
            return table  # nearly always, and much cheaper than the code below
        shown = rows[:, b.LAST_OFFSET] >= start
        shown &= (rows[:, b.BASE_OFFSET] < end) | (rows[:, b.MAGIC] < 2)
        shown &= (rows[:, b.RECORD_COUNT] != 0) & ~table.flagged(CONTROL_MASK)
        if transactions is not None:
            shown &= ~transactions.hidden(table, segment)
        return table if shown.all() else table.select(shown)

    # -- one record -----------------------------------------------------------------------------

    def find(self, offset: int, isolation: Isolation = Isolation.READ_COMMITTED) -> Record:
        """Returns the record at ``offset``. Raises OffsetNotFound if there is none, and
        CorruptError if its batch is damaged."""
        columns, row = self.locate(offset, isolation)
        return columns.record(row)

    def locate(
        self, offset: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> tuple[Columns, int]:
        """Returns the decoded batch that holds ``offset``, and its record's row; as ``find``."""
        segment = self.segment_of(offset, isolation)
        found = self._point_lookup(segment, offset)
        return self.locate_in(segment, offset, isolation) if found is None else found

    def segment_of(self, offset: int, isolation: Isolation) -> Segment:
        """Returns the segment that holds ``offset`` if any does. Raises as ``find`` if the offset
        is outside of what ``isolation`` shows."""
        if self.tail is not None and offset == self.end_offset:
            raise fresh(self.tail.error)
        self._check_range(offset, isolation)
        return self.segments[max(self.segments.floor_index(offset), 0)]

    def locate_in(self, segment: Segment, offset: int, isolation: Isolation) -> tuple[Columns, int]:
        """As ``locate``, by a walk in ``segment``, which serves every kind of batch."""
        header, fault = lookup.find_batch(segment, offset, self.context.limits.max_batch_bytes)
        if header is None or header.begins_after(offset):
            raise self._missing(offset, fault)
        hidden = self.why_hidden(header, segment, isolation)
        if hidden is not None:
            why = f"it is in {hidden}, which only isolation read_uncommitted shows"
            raise self._no_record(offset, why)
        if not header.record_count:
            raise self._no_record(offset, "compacted away, its batch is empty")
        columns = self.batch(segment, header)
        row = columns.row_of(offset)
        if row < 0:
            raise self._missing(offset, fault if columns.offsets[0] > offset else None)
        return columns, row

    def _point_lookup(self, segment: Segment, offset: int) -> tuple[Columns, int] | None:
        """Returns the result of ``locate`` if a point lookup finds it, else None."""
        context = self.context
        buffers = context.acquire_buffers()
        found = self._plain_batch(segment, offset, buffers)
        context.release_buffers(buffers)
        if found is None:
            return None
        key = (segment.files.identity, tuple(found.header))
        columns = self.context.batches.get(key)
        if columns is None:
            # copied, so that a cached batch does not keep the whole read buffer alive
            data = memoryview(bytes(found.data))
            columns = decode_alone(data, found.header, found.file)
            if columns is None:
                return None
            self.context.batches.put(key, columns)
        row = columns.row_of(offset)
        return (columns, row) if row >= 0 else None

    def _plain_batch(
        self, segment: Segment, offset: int, buffers: LookupBuffers
    ) -> FoundBatch | None:
        """Returns the batch of ``offset`` if a point lookup finds it and it is plain: uncompressed,
        not transactional, no control batch."""
        found = point_lookup(segment, offset, buffers)
        if found is None or len(found.data) > self.context.limits.max_batch_bytes:
            return None
        if found.attributes & (CODEC_MASK | CONTROL_MASK | TRANSACTIONAL_MASK):
            return None
        return found

    def value_at(
        self, offset: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> tuple[int, bytes | None] | None:
        """Returns timestamp and value of the record at ``offset`` if a point lookup finds it; None
        means unknown: use ``locate``."""
        if not self.start_offset <= offset < self.bound(isolation):
            return None
        segment = self.segments[max(self.segments.floor_index(offset), 0)]
        buffers = self.context.acquire_buffers()
        found = self._plain_batch(segment, offset, buffers)
        value = value_in(found, offset, buffers) if found is not None else None
        self.context.release_buffers(buffers)
        return value

    def _check_range(self, offset: int, isolation: Isolation) -> None:
        if offset < self.start_offset:
            why = f"offset {offset} was deleted: {self.name} begins at {self.start_offset}"
        elif offset >= self.end_offset:
            why = f"offset {offset} is past the end of {self.name} ({self.extent})"
        elif offset >= (bound := self.bound(isolation)):
            why = (
                f"offset {offset} of {self.name} is not stable: a transaction has been open since"
                f" offset {bound}, and only isolation read_uncommitted shows what follows"
            )
        else:
            return
        raise OffsetNotFound(offset, why)

    def _missing(self, offset: int, fault: Fault | None) -> StorageError:
        """Returns the error for an offset without a record: the damage before the next batch, or
        OffsetNotFound."""
        if fault is not None:
            return fresh(fault.error)
        return self._no_record(offset, "never written, or compacted away")

    def _no_record(self, offset: int, why: str) -> OffsetNotFound:
        return OffsetNotFound(offset, f"no record at offset {offset} of {self.name}: {why}")

    def why_hidden(
        self, header: BatchHeader, segment: Segment, isolation: Isolation
    ) -> HiddenBatch | None:
        """Returns why a batch is hidden, or None. (Control records are data if uncommitted.)"""
        if isolation is Isolation.READ_UNCOMMITTED:
            return None
        if header.is_control:
            return HiddenBatch.CONTROL
        if header.is_transactional:
            transactions = self._transactions(isolation)
            assert transactions is not None
            if transactions.is_aborted(header, segment):
                return HiddenBatch.ABORTED
        return None

    def batch(self, segment: Segment, header: BatchHeader) -> Columns:
        """Returns a decoded batch, from the cache if possible. Raises CorruptError if damaged."""
        key = (segment.files.identity, header)
        columns = self.context.batches.get(key)
        if columns is not None:
            return columns
        log = segment.files.log()
        limit = self.context.limits.max_batch_bytes
        if header.size > limit:
            what = f"batch of {header.size} bytes is larger than {limit}"
            raise CorruptError(
                f"{what} (config kafkafs.max.batch.bytes)", log.path, header.position
            )
        data = memoryview(log.read(header.position, header.size))
        if len(data) < header.size or not checksum_is_right(data, header, header.position):
            cause = log.error_between(header.position, header.next_position)
            raise fresh(cause or checksum_error(data, header, header.position).at(log.path))
        table = BatchTable.of(header)
        with self.context.decoder() as decoder:
            for part in decoder.decode(data, header.position, table, log.path):
                if isinstance(part, BadBatch):
                    raise part.error.at(log.path)
                columns = part.copy()
        if columns is None:  # compaction removed all records of the batch
            raise self._no_record(header.last_offset, "compacted away, its batch is empty")
        self.context.batches.put(key, columns)
        return columns

    # -- by time --------------------------------------------------------------------------------

    def offset_for_time(
        self, timestamp: int, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> int | None:
        """Returns the offset of the first visible record with a timestamp >= ``timestamp`` (ms), or
        None.

        Raises CorruptError if bytes on the way are damaged, as they may have held the result.
        """
        for _, segment in self.segments_reaching(timestamp, isolation):
            found = self._first_since(segment, timestamp, isolation)
            if found is not None:
                return found
        return None

    def segments_reaching(
        self, timestamp: int, isolation: Isolation
    ) -> Iterator[tuple[int, Segment]]:
        """Yields the segments with a timestamp >= ``timestamp`` that ``isolation`` shows, each with
        the number of older segments skipped, in total so far."""
        bound = self.bound(isolation)
        first = at = max(self.segments.floor_index(self.start_offset), 0)
        yielded = 0
        while (at := self._reaching(timestamp, at)) < len(self.segments):
            if self.segments[at].base_offset >= bound:
                return
            yield at - first - yielded, self.segments[at]
            at += 1
            yielded += 1

    def _reaching(self, timestamp: int, index: int) -> int:
        """Returns the index of the first segment from ``index`` on with a timestamp >=
        ``timestamp``; the number of segments if there is none."""
        segments = self.segments
        index = segments.timestamps.first_reaching(timestamp, index, self.largest_timestamp)
        if index == len(segments) - 1 and self.largest_timestamp(segments[-1]) < timestamp:
            index += 1
        return index

    def largest_timestamp(self, segment: Segment) -> int:
        """Returns the greatest timestamp of a segment's batches in ms, -1 if none has one."""
        return lookup.largest_timestamp(segment, self.context.limits.max_batch_bytes)

    def timestamp_bound(self, start: int | None, end: int | None) -> int:
        """Returns a timestamp (ms) that no record with ``start`` <= offset < ``end`` exceeds, -1 if
        none of them has one. It is the least that the time indexes and headers prove."""
        bound = NO_TIMESTAMP
        limit = self.context.limits.max_batch_bytes
        for segment in self.segments.from_offset(self.start_offset if start is None else start):
            if end is not None and segment.base_offset >= end:
                break
            if end is None or 0 <= segment.next_base <= end:
                bound = max(bound, self.largest_timestamp(segment))
            else:
                bound = max(bound, lookup.timestamp_bound(segment, end - 1, limit))
        return bound

    def _first_since(self, segment: Segment, timestamp: int, isolation: Isolation) -> int | None:
        limit = self.context.limits.max_batch_bytes
        for header in lookup.find_batches_since(segment, timestamp, limit, self.start_offset):
            if isinstance(header, Fault):
                raise fresh(header.error)
            if header.last_offset < self.start_offset or not header.record_count:
                continue
            if header.base_offset >= self.bound(isolation):
                return None
            if header.is_control or self.why_hidden(header, segment, isolation) is not None:
                continue
            columns = self.batch(segment, header)
            row = self.first_row_since(columns, timestamp, isolation)
            if row >= 0:
                return int(columns.offsets[row])
        return None

    def first_row_since(self, columns: Columns, timestamp: int, isolation: Isolation) -> int:
        """Returns the row of the first visible record with a timestamp >= ``timestamp`` (ms) in a
        batch that ``isolation`` shows, -1 if there is none."""
        shown = (columns.timestamps >= timestamp) & (columns.offsets >= self.start_offset)
        shown &= columns.offsets < self.bound(isolation)
        return int(shown.argmax()) if shown.any() else -1

    # -- ends -----------------------------------------------------------------------------------

    def first(self, isolation: Isolation = Isolation.READ_COMMITTED) -> int | None:
        """Returns the offset of the first visible record, or None. Skips damage."""
        for part in self.scan(isolation=isolation):
            if isinstance(part, Columns):
                return int(part.offsets[0])
        return None

    def last(self, isolation: Isolation = Isolation.READ_COMMITTED) -> int | None:
        """Returns the offset of the last visible record, or None. Skips damage."""
        scan = partial(self.scan, isolation=isolation)
        return last_offset(scan, self.start_offset, self.bound(isolation))


def last_offset(
    scan: Callable[[int, int], Iterator[Columns | Damage]], low: int, high: int
) -> int | None:
    """Returns the last offset in [`low`, `high`) that `scan` shows, or None. Searches backwards in
    growing steps: much may be hidden at the end, but usually little is."""
    step = 64
    while high > low:
        start = max(low, high - step)
        last: int | None = None
        for part in scan(start, high):
            if isinstance(part, Columns):
                last = int(part.offsets[-1])
        if last is not None:
            return last
        high, step = start, step * 8
    return None


def _confirm_counts(table: BatchTable) -> bool:
    """Returns whether each batch has as many records as offsets, as a producer writes them. A wrong
    field of a header shows in this, or in the order of offsets, which a walk checks."""
    rows = table.rows
    spans = rows[:, b.LAST_OFFSET] - rows[:, b.BASE_OFFSET] + 1
    is_dense = (rows[:, b.RECORD_COUNT] == spans) & (rows[:, b.MAGIC] > 1)
    # A flag that hides many records is no field that another one confirms.
    return bool((is_dense & (~table.flagged(CONTROL_MASK) | (spans == 1))).all())
