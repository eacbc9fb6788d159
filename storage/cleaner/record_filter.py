"""Decides which batches and records a cleaning retains.

Follows Kafka's `Cleaner.cleanInto`, `Cleaner.shouldRetainRecord`, `CleanedTransactionMetadata` and
`MemoryRecords.filterTo`. A record is retained if it is the newest of its key. A newest record that
is a tombstone is retained until its delete horizon, which the first pass that reaches it sets; so
is a transaction's marker, whose horizon is set by the first pass that finds no data of the
transaction before it. Data of aborted transactions is discarded, and so are records without a key,
which no reader could miss.

As in reading, a transaction's marker decides whether it was aborted. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptError, SegmentGone
from ..format.files.names import FileKind
from ..format.kernels import retention as kernel
from ..format.layout import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAX_OFFSET,
    NO_PRODUCER_ID,
    TRANSACTIONAL_MASK,
    ControlType,
)
from ..format.messages.control import control_type
from ..format.records import batch as b
from ..format.records.batch import BatchHeader, BatchTable, Int64s
from ..format.records.columns import VALUE_SIZE, Columns
from ..format.records.decoder import Decoder
from ..format.records.rewrite import DROP, KEEP, NO_HORIZON, RETAIN_EMPTY, Int8s, UInt8s
from ..log.read.transactions import AbortedTransactions
from ..log.read.view import View
from ..log.state.producer_state import ProducerStateEntry
from ..segment.segment import Segment
from ..segment.txn_index import AbortedTxn, TransactionIndex
from .kept_offsets import KeptOffsets
from .offset_map import OffsetMap
from .reading import Chunk

Bools = NDArray[np.bool_]

_LATEST_MS: Final = 2**63 - 1  # the largest time that fits in a horizon


class RecordRetention(IntEnum):
    """Whether a record is retained, and if not, why."""

    KEPT = kernel.KEPT
    SUPERSEDED = kernel.SUPERSEDED  # its key has a newer record
    TOMBSTONE = kernel.TOMBSTONE  # it has no value, and its delete horizon has passed
    ABORTED = 3  # its transaction was aborted
    KEYLESS = kernel.KEYLESS
    MARKER = 5  # no data of its transaction is left, and its delete horizon has passed


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Consecutive batches of a segment and the decisions about them; valid until the next are
    requested.

    `data`: bytes that contain the batches; `data[0]` is position `base` of the file. `columns`: the
    n rows of the records that were read, of all b batches. A batch that is discarded without
    reading its records has no rows, and a retention other than KEPT in `batch_retentions` (uint8 of
    shape (b,)). `retentions`, `keep` (uint8, shape (n,)): the retention of each row, and whether it
    is retained. `actions` (int8), `horizons` (int64, both of shape (b,)): as `rewrite` takes them.
    `aborted`: entries of the transaction index that are retained with these batches. `counted`: the
    number of rows by retention (int64 of shape (len(RecordRetention),)). `has_tombstones`: whether
    any retained row has no value.
    """

    data: memoryview
    base: int
    columns: Columns
    keep: UInt8s
    actions: Int8s
    horizons: Int64s
    retentions: UInt8s
    batch_retentions: UInt8s
    aborted: Sequence[AbortedTxn]
    counted: Int64s
    has_tombstones: bool

    def tombstones(self, keep: NDArray[Any]) -> int:
        """Returns the number of rows without a value that `keep` selects; it must be 0 where
        `self.keep` is."""
        if not self.has_tombstones:
            return 0
        return int(np.count_nonzero((self.columns.spans[:, VALUE_SIZE] < 0) & (keep != 0)))

    def counts(self) -> Int64s:
        """Returns the number of records by retention, including those that were not read."""
        unread = self.batch_retentions != RecordRetention.KEPT
        if not unread.any():
            return self.counted
        counts = self.counted.copy()
        rows = self.columns.batches.column(b.RECORD_COUNT)[unread]
        np.add.at(counts, self.batch_retentions[unread], rows)
        return counts


@dataclass(frozen=True, slots=True)
class _BatchRetention:
    """The decisions that follow from the headers of a chunk's batches and its markers; all of shape
    (b,).

    `discards`: data of an aborted transaction, or a marker without remaining data.
    `unread_retentions`: that of the records of a batch that need not be read, else KEPT. `rules`:
    as the kernel takes them.
    """

    discards: Bools
    unread_retentions: UInt8s
    rules: Int8s
    actions: Int8s
    aborted: Sequence[AbortedTxn]


class LatestOffsets(Protocol):
    """Knows which records are the newest of their keys.

    `latest_offset`: records with larger offsets are not considered.
    """

    @property
    def latest_offset(self) -> int: ...

    def of(self, columns: Columns) -> Int64s:
        """Returns for each row the offset of the newest record of its key, or any later offset than
        its own if there is a newer record; -1 or its own offset if none is known."""


class NewestInMap:
    """The newest records according to an offset map, which has the keys of the log from
    `first_dirty` up to its latest offset."""

    def __init__(self, offset_map: OffsetMap, first_dirty: int) -> None:
        self._map = offset_map
        self._newest = offset_map.newest(first_dirty)

    @property
    def latest_offset(self) -> int:
        return self._map.latest_offset

    def of(self, columns: Columns) -> Int64s:
        """Returns the newest offsets; rows that were put into the map need no lookup."""
        newest = self._newest.of(columns.offsets) if self._newest and len(columns) else None
        return self._map.get(columns.data, columns.spans) if newest is None else newest


class NewestAmong:
    """The newest records up to a latest offset, given by their offsets."""

    def __init__(self, offsets: KeptOffsets, latest_offset: int) -> None:
        self._offsets = offsets
        self.latest_offset = latest_offset

    def of(self, columns: Columns) -> Int64s:
        is_newest = self._offsets.mask(columns.offsets)
        return np.where(is_newest, columns.offsets, MAX_OFFSET)


class RecordFilter:
    """Decides what one pass retains of a log: all batches in order, from the first segment on, or
    from a later one if the transactions that are open there are given."""

    def __init__(
        self,
        view: View,
        newest: LatestOffsets,
        first_uncleanable: int,
        now_ms: int,
        delete_retention_ms: int,
        legacy_horizon_ms: int,
        begun: Mapping[int, int] | None = None,
    ) -> None:
        """`legacy_horizon_ms`: tombstones of magic 0 and 1 are discarded from segments with this
        mtime or an earlier one. `begun`: see `OpenTransactions`."""
        self._newest = newest
        self._last_offset = first_uncleanable - 1
        self._now_ms = now_ms
        horizon = now_ms + delete_retention_ms
        self._horizon_ms = horizon if horizon <= _LATEST_MS else NO_HORIZON
        self._legacy_horizon_ms = legacy_horizon_ms
        self._transactions = _Transactions(view, OpenTransactions(begun or {}))
        self._producers = _LastRecords(())

    def set_producers(self, states: Iterable[ProducerStateEntry]) -> None:
        """Sets the active producers. The last batch of each is retained, because the sequence
        number of its next batch is checked against it."""
        self._producers = _LastRecords(states)

    def filter(self, chunk: Chunk, decoder: Decoder) -> Iterator[FilterResult]:
        """Yields the decisions about a chunk's batches, in order. Raises CorruptError if a batch
        cannot be decoded."""
        retention = self._batch_retention(chunk)
        aborted = retention.aborted
        for columns, batches in stretches(chunk, retention.unread_retentions, decoder):
            yield self._filtered(chunk, columns, retention, batches, aborted)
            aborted = ()

    def _filtered(
        self,
        chunk: Chunk,
        columns: Columns,
        retention: _BatchRetention,
        batches: slice,
        aborted: Sequence[AbortedTxn],
    ) -> FilterResult:
        rows, table = len(columns), columns.batches
        retentions, keep = np.empty((2, rows), dtype=np.uint8)
        tombstones = np.empty(len(table), dtype=np.uint8)
        counted = np.zeros(len(RecordRetention), dtype=np.int64)
        kernel.filter_records(
            columns.spans, columns.offsets, self._newest.of(columns), columns.first_row,
            retention.rules[batches], self._newest.latest_offset,
            retentions, keep, tombstones, counted,
        )  # fmt: skip
        return FilterResult(
            chunk.run.data,
            chunk.run.base,
            columns,
            keep,
            retention.actions[batches],
            self._horizons(table, retention.discards[batches], tombstones),
            retentions,
            retention.unread_retentions[batches],
            aborted,
            counted,
            bool(tombstones.any()),
        )

    def _horizons(self, table: BatchTable, discards: Bools, tombstones: UInt8s) -> Int64s:
        """Returns the delete horizons to set: for batches that must wait from now on and have none
        yet."""
        horizons = np.full(len(table), NO_HORIZON, dtype=np.int64)
        waits = tombstones.view(np.bool_) | (discards & table.flagged(CONTROL_MASK))
        if waits.any():
            waits &= (table.column(b.MAGIC) > 1) & ~table.flagged(DELETE_HORIZON_MASK)
            horizons[waits] = self._horizon_ms
        return horizons

    def _batch_retention(self, chunk: Chunk) -> _BatchRetention:
        table = chunk.table
        control = table.flagged(CONTROL_MASK)
        expired = table.flagged(DELETE_HORIZON_MASK)
        expired &= table.column(b.BASE_TIMESTAMP) <= self._now_ms
        discards, aborted = self._transactions.follow(chunk, control)
        is_deleted = discards & (expired | ~control)
        unread = np.zeros(len(table), dtype=np.uint8)
        unread[is_deleted] = np.where(
            control[is_deleted], RecordRetention.MARKER, RecordRetention.ABORTED
        )
        rules = np.full(len(table), kernel.RETAIN_NEWEST, dtype=np.int8)
        rules[expired] = kernel.DISCARD_TOMBSTONES
        if chunk.segment.mtime_ns // 1_000_000 <= self._legacy_horizon_ms:
            rules[table.column(b.MAGIC) < 2] = kernel.DISCARD_TOMBSTONES
        rules[control] = kernel.RETAIN_ALL
        actions = np.where(is_deleted, np.int8(DROP), np.int8(KEEP))
        is_last = self._producers.last_batches(table, control)
        is_last |= table.column(b.LAST_OFFSET) == self._last_offset
        actions[is_last] = RETAIN_EMPTY
        return _BatchRetention(discards, unread, rules, actions, aborted)


class _LastRecords:
    """The position of each active producer."""

    def __init__(self, states: Iterable[ProducerStateEntry]) -> None:
        found = sorted((state.producer_id, _last_offset(state), state.epoch) for state in states)
        fields: Int64s = np.array(found, dtype=np.int64).reshape(-1, 3)
        self._ids, self._offsets, self._epochs = fields.T.copy()

    def last_batches(self, table: BatchTable, control: Bools) -> Bools:
        """Returns which batches are the last of a producer: its last data batch or, if only the end
        of a transaction is known of it, markers with its epoch."""
        ids = table.column(b.PRODUCER_ID)
        if not len(self._ids) or int(ids.max(initial=NO_PRODUCER_ID)) == NO_PRODUCER_ID:
            return np.zeros(len(table), dtype=np.bool_)
        at = np.minimum(self._ids.searchsorted(ids), len(self._ids) - 1)
        offsets = self._offsets[at]
        is_marker = control & (table.column(b.PRODUCER_EPOCH) == self._epochs[at])
        is_last = np.where(offsets >= 0, table.column(b.LAST_OFFSET) == offsets, is_marker)
        is_known = (ids > NO_PRODUCER_ID) & (self._ids[at] == ids)
        return np.asarray(is_known & is_last, dtype=np.bool_)


def _last_offset(state: ProducerStateEntry) -> int:
    """Returns the last offset of a producer's last data batch, -1 if none is known."""
    return state.batches[-1].last_offset if state.batches else -1


class Outcomes:
    """How the transactions of a log ended, for going through the log in order. Each marker is
    looked up once, however many batches it decides."""

    def __init__(self, view: View) -> None:
        self._transactions = AbortedTransactions(tuple(view.segments), view.context)
        self._deciding: dict[int, tuple[int, bool]] = {}  # marker's offset, is an abort

    def aborted(self, chunk: Chunk, batches: Int64s) -> list[bool]:
        """Returns for batches of a chunk with transactional data whether they were aborted."""
        fields = chunk.table.rows[batches][:, (b.PRODUCER_ID, b.BASE_OFFSET)].tolist()
        deciding, aborted = self._deciding, []
        for producer_id, offset in fields:
            known = deciding.get(producer_id)
            if known is None or known[0] < offset:
                marker = self._transactions.deciding(producer_id, offset, chunk.segment)
                known = (MAX_OFFSET, False) if marker is None else (marker.offset, marker.is_abort)
                deciding[producer_id] = known
            aborted.append(known[1])
        return aborted


class OpenTransactions:
    """The transactions that are open at the current position in a log, and those that have ended so
    far.

    `begun`: by producer id, the offset of the first batch read of its transaction. `ended`: the ids
    of producers that had a transaction end.
    """

    def __init__(self, begun: Mapping[int, int]) -> None:
        self.begun = dict(begun)
        self.ended: set[int] = set()

    def follow(
        self, chunk: Chunk, data: Bools, control: Bools
    ) -> Iterator[tuple[int, ControlType | None, int | None]]:
        """Advances over a chunk; `data` selects its batches of transactional data. Yields for each
        control batch its number, how it ends a transaction (None if it does not), and the first
        known offset of that transaction. At each yield the state is that directly after the control
        batch."""
        table = chunk.table
        done = 0
        for end in np.flatnonzero(control).tolist():
            self._begin(table, done, end, data)
            yield end, *self._end(chunk, table[end])
            done = end + 1
        self._begin(table, done, len(table), data)

    def _begin(self, table: BatchTable, first: int, end: int, data: Bools) -> None:
        selected = table.rows[first:end][data[first:end]]
        if not len(selected):
            return
        begun = self.begun
        for producer_id, offset in selected[:, (b.PRODUCER_ID, b.BASE_OFFSET)].tolist():
            begun.setdefault(producer_id, offset)

    def _end(self, chunk: Chunk, header: BatchHeader) -> tuple[ControlType | None, int | None]:
        if not header.record_count:
            return None, None
        at = header.position - chunk.run.base
        kind = control_type(chunk.run.data[at : at + header.size])
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None, None
        self.ended.add(header.producer_id)
        return kind, self.begun.pop(header.producer_id, None)


class _Transactions:
    """The transactions of a log during a pass (`CleanedTransactionMetadata`).

    A marker is retained unchanged as long as this pass has read data of its transaction before it,
    even if that is discarded; so is the transaction index entry of an aborted transaction.
    """

    def __init__(self, view: View, open_transactions: OpenTransactions) -> None:
        self._outcomes = Outcomes(view)
        self._open = open_transactions
        self._indexed: dict[int, AbortedTxn] = {}  # by the marker's offset, of the current segment
        self._segment: Segment | None = None

    def follow(self, chunk: Chunk, control: Bools) -> tuple[Bools, Sequence[AbortedTxn]]:
        """Returns which batches of a chunk may be discarded as far as transactions are concerned,
        and the transaction index entries to retain."""
        table = chunk.table
        discards = np.zeros(len(table), dtype=np.bool_)
        data = table.flagged(TRANSACTIONAL_MASK) & ~control
        if not (data | control).any():
            return discards, ()
        at = np.flatnonzero(data)
        discards[at] = self._outcomes.aborted(chunk, at)
        aborted: list[AbortedTxn] = []
        for number, kind, first_offset in self._open.follow(chunk, data, control):
            header = table[number]
            if kind is None:
                discards[number] = not header.record_count
            else:
                discards[number] = first_offset is None
            if kind is ControlType.ABORT and first_offset is not None:
                aborted.append(self._entry(chunk.segment, header, first_offset))
        return discards, aborted

    def _entry(self, segment: Segment, marker: BatchHeader, first_offset: int) -> AbortedTxn:
        """Returns the index entry of an aborted transaction: the existing one, or a new one if the
        index lacks it (`ProducerStateManager.lastStableOffset`)."""
        if segment is not self._segment:
            self._indexed, self._segment = _indexed(segment), segment
        known = self._indexed.get(marker.base_offset)
        if known is not None and known.producer_id == marker.producer_id:
            return known
        stable = min(self._open.begun.values(), default=marker.last_offset + 1)
        return AbortedTxn(marker.producer_id, first_offset, marker.base_offset, stable)


def _indexed(segment: Segment) -> dict[int, AbortedTxn]:
    """Returns the readable entries of a segment's transaction index by the offsets of their
    markers."""
    name = segment.files.name(FileKind.TXNINDEX)
    found: dict[int, AbortedTxn] = {}
    try:
        for entry in TransactionIndex.open(segment.files.directory, name).entries():
            found[entry.last_offset] = entry
    except (SegmentGone, CorruptError):
        pass  # missing or damaged: missing entries are recreated
    return found


def stretches(
    chunk: Chunk, unread_retentions: UInt8s, decoder: Decoder
) -> Iterator[tuple[Columns, slice]]:
    """Yields all batches of a chunk, with the records of those that must be read, and their slice
    of the chunk."""
    table = chunk.table
    is_read = (unread_retentions == RecordRetention.KEPT) & (table.column(b.RECORD_COUNT) != 0)
    selected = table if is_read.all() else table.select(is_read)
    positions = table.column(b.POSITION)
    done = 0
    for part in chunk.decode(selected, decoder):
        at = positions.searchsorted(part.batches.column(b.POSITION))
        first, end = int(at[0]), int(at[-1]) + 1
        if first > done:
            yield _without_rows(chunk, done, first), slice(done, first)
        if end - first > len(at):
            part = _among(part, table.select(slice(first, end)), at - first)
        yield part, slice(first, end)
        done = end
    if done < len(table):
        yield _without_rows(chunk, done, len(table)), slice(done, len(table))


def _among(part: Columns, table: BatchTable, at: Int64s) -> Columns:
    """Returns the same rows as columns of all batches in `table`; the batches that have rows are at
    `at`."""
    counts = np.zeros(len(table) + 1, dtype=np.int64)
    counts[at + 1] = np.diff(part.first_row)
    first_row = counts.cumsum()
    return Columns(
        part.data, part.offsets, part.timestamps, part.spans, table, first_row, part.file
    )


def _without_rows(chunk: Chunk, first: int, end: int) -> Columns:
    """Returns columns without rows for batches that are not read."""
    none = np.empty(0, dtype=np.int64)
    spans = np.empty((0, 6), dtype=np.int32)
    table = chunk.table.select(slice(first, end))
    first_row = np.zeros(len(table) + 1, dtype=np.int64)
    return Columns(chunk.run.data, none, none, spans, table, first_row, chunk.segment.path)
