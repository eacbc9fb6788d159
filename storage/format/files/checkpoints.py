"""Parses and formats the small files of a log directory: checkpoints and metadata files.

Every `parse_…` raises CorruptError, with the position in the file, for bytes that Kafka would
reject. Kafka creates checkpoint files empty, so an empty checkpoint is valid and has no entries.

Every `format_…` returns the bytes that Kafka writes for the same values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import CorruptError
from ...wording import printable
from ..primitives import is_uuid_text
from .names import TopicPartition
from .properties import format_properties, parse_properties

CHECKPOINT_VERSION = 0
META_PROPERTIES_VERSIONS = (0, 1)
# Marks a `meta.properties` that kafkafs created; a broker writes an empty comment.
_OWN_COMMENT = "kafkafs"

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_NUMBER = re.compile(rb"-?[0-9]{1,19}")
# An offset checkpoint as brokers write it, and an entry of it.
_PLAIN_OFFSETS = re.compile(rb"0\n[0-9]+\n(?:[!-~]++ [0-9]{1,9}+ [0-9]{1,18}+\n)*+")
_PLAIN_OFFSET = re.compile(rb"([!-~]++) ([0-9]++) ([0-9]++)\n")


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A leader epoch and its start offset: that of the first record it could write."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log directory. Absent fields: `node_id` -1, the others empty."""

    version: int = 0
    cluster_id: str = ""
    node_id: int = -1  # broker.id in version 0
    directory_id: str = ""
    is_own: bool = False  # whether kafkafs created the file, so that no broker has this cluster id


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The id of the topic that a partition belongs to."""

    version: int
    topic_id: str


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Parses any of the four `*-offset-checkpoint` files: (topic, partition) to offset."""
    if _PLAIN_OFFSETS.fullmatch(data):  # as written, much faster than the code below
        plain = _PLAIN_OFFSET.findall(data)
        if data.startswith(b"0\n%d\n" % len(plain)):
            return {(topic.decode(), int(number)): int(offset) for topic, number, offset in plain}
    offsets = {}
    for position, fields in _entries(data, 3):
        topic, partition = _text(fields[0], position), _int(fields[1], position, _INT32)
        offsets[topic, partition] = _int(fields[2], position, _INT64)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Formats an `*-offset-checkpoint` file, with entries in the mapping's order."""
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    return _checkpoint(lines, len(offsets))


def parse_leader_epochs(data: bytes) -> list[EpochEntry]:
    """Returns the entries of `leader-epoch-checkpoint` in file order."""
    return [
        EpochEntry(_int(epoch, position, _INT32), _int(start_offset, position, _INT64))
        for position, (epoch, start_offset) in _entries(data, 2)
    ]


def format_leader_epochs(entries: Sequence[EpochEntry]) -> bytes:
    """Formats a `leader-epoch-checkpoint` file; `entries` must be in ascending order."""
    return _checkpoint((f"{entry.epoch} {entry.start_offset}" for entry in entries), len(entries))


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parses `meta.properties` of version 0 or 1 (MetaProperties.Builder)."""
    found = parse_properties(data)
    version = _int(found.get("version", "0").encode(), 0, _INT32)
    if version not in META_PROPERTIES_VERSIONS:
        raise CorruptError(f"meta.properties has version {version}, expected 0 or 1")
    node_key = "broker.id" if version == 0 else "node.id"
    required = () if version == 0 else (node_key, "cluster.id")
    missing = [key for key in required if key not in found]
    if missing:
        raise CorruptError(f"{missing[0]} is missing, but version {version} requires it")
    directory_id = found.get("directory.id", "")
    if directory_id and not is_uuid_text(directory_id):
        raise CorruptError(f"directory.id is not a UUID: {printable(directory_id)}")
    node_id = _int(found.get(node_key, "-1").encode(), 0, _INT32)
    is_own = data.startswith(f"#{_OWN_COMMENT}\n".encode())
    return MetaProperties(version, found.get("cluster.id", ""), node_id, directory_id, is_own)


def format_meta_properties(meta: MetaProperties, written_ms: int) -> bytes:
    """Formats `meta.properties`, written at `written_ms` (ms since 1970), with its keys in the
    iteration order of Java 17's hash table."""
    node_key = "broker.id" if meta.version == 0 else "node.id"
    values = {node_key: str(meta.node_id)} if meta.node_id >= 0 else {}
    if meta.directory_id:
        values["directory.id"] = meta.directory_id
    values["version"] = str(meta.version)
    if meta.cluster_id:
        values["cluster.id"] = meta.cluster_id
    return format_properties(values, written_ms, _OWN_COMMENT if meta.is_own else "")


def parse_partition_metadata(data: bytes) -> PartitionMetadata:
    """Parses `partition.metadata`: `version: N`, `topic_id: ID`; any version is read like 0."""
    lines = _lines(data)
    values = []
    for (position, line), key in zip(lines, (b"version", b"topic_id"), strict=False):
        name, separator, value = line.partition(b":")
        if name != key or not separator:
            raise CorruptError(f"expected a {key.decode()} line", position=position)
        values.append((position, value.strip()))
    if len(values) < 2:
        raise CorruptError("topic_id is missing", position=len(data))
    version = _int(values[0][1], 0, (0, _INT32[1]))
    position, value = values[1]
    topic_id = _text(value, position)
    if not is_uuid_text(topic_id):
        raise CorruptError(f"topic_id is not a UUID: {printable(topic_id)}", position=position)
    return PartitionMetadata(version, topic_id)


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Formats `partition.metadata`, without a final newline."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Returns the broker epoch in `.kafka_cleanshutdown`, -1 if an older broker left it empty."""
    if not data:
        return -1
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"invalid JSON: {error}", position=0) from None
    epoch = found.get("brokerEpoch", -1) if isinstance(found, dict) else None
    if type(epoch) is not int:
        raise CorruptError("expected a JSON object with an integer brokerEpoch", position=0)
    return epoch


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """Formats `.kafka_cleanshutdown`; `broker_epoch` is -1 if there is no broker."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def _checkpoint(lines: Iterable[str], count: int) -> bytes:
    text = "\n".join([str(CHECKPOINT_VERSION), str(count), *lines])
    return (text + "\n").encode()


def _entries(data: bytes, width: int) -> list[tuple[int, list[bytes]]]:
    """Returns position and `width` fields of each checkpoint entry (Kafka's CheckpointFile)."""
    lines = _lines(data)
    if not lines:
        return []
    version = _int(lines[0][1], 0, _INT32)
    if version != CHECKPOINT_VERSION:
        raise CorruptError(f"checkpoint has version {version}, expected 0", position=0)
    if len(lines) == 1:
        return []
    count = _int(lines[1][1], lines[1][0], (0, _INT32[1]))
    if len(lines) - 2 != count:
        raise CorruptError(f"{len(lines) - 2} entries, expected {count}", position=len(data))
    found = []
    for position, line in lines[2:]:
        fields = line.split()
        if len(fields) != width:
            raise CorruptError(f"{len(fields)} fields in an entry, not {width}", position=position)
        found.append((position, fields))
    return found


def _lines(data: bytes) -> list[tuple[int, bytes]]:
    """Returns the position and content of each line."""
    lines = []
    position = 0
    for line in data.splitlines(keepends=True):
        lines.append((position, line.rstrip(b"\r\n")))
        position += len(line)
    return lines


def _int(field: bytes, position: int, bounds: tuple[int, int]) -> int:
    low, high = bounds
    value = int(field) if _NUMBER.fullmatch(field) else None
    if value is None or not low <= value <= high:
        text = printable(field[:40].decode("latin-1"))
        raise CorruptError(f"not a number from {low} to {high}: {text!r}", position=position)
    return value


def _text(field: bytes, position: int) -> str:
    try:
        return field.decode("utf-8")
    except UnicodeDecodeError:
        text = printable(field[:40].decode("latin-1"))
        raise CorruptError(f"not UTF-8: {text!r}", position=position) from None
