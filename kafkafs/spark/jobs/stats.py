"""`stats`: how many records and bytes there are, by partition, hour and prefix of the key.

A task counts a range of offsets in columns, without making records of them; the counts of all
ranges are added up where they meet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkafs.storage.durable import TEMPORARY_SUFFIX, WritableDirectory
from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.arrow import to_record_batch
from kafkafs.storage.format.columns import KEY_SIZE, VALUE_SIZE, Columns
from kafkafs.storage.local_path import local_path
from kafkafs.storage.log.transactions import Isolation

from ..planning import DataLoss, OffsetRange, plan
from ..reading import Reading
from .places import Choice, Place
from .ranges import options_for
from .report import Report, Row
from .tasks import Told, collect, silent, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

By = Literal["topic", "partition", "hour", "prefix"]
BY: Final[tuple[By, ...]] = ("topic", "partition", "hour", "prefix")

_HOUR_MS: Final = 3_600_000
# Counted of each group, and how two counts of it become one.
_COUNTED: Final = {
    "records": "sum",
    "keyBytes": "sum",
    "valueBytes": "sum",
    "nullValues": "sum",
    "firstOffset": "min",
    "lastOffset": "max",
    "firstTimestamp": "min",
    "lastTimestamp": "max",
}
_ADD: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "sum": lambda one, other: one + other,
    "min": min,
    "max": max,
}

Group = tuple[Any, ...]
Counts = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """By what is counted. The prefix of a key is its first `prefix_bytes`, or what stands in front
    of the first `separator`."""

    by: tuple[By, ...]
    prefix_bytes: int
    separator: bytes


def stats(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    topics: Sequence[Choice] = (),
    *,
    by: Sequence[By] = ("topic", "partition"),
    prefix_bytes: int = 0,
    separator: bytes = b"",
    output: str | None = None,
    isolation: str = "read_committed",
    settings: Mapping[str, str] | None = None,
    told: Told = silent,
) -> Report:
    """Counts the records of `log_dirs`, or of the `topics` (and partitions) chosen; without a
    choice not those of Kafka's internal topics. With `output` the rows become a Parquet file, too.

    A row's timestamps are ms since 1970, its hour begins then; null for records without one.
    Damage is `wrong` in the report, and what stands behind it is counted.
    """
    target = None if output is None else os.path.abspath(local_path(output))
    place = Place.of(log_dirs, settings)
    reading = Reading(place.log_dirs, dict(place.settings), Isolation(isolation), True, True)
    grouping = Grouping(tuple(b for b in BY if b in by), prefix_bytes, separator)
    ranges = plan(place.log_dirs, options_for(place, topics, isolation))
    parts = spread(spark, ranges, lambda each: each.size).flatMap(
        partial(_count_all, reading, grouping)
    )
    tasks = max(min(len(ranges), 4 * spark.sparkContext.defaultParallelism), 1)
    summed = collect(spark, "stats", parts.reduceByKey(_added, tasks), told)
    wrong: list[Row] = [row for key, rows in summed if key == _WRONG for row in rows]
    groups = sorted(
        (each for each in summed if each[0] != _WRONG), key=lambda each: _order(each[0])
    )
    columns = (*grouping.by, *_COUNTED)
    rows = [dict(zip(columns, (*key, *counts), strict=True)) for key, counts in groups]
    if target is not None:
        _write(rows, columns, target)
    totals = {
        name: sum(row[name] for row in rows) for name in ("records", "keyBytes", "valueBytes")
    }
    shown = [_shown(row) for row in rows]
    return Report("stats", columns, shown, wrong, units=len(ranges), totals=totals)


# -- in the tasks ----------------------------------------------------------------------------------

_WRONG: Final[Group] = ("wrong",)


def _count_all(
    reading: Reading, grouping: Grouping, ranges: Sequence[OffsetRange]
) -> Iterator[tuple[Group, Counts]]:
    for each in ranges:
        yield from _count(reading, grouping, each)


def _count(
    reading: Reading, grouping: Grouping, each: OffsetRange
) -> Iterator[tuple[Group, Counts]]:
    """The counts of a range, group by group, and what is wrong in it."""
    counted: pa.Table | None = None
    wrong: list[dict[str, Any]] = []
    about = {"topic": each.topic, "partition": each.partition}
    try:
        for part in reading.parts(each):
            if isinstance(part, Columns):
                found = counted_of(part, grouping)
                counted = found if counted is None else _summed(pa.concat_tables([counted, found]))
            else:
                place = {"file": part.error.file, "position": part.error.position}
                wrong.append({**about, **place, "what": part.error.what})
    except (StorageError, DataLoss, OSError) as error:
        wrong.append({**about, "what": str(error)})
    if wrong:
        yield _WRONG, tuple(wrong)
    for row in counted.to_pylist() if counted is not None else ():
        values = {**about, **row}
        yield tuple(values[name] for name in grouping.by), tuple(values[name] for name in _COUNTED)


def counted_of(columns: Columns, grouping: Grouping) -> pa.Table:
    """A row for each hour and prefix in some records."""
    made = to_record_batch(columns, "", 0, ["key", "offset", "timestamp"])
    times = made.column("timestamp").cast(pa.int64())
    hours = pa.array(columns.timestamps // _HOUR_MS * _HOUR_MS, mask=columns.timestamps == -1)
    none = pa.nulls(len(columns), pa.int64())
    value_sizes = columns.spans[:, VALUE_SIZE].astype("int64")
    offsets = made.column("offset")
    return _summed(
        pa.table(
            {
                "hour": hours if "hour" in grouping.by else none,
                "prefix": _prefixes(made.column("key"), grouping),
                "records": pa.repeat(pa.scalar(1, pa.int64()), len(columns)),
                "keyBytes": columns.spans[:, KEY_SIZE].astype("int64").clip(0),
                "valueBytes": value_sizes.clip(0),
                "nullValues": (value_sizes < 0).astype("int64"),
                "firstOffset": offsets,
                "lastOffset": offsets,
                "firstTimestamp": times,
                "lastTimestamp": times,
            }
        )
    )


def _prefixes(keys: pa.Array, grouping: Grouping) -> pa.Array:
    if "prefix" not in grouping.by:
        return pa.nulls(len(keys), pa.binary())
    if grouping.separator:
        return pc.list_element(pc.split_pattern(keys, grouping.separator, max_splits=1), 0)
    return pc.binary_slice(keys, 0, grouping.prefix_bytes) if grouping.prefix_bytes else keys


def _summed(table: pa.Table) -> pa.Table:
    how = list(_COUNTED.items())
    found = table.group_by(["hour", "prefix"], use_threads=False).aggregate(how)
    names = ["hour", "prefix", *_COUNTED]
    return found.select(["hour", "prefix", *(f"{name}_{of}" for name, of in how)]).rename_columns(
        names
    )


def _added(one: Counts, other: Counts) -> Counts:
    """Two counts of one group as one; also all that is wrong."""
    if one and isinstance(one[0], dict):
        return one + other
    added = []
    for (_, how), a, b in zip(_COUNTED.items(), one, other, strict=True):
        added.append(_ADD[how](a, b) if a is not None and b is not None else a if b is None else b)
    return tuple(added)


# -- on the driver ---------------------------------------------------------------------------------


def _order(group: Group) -> tuple[Any, ...]:
    """Null comes first."""
    return tuple((value is not None, value if value is not None else 0) for value in group)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """With a prefix that is text, or hexadecimal digits where its bytes are none."""
    prefix = row.get("prefix")
    if prefix is None:
        return row
    try:
        return {**row, "prefix": prefix.decode()}
    except UnicodeDecodeError:
        return {**row, "prefix": f"0x{prefix.hex()}"}


def _write(rows: Sequence[Row], columns: Sequence[str], path: str) -> None:
    """A Parquet file, which is there as a whole or not at all."""
    kinds = {"topic": pa.string(), "partition": pa.int32(), "prefix": pa.binary()}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in columns])
    above, name = os.path.split(path)
    directory = WritableDirectory(above)
    directory.make_itself()
    temporary = f".{name}.{os.getpid()}{TEMPORARY_SUFFIX}"
    pq.write_table(pa.Table.from_pylist(rows, schema), directory.path_of(temporary))
    directory.writable(temporary).sync()
    directory.rename(temporary, name)
    directory.sync()
