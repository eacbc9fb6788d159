"""Topics as lazy frames of Polars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import reduce
from operator import and_, or_
from os import PathLike
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars.io.plugins import register_io_source

from kafkafs.storage import RECORD_SCHEMA

from .api import open
from .api.arrow import READ_COMMITTED
from .sql.dataset import TopicDataset

_Bound = Callable[[pc.Expression, pa.Scalar], pc.Expression]
# The comparisons that select ranges, by their names in Polars.
_COMPARISONS: Final[Mapping[str, _Bound]] = {
    "Eq": lambda column, bound: column == bound,
    "Lt": lambda column, bound: column < bound,
    "LtEq": lambda column, bound: column <= bound,
    "Gt": lambda column, bound: column > bound,
    "GtEq": lambda column, bound: column >= bound,
}
_MIRRORED: Final = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_UNITS: Final = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_INTEGERS: Final = ("partition", "offset")
# Of more numbers than this, only the least and the greatest select ranges.
_MOST_IN: Final = 64


def scan(
    log_dirs: str | PathLike[str] | Sequence[str | PathLike[str]],
    topic: str,
    *,
    isolation: str = READ_COMMITTED,
    at: int | str | date | None = None,
    configs: Mapping[str, str] | None = None,
) -> pl.LazyFrame:
    """Returns the records of a topic as a lazy frame with the columns of `Partition.scan`.

    Each collection opens the directories, reads the columns that it needs as the log is then, and
    closes them. Comparisons of `partition`, `offset` and `timestamp` with constants, `is_between`,
    and `is_in` with numbers select what is read. `isolation` as in `Partition.scan`, `at` and
    `configs` as in `kafkafs.open`. Raises UnknownTopic and what `open` raises; a collection fails
    if it meets damaged records.
    """
    with open(log_dirs, at=at, configs=configs) as log_directories:
        log_directories.views(topic)

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        wanted = RECORD_SCHEMA.names if with_columns is None else with_columns
        roots = [] if predicate is None else predicate.meta.root_names()
        columns = [name for name in RECORD_SCHEMA.names if name in (*wanted, *roots)]
        # Rows are counted before the predicate is applied.
        ranges = None if predicate is None or n_rows is not None else _ranges_of(predicate)
        left = n_rows
        with open(log_dirs, at=at, configs=configs) as log_directories:
            dataset = TopicDataset(log_directories, topic, isolation=isolation)
            for batch in dataset.batches(columns or ["partition"], ranges):
                frame = _frame(batch if left is None else batch.slice(0, left))
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame.select(wanted)
                if left is not None:
                    left -= min(left, len(batch))
                    if not left:
                        return

    return register_io_source(read, schema=_frame(RECORD_SCHEMA.empty_table()).schema)


def _frame(records: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(records)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _ranges_of(predicate: pl.Expr) -> pc.Expression | None:
    """Returns a filter that selects at least the records that `predicate` does, None for all."""
    try:
        return _filter(json.loads(predicate.meta.serialize(format="json")))
    except (pl.exceptions.PolarsError, pa.ArrowException, ValueError, KeyError, TypeError):
        return None  # its form is Polars' own, and may differ in other versions


def _filter(node: Any) -> pc.Expression | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            parts = [each for each in (_filter(left), _filter(right)) if each is not None]
            return parts[0] & parts[1] if len(parts) == 2 else next(iter(parts), None)
        case {"BinaryExpr": {"left": left, "op": "Or", "right": right}}:
            first, second = _filter(left), _filter(right)
            return None if first is None or second is None else first | second
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": value}}:
            return _comparison(name, op, value)
        case {"BinaryExpr": {"left": value, "op": str(op), "right": {"Column": str(name)}}}:
            return _comparison(name, _MIRRORED.get(op, ""), value)
        case {"Function": {"input": inputs, "function": {"Boolean": {"IsIn": _}}}}:
            return _is_in(*inputs)
        case {"Function": {"input": inputs, "function": {"Boolean": {"IsBetween": _}}}}:
            return _is_between(*inputs)
    return None


def _is_in(column: Any, values: Any) -> pc.Expression | None:
    """Returns what selects the numbers of `values`, of very many what lies between them."""
    match column, values:
        case (
            {"Column": str(name)},
            {"Literal": {"Scalar": {"List": list(data)}} | {"Series": list(data)}},
        ) if name in _INTEGERS:
            array = pa.ipc.open_stream(bytes(data)).read_all().column(0).combine_chunks()
            kind = array.type
            if pa.types.is_list(kind) or pa.types.is_large_list(kind):
                array = array.flatten()
            if not pa.types.is_integer(array.type):
                return None
            numbers = sorted({each for each in array.to_pylist() if each is not None})
            if not numbers:
                return None
            field = pc.field(name)
            if len(numbers) > _MOST_IN:
                return (field >= numbers[0]) & (field <= numbers[-1])
            return reduce(or_, (field == number for number in numbers))
    return None


def _is_between(column: Any, low: Any, high: Any) -> pc.Expression | None:
    """Returns what also selects the bounds themselves."""
    match column:
        case {"Column": str(name)}:
            parts = _comparison(name, "GtEq", low), _comparison(name, "LtEq", high)
            known = [each for each in parts if each is not None]
            return reduce(and_, known) if known else None
    return None


def _comparison(name: str, op: str, value: Any) -> pc.Expression | None:
    compare = _COMPARISONS.get(op)
    bound = _bound(name, value)
    return None if compare is None or bound is None else compare(pc.field(name), bound)


def _bound(name: str, value: Any) -> pa.Scalar | None:
    match value:
        case {"Literal": {"Scalar": {"Datetime": [int(at), str(unit), {"inner": "UTC"}]}}}:
            if name == "timestamp" and unit in _UNITS:
                return pa.scalar(at, pa.timestamp(_UNITS[unit], "UTC"))
        case {"Literal": {"Scalar": {"Int64": int(number)} | {"Int32": int(number)}}}:
            return pa.scalar(number, pa.int64()) if name in _INTEGERS else None
        case {"Literal": {"Dyn": {"Int": int(number)}}}:
            return pa.scalar(number, pa.int64()) if name in _INTEGERS else None
    return None
