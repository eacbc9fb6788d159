"""Makes the batches of a log from its records in Arrow, with their offsets and timestamps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..config.kafka import TopicConfig
from ..format.layout import Codec, TimestampType
from ..format.records.batch import BASE_OFFSET, LAST_OFFSET, POSITION, Bytes, Int64s
from ..format.records.encoder import BatchPlan, Encoded, empty_batch, encode
from ..format.records.from_arrow import to_record_columns

# The most offsets that one batch without records covers: a segment holds fewer than 2**31.
_MOST_COVERED: Final = 1 << 30

# First and last offset of some batches, and their bytes.
_Batches = tuple[int, int, memoryview | bytes]


def batches_of(table: pa.Table, config: TopicConfig, begin: int, end: int) -> Iterator[Bytes]:
    """Yields batches of the records, which are ordered by offset, and batches without records, for
    the other offsets in [`begin`, `end`)."""
    return _covering(record_batches(table, _codec(config)), begin, end)


def _codec(config: TopicConfig) -> Codec:
    """Returns the codec: none, like a producer's default, unless the topic sets one."""
    names = {codec.kafka_name: codec for codec in Codec}
    return names.get(config.compression_type, Codec.NONE)


def _covering(made: Iterable[_Batches], begin: int, end: int) -> Iterator[Bytes]:
    """Yields the batches, which ascend, and batches without records, as a cleaner leaves them, for
    the other offsets in [begin, end): those of markers and of records that no longer existed."""
    for first, last, data in made:
        yield from _without_records(begin, first)
        yield data
        begin = last + 1
    yield from _without_records(begin, end)


def _without_records(begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        last = min(end, begin + _MOST_COVERED) - 1
        yield empty_batch(begin, last)
        begin = last + 1


def record_batches(table: pa.Table, codec: Codec) -> Iterator[_Batches]:
    """Yields batches of the records, which may have gaps in their offsets, as compaction leaves
    them. Those that are yielded together have no gaps between them."""
    if not table.num_rows:
        return
    offsets = table.column("offset").to_numpy()
    kinds = table.column("timestampType").to_numpy()
    records = to_record_columns(table.select(["key", "value", "timestamp", "headers"]))
    for low, high in pairwise(_edges(kinds, records.timestamps)):
        plan = BatchPlan(codec=codec)
        if kinds[low] == TimestampType.LOG_APPEND_TIME:
            plan = BatchPlan(
                codec=codec,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
                append_time=int(records.timestamps[low]),
            )
        yield from _runs(encode(records.slice(low, high), plan, offsets[low:high]))


def _edges(kinds: Any, timestamps: Int64s) -> list[int]:
    """Returns where runs that can share a batch begin: at another timestamp type or, with log
    append time, at another timestamp. The last element is the number of records."""
    begins = np.diff(kinds) != 0
    is_appended = kinds[1:] == TimestampType.LOG_APPEND_TIME
    begins |= is_appended & (np.diff(timestamps) != 0)
    return [0, *(np.flatnonzero(begins) + 1).tolist(), len(kinds)]


def _runs(made: Encoded) -> Iterator[_Batches]:
    """Yields the batches, cut where there is a gap between two of them."""
    first, last = made.table.column(BASE_OFFSET), made.table.column(LAST_OFFSET)
    starts = made.table.column(POSITION)
    gaps = (np.flatnonzero(first[1:] != last[:-1] + 1) + 1).tolist()
    for low, high in pairwise([0, *gaps, len(first)]):
        end = int(starts[high]) if high < len(first) else len(made.data)
        yield int(first[low]), int(last[high - 1]), made.data[int(starts[low]) : end]
