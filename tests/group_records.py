"""Encodes records of `__consumer_offsets`, by Kafka's message formats; shares no code with the
product, which it checks."""

from __future__ import annotations

import struct

from kafkafs.storage.format.records.record_columns import SimpleRecord

NO_EPOCH = -1


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def compact(value: bytes) -> bytes:
    return varint(len(value) + 1) + value


def commit_key(group: str, topic: str, partition: int, number: int = 1) -> bytes:
    return struct.pack(">h", number) + text(group) + text(topic) + struct.pack(">i", partition)


def commit_value(
    offset: int,
    version: int = 3,
    *,
    epoch: int = NO_EPOCH,
    metadata: str = "",
    timestamp: int = 0,
    expires: int = -1,
    tags: tuple[tuple[int, bytes], ...] = (),
) -> bytes:
    """Returns an OffsetCommitValue; `tags` are those of version 4, whose tag 0 is the topic id."""
    out = struct.pack(">hq", version, offset)
    if version >= 3:
        out += struct.pack(">i", epoch)
    out += compact(metadata.encode()) if version >= 4 else text(metadata)
    out += struct.pack(">q", timestamp)
    if version == 1:
        out += struct.pack(">q", expires)
    if version >= 4:
        out += varint(len(tags))
        out += b"".join(varint(tag) + varint(len(data)) + data for tag, data in tags)
    return out


def commit(
    group: str, topic: str, partition: int, offset: int | None, *, timestamp: int = 0
) -> SimpleRecord:
    """Returns the record of a commit; a tombstone if `offset` is None."""
    value = None if offset is None else commit_value(offset, timestamp=timestamp)
    return SimpleRecord(timestamp, commit_key(group, topic, partition), value)


def group_record(
    group: str,
    kind: str = "consumer",
    *,
    emptied: int = -1,
    topics: tuple[str, ...] = (),
    assigned: tuple[int, ...] = (),
) -> SimpleRecord:
    """Returns the record of a classic group with a member that subscribes to `topics` and is
    `assigned` partitions of the first one, or of a group without members that is Empty since a
    time."""
    value = struct.pack(">h", 3) + text(kind) + struct.pack(">i", 1)
    value += (text("range") + text("m")) if topics else struct.pack(">hh", -1, -1)
    value += struct.pack(">qi", emptied, 1 if topics else 0)
    if topics:
        subscription = struct.pack(">hi", 0, len(topics)) + b"".join(map(text, topics))
        subscription += struct.pack(">i", -1)
        value += text("m") + struct.pack(">h", -1) + text("client") + text("/host")
        value += struct.pack(">ii", 1000, 1000)
        assignment = struct.pack(">hi", 0, 1) + text(topics[0])
        assignment += struct.pack(f">i{len(assigned)}ii", len(assigned), *assigned, -1)
        for part in (subscription, assignment):
            value += struct.pack(">i", len(part)) + part
    return SimpleRecord(0, struct.pack(">h", 2) + text(group), value)


def group_tombstone(group: str) -> SimpleRecord:
    """Returns the record that removes a classic group."""
    return SimpleRecord(0, struct.pack(">h", 2) + text(group), None)
