"""Renders records as lines of text: plain values, plain keys, or JSON.

A JSON line has the fields of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
timestampType, headers. It is lossless: bytes that are UTF-8 become a string, others
``{"base64": "…"}``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..errors import CorruptError
from ..format.kernels import gather
from ..format.kernels import render as kernel
from ..format.layout import TimestampType
from ..format.records.batch import Int32s, Int64s
from ..format.records.buffer_pool import BUFFERS
from ..format.records.columns import KEY_SIZE, KEY_START, VALUE_SIZE, VALUE_START, Columns, Record

_NULL: Final = b"null"
_BASE64: Final = b'{"base64":"'
# The number of extra bytes that escaping adds to each byte, valid for printable ASCII.
_QUOTING: Final = bytes(byte in b'"\\' for byte in range(256))
# Output beyond the estimated size is rendered in pieces of this size, unless a record is larger.
_PIECE_BYTES: Final = 1 << 20
# What the first buffer has beyond the estimate.
_SPARE_BYTES: Final = _PIECE_BYTES // 4
# The most of it for lines whose sizes are not known.
_MOST_EXPECTED_BYTES: Final = 64 << 20
# The most rows, and bytes of their keys and values, that are decoded at a time; few rows are, of
# any size.
_FEW_ROWS: Final = 64
_BLOCK_ROWS: Final = 16_384
_BLOCK_BYTES: Final = 1 << 20
# The usual number of digits of an offset and a timestamp together.
_NUMBERS: Final = 24


def values_lines(columns: Columns, topic: str, partition: int) -> memoryview:
    """Renders every value and a newline; null is an empty line."""
    return lines_of(columns, VALUE_START)


def keys_lines(columns: Columns, topic: str, partition: int) -> memoryview:
    """Renders every key and a newline; null is an empty line."""
    return lines_of(columns, KEY_START)


def lines_of(columns: Columns, field: int) -> memoryview:
    """Renders one field per line: KEY_START or VALUE_START, as in ``View.lines``."""
    total = gather.measure(columns.spans, field)[0] + len(columns)
    out = BUFFERS.acquire(total)
    if kernel.write_lines(columns.data, columns.spans, field, out) != total:
        raise CorruptError("records changed while they were written out", columns.file)
    return out


@dataclass(frozen=True, slots=True)
class DecodedParts:
    """What lines have in place of keys and values as they are. `data`: all texts, `places`: for
    each row start and size of the one of its key, of its value, and of what follows its headers
    (int64, shape (n, 6)), size -1 for none."""

    data: bytes
    places: Int64s


_NOTHING: Final = DecodedParts(b"", np.zeros((0, 6), dtype=np.int64))


def json_lines(
    columns: Columns,
    topic: str,
    partition: int,
    decode: Callable[[Columns], DecodedParts | None] | None = None,
) -> memoryview:
    """Renders a line of JSON for every record. `decode` returns what some records have in place of
    keys and values as they are, None for nothing."""
    lines = _Lines(topic, partition)
    if decode is None:
        lines.add(columns, _NOTHING, len(columns))
    else:
        for part in _blocks(columns):
            lines.add(part, decode(part) or _NOTHING, len(columns))
    return lines.joined()


def _blocks(columns: Columns) -> Iterator[Columns]:
    """Yields so few rows at a time that their decoded texts stay in a processor's cache, and in
    memory that is used again for the next ones: fresh memory costs more than the texts."""
    if len(columns) <= _FEW_ROWS:
        yield columns
        return
    size = _bytes_of(columns, _NOTHING)
    rows = max(min(_BLOCK_ROWS, _BLOCK_BYTES * len(columns) // (size + 1)), 1)
    for low in range(0, len(columns), rows):
        yield columns.slice(low, min(low + rows, len(columns)))


class _Lines:
    """Renders lines, of some records after others, into buffers that are joined at the end."""

    def __init__(self, topic: str, partition: int) -> None:
        self._texts, self._marks = _texts(topic, partition)
        self._pieces: list[memoryview] = []
        self._out = np.empty(0, dtype=np.uint8)
        self._at = 0

    def add(self, columns: Columns, decoded: DecodedParts, expected: int) -> None:
        """`expected`: how many records there are in all."""
        types = columns.timestamp_types()
        if len(columns) and not len(self._out):
            room = self._room_for(columns, decoded)
            whole = max(room, min(room * expected // len(columns), _MOST_EXPECTED_BYTES))
            self._out = np.empty(whole + _SPARE_BYTES, dtype=np.uint8)
        row = 0
        while row < len(columns):
            rows, written = kernel.write_json(
                columns.data,
                columns.offsets,
                columns.timestamps,
                types,
                columns.spans,
                decoded.data,
                decoded.places,
                self._texts,
                self._marks,
                _NULL,
                _BASE64,
                _QUOTING,
                row,
                self._out[self._at :],
            )
            if written < 0:
                raise CorruptError("records changed while they were written out", columns.file)
            self._at += written
            row += rows
            if row < len(columns):
                self._make_room(is_used=rows > 0)

    def _make_room(self, *, is_used: bool) -> None:
        room = _PIECE_BYTES
        if self._at:
            self._pieces.append(self._out.data[: self._at])
        elif not is_used:  # a single record is larger
            room = max(_PIECE_BYTES, 4 * len(self._out))
        self._out, self._at = np.empty(room, dtype=np.uint8), 0

    def joined(self) -> memoryview:
        last = self._out.data[: self._at]
        return memoryview(b"".join([*self._pieces, last])) if self._pieces else last

    def _room_for(self, columns: Columns, decoded: DecodedParts) -> int:
        """Estimates the bytes of lines, assuming no headers and little escaping."""
        return _bytes_of(columns, decoded) + len(columns) * (len(self._texts) + _NUMBERS)


def _bytes_of(columns: Columns, decoded: DecodedParts) -> int:
    """Returns the bytes of keys and values, as they are or decoded, and of what follows headers."""
    if not len(decoded.places):
        fields = KEY_START, VALUE_START
        return int(sum(gather.measure(columns.spans, field)[0] for field in fields))
    sizes = decoded.places[:, 1::2]
    as_they_are = np.where(sizes[:, :2] < 0, columns.spans[:, [KEY_SIZE, VALUE_SIZE]], 0)
    return int(np.maximum(sizes, 0).sum() + np.maximum(as_they_are, 0).sum())


@lru_cache(maxsize=256)
def _texts(topic: str, partition: int) -> tuple[bytes, Int32s]:
    """Returns the constant texts of a line, concatenated for the kernel, and their starts."""
    place = f',"topic":{json.dumps(topic)},"partition":{partition},"offset":'
    texts = [
        '{"key":',
        ',"value":',
        place,
        ',"timestamp":',
        *(
            f',"timestampType":"{TimestampType(number).kafka_name}","headers":['
            for number in (-1, 0, 1)
        ),
        '{"key":',
        ',"value":',
        "]",
        "}\n",
    ]
    encoded = [text.encode() for text in texts]
    marks = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return b"".join(encoded), marks


def record_as_json(record: Record, topic: str, partition: int) -> dict[str, Any]:
    """Returns one record as the JSON object that its line contains."""
    return {
        "key": _field(record.key),
        "value": _field(record.value),
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type.kafka_name,
        "headers": [{"key": name, "value": _field(value)} for name, value in record.headers],
    }


def _field(value: bytes | None) -> str | dict[str, str] | None:
    return None if value is None else bytes_as_json(value)


def bytes_as_json(value: bytes) -> str | dict[str, str]:
    """Returns a JSON value: a string if `value` is UTF-8, else {"base64": "…"}."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}
