"""Lines of text as records to be written: plain values, keys and values, or JSON.

What `lines` writes is read back here: JSON lines in the one schema, so that a partition's
`records.jsonl` can be appended to another one. A line's record keeps `key`, `value`, `headers` and
`timestamp`; where it came from (`topic`, `offset` and such) is not looked at.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRecord, printable
from .builder import NONE, SimpleRecord
from .encoder import Field, Headers, RecordColumns

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


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of lines up to the first that is none. `error` is about that one: its `index` is
    its number among the lines given, from 0; None when all are records."""

    records: RecordColumns
    error: InvalidRecord | None = None


Parse = Callable[[bytes], Parsed]


def parse_values(data: bytes) -> Parsed:
    """Each line is a value, byte for byte; an empty one is an empty value."""
    starts, ends = _lines(data)
    return Parsed(_columns(data, None, (starts, ends - starts)))


def parse_keyed(data: bytes, separator: bytes) -> Parsed:
    """Each line is a key and a value, with the first `separator` between."""
    if not separator or b"\n" in separator:
        raise ValueError("a key separator is at least one byte, and not a line break")
    starts, ends = _lines(data)
    found = np.array([match.start() for match in re.finditer(re.escape(separator), data)], np.int64)
    # A separator has no line break in it, so that the first one from a line's start on is in that
    # line, or the line has none.
    places = np.append(found, len(data))[np.searchsorted(found, starts)]
    missing = np.flatnonzero(places >= ends)
    count = int(missing[0]) if len(missing) else len(starts)
    starts, ends, places = starts[:count], ends[:count], places[:count]
    values = places + len(separator)
    records = _columns(data, (starts, places - starts), (values, ends - values))
    if not len(missing):
        return Parsed(records)
    return Parsed(
        records,
        InvalidRecord(
            f"no {printable(separator.decode(errors='replace'))!r} between key and value", count
        ),
    )


def parse_json(data: bytes) -> Parsed:
    """Each line is a JSON object in the one schema; all but `value` may be missing, and a record
    without a timestamp has none."""
    starts, ends = _lines(data)
    records: list[SimpleRecord] = []
    error = None
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            records.append(_record(data[start:end]))
        except _Wrong as wrong:
            error = InvalidRecord(str(wrong), len(records))
            break
    return Parsed(RecordColumns.from_records(records), error)


class _Wrong(Exception):
    """What is wrong with a line."""


Positions = NDArray[np.int64]


def _lines(data: bytes) -> tuple[Positions, Positions]:
    """Where each line starts and ends. The last one may lack its line break."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE).astype(np.int64)
    if data and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + 1
    return starts, ends


def _columns(
    data: bytes, keys: tuple[Positions, Positions] | None, values: tuple[Positions, Positions]
) -> RecordColumns:
    none = np.full(len(values[0]), NONE, np.int64)
    return RecordColumns(
        none,
        Field(b"", none, none) if keys is None else Field(data, *keys),
        Field(data, *values),
        Headers.none(),
    )


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
