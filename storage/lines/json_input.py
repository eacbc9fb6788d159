"""Parses JSON lines into records to be written.

This reads what `lines` writes, so that one partition's `records.jsonl` can be appended to another.
It uses the fields `key`, `value`, `headers` and `timestamp` of a line and ignores those that
describe its origin (`topic`, `offset` and so on).

A kernel parses lines of the usual form. For every other line, `json` decides whether it is a
record, and what is wrong if it is not.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

import numpy as np

from ..errors import InvalidRecord
from ..format.kernels import json_input as kernel
from ..format.layout import NO_TIMESTAMP
from ..format.records.batch import Int64s
from ..format.records.record_columns import Field, Headers, RecordColumns, SimpleRecord
from ..wording import printable
from .text_input import Parsed

# The average line is rarely shorter.
_LINE_BYTES: Final = 64
_MAX_INT64: Final = 2**63 - 1
_SHOWN: Final = 40  # the most characters of a value quoted in a message

# Fields of a record that was read, which mean nothing for one to be written.
_IGNORED: Final = frozenset(
    (
        *("topic", "partition", "offset", "timestampType", "leaderEpoch", "codec", "batch"),
        *("producerId", "producerEpoch", "sequence", "isTransactional", "isControl"),
    )
)
_WRITTEN: Final = frozenset(("key", "value", "timestamp", "headers"))

# For the kernel: the field names with their closing quotes, and the start of each.
_NAMES: Final = "".join(f'{name}"' for name in kernel.FIELDS).encode()
_MARKS: Final = np.cumsum([0, *(len(name) + 1 for name in kernel.FIELDS)]).astype(np.int32)
_BASE64: Final = b'base64"'


def parse_json(data: bytes) -> Parsed:
    """Parses lines of JSON objects. Only `value` is required; a missing timestamp is -1."""
    records = _read(data)
    timestamps, *places = records.table
    keys, values = Field(records.data, *places[:2]), Field(records.data, *places[2:])
    headers = Headers.none()
    if records.headers:
        headers = Headers(records.data, records.spans, records.bounds)
    return Parsed(RecordColumns(timestamps, keys, values, headers), records.error)


class _Records:
    """The records of the lines. Their bytes are in `data`, at the positions of the lines: in the
    input itself or, if a line has escapes, in a copy. `error` describes the first invalid line."""

    def __init__(self, data: bytes) -> None:
        self.rows = 0
        self.headers = 0
        self.error: InvalidRecord | None = None
        self._data = data
        self._room = bytearray()
        self._table: Int64s = np.empty((5, len(data) // _LINE_BYTES + 16), dtype=np.int64)
        self._spans: Int64s = np.empty((64, 4), dtype=np.int64)
        self._bounds: Int64s = np.zeros(self._table.shape[1] + 1, dtype=np.int64)
        self._shape = np.zeros((len(kernel.FIELDS) + 2, 3), dtype=np.intp)

    @property
    def data(self) -> bytes | bytearray:
        return self._room or self._data

    @property
    def table(self) -> Int64s:
        """Timestamps, key starts, key sizes, value starts and value sizes: shape (5, rows)."""
        return self._table[:, : self.rows]

    @property
    def spans(self) -> Int64s:
        """Laid out as in `Headers`."""
        return self._spans[: self.headers]

    @property
    def bounds(self) -> Int64s:
        """Laid out as in `Headers`."""
        return self._bounds[: self.rows + 1]

    def read(self, at: int) -> tuple[int, int]:
        """Reads lines from `at` on. Returns the start of the first line that the kernel cannot
        decide, and why it stopped."""
        while True:
            at, self.rows, self.headers, why = kernel.read_lines(
                self._data,
                at,
                len(self._data),
                self._room,
                _NAMES,
                _MARKS,
                _BASE64,
                self._table,
                self.rows,
                self._spans,
                self.headers,
                self._bounds,
                self._shape,
            )
            if why == kernel.NO_COPY:
                self._copy()
            elif why == kernel.NO_ROOM:
                more_rows = self.rows == self._table.shape[1]
                self._make_room(self.rows + more_rows, len(self._spans) + (not more_rows))
            else:
                return at, why

    def _copy(self) -> None:
        """Copies the input, so that unescaped bytes can be written over the line they are from."""
        if not self._room:
            self._room += self._data

    def add(self, at: int, record: SimpleRecord) -> None:
        """Adds the record of the line at `at`. Its bytes overwrite the line and fit in it."""
        self._copy()
        headers = [
            (name.encode() if isinstance(name, str) else name, value)
            for name, value in record.headers
        ]
        row = self.rows
        self._make_room(row + 1, self.headers + len(headers))
        self._table[0, row] = record.timestamp
        at, *self._table[1:3, row] = self._put(at, record.key)
        at, *self._table[3:5, row] = self._put(at, record.value)
        for name, value in headers:
            at, *self._spans[self.headers, :2] = self._put(at, name)
            at, *self._spans[self.headers, 2:] = self._put(at, value)
            self.headers += 1
        self.rows += 1
        self._bounds[self.rows] = self.headers

    def _put(self, at: int, data: bytes | None) -> tuple[int, int, int]:
        """Writes bytes at `at`. Returns the position after them, their start and their size."""
        if data is None:
            return at, 0, -1
        end = at + len(data)
        self._room[at:end] = data
        return end, at, len(data)

    def _make_room(self, rows: int, headers: int) -> None:
        """Ensures capacity for these counts of rows and headers; growing doubles it."""
        if rows > self._table.shape[1]:
            table: Int64s = np.empty((5, 2 * rows), dtype=np.int64)
            bounds: Int64s = np.zeros(2 * rows + 1, dtype=np.int64)
            table[:, : self.rows] = self.table
            bounds[: self.rows + 1] = self.bounds
            self._table, self._bounds = table, bounds
        if headers > len(self._spans):
            spans: Int64s = np.empty((2 * headers, 4), dtype=np.int64)
            spans[: self.headers] = self.spans
            self._spans = spans


def _read(data: bytes) -> _Records:
    """Parses all lines up to the first invalid one."""
    records = _Records(data)
    at, why = records.read(0)
    while why == kernel.UNSURE:
        end = data.find(b"\n", at)
        try:
            records.add(at, _record(data[at : len(data) if end < 0 else end]))
        except _Wrong as wrong:
            records.error = InvalidRecord(str(wrong), records.rows)
            return records
        at, why = records.read(len(data) if end < 0 else end + 1)
    return records


class _Wrong(Exception):
    """A line is not a valid record."""


def _record(line: bytes) -> SimpleRecord:
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"invalid JSON: {printable(str(error))}") from None
    if not isinstance(found, dict):
        raise _Wrong("not a JSON object")
    unknown = found.keys() - _WRITTEN - _IGNORED
    if unknown:
        raise _Wrong(f"{_shown(min(unknown))} is not a field of a record")
    if "value" not in found:
        raise _Wrong("value is missing; null is allowed")
    if found.get("isControl"):
        raise _Wrong("control records cannot be appended")
    return SimpleRecord(
        _timestamp(found.get("timestamp")),
        _bytes(found.get("key"), "key"),
        _bytes(found["value"], "value"),
        _headers(found.get("headers")),
    )


def _timestamp(value: Any) -> int:
    if value is None:
        return NO_TIMESTAMP
    if type(value) is not int or not NO_TIMESTAMP <= value <= _MAX_INT64:
        raise _Wrong(f"timestamp: {_shown(value)} is not milliseconds since 1970")
    return value


def _bytes(value: Any, what: str) -> bytes | None:
    """Returns a string's UTF-8, the bytes of {"base64": "…"}, or None for null."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise _Wrong(f"{what}: a lone surrogate is not valid in UTF-8") from None
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise _Wrong(f"{what}: {_shown(value['base64'])} is not base64") from None
    raise _Wrong(f'{what}: {_shown(value)} is neither a string, {{"base64": "…"}} nor null')


def _headers(value: Any) -> list[tuple[str | bytes, bytes | None]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _Wrong(f"headers: {_shown(value)} is not a list")
    return [_header(header) for header in value]


def _header(value: Any) -> tuple[str | bytes, bytes | None]:
    if not isinstance(value, dict) or value.keys() != {"key", "value"}:
        raise _Wrong(f'headers: {_shown(value)} is not {{"key": …, "value": …}}')
    name = _bytes(value["key"], "headers: key")
    if name is None:
        raise _Wrong("headers: a key is null")
    return name, _bytes(value["value"], "headers: value")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
