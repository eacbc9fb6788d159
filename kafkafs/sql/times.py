"""Times that DuckDB's TIMESTAMP, of microseconds, can hold."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

#: Times of records, as elsewhere.
TIME: Final = pa.timestamp("ms", "UTC")
# The first and the last one in ms. A producer that sends nanoseconds goes beyond them.
_FIRST: Final = -9_223_372_022_400_000
_LAST: Final = 9_223_372_036_854_775


def within_sql(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with the nearest time in place of each that is beyond what SQL has: DuckDB
    would fail the whole query."""
    for at, field in enumerate(batch.schema):
        if field.type == TIME:
            column = batch.column(at)
            bounds = pc.min_max(column.cast(pa.int64())).as_py()
            low, high = bounds["min"], bounds["max"]
            if low is not None and not (low >= _FIRST and high <= _LAST):
                batch = batch.set_column(at, field, _clipped(column))
    return batch


def _clipped(column: pa.Array) -> pa.Array:
    numbers = column.cast(pa.int64())
    numbers = pc.min_element_wise(numbers, pa.scalar(_LAST), skip_nulls=False)
    return pc.max_element_wise(numbers, pa.scalar(_FIRST), skip_nulls=False).cast(TIME)
