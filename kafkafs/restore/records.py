"""Records as librdkafka takes and returns them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain, pairwise, repeat
from typing import Final

import numpy as np

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

_AT_ONCE: Final = 500
_HEADER_COUNT: Final = 5  # the column of `Columns.spans`


def fields(columns: Columns) -> Iterator[Fields]:
    """Returns the records in order. Only some exist as objects at a time, or else the garbage
    collector would go through them again and again."""
    return chain.from_iterable(_parts(columns))


def _parts(columns: Columns) -> Iterator[Iterator[Fields]]:
    data = bytes(columns.data)
    headers = _Headers(columns) if columns.spans[:, _HEADER_COUNT].any() else None
    for low in range(0, len(columns), _AT_ONCE):
        part = columns.slice(low, min(low + _AT_ONCE, len(columns)))
        yield zip(
            _slices(data, part, KEY_START, KEY_SIZE),
            _slices(data, part, VALUE_START, VALUE_SIZE),
            part.timestamps.tolist(),
            repeat(None, len(part)) if headers is None else headers.of(low, low + len(part)),
            strict=True,
        )


def _slices(data: bytes, columns: Columns, start: int, size: int) -> list[bytes | None]:
    starts, sizes = columns.spans[:, start], columns.spans[:, size]
    pairs = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    if int(sizes.min(initial=0)) >= 0:
        return [data[low:high] for low, high in pairs]
    return [data[low:high] if high >= low else None for low, high in pairs]


class _Headers:
    """The headers of records, decoded a part at a time, with each name decoded once."""

    def __init__(self, columns: Columns) -> None:
        lists = to_record_batch(columns, "", 0, ["headers"]).column(0)
        names, self._values = lists.flatten().flatten()
        encoded = names.dictionary_encode()
        self._names = encoded.dictionary.to_pylist()
        self._numbers = encoded.indices.to_numpy()
        self._ends = lists.offsets.to_numpy()
        _, offsets, data = self._values.buffers()
        self._value_ends = np.frombuffer(offsets, dtype=np.int32)
        self._data = memoryview(b"" if data is None else data)

    def of(self, low: int, high: int) -> list[list[Header] | None]:
        """Returns those of the records from row `low` to row `high`, exclusive."""
        ends = self._ends[low : high + 1]
        first, last = int(ends[0]), int(ends[-1])
        value_ends = self._value_ends[first : last + 1]
        data = bytes(self._data[value_ends[0] : value_ends[-1]])
        bounds = pairwise((value_ends - value_ends[0]).tolist())
        values: list[bytes | None] = [data[start:end] for start, end in bounds]
        if self._values.null_count:
            for index in np.flatnonzero(self._values[first:last].is_null()).tolist():
                values[index] = None
        names = map(self._names.__getitem__, self._numbers[first:last].tolist())
        pairs = list(zip(names, values, strict=True))
        return [pairs[start:end] or None for start, end in pairwise((ends - first).tolist())]


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
