"""The producers of a partition: duplicates, fencing, open transactions, the last stable offset.

Follows Kafka's ``ProducerStateManager``. An append first passes through a ``ProducerAppendInfo``,
which rejects it or computes its changes; ``commit`` applies them once the bytes are in the log.
Recovery and loading take batches unchecked, with ``replay``.

Thread rules: one thread at a time may change the producers; others may read meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from ...errors import OutOfOrderSequence
from ...format.files.snapshot import (
    format_producer_snapshot,
    hash_map_order,
    parse_producer_snapshot,
)
from ...format.layout import CONTROL_MASK, NO_PRODUCER_ID, TRANSACTIONAL_MASK
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.validate import AppendOrigin
from ...segment.txn_index import AbortedTxn
from .producer_state import BATCHES_RETAINED, NO_OFFSET, BatchMetadata, ProducerStateEntry

#: Kafka's producer.id.expiration.ms.
EXPIRATION_MS: Final = 86_400_000

# From this many batches on, sorting is faster than processing them one by one.
_MANY_BATCHES: Final = 12

# Reads the marker in the control batch with this header; None if the batch is empty.
ReadMarker = Callable[[BatchHeader], EndTxnMarker | None]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The position of records that were sent a second time. ``timestamp`` is the largest of their
    last batch, in ms since 1970."""

    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without a marker; read_committed consumers cannot pass its first offset.
    ``last_timestamp``: of its last batch, in ms since 1970."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # of the producer's last marker, -1 if none
    first_offset: int
    last_timestamp: int


@dataclass(frozen=True, slots=True)
class _CompletedTxn:
    """A completed transaction; ``last_offset`` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_abort: bool


def no_marker(header: BatchHeader) -> None:
    """The ``ReadMarker`` for batches that cannot be control batches, such as those of clients."""


class ProducerStateManager:
    """The state of all producers of a partition after all batches below ``map_end_offset``.

    ``first_unstable_offset``: that of the oldest open transaction, -1 if there is none.
    """

    def __init__(self, expiration_ms: int = EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self.map_end_offset = 0
        self.first_unstable_offset = NO_OFFSET
        self._states: dict[int, ProducerStateEntry] = {}  # in order of arrival
        self._most = 0  # the highest count so far: it determines the table size of Java's map
        # Producer by first offset, ascending; transactions mostly end in the order in which they
        # begin, and a plain dict finds its first key slowly after many deletions before it.
        self._open: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def state(self, producer_id: int) -> ProducerStateEntry | None:
        """Returns the state of a producer, None if it is unknown."""
        return self._states.get(producer_id)

    def states(self) -> list[ProducerStateEntry]:
        """Returns all states in order of arrival."""
        return list(self._states.values())

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions, oldest first."""
        found = []
        for first_offset, producer_id in list(self._open.items()):
            state = self._states.get(producer_id)
            if state is not None:
                found.append(_open_transaction(state, first_offset))
        return found

    def begin_update(self) -> ProducerAppendInfo:
        """Returns a collector for the changes of appends, which take effect on its ``commit``."""
        return ProducerAppendInfo(self)

    def replay(self, table: BatchTable, read_marker: ReadMarker) -> list[AbortedTxn]:
        """Applies batches that are already in the log, without checks. Returns the aborted
        transactions that end in them, with their last stable offsets (``LogSegment.recover``)."""
        if not len(table):
            return []
        known = table.select(table.column(b.PRODUCER_ID) > NO_PRODUCER_ID)
        aborted: list[AbortedTxn] = []
        start = 0
        for control in np.flatnonzero(known.flagged(CONTROL_MASK)).tolist():
            self._replay_data(known.select(slice(start, control)))
            aborted += self._replay_control(known[control], read_marker)
            start = control + 1
        self._replay_data(known.select(slice(start, len(known))))
        self.map_end_offset = int(table.rows[-1, b.LAST_OFFSET]) + 1
        self._find_first_unstable()
        return aborted

    def _replay_data(self, table: BatchTable) -> None:
        """Applies data batches. Of many batches by one producer only the last few matter, and the
        first that begins a transaction."""
        if len(table) < _MANY_BATCHES:
            for header in table:
                self._put_batch(header)
            return
        started: list[tuple[int, int]] = []
        for batches in _by_producer(table):
            state = self._state_of(int(batches.rows[0, b.PRODUCER_ID]))
            transactional = batches.flagged(TRANSACTIONAL_MASK)
            if transactional.any() and not state.is_in_transaction:
                first_offset = int(batches.rows[transactional.argmax(), b.BASE_OFFSET])
                started.append((first_offset, state.producer_id))
                state = state._replace(txn_first_offset=first_offset)
            for header in batches.select(slice(-BATCHES_RETAINED, None)):
                state = state.after_batch(header)
            self._put(state)
        self._open.update(sorted(started))

    def _put_batch(self, header: BatchHeader) -> None:
        before = self._state_of(header.producer_id)
        after = before.after_batch(header)
        self._put(after)
        if after.is_in_transaction and not before.is_in_transaction:
            self._open[after.txn_first_offset] = header.producer_id

    def _replay_control(self, header: BatchHeader, read_marker: ReadMarker) -> list[AbortedTxn]:
        state = self._state_of(header.producer_id)
        marker = read_marker(header)
        self._put(state if marker is None else state.after_marker(header.producer_epoch, marker))
        if marker is None or not state.is_in_transaction:
            return []
        stable = _last_stable_offset(self._open.items(), state.producer_id, header.base_offset)
        self._open.pop(state.txn_first_offset, None)
        if marker.is_commit:
            return []
        return [AbortedTxn(state.producer_id, state.txn_first_offset, header.base_offset, stable)]

    def _state_of(self, producer_id: int) -> ProducerStateEntry:
        return self._states.get(producer_id) or ProducerStateEntry(producer_id)

    def _put(self, state: ProducerStateEntry) -> None:
        self._states[state.producer_id] = state
        self._most = max(self._most, len(self._states))

    def _find_first_unstable(self) -> None:
        self.first_unstable_offset = next(iter(self._open), NO_OFFSET)

    def expire(self, now_ms: int) -> int:
        """Forgets producers without an open transaction that were inactive for ``expiration_ms``;
        returns their number."""
        expired = [
            state.producer_id
            for state in self._states.values()
            if state.is_expired(now_ms, self.expiration_ms)
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    def clear(self, map_end_offset: int) -> None:
        """Forgets everything: ``load`` or ``replay`` starts over at that offset."""
        self._states.clear()
        self._open.clear()
        self._find_first_unstable()
        self.map_end_offset = map_end_offset

    def load(self, data: bytes, offset: int, now_ms: int) -> None:
        """Replaces the state by the snapshot of ``offset``, without the producers that expired by
        ``now_ms``. Raises CorruptError, and changes nothing, if the snapshot is malformed."""
        loaded = [
            ProducerStateEntry.from_snapshot(entry) for entry in parse_producer_snapshot(data)
        ]
        self.clear(offset)
        for state in loaded:
            if not state.is_expired(now_ms, self.expiration_ms):
                self._put(state)
        begun = [state for state in self._states.values() if state.is_in_transaction]
        for state in sorted(begun, key=lambda state: state.txn_first_offset):
            self._open[state.txn_first_offset] = state.producer_id
        self._find_first_unstable()

    def snapshot(self) -> bytes:
        """Returns the bytes of the ``.snapshot`` file for ``map_end_offset``."""
        order = hash_map_order(self._states, self._most)
        return format_producer_snapshot([self._states[id_].to_snapshot() for id_ in order])


def _open_transaction(state: ProducerStateEntry, first_offset: int) -> OpenTransaction:
    return OpenTransaction(
        state.producer_id,
        state.epoch,
        state.coordinator_epoch,
        first_offset,
        state.last_timestamp,
    )


def _by_producer(table: BatchTable) -> list[BatchTable]:
    """Groups batches by producer, in the order of their first batches."""
    producer_ids = table.column(b.PRODUCER_ID)
    if len(table) <= 1 or (producer_ids == producer_ids[0]).all():
        return [table] if len(table) else []
    order = np.argsort(producer_ids, kind="stable")
    ends = np.flatnonzero(np.diff(producer_ids[order])) + 1
    groups = sorted(np.split(order, ends), key=lambda group: int(group[0]))
    return [table.select(group) for group in groups]


def _last_stable_offset(
    open_: Iterable[tuple[int, int]], producer_id: int, marker_offset: int
) -> int:
    """Returns the last stable offset after that producer's marker: the first offset of the oldest
    other open transaction, else the offset after the marker."""
    others = (first for first, other in open_ if other != producer_id)
    return next(others, marker_offset + 1)


class ProducerAppendInfo:
    """The changes that one or more consecutive appends make to the producers.

    ``aborted``: the entries they add to the ``.txnindex``. ``end_offset``: the log's new end.
    """

    def __init__(self, producers: ProducerStateManager) -> None:
        self._producers = producers
        self._states: dict[int, ProducerStateEntry] = {}
        self._started: dict[int, int] = {}  # producer by first offset, still open
        self._ended: set[int] = set()  # first offsets of transactions open before the update
        self.aborted: list[AbortedTxn] = []
        self.end_offset = producers.map_end_offset

    def add(
        self, table: BatchTable, origin: AppendOrigin, read_marker: ReadMarker = no_marker
    ) -> Duplicate | None:
        """Adds all batches of one append; none if it is rejected or a duplicate, which is returned.

        Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTxnState or
        TransactionCoordinatorFenced if it is rejected. ``read_marker`` reads its control batches.
        """
        if not len(table):
            return None
        of_producers = table.column(b.PRODUCER_ID) > NO_PRODUCER_ID
        if of_producers.any():
            headers = list(table.select(of_producers))
            duplicate = self._duplicate(headers) if origin is AppendOrigin.CLIENT else None
            if duplicate is not None:
                return duplicate
            self._take(_Append(self, origin), headers, read_marker)
        self.end_offset = int(table.rows[-1, b.LAST_OFFSET]) + 1
        return None

    def commit(self) -> None:
        """Applies the changes."""
        producers = self._producers
        for state in self._states.values():
            producers._put(state)
        for first_offset in self._ended:
            producers._open.pop(first_offset, None)
        producers._open.update(self._started)
        producers._find_first_unstable()
        producers.map_end_offset = self.end_offset

    def state(self, producer_id: int) -> ProducerStateEntry:
        known = self._states.get(producer_id) or self._producers.state(producer_id)
        return known or ProducerStateEntry(producer_id)

    def _duplicate(self, headers: list[BatchHeader]) -> Duplicate | None:
        """Kafka checks only appends of one batch; here all batches of an append must be known."""
        known: list[BatchMetadata] = []
        for header in headers:
            batch = self.state(header.producer_id).duplicate_of(header)
            if batch is not None:
                known.append(batch)
        if not known:
            return None
        if len(known) < len(headers):
            why = f"{len(known)} of these {len(headers)} batches were appended before"
            raise OutOfOrderSequence(f"producer {headers[0].producer_id}: {why}")
        return Duplicate(known[0].first_offset, known[-1].last_offset, known[-1].timestamp)

    def _take(self, append: _Append, headers: list[BatchHeader], read_marker: ReadMarker) -> None:
        for header in headers:
            if header.is_control:
                append.add_marker(header, read_marker(header))
            else:
                append.add_batch(header)
        for producer_id in hash_map_order(append.states, len(append.states)):
            self._states[producer_id] = append.states[producer_id]
        self._started.update(append.started)
        self.aborted += list(self._complete(append.completed))

    def _complete(self, completed: list[_CompletedTxn]) -> Iterator[AbortedTxn]:
        for txn in completed:
            stable = _last_stable_offset(self._open(), txn.producer_id, txn.last_offset)
            if self._started.pop(txn.first_offset, None) is None:
                self._ended.add(txn.first_offset)
            if txn.is_abort:
                yield AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, stable)

    def _open(self) -> Iterator[tuple[int, int]]:
        for first_offset, producer_id in chain(
            self._producers._open.items(), self._started.items()
        ):
            if first_offset not in self._ended:
                yield first_offset, producer_id


class _Append:
    """One append during validation: the ``states`` after it, in order of arrival, and the
    transactions ``started`` (producer by first offset) and ``completed``."""

    def __init__(self, update: ProducerAppendInfo, origin: AppendOrigin) -> None:
        self._update = update
        self._origin = origin
        self.states: dict[int, ProducerStateEntry] = {}
        self.started: dict[int, int] = {}
        self.completed: list[_CompletedTxn] = []

    def add_batch(self, header: BatchHeader) -> None:
        before = self._state(header.producer_id)
        before.check_batch(header, self._origin)
        after = before.after_batch(header)
        if after.is_in_transaction and not before.is_in_transaction:
            self.started[after.txn_first_offset] = header.producer_id
        self.states[header.producer_id] = after

    def add_marker(self, header: BatchHeader, marker: EndTxnMarker | None) -> None:
        before = self._state(header.producer_id)
        if marker is None:  # the cleaner removed the transaction; only the producer is known
            self.states[header.producer_id] = before
            return
        before.check_marker(header.producer_epoch, marker.coordinator_epoch, self._origin)
        if before.is_in_transaction:
            first, last = before.txn_first_offset, header.base_offset
            txn = _CompletedTxn(header.producer_id, first, last, not marker.is_commit)
            self.completed.append(txn)
        self.states[header.producer_id] = before.after_marker(header.producer_epoch, marker)

    def _state(self, producer_id: int) -> ProducerStateEntry:
        return self.states.get(producer_id) or self._update.state(producer_id)
