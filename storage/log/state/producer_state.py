"""The state of one producer in a partition, and the rules for its next batch.

Follows Kafka's ``ProducerStateEntry`` and ``ProducerAppendInfo``. A state is immutable: a batch
yields a new one, which has no effect until it replaces the old one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ...format.files.snapshot import ProducerSnapshotEntry
from ...format.layout import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from ...format.messages.control import EndTxnMarker
from ...format.records.batch import BatchHeader
from ...format.records.validate import AppendOrigin

#: The number of last batches for which duplicates are detected.
BATCHES_RETAINED: Final = 5
NO_OFFSET: Final = -1


class BatchMetadata(NamedTuple):
    """One of a producer's last batches (``BatchMetadata``); ``timestamp`` is its largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset minus first
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & MAX_INT32

    @classmethod
    def of(cls, header: BatchHeader) -> BatchMetadata:
        delta = header.last_offset - header.base_offset
        last_sequence = header.sequence(header.last_offset)
        return cls(last_sequence, header.last_offset, delta, header.max_timestamp)


class ProducerStateEntry(NamedTuple):
    """A producer's epoch, last batches (oldest first) and open transaction; -1 means none.

    ``last_timestamp``, in ms since 1970, is that of its last batch or marker, by its sender's
    clock; expiration counts from there.
    """

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    txn_first_offset: int = NO_OFFSET
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def is_in_transaction(self) -> bool:
        return self.txn_first_offset != NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of its last data batch."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshotEntry) -> ProducerStateEntry:
        """Restores the state from a snapshot, which holds only the last batch."""
        batch = BatchMetadata(
            entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
        )
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.timestamp,
            max(entry.current_txn_first_offset, NO_OFFSET),
            (batch,) if entry.has_batch else (),
        )

    def to_snapshot(self) -> ProducerSnapshotEntry:
        last = self.batches[-1] if self.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, 0)
        return ProducerSnapshotEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Returns the earlier batch with the same epoch and sequence numbers, or None."""
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.sequence(header.last_offset)
        for batch in self.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def check_batch(self, header: BatchHeader, origin: AppendOrigin) -> None:
        """Raises InvalidProducerEpoch, OutOfOrderSequence or InvalidTxnState if the data batch may
        not follow. Replicated batches were accepted by a leader: only InvalidTxnState applies."""
        if origin is not AppendOrigin.REPLICATION:
            self._check_epoch(header.producer_epoch)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(header.producer_epoch, header.base_sequence)
        if self.is_in_transaction and not header.is_transactional:
            raise InvalidTxnState(
                f"producer {self.producer_id} has a transaction open since offset "
                f"{self.txn_first_offset}, and this batch is not part of it"
            )

    def check_marker(
        self, producer_epoch: int, coordinator_epoch: int, origin: AppendOrigin
    ) -> None:
        """Raises InvalidProducerEpoch or TransactionCoordinatorFenced if no marker may follow."""
        if origin is AppendOrigin.REPLICATION:
            return
        self._check_epoch(producer_epoch)
        if coordinator_epoch < self.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"producer {self.producer_id}: the marker has coordinator epoch "
                f"{coordinator_epoch}, the last one had {self.coordinator_epoch}"
            )

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise InvalidProducerEpoch(
                f"producer {self.producer_id}: epoch {epoch} is fenced by epoch {self.epoch}"
            )

    def _check_sequence(self, epoch: int, first_sequence: int) -> None:
        """A known epoch continues its sequence, a new one begins at 0. A producer that was
        forgotten, because its records were deleted or it expired, may begin anywhere."""
        if self.epoch == NO_PRODUCER_EPOCH:
            return
        following = 0
        if epoch == self.epoch:
            following = (self.last_sequence + 1) & MAX_INT32
        if first_sequence != following:
            raise OutOfOrderSequence(
                f"producer {self.producer_id}, epoch {epoch}: the batch begins with sequence "
                f"number {first_sequence}, {following} was expected"
            )

    def after_batch(self, header: BatchHeader) -> ProducerStateEntry:
        """Returns the state after a data batch. A new epoch forgets the previous one's batches."""
        known = self.batches if header.producer_epoch == self.epoch else ()
        begun = header.base_offset if header.is_transactional else NO_OFFSET
        return self._replace(
            epoch=header.producer_epoch,
            last_timestamp=header.max_timestamp,
            txn_first_offset=self.txn_first_offset if self.is_in_transaction else begun,
            batches=(*known, BatchMetadata.of(header))[-BATCHES_RETAINED:],
        )

    def after_marker(self, producer_epoch: int, marker: EndTxnMarker) -> ProducerStateEntry:
        """Returns the state after a marker with that epoch, with or without an open transaction."""
        return ProducerStateEntry(
            self.producer_id,
            producer_epoch,
            marker.coordinator_epoch,
            marker.timestamp,
            NO_OFFSET,
            self.batches if producer_epoch == self.epoch else (),
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return not self.is_in_transaction and now_ms - self.last_timestamp >= expiration_ms
