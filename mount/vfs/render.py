"""Renders a record, its attributes, configs and status as the bytes of files.

Many records at once are rendered by `kafkafs.storage.lines.json_output` and `.arrow`; this module
renders single objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import BatchHeader, Columns, Header, json_lines

if TYPE_CHECKING:
    from kafkafs.storage import TopicDecoder

#: The prefix of a record's extended attributes.
XATTR_PREFIX: Final = "user.kafka."
# Linux: XATTR_NAME_MAX.
_MAX_XATTR_NAME: Final = 255
# Linux: XATTR_SIZE_MAX and XATTR_LIST_MAX.
_MAX_XATTR_BYTES: Final = 65536


def record_json(columns: Columns, row: int, topic: str, partition: int) -> bytes:
    """Returns `offset/N.json`: the line of `records.jsonl` with the fields of the batch added."""
    line = bytes(json_lines(columns.slice(row, row + 1), topic, partition))
    batch = columns.batch_of(row)
    sequence = batch.sequence(int(columns.offsets[row]))
    return line.removesuffix(b"}\n") + b"," + _compact(_batch_fields(batch, sequence))[1:] + b"\n"


def decoded_json(
    columns: Columns, row: int, topic: str, partition: int, decoder: TopicDecoder
) -> bytes:
    """Returns `offset/N.decoded.json`: the line of `decoded.jsonl` with the fields of the batch
    added, and what is known of the schemas of the key and the value."""
    from kafkafs.storage import decoded_lines  # which few mounts need

    one = columns.slice(row, row + 1)
    line = bytes(decoded_lines(one, topic, partition, decoder))
    [key], [value] = decoder.decoded(one, is_key=True), decoder.decoded(one)
    batch = columns.batch_of(row)
    more = _batch_fields(batch, batch.sequence(int(columns.offsets[row])))
    more |= {"keySchema": key.as_json(), "valueSchema": value.as_json()}
    return line.removesuffix(b"}\n") + b"," + _compact(more)[1:] + b"\n"


def _batch_fields(batch: BatchHeader, sequence: int) -> dict[str, Any]:
    return {
        "leaderEpoch": batch.leader_epoch,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "sequence": sequence,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "codec": batch.codec.kafka_name,
        "batch": _place_of(batch),
    }


def _place_of(batch: BatchHeader) -> dict[str, int]:
    return {
        "baseOffset": batch.base_offset,
        "position": batch.position,
        "size": batch.size,
    }


def record_xattrs(columns: Columns, row: int, topic: str, partition: int) -> dict[str, bytes]:
    """Returns the extended attributes of a record's files by name without prefix."""
    record = columns.record(row)
    batch = record.batch
    texts = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type.kafka_name,
        "codec": batch.codec.kafka_name,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": record.sequence,
        "key_size": _size(record.key),
        "value_size": _size(record.value),
        "tombstone": "true" if record.value is None and record.key is not None else "false",
    }
    attributes = {name: str(value).encode() for name, value in texts.items()}
    if record.key is not None:
        attributes["key"] = record.key
    attributes["batch"] = _compact(_place_of(batch))
    line = bytes(json_lines(columns.slice(row, row + 1), topic, partition))
    attributes["headers"] = _compact(json.loads(line)["headers"])
    attributes.update(_header_xattrs(record.headers))
    return attributes


def _header_xattrs(headers: list[Header]) -> Iterator[tuple[str, bytes]]:
    """Yields the last header of each name, as Kafka's `lastHeader` does. Headers whose names are
    too long for Linux appear only in the list of all headers."""
    for name, value in dict(headers).items():
        size = len(f"{XATTR_PREFIX}header.{name}".encode())
        if value is not None and name and "\0" not in name and size <= _MAX_XATTR_NAME:
            yield f"header.{name}", value


def listed_xattrs(attributes: Mapping[str, bytes]) -> list[bytes]:
    """Returns the names that Linux can list: those whose values it can return, as many as fit into
    XATTR_LIST_MAX."""
    room = _MAX_XATTR_BYTES
    names = []
    for name, value in attributes.items():
        encoded = name.encode()
        if len(value) <= _MAX_XATTR_BYTES and len(encoded) + 1 <= room:
            names.append(encoded)
            room -= len(encoded) + 1
    return names


def _size(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_line(fields: Mapping[str, Any]) -> bytes:
    """Returns a JSON object as a line. Non-UTF-8 bytes of names become lone surrogates."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def status(fields: Mapping[str, Any]) -> bytes:
    """Returns a `status.json`, indented for people."""
    return (json.dumps(fields, ensure_ascii=True, indent=2) + "\n").encode()


def properties(configs: Mapping[str, str]) -> bytes:
    """Returns configs as Java's `.properties` text, sorted by name."""
    lines = (
        _escaped(name, " :=#!") + "=" + _escaped(configs[name], "") for name in sorted(configs)
    )
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


_NAMED: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def _escaped(text: str, also: str) -> str:
    """Escapes `text` as `java.util.Properties.store` does, with `also` and a leading blank."""
    escaped = "".join(_escaped_char(char, also) for char in text)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escaped_char(char: str, also: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if char in also:
        return "\\" + char
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
