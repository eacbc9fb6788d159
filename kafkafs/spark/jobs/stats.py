"""The `stats` job: counts records and bytes by topic, partition, hour and key prefix.

A task counts a range of offsets in columns, without creating record objects; the counts of all
ranges are then added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkafs.storage import (
    KEY_SIZE,
    TEMPORARY_SUFFIX,
    VALUE_SIZE,
    Columns,
    Isolation,
    OffsetRange,
    Selected,
    StorageError,
    WritableDirFd,
    local_path,
    milliseconds,
    to_record_batch,
)

from ..options import DEFAULT_ISOLATION
from ..read.planning import plan
from ..read.reading import Reading
from .job_log_dirs import JobLogDirs
from .ranges import options_for
from .report import Report, Row
from .tasks import OnProgress, collect, silent, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

By = Literal["topic", "partition", "hour", "prefix"]
BY: Final[tuple[By, ...]] = ("topic", "partition", "hour", "prefix")

_HOUR_MS: Final = 3_600_000
# The counts of each group, and how two of them are combined.
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
    """The keys to group by. The prefix of a key is its first `prefix_bytes`, or the part before the
    first `separator`."""

    by: tuple[By, ...]
    prefix_bytes: int
    separator: bytes


def stats(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    topics: Sequence[Selected] = (),
    *,
    by: Sequence[By] = ("topic", "partition"),
    prefix_bytes: int = 0,
    separator: bytes = b"",
    output: str | None = None,
    isolation: str = DEFAULT_ISOLATION,
    at: int | str | date | None = None,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Counts the records of `log_dirs`, or of the selected `topics` (and partitions); without a
    selection, Kafka's internal topics are omitted. With `at`, a time as in `kafkafs.open`, they are
    counted as of then. With `output`, the rows are also written to a Parquet file.

    Timestamps are ms since 1970, and `hour` is the start of the hour in ms; null for records
    without a timestamp. Damage is `wrong` in the report, and the records after it are counted.
    """
    target = None if output is None else os.path.abspath(local_path(output))
    dirs = JobLogDirs.of(log_dirs, configs, None if at is None else milliseconds(at))
    reading = Reading(
        dirs.log_dirs, dict(dirs.configs), Isolation(isolation), True, True, dirs.at_ms
    )
    grouping = Grouping(tuple(b for b in BY if b in by), prefix_bytes, separator)
    ranges = plan(dirs.log_dirs, options_for(dirs, topics, isolation))
    parts = spread(spark, ranges, lambda each: each.size).flatMap(
        partial(_count_all, reading, grouping)
    )
    tasks = max(min(len(ranges), 4 * spark.sparkContext.defaultParallelism), 1)
    summed = collect(spark, "stats", parts.reduceByKey(_added, tasks), on_progress)
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
    """Yields the counts of a range by group, and what is wrong in it."""
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
    except (StorageError, OSError) as error:
        wrong.append({**about, "what": str(error)})
    if wrong:
        yield _WRONG, tuple(wrong)
    for row in counted.to_pylist() if counted is not None else ():
        values = {**about, **row}
        yield tuple(values[name] for name in grouping.by), tuple(values[name] for name in _COUNTED)


def counted_of(columns: Columns, grouping: Grouping) -> pa.Table:
    """Returns a row for each hour and prefix in some records."""
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
    """Returns two counts of one group combined; the group of damage is concatenated."""
    if one and isinstance(one[0], dict):
        return one + other
    added = []
    for (_, how), a, b in zip(_COUNTED.items(), one, other, strict=True):
        added.append(_ADD[how](a, b) if a is not None and b is not None else a if b is None else b)
    return tuple(added)


# -- on the driver ---------------------------------------------------------------------------------


def _order(group: Group) -> tuple[Any, ...]:
    """Returns a sort key in which null comes first."""
    return tuple((value is not None, value if value is not None else 0) for value in group)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row with the prefix as text, or as hexadecimal digits if it is not UTF-8."""
    prefix = row.get("prefix")
    if prefix is None:
        return row
    try:
        return {**row, "prefix": prefix.decode()}
    except UnicodeDecodeError:
        return {**row, "prefix": f"0x{prefix.hex()}"}


def _write(rows: Sequence[Row], columns: Sequence[str], path: str) -> None:
    """Writes a Parquet file atomically."""
    kinds = {"topic": pa.string(), "partition": pa.int32(), "prefix": pa.binary()}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in columns])
    above, name = os.path.split(path)
    directory = WritableDirFd(above)
    directory.make_itself()
    temporary = f".{name}.{os.getpid()}{TEMPORARY_SUFFIX}"
    pq.write_table(pa.Table.from_pylist(rows, schema), directory.path_of(temporary))
    directory.writable(temporary).sync()
    directory.rename(temporary, name)
    directory.sync()
