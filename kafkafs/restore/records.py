"""Records as librdkafka takes and returns them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final

from kafkafs.storage import (
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    VALUE_START,
    Columns,
    Damage,
    Header,
    to_record_batch,
)

#: Key, value, timestamp in ms since 1970 and headers of a record.
Fields = tuple[bytes | None, bytes | None, int, list[Header] | None]

#: librdkafka replaces this timestamp by the current time.
REPLACED_TIMESTAMP: Final = 0

_HEADER_COUNT: Final = 5  # the column of `Columns.spans`


def fields(columns: Columns) -> Iterator[Fields]:
    """Returns the records in order."""
    data = bytes(columns.data)
    keys = _slices(data, columns, KEY_START, KEY_SIZE)
    values = _slices(data, columns, VALUE_START, VALUE_SIZE)
    return zip(keys, values, columns.timestamps.tolist(), _headers(columns), strict=True)


def _slices(data: bytes, columns: Columns, start: int, size: int) -> list[bytes | None]:
    starts, sizes = columns.spans[:, start], columns.spans[:, size]
    pairs = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    if int(sizes.min(initial=0)) >= 0:
        return [data[low:high] for low, high in pairs]
    return [data[low:high] if high >= low else None for low, high in pairs]


def _headers(columns: Columns) -> list[list[Header] | None]:
    counts = columns.spans[:, _HEADER_COUNT]
    if not counts.any():
        return [None] * len(columns)
    lists = to_record_batch(columns, "", 0, ["headers"]).column(0)
    flat = lists.flatten()
    pairs = list(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    ends = counts.cumsum()
    bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
    return [pairs[low:high] or None for low, high in bounds]


def undamaged(
    parts: Generator[Columns | Damage], damage: dict[tuple[str, int], str]
) -> Generator[Columns]:
    """Yields the records among `parts`, and notes damage by file and position."""
    with closing(parts):
        for part in parts:
            if isinstance(part, Damage):
                damage[part.error.file, part.error.position] = str(part.error)
            elif len(part):
                yield part
