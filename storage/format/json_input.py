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
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from ..errors import InvalidRecord, printable
from .batch import Int64s
from .builder import NONE, SimpleRecord
from .encoder import Field, Headers, RecordColumns
from .kernels import json_input as kernel
from .text_input import Parsed

_NEWLINE: Final = 10
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

# Of so many bytes a thread reads the second half, unless it is at work for somebody else: whoever
# appends much has nothing else to do meanwhile, and reading is most of the work.
_HALVED_BYTES: Final = 1 << 17
_HELPER: Final = ThreadPoolExecutor(1, thread_name_prefix="kafkafs-json")
_HELPER_IS_FREE: Final = threading.Lock()


def parse_json(data: bytes) -> Parsed:
    """Each line is a JSON object in the one schema; all but `value` may be missing, and a record
    without a timestamp has none."""
    room = bytearray(data)
    cut = data.rfind(b"\n", 0, len(data) // 2) + 1 if len(data) >= _HALVED_BYTES else 0
    if not cut or not _HELPER_IS_FREE.acquire(blocking=False):
        return _joined(room, [_read(data, room, 0, len(data))])
    try:
        second = _HELPER.submit(_read, data, room, cut, len(data))
        first = _read(data, room, 0, cut)
        return _joined(room, [first] if first.error else [first, second.result()])
    finally:
        _HELPER_IS_FREE.release()


class _Records:
    """The records of lines. Their bytes are in `room`, a copy of the lines, where those lines are.
    `error` is about the first line that is none."""

    def __init__(self, data: bytes, room: bytearray, low: int, high: int) -> None:
        """For the lines of data[low:high]."""
        lines = int(np.count_nonzero(np.frombuffer(data, np.uint8)[low:high] == _NEWLINE)) + 1
        self.rows = 0
        self.headers = 0
        self.error: InvalidRecord | None = None
        self._data, self._room = data, room
        self._end = high
        self._table: Int64s = np.empty((5, lines), dtype=np.int64)
        self._spans: Int64s = np.empty((64, 4), dtype=np.int64)
        self._bounds: Int64s = np.zeros(lines + 1, dtype=np.int64)
        self._before = np.zeros(2 * len(kernel.FIELDS), dtype=np.intp)

    @property
    def table(self) -> Int64s:
        """Timestamps, key starts, key sizes, value starts and value sizes: shape (5, rows)."""
        return self._table[:, : self.rows]

    @property
    def spans(self) -> Int64s:
        """As in `Headers`."""
        return self._spans[: self.headers]

    @property
    def ends(self) -> Int64s:
        """Where the headers of each record end in `spans`."""
        return self._bounds[1 : self.rows + 1]

    def read(self, at: int) -> tuple[int, int]:
        """Read lines from `at` on: start of the first one that the kernel is not sure about, and
        why it ended."""
        while True:
            at, self.rows, self.headers, why = kernel.read_lines(
                self._data,
                at,
                self._end,
                self._room,
                _NAMES,
                _MARKS,
                _BASE64,
                self._table,
                self.rows,
                self._spans,
                self.headers,
                self._bounds,
                self._before,
            )
            if why != kernel.NO_ROOM:
                return at, why
            self._grow(len(self._spans) + 1)

    def add(self, at: int, record: SimpleRecord) -> None:
        """Add the record of the line that begins at `at`. Its bytes take no more than the line."""
        row = self.rows
        self._table[0, row] = record.timestamp
        at, *self._table[1:3, row] = self._put(at, record.key)
        at, *self._table[3:5, row] = self._put(at, record.value)
        headers = [
            (name.encode() if isinstance(name, str) else name, value)
            for name, value in record.headers
        ]
        self._grow(self.headers + len(headers))
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

    def _grow(self, headers: int) -> None:
        """Make room for so many headers, and for more if there is less."""
        if headers > len(self._spans):
            spans: Int64s = np.empty((2 * headers, 4), dtype=np.int64)
            spans[: self.headers] = self._spans[: self.headers]
            self._spans = spans


def _read(data: bytes, room: bytearray, low: int, high: int) -> _Records:
    """The records of data[low:high], up to the first line that is none."""
    records = _Records(data, room, low, high)
    at, why = records.read(low)
    while why == kernel.UNSURE:
        end = data.find(b"\n", at, high)
        try:
            records.add(at, _record(data[at : high if end < 0 else end]))
        except _Wrong as wrong:
            records.error = InvalidRecord(str(wrong), records.rows)
            return records
        at, why = records.read(high if end < 0 else end + 1)
    return records


def _joined(room: bytearray, parts: list[_Records]) -> Parsed:
    """The records of parts that follow on each other; only the last may have an error."""
    table = np.concatenate([part.table for part in parts], axis=1)
    timestamps, key_starts, key_sizes, value_starts, value_sizes = table
    headers = Headers.none()
    if any(part.headers for part in parts):
        before = np.cumsum([0, *(part.headers for part in parts[:-1])])
        ends = [part.ends + count for part, count in zip(parts, before, strict=True)]
        spans = np.concatenate([part.spans for part in parts])
        headers = Headers(room, spans, np.concatenate([[0], *ends]))
    error = parts[-1].error
    if error is not None:
        error = InvalidRecord(error.why, table.shape[1])
    keys, values = Field(room, key_starts, key_sizes), Field(room, value_starts, value_sizes)
    return Parsed(RecordColumns(timestamps, keys, values, headers), error)


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
