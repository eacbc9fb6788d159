"""Parses and formats `.snapshot` files: the state of every producer at the offset in the file name.

It serves to detect duplicates and open transactions. If a snapshot is missing or corrupt, the state
is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from struct import Struct
from typing import Final

from ...errors import CorruptError
from ..checksum import crc32c

VERSION = 1
HEADER = Struct(">hIi")  # version, CRC-32C of everything after it, number of entries
ENTRY = Struct(">qhiqiqiq")  # the fields of ProducerSnapshotEntry
_CRC_COVERS_FROM = 6
_COUNT = Struct(">i")

# Limit on the size of a file: more than a million producers.
MAX_SNAPSHOT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """The state of a producer. Kafka keeps the last batch of its epoch; if there is none, as after
    a marker with a new epoch, `last_sequence` and `last_offset` are -1 and `offset_delta` is 0.
    """

    producer_id: int
    producer_epoch: int  # -1 if none
    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset minus first offset of the batch
    timestamp: int  # ms since 1970, the largest of the last batch, or the marker's
    coordinator_epoch: int  # of the last marker, -1 if none
    current_txn_first_offset: int  # of the open transaction, -1 if none

    @property
    def has_batch(self) -> bool:
        return self.last_offset >= 0


_values = attrgetter(*(field.name for field in fields(ProducerSnapshotEntry)))


def parse_producer_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    """Returns the entries in file order (Kafka's ProducerStateManager.readSnapshot).

    Raises CorruptError if the file is truncated, of another version, or has a wrong CRC.
    """
    if len(data) < HEADER.size:
        raise CorruptError(f"{len(data)} bytes are too few for a header", position=0)
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptError(f"producer snapshot has version {version}, not {VERSION}", position=0)
    computed = crc32c(memoryview(data)[_CRC_COVERS_FROM:])
    if crc != computed:
        raise CorruptError(f"CRC-32C is {computed:#010x}, its header says {crc:#010x}", position=2)
    end = HEADER.size + count * ENTRY.size
    if count < 0 or end > len(data):
        raise CorruptError(f"{count} entries do not fit in {len(data)} bytes", position=6)
    entries = ENTRY.iter_unpack(memoryview(data)[HEADER.size : end])
    return [ProducerSnapshotEntry(*fields) for fields in entries]


def format_producer_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """Formats a `.snapshot` of `entries` in the given order; Kafka's order is `hash_map_order`."""
    packed = [ENTRY.pack(*_values(entry)) for entry in entries]
    covered = b"".join([_COUNT.pack(len(packed)), *packed])
    return HEADER.pack(VERSION, crc32c(covered), len(packed)) + covered[_COUNT.size :]


def hash_map_order(producer_ids: Iterable[int], most: int = 0) -> list[int]:
    """Returns `producer_ids`, given in order of insertion, in the iteration order of
    java.util.HashMap.

    The map's table grows with its entries and never shrinks: `most` is the largest number of
    entries it ever held, if larger than now. Eight or more colliding ids form a tree in Java, whose
    order may differ; a broker accepts any order.
    """
    ids = list(producer_ids)
    buckets = 16
    while max(len(ids), most) * 4 > buckets * 3:
        buckets *= 2
    return sorted(ids, key=lambda producer_id: _java_hash(producer_id) & (buckets - 1))


def _java_hash(value: int) -> int:
    """Returns Long.hashCode, spread as in HashMap.hash."""
    bits = (value ^ (value >> 32)) & 0xFFFF_FFFF
    return bits ^ (bits >> 16)
