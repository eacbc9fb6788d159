"""Renders records as lines of text: plain values, plain keys, or JSON.

A JSON line has the fields of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
timestampType, headers. It is lossless: bytes that are UTF-8 become a string, others
``{"base64": "…"}``.
"""

from __future__ import annotations

import base64
import json
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
from ..format.records.columns import KEY_START, VALUE_START, Columns, Record

_NULL: Final = b"null"
_BASE64: Final = b'{"base64":"'
# The number of extra bytes that escaping adds to each byte, valid for printable ASCII.
_QUOTING: Final = bytes(byte in b'"\\' for byte in range(256))
# Output beyond the estimated size is rendered in pieces of this size, unless a record is larger.
_PIECE_BYTES: Final = 1 << 20
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
    columns: Columns, topic: str, partition: int, decoded: DecodedParts = _NOTHING
) -> memoryview:
    """Renders a line of JSON for every record."""
    texts, marks = _texts(topic, partition)
    types = columns.timestamp_types()
    pieces: list[memoryview] = []
    row, room = 0, _room_for(columns, len(texts), decoded)
    while row < len(columns):
        out = np.empty(room, dtype=np.uint8)
        rows, written = kernel.write_json(
            columns.data,
            columns.offsets,
            columns.timestamps,
            types,
            columns.spans,
            decoded.data,
            decoded.places,
            texts,
            marks,
            _NULL,
            _BASE64,
            _QUOTING,
            row,
            out,
        )
        if written < 0:
            raise CorruptError("records changed while they were written out", columns.file)
        if rows == 0:
            room *= 4
            continue
        pieces.append(out.data[:written])
        row += rows
        room = min(room, _PIECE_BYTES)
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _room_for(columns: Columns, texts: int, decoded: DecodedParts) -> int:
    """Estimates the bytes of all lines, assuming no headers and little escaping. ``texts``: the
    constant bytes per line."""
    rows = len(decoded.places)
    if rows:
        parts = int(np.maximum(decoded.places[:, 1::2], 0).sum())
    else:
        fields = KEY_START, VALUE_START
        parts = int(sum(gather.measure(columns.spans, field)[0] for field in fields))
    return parts + len(columns) * (texts + _NUMBERS) + _PIECE_BYTES // 4


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
