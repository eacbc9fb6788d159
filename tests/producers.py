"""A partition's producer states as a broker tracks them: snapshots and aborted transactions.

Rules: Kafka `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo`, `AbortedTxn`.
Nothing expires or is validated here; batches are accepted as the broker accepted them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkafs.storage.format.checksum import crc32c

if TYPE_CHECKING:
    from tests.logs import Header

ABORT = 0


@dataclass(slots=True)
class Producer:
    """A producer's state. Sequence and offset are those of its last batch, -1 if unknown."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = -1

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch; a new one discards the batches of the previous epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.last_sequence, self.last_offset, self.offset_delta = -1, -1, 0


class Producers:
    """All producers of one partition, in order of appearance."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def append(self, header: Header) -> list[bytes]:
        """Adds a batch of magic 2; returns the transaction index entry that it adds, if any."""
        if header.producer_id < 0:
            return []
        producer = self._producers.setdefault(header.producer_id, Producer(header.producer_epoch))
        producer.set_epoch(header.producer_epoch)
        producer.timestamp = header.max_timestamp
        if header.is_control:
            return self._end_transaction(header, producer)
        delta = header.last_offset - header.base_offset
        producer.last_sequence = (header.base_sequence + delta) & 0x7FFFFFFF
        producer.last_offset = header.last_offset
        producer.offset_delta = delta
        if header.is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = header.base_offset
        return []

    def _end_transaction(self, header: Header, producer: Producer) -> list[bytes]:
        control_type, coordinator_epoch = _read_marker(header.data)
        first, producer.txn_first_offset = producer.txn_first_offset, -1
        producer.coordinator_epoch = coordinator_epoch
        if control_type != ABORT or first < 0:
            return []
        still_open = [
            p.txn_first_offset for p in self._producers.values() if p.txn_first_offset >= 0
        ]
        stable = min(still_open, default=header.last_offset + 1)
        return [struct.pack(">hqqqq", 0, header.producer_id, first, header.last_offset, stable)]

    def snapshot(self) -> bytes:
        """Returns the current `.snapshot` file."""
        body = struct.pack(">i", len(self._producers))
        for producer_id in _hash_map_order(list(self._producers)):
            p = self._producers[producer_id]
            body += struct.pack(
                ">qhiqiqiq", producer_id, p.epoch, p.last_sequence, p.last_offset,
                p.offset_delta, p.timestamp, p.coordinator_epoch, p.txn_first_offset,
            )  # fmt: skip
        return struct.pack(">hI", 1, crc32c(body)) + body


def _read_marker(batch: bytes) -> tuple[int, int]:
    """Returns a marker's type and coordinator epoch, which are at fixed positions."""
    key, value = 61 + 5, 61 + 10
    return struct.unpack_from(">h", batch, key + 2)[0], struct.unpack_from(">i", batch, value + 2)[
        0
    ]


def _hash_map_order(keys: list[int]) -> list[int]:
    """Returns the keys in the order of Java's `HashMap<Long, …>`: by bucket, then by insertion."""
    table = 16
    while len(keys) > table * 3 // 4:
        table *= 2
    return sorted(keys, key=lambda key: _spread_hash(key) & (table - 1))


def _spread_hash(key: int) -> int:
    low = (key ^ (key >> 32)) & 0xFFFFFFFF
    return low ^ (low >> 16)
