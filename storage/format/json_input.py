"""JSON lines in the one schema as records to be written.

What `lines` writes is read back here, so that a partition's `records.jsonl` can be appended to
another one. A line's record keeps `key`, `value`, `headers` and `timestamp`; where it came from
(`topic`, `offset` and such) is not looked at.

A kernel reads the lines that look as they mostly do. `json` decides about every other line: whether
it is a record, which, and what is wrong with it.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

import numpy as np

from ..errors import InvalidRecord, printable
from .batch import Int64s
from .builder import NONE, SimpleRecord
from .encoder import Field, Headers, RecordColumns
from .kernels import json_input as kernel
from .text_input import Parsed

# Lines are seldom shorter on average.
_LINE_BYTES: Final = 64
_MAX_INT64: Final = 2**63 - 1
_SHOWN: Final = 40  # characters of a line's content in a message

# Said of a record that was read, and of no meaning for one that is written.
_IGNORED: Final = frozenset(
    (
        *("topic", "partition", "offset", "timestampType", "leaderEpoch", "codec", "batch"),
        *("producerId", "producerEpoch", "sequence", "isTransactional", "isControl"),
    )
)
_WRITTEN: Final = frozenset(("key", "value", "timestamp", "headers"))

# As the kernel wants them: the names of fields with their closing quotes, and where each begins.
_NAMES: Final = "".join(f'{name}"' for name in kernel.FIELDS).encode()
_MARKS: Final = np.cumsum([0, *(len(name) + 1 for name in kernel.FIELDS)]).astype(np.int32)
_BASE64: Final = b'base64"'


def parse_json(data: bytes) -> Parsed:
    """Each line is a JSON object in the one schema; all but `value` may be missing, and a record
    without a timestamp has none."""
    records = _read(data)
    timestamps, *places = records.table
    keys, values = Field(records.data, *places[:2]), Field(records.data, *places[2:])
    headers = Headers.none()
    if records.headers:
        headers = Headers(records.data, records.spans, records.bounds)
    return Parsed(RecordColumns(timestamps, keys, values, headers), records.error)


class _Records:
    """The records of lines, whose bytes are in `data` where those lines are: in the lines
    themselves or, if they have escapes, in a copy. `error` is about the first line that is none."""

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
        """As in `Headers`."""
        return self._spans[: self.headers]

    @property
    def bounds(self) -> Int64s:
        """As in `Headers`."""
        return self._bounds[: self.rows + 1]

    def read(self, at: int) -> tuple[int, int]:
        """Read lines from `at` on: start of the first one that the kernel is not sure about, and
        why it ended."""
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
        """For what stands in the lines in another way than in its record."""
        if not self._room:
            self._room += self._data

    def add(self, at: int, record: SimpleRecord) -> None:
        """Add the record of the line that begins at `at`. Its bytes take no more than the line."""
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
        """Put bytes at `at`: the position after them, their start and their size."""
        if data is None:
            return at, 0, NONE
        end = at + len(data)
        self._room[at:end] = data
        return end, at, len(data)

    def _make_room(self, rows: int, headers: int) -> None:
        """For so many rows and headers, and for many more if there is less."""
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
    """The records of all lines up to the first that is none."""
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
    """What is wrong with a line."""


def _record(line: bytes) -> SimpleRecord:
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"no JSON: {printable(str(error))}") from None
    if not isinstance(found, dict):
        raise _Wrong("no JSON object")
    unknown = found.keys() - _WRITTEN - _IGNORED
    if unknown:
        raise _Wrong(f"{_shown(min(unknown))} is not a field of a record")
    if "value" not in found:
        raise _Wrong("no value, not even null")
    if found.get("isControl"):
        raise _Wrong("a control record, which only a log itself writes")
    return SimpleRecord(
        _timestamp(found.get("timestamp")),
        _bytes(found.get("key"), "key"),
        _bytes(found["value"], "value"),
        _headers(found.get("headers")),
    )


def _timestamp(value: Any) -> int:
    if value is None:
        return NONE
    if type(value) is not int or not NONE <= value <= _MAX_INT64:
        raise _Wrong(f"timestamp: {_shown(value)} is not milliseconds since 1970")
    return value


def _bytes(value: Any, what: str) -> bytes | None:
    """A string's UTF-8, the bytes of {"base64": "…"}, or null."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise _Wrong(f"{what}: a lone surrogate, which no UTF-8 has") from None
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
