"""`.snapshot`: what was known of each producer at the offset in the file's name.

Truth for duplicates and open transactions, but rebuilt from the log where it is missing or broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from struct import Struct

from ..errors import CorruptError
from .checksum import crc32c

VERSION = 1
HEADER = Struct(">hIi")  # version, CRC-32C of what follows it, number of entries
ENTRY = Struct(">qhiqiqiq")  # the fields of ProducerSnapshotEntry
_CRC_COVERS_FROM = 6
_COUNT = Struct(">i")


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """A producer's state. Kafka keeps the last batch of its epoch; where there is none, as after a
    marker that came with a new epoch, `last_sequence` and `last_offset` are -1, `offset_delta` 0.
    """

    producer_id: int
    producer_epoch: int  # -1 none
    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset minus first offset of the batch
    timestamp: int  # ms since 1970, the largest of the last batch or the marker's
    coordinator_epoch: int  # of the last marker, -1 none
    current_txn_first_offset: int  # of the transaction open now, -1 none

    @property
    def has_batch(self) -> bool:
        return self.last_offset >= 0


_values = attrgetter(*(field.name for field in fields(ProducerSnapshotEntry)))


def parse_producer_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """The entries in file order (Kafka's ProducerStateManager.readSnapshot).

    CorruptError when it is short, of another version, or its CRC does not fit.
    """
    if len(data) < HEADER.size:
        raise CorruptError(f"{len(data)} bytes, less than a snapshot's header", position=0)
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptError(f"version {version} of a producer snapshot, not {VERSION}", position=0)
    computed = crc32c(memoryview(data)[_CRC_COVERS_FROM:])
    if crc != computed:
        raise CorruptError(f"CRC-32C is {computed:#010x}, not {crc:#010x} as it says", position=2)
    end = HEADER.size + count * ENTRY.size
    if count < 0 or end > len(data):
        raise CorruptError(f"{count} entries do not fit {len(data)} bytes", position=6)
    entries = ENTRY.iter_unpack(memoryview(data)[HEADER.size : end])
    return [ProducerSnapshotEntry(*fields) for fields in entries]


def format_producer_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """The `.snapshot` of `entries`, which the file holds in this order; Kafka's is that of
    `hash_map_order`."""
    packed = [ENTRY.pack(*_values(entry)) for entry in entries]
    covered = b"".join([_COUNT.pack(len(packed)), *packed])
    return HEADER.pack(VERSION, crc32c(covered), len(packed)) + covered[_COUNT.size :]


def hash_map_order(producer_ids: Iterable[int], most: int = 0) -> list[int]:
    """`producer_ids`, given in the order in which they were put into it, as java.util.HashMap
    iterates over them.

    The map's table grows with its entries and never shrinks: `most` is how many there have been in
    it at once, if more than now. Ids that collide in eight and more are in a tree in Java, and may
    come in another order there; a broker takes any.
    """
    ids = list(producer_ids)
    buckets = 16
    while max(len(ids), most) * 4 > buckets * 3:
        buckets *= 2
    return sorted(ids, key=lambda producer_id: _java_hash(producer_id) & (buckets - 1))


def _java_hash(value: int) -> int:
    """Long.hashCode, spread as HashMap.hash does."""
    bits = (value ^ (value >> 32)) & 0xFFFF_FFFF
    return bits ^ (bits >> 16)
