"""The small files beside the logs, each from its bytes to a value and back.

Every `parse_…` raises CorruptError for bytes that Kafka would refuse, with the position in the
file. Kafka creates the checkpoint files empty, so no bytes at all are a value for those: nothing.

Every `format_…` gives the bytes that Kafka writes for the same values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import CorruptError, printable
from .properties import format_properties, parse_properties
from .uuids import is_uuid_text

CHECKPOINT_VERSION = 0
META_PROPERTIES_VERSIONS = (0, 1)
# Of `meta.properties` in a directory that is nobody's; a broker's file has an empty comment.
_OWN_COMMENT = "kafkafs"

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_NUMBER = re.compile(rb"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """The offset of the first record that could be written under a leader epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose a log directory is. Absent: `node_id` -1, the others empty."""

    version: int = 0
    cluster_id: str = ""
    node_id: int = -1  # broker.id in version 0
    directory_id: str = ""
    is_own: bool = False  # whether kafkafs made the file, and its cluster is no broker's


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Which topic of that name the partition belongs to."""

    version: int
    topic_id: str


def parse_offsets(data: bytes) -> dict[tuple[str, int], int]:
    """An offset for each (topic, partition): any of the four `*-offset-checkpoint` files."""
    offsets = {}
    for position, fields in _entries(data, 3):
        topic, partition = _text(fields[0], position), _int(fields[1], position, _INT32)
        offsets[topic, partition] = _int(fields[2], position, _INT64)
    return offsets


def format_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """An `*-offset-checkpoint` of an offset for each (topic, partition), in the mapping's order."""
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    return _checkpoint(lines, len(offsets))


def parse_leader_epochs(data: bytes) -> list[EpochEntry]:
    """The entries of `leader-epoch-checkpoint` in file order."""
    return [
        EpochEntry(_int(epoch, position, _INT32), _int(start_offset, position, _INT64))
        for position, (epoch, start_offset) in _entries(data, 2)
    ]


def format_leader_epochs(entries: Sequence[EpochEntry]) -> bytes:
    """A `leader-epoch-checkpoint` of `entries`, which must ascend."""
    return _checkpoint((f"{entry.epoch} {entry.start_offset}" for entry in entries), len(entries))


def parse_meta_properties(data: bytes) -> MetaProperties:
    """`meta.properties` of version 0 or 1 (MetaProperties.Builder)."""
    found = parse_properties(data)
    version = _int(found.get("version", "0").encode(), 0, _INT32)
    if version not in META_PROPERTIES_VERSIONS:
        raise CorruptError(f"version {version} of meta.properties, not 0 or 1")
    node_key = "broker.id" if version == 0 else "node.id"
    required = () if version == 0 else (node_key, "cluster.id")
    missing = [key for key in required if key not in found]
    if missing:
        raise CorruptError(f"no {missing[0]}, which version {version} must have")
    directory_id = found.get("directory.id", "")
    if directory_id and not is_uuid_text(directory_id):
        raise CorruptError(f"directory.id is not an id: {printable(directory_id)}")
    node_id = _int(found.get(node_key, "-1").encode(), 0, _INT32)
    is_own = data.startswith(f"#{_OWN_COMMENT}\n".encode())
    return MetaProperties(version, found.get("cluster.id", ""), node_id, directory_id, is_own)


def format_meta_properties(meta: MetaProperties, written_ms: int) -> bytes:
    """`meta.properties` as written at `written_ms` since 1970, its keys in the order that Java 17's
    hash table gives them."""
    node_key = "broker.id" if meta.version == 0 else "node.id"
    values = {node_key: str(meta.node_id)} if meta.node_id >= 0 else {}
    if meta.directory_id:
        values["directory.id"] = meta.directory_id
    values["version"] = str(meta.version)
    if meta.cluster_id:
        values["cluster.id"] = meta.cluster_id
    return format_properties(values, written_ms, _OWN_COMMENT if meta.is_own else "")


def parse_partition_metadata(data: bytes) -> PartitionMetadata:
    """`partition.metadata`: `version: N` and `topic_id: ID`, higher versions read as 0."""
    lines = _lines(data)
    values = []
    for (position, line), key in zip(lines, (b"version", b"topic_id"), strict=False):
        name, separator, value = line.partition(b":")
        if name != key or not separator:
            raise CorruptError(f"not a line of {key.decode()}", position=position)
        values.append((position, value.strip()))
    if len(values) < 2:
        raise CorruptError("ends before topic_id", position=len(data))
    version = _int(values[0][1], 0, (0, _INT32[1]))
    position, value = values[1]
    topic_id = _text(value, position)
    if not is_uuid_text(topic_id):
        raise CorruptError(f"topic_id is not an id: {printable(topic_id)}", position=position)
    return PartitionMetadata(version, topic_id)


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """`partition.metadata`, whose last line has no end."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch in `.kafka_cleanshutdown`, -1 where an older broker left the file empty."""
    if not data:
        return -1
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"no JSON: {error}", position=0) from None
    epoch = found.get("brokerEpoch", -1) if isinstance(found, dict) else None
    if type(epoch) is not int:
        raise CorruptError("no JSON object with a brokerEpoch", position=0)
    return epoch


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """`.kafka_cleanshutdown`; `broker_epoch` is -1 where there is no broker."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def _checkpoint(lines: Iterable[str], count: int) -> bytes:
    text = "\n".join([str(CHECKPOINT_VERSION), str(count), *lines])
    return (text + "\n").encode()


def _entries(data: bytes, width: int) -> list[tuple[int, list[bytes]]]:
    """Position and `width` fields of each entry of a checkpoint file (Kafka's CheckpointFile)."""
    lines = _lines(data)
    if not lines:
        return []
    version = _int(lines[0][1], 0, _INT32)
    if version != CHECKPOINT_VERSION:
        raise CorruptError(f"version {version} of a checkpoint, not 0", position=0)
    if len(lines) == 1:
        return []
    count = _int(lines[1][1], lines[1][0], (0, _INT32[1]))
    if len(lines) - 2 != count:
        raise CorruptError(f"{len(lines) - 2} entries, not {count} as it says", position=len(data))
    found = []
    for position, line in lines[2:]:
        fields = line.split()
        if len(fields) != width:
            raise CorruptError(f"an entry of {len(fields)} words, not {width}", position=position)
        found.append((position, fields))
    return found


def _lines(data: bytes) -> list[tuple[int, bytes]]:
    """The position and content of each line."""
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
