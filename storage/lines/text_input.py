"""Parses lines of text, as values or as keys and values, into records to be written.

`json_input` parses JSON lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRecord
from ..format.layout import NO_TIMESTAMP
from ..format.records.record_columns import Field, Headers, RecordColumns
from ..wording import printable

_NEWLINE: Final = 10


@dataclass(frozen=True, slots=True)
class Parsed:
    """The records of the lines before the first invalid one. `error` describes that line, with its
    number, from 0, as `index`; None if all lines are valid."""

    records: RecordColumns
    error: InvalidRecord | None = None


LineParser = Callable[[bytes], Parsed]


def parse_values(data: bytes) -> Parsed:
    """Parses each line as a value, byte for byte; an empty line is an empty value."""
    starts, ends = _lines(data)
    return Parsed(_columns(data, None, (starts, ends - starts)))


def parse_keyed(data: bytes, separator: bytes) -> Parsed:
    """Parses each line as a key and a value, split at the first `separator`."""
    if not separator or b"\n" in separator:
        raise ValueError("a key separator must not be empty or contain a line break")
    starts, ends = _lines(data)
    found = np.array([match.start() for match in re.finditer(re.escape(separator), data)], np.int64)
    # A separator contains no line break, so the first one at or after the start of a line is either
    # within that line, or the line has none.
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


Positions = NDArray[np.int64]


def _lines(data: bytes) -> tuple[Positions, Positions]:
    """Returns the start and end of each line. The last one may lack its line break."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE).astype(np.int64)
    if data and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + 1
    return starts, ends


def _columns(
    data: bytes, keys: tuple[Positions, Positions] | None, values: tuple[Positions, Positions]
) -> RecordColumns:
    none = np.full(len(values[0]), NO_TIMESTAMP, np.int64)
    return RecordColumns(
        none,
        Field(b"", none, none) if keys is None else Field(data, *keys),
        Field(data, *values),
        Headers.none(),
    )
