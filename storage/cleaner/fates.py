"""What becomes of each batch and each record when a log is cleaned.

Rules: Kafka's `Cleaner.cleanInto`, `Cleaner.shouldRetainRecord`, `CleanedTransactionMetadata` and
`MemoryRecords.filterTo`. A record stays if it is the newest of its key. A tombstone that is the
newest stays until its delete horizon, which the pass sets that comes to it first; so does the
marker of a transaction, from the first pass on that finds nothing of the transaction before it.
What an aborted transaction wrote goes, and a record without a key, which no reader could miss.

Whether a transaction was aborted is asked its marker, as reading does. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptError, SegmentGone
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable, Int64s
from ..format.columns import VALUE_SIZE, Columns
from ..format.control import control_type
from ..format.decoder import Decoder
from ..format.kernels import fates as kernel
from ..format.layout import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAX_OFFSET,
    NO_PRODUCER_ID,
    TRANSACTIONAL_MASK,
    ControlType,
)
from ..format.names import FileKind
from ..format.rewrite import DROP, KEEP, NO_HORIZON, RETAIN_EMPTY, Int8s, UInt8s
from ..log.producer_state import ProducerState
from ..log.transactions import Fates
from ..log.view import View
from ..segment.segment import Segment
from ..segment.txn_index import AbortedTxn, TransactionIndex
from .kept_offsets import KeptOffsets
from .offset_map import OffsetMap
from .reading import Chunk

Bools = NDArray[np.bool_]

_LATEST_MS: Final = 2**63 - 1  # a time behind it never comes


class Fate(IntEnum):
    """What becomes of a record, and why."""

    KEPT = kernel.KEPT
    SUPERSEDED = kernel.SUPERSEDED  # its key has a newer record
    TOMBSTONE = kernel.TOMBSTONE  # it has no value, and its delete horizon has passed
    ABORTED = 3  # its transaction was aborted
    KEYLESS = kernel.KEYLESS
    MARKER = 5  # it ends a transaction of which nothing is left, and its horizon has passed


@dataclass(frozen=True, slots=True)
class Judged:
    """Some consecutive batches of a segment and what becomes of them; good until the next are
    asked for.

    `data`: bytes that hold the batches, `data[0]` being position `base` of the file. `columns`: the
    n rows of the records that were read, of all b batches; a batch whose records need not be read
    to know that they go has no row, and in `batch_fates` (uint8 of shape (b,)) another fate than
    KEPT. `fates`, `keep` (uint8, shape (n,)): each row's fate, and whether it stays. `actions`
    (int8), `horizons` (int64, both of shape (b,)): as `rewrite` takes them. `aborted`: entries of
    the transaction index that stay with these batches. `counted`: how many rows have each fate
    (int64 of shape (len(Fate),)). `has_tombstones`: whether any row that stays has no value.
    """

    data: memoryview
    base: int
    columns: Columns
    keep: UInt8s
    actions: Int8s
    horizons: Int64s
    fates: UInt8s
    batch_fates: UInt8s
    aborted: Sequence[AbortedTxn]
    counted: Int64s
    has_tombstones: bool

    def tombstones(self, keep: NDArray[Any]) -> int:
        """How many records without a value `keep`, which is 0 where `self.keep` is, has left."""
        if not self.has_tombstones:
            return 0
        return int(np.count_nonzero((self.columns.spans[:, VALUE_SIZE] < 0) & (keep != 0)))

    def counts(self) -> Int64s:
        """How many records have each fate, those that were not read among them."""
        unread = self.batch_fates != Fate.KEPT
        if not unread.any():
            return self.counted
        counts = self.counted.copy()
        rows = self.columns.batches.column(b.RECORD_COUNT)[unread]
        np.add.at(counts, self.batch_fates[unread], rows)
        return counts


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """What the headers of a chunk's batches decide, and its markers; all of shape (b,).

    `discards`: a transaction's data that were aborted, or its marker once nothing of it is left.
    `unread_fates`: the fate of the records of a batch that need not be read, else KEPT. `rules`: as
    the kernel takes them.
    """

    discards: Bools
    unread_fates: UInt8s
    rules: Int8s
    actions: Int8s
    aborted: Sequence[AbortedTxn]


class Newest(Protocol):
    """What tells which records are the newest of their keys.

    `latest_offset`: records behind it are not looked at.
    """

    @property
    def latest_offset(self) -> int: ...

    def of(self, columns: Columns) -> Int64s:
        """Of each row the offset of the newest record of its key, or some later one than its own
        where there is a newer record; -1, or its own, where none is known."""


class NewestInMap:
    """What an offset map tells, which has the keys of the log from `first_dirty` on, up to its
    latest offset."""

    def __init__(self, offset_map: OffsetMap, first_dirty: int) -> None:
        self._map = offset_map
        self._newest = offset_map.newest(first_dirty)

    @property
    def latest_offset(self) -> int:
        return self._map.latest_offset

    def of(self, columns: Columns) -> Int64s:
        """What was put into the map need not be looked for again."""
        newest = self._newest.of(columns.offsets) if self._newest and len(columns) else None
        return self._map.get(columns.data, columns.spans) if newest is None else newest


class NewestAmong:
    """What is known of a log up to its latest offset: the offsets of the newest records."""

    def __init__(self, offsets: KeptOffsets, latest_offset: int) -> None:
        self._offsets = offsets
        self.latest_offset = latest_offset

    def of(self, columns: Columns) -> Int64s:
        is_newest = self._offsets.mask(columns.offsets)
        return np.where(is_newest, columns.offsets, MAX_OFFSET)


class Judge:
    """Judges the batches of one log in one pass, in order from its first segment on, or from
    another one on, if it is told which transactions were open there."""

    def __init__(
        self,
        view: View,
        newest: Newest,
        first_uncleanable: int,
        now_ms: int,
        delete_retention_ms: int,
        legacy_horizon_ms: int,
        begun: Mapping[int, int] | None = None,
    ) -> None:
        """`legacy_horizon_ms`: tombstones of magic 0 and 1 go from a segment that was last written
        then or before. `begun`: as of `OpenTransactions`."""
        self._newest = newest
        self._last_offset = first_uncleanable - 1
        self._now_ms = now_ms
        horizon = now_ms + delete_retention_ms
        self._horizon_ms = horizon if horizon <= _LATEST_MS else NO_HORIZON
        self._legacy_horizon_ms = legacy_horizon_ms
        self._transactions = _Transactions(view, OpenTransactions(begun or {}))
        self._producers = _LastRecords(())

    def set_producers(self, states: Iterable[ProducerState]) -> None:
        """The producers that are active now: the last batch of each stays, that what it sends next
        can be judged."""
        self._producers = _LastRecords(states)

    def judge(self, chunk: Chunk, decoder: Decoder) -> Iterator[Judged]:
        """The batches of a chunk, in order. CorruptError where one cannot be decoded."""
        verdicts = self._verdicts(chunk)
        aborted = verdicts.aborted
        for columns, batches in _stretches(chunk, verdicts.unread_fates, decoder):
            yield self._judged(chunk, columns, verdicts, batches, aborted)
            aborted = ()

    def _judged(
        self,
        chunk: Chunk,
        columns: Columns,
        verdicts: _Verdicts,
        batches: slice,
        aborted: Sequence[AbortedTxn],
    ) -> Judged:
        rows, table = len(columns), columns.batches
        fates, keep = np.empty((2, rows), dtype=np.uint8)
        tombstones = np.empty(len(table), dtype=np.uint8)
        counted = np.zeros(len(Fate), dtype=np.int64)
        kernel.judge_records(
            columns.spans, columns.offsets, self._newest.of(columns), columns.first_row,
            verdicts.rules[batches], self._newest.latest_offset, fates, keep, tombstones, counted,
        )  # fmt: skip
        return Judged(
            chunk.run.data,
            chunk.run.base,
            columns,
            keep,
            verdicts.actions[batches],
            self._horizons(table, verdicts.discards[batches], tombstones),
            fates,
            verdicts.unread_fates[batches],
            aborted,
            counted,
            bool(tombstones.any()),
        )

    def _horizons(self, table: BatchTable, discards: Bools, tombstones: UInt8s) -> Int64s:
        """The horizons to be set: of what waits from now on, and has none yet."""
        horizons = np.full(len(table), NO_HORIZON, dtype=np.int64)
        waits = tombstones.view(np.bool_) | (discards & table.flagged(CONTROL_MASK))
        if waits.any():
            waits &= (table.column(b.MAGIC) > 1) & ~table.flagged(DELETE_HORIZON_MASK)
            horizons[waits] = self._horizon_ms
        return horizons

    def _verdicts(self, chunk: Chunk) -> _Verdicts:
        table = chunk.table
        control = table.flagged(CONTROL_MASK)
        expired = table.flagged(DELETE_HORIZON_MASK)
        expired &= table.column(b.BASE_TIMESTAMP) <= self._now_ms
        discards, aborted = self._transactions.follow(chunk, control)
        goes = discards & (expired | ~control)
        unread = np.zeros(len(table), dtype=np.uint8)
        unread[goes] = np.where(control[goes], Fate.MARKER, Fate.ABORTED)
        rules = np.full(len(table), kernel.NEWEST_STAY, dtype=np.int8)
        rules[expired] = kernel.TOMBSTONES_GO
        if chunk.segment.mtime_ns // 1_000_000 <= self._legacy_horizon_ms:
            rules[table.column(b.MAGIC) < 2] = kernel.TOMBSTONES_GO
        rules[control] = kernel.ALL_STAY
        actions = np.where(goes, np.int8(DROP), np.int8(KEEP))
        stays = self._producers.last_batches(table, control)
        stays |= table.column(b.LAST_OFFSET) == self._last_offset
        actions[stays] = RETAIN_EMPTY
        return _Verdicts(discards, unread, rules, actions, aborted)


class _LastRecords:
    """Where each active producer stopped."""

    def __init__(self, states: Iterable[ProducerState]) -> None:
        found = sorted((state.producer_id, _last_offset(state), state.epoch) for state in states)
        fields: Int64s = np.array(found, dtype=np.int64).reshape(-1, 3)
        self._ids, self._offsets, self._epochs = fields.T.copy()

    def last_batches(self, table: BatchTable, control: Bools) -> Bools:
        """Which batches are the last of a producer: of its data or, where the last thing that is
        known of it is the end of a transaction, markers with its epoch."""
        ids = table.column(b.PRODUCER_ID)
        if not len(self._ids) or int(ids.max(initial=NO_PRODUCER_ID)) == NO_PRODUCER_ID:
            return np.zeros(len(table), dtype=np.bool_)
        at = np.minimum(self._ids.searchsorted(ids), len(self._ids) - 1)
        offsets = self._offsets[at]
        is_marker = control & (table.column(b.PRODUCER_EPOCH) == self._epochs[at])
        is_last = np.where(offsets >= 0, table.column(b.LAST_OFFSET) == offsets, is_marker)
        is_known = (ids > NO_PRODUCER_ID) & (self._ids[at] == ids)
        return np.asarray(is_known & is_last, dtype=np.bool_)


def _last_offset(state: ProducerState) -> int:
    """That of a producer's last batch of data, -1 where none is known."""
    return state.batches[-1].last_offset if state.batches else -1


class Outcomes:
    """How the transactions of a log ended, for whoever goes through it in order. Each marker is
    looked for once, however many batches it decides."""

    def __init__(self, view: View) -> None:
        self._fates = Fates(tuple(view.segments), view.context)
        self._deciding: dict[int, tuple[int, bool]] = {}  # of each producer: offset, is it an abort

    def aborted(self, chunk: Chunk, batches: Int64s) -> list[bool]:
        """Whether these batches of a chunk, which are transactions' data, were aborted."""
        fields = chunk.table.rows[batches][:, (b.PRODUCER_ID, b.BASE_OFFSET)].tolist()
        deciding, aborted = self._deciding, []
        for producer_id, offset in fields:
            known = deciding.get(producer_id)
            if known is None or known[0] < offset:
                marker = self._fates.deciding(producer_id, offset, chunk.segment)
                known = (MAX_OFFSET, False) if marker is None else (marker.offset, marker.is_abort)
                deciding[producer_id] = known
            aborted.append(known[1])
        return aborted


class OpenTransactions:
    """The transactions that are open where one has come to in a log, and which ended on the way.

    `begun`: of each producer the offset of the first batch of its transaction that was read.
    `ended`: the producers of whose transactions an end was read.
    """

    def __init__(self, begun: Mapping[int, int]) -> None:
        self.begun = dict(begun)
        self.ended: set[int] = set()

    def follow(
        self, chunk: Chunk, data: Bools, control: Bools
    ) -> Iterator[tuple[int, ControlType | None, int | None]]:
        """Goes on over a chunk, of whose batches `data` are those of transactions: the number of
        each control batch, how it ends a transaction, if it does, and where what is known of that
        began. While one is looked at, this stands right behind it."""
        table = chunk.table
        done = 0
        for end in np.flatnonzero(control).tolist():
            self._begin(table, done, end, data)
            yield end, *self._end(chunk, table[end])
            done = end + 1
        self._begin(table, done, len(table), data)

    def _begin(self, table: BatchTable, first: int, end: int, data: Bools) -> None:
        chosen = table.rows[first:end][data[first:end]]
        if not len(chosen):
            return
        begun = self.begun
        for producer_id, offset in chosen[:, (b.PRODUCER_ID, b.BASE_OFFSET)].tolist():
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
    """The transactions of a log, as a pass comes along (`CleanedTransactionMetadata`).

    A marker stays as it is while anything of its transaction was read before it in this pass, even
    if that goes; the entry of an aborted one stays in the transaction index just as long.
    """

    def __init__(self, view: View, open_transactions: OpenTransactions) -> None:
        self._outcomes = Outcomes(view)
        self._open = open_transactions
        self._indexed: dict[int, AbortedTxn] = {}  # by marker, of the segment that is gone through
        self._segment: Segment | None = None

    def follow(self, chunk: Chunk, control: Bools) -> tuple[Bools, Sequence[AbortedTxn]]:
        """Which batches of a chunk can be discarded as far as their transactions go, and entries of
        the transaction index that stay."""
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
        """That of an aborted transaction: the one that is in the index, or made anew where the
        index has lost it (`ProducerStateManager.lastStableOffset`)."""
        if segment is not self._segment:
            self._indexed, self._segment = _indexed(segment), segment
        known = self._indexed.get(marker.base_offset)
        if known is not None and known.producer_id == marker.producer_id:
            return known
        stable = min(self._open.begun.values(), default=marker.last_offset + 1)
        return AbortedTxn(marker.producer_id, first_offset, marker.base_offset, stable)


def _indexed(segment: Segment) -> dict[int, AbortedTxn]:
    """The entries of a segment's transaction index by the offsets of their markers; those that can
    be read."""
    name = segment.files.name(FileKind.TXNINDEX)
    found: dict[int, AbortedTxn] = {}
    try:
        for entry in TransactionIndex.open(segment.files.directory, name).entries():
            found[entry.last_offset] = entry
    except (SegmentGone, CorruptError):
        pass  # there is none, or it is damaged: what is missing is made anew
    return found


def _stretches(
    chunk: Chunk, unread_fates: UInt8s, decoder: Decoder
) -> Iterator[tuple[Columns, slice]]:
    """All batches of a chunk, with the records of those that are to be read, and where in the chunk
    they are."""
    table = chunk.table
    wanted = (unread_fates == Fate.KEPT) & (table.column(b.RECORD_COUNT) != 0)
    chosen = table if wanted.all() else table.select(wanted)
    positions = table.column(b.POSITION)
    done = 0
    for part in chunk.decode(chosen, decoder):
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
    """The same rows as of all batches in `table`, those that have rows being at `at`."""
    counts = np.zeros(len(table) + 1, dtype=np.int64)
    counts[at + 1] = np.diff(part.first_row)
    first_row = counts.cumsum()
    return Columns(
        part.data, part.offsets, part.timestamps, part.spans, table, first_row, part.file
    )


def _without_rows(chunk: Chunk, first: int, end: int) -> Columns:
    """Batches of a chunk of which nothing was read."""
    none = np.empty(0, dtype=np.int64)
    spans = np.empty((0, 6), dtype=np.int32)
    table = chunk.table.select(slice(first, end))
    first_row = np.zeros(len(table) + 1, dtype=np.int64)
    return Columns(chunk.run.data, none, none, spans, table, first_row, chunk.segment.path)
