"""Records as tuples of Python objects, for programs that need each of them as such."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from ..kernels import gather as kernel
from ..primitives import decode_utf8
from .columns import Columns, Header

#: Key, value, timestamp in ms since 1970, -1 if it has none, and headers, None if there are none.
RecordTuple = tuple[bytes | None, bytes | None, int, list[Header] | None]

# More objects at a time would be gone through by the garbage collector again and again.
_AT_ONCE: Final = 500

# Most records have the same few.
_header_name: Final = lru_cache(maxsize=1024)(decode_utf8)


def record_tuples(columns: Columns) -> Iterator[RecordTuple]:
    """Yields the records in order; only some of them exist at a time. Names of headers are decoded
    as in `Record`."""
    return chain.from_iterable(
        kernel.tuples(
            columns.data,
            columns.spans,
            columns.timestamps,
            low,
            min(low + _AT_ONCE, len(columns)),
            _header_name,
        )
        for low in range(0, len(columns), _AT_ONCE)
    )
