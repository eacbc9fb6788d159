"""A Spark data source that reads and writes log directories directly, without a broker.

    import kafkafs.spark

    kafkafs.spark.register(spark)
    spark.read.format("kafkafs").option("subscribe", "orders").load("/data")

Where the package is installed, Spark finds the format by itself (`discovery/`). Schema and options
are those of Spark's own Kafka source. All workers must see the directories under the same path. A
read passes through `options.py`, `planning.py` on the driver and `reading.py` in the tasks;
`streaming.py` selects the offsets of a stream's batches. `source.py`, `range_reader.py`,
`stream_reader.py` and `writer.py` implement PySpark's interfaces on top of these. `tables.py`
brings the options of a table to its readers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["register", "scan", "source_metrics"]


def register(spark: SparkSession) -> None:
    """Registers the format "kafkafs" with the session."""
    from kafkafs.storage import warn_if_uncompiled

    from .source import KafkafsSource

    warn_if_uncompiled(logging.getLogger("kafkafs").warning)
    spark.dataSource.register(KafkafsSource)


def scan(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] | None = None,
    where: str | None = None,
    **options: str,
) -> DataFrame:
    """Returns the records that meet `where`, a filter in SQL, with the columns named, by default
    all but headers. It needs no registration.

    Only these columns, and those in `where`, are built. Comparisons of `topic`, `partition`,
    `offset` and `timestamp` with literals, joined by AND, select what is read; only an upper bound
    of `timestamp` does not, because later records may have earlier timestamps (use the option
    `endingTimestamp`). Spark applies all of `where` to what is read. `options` are those of a
    read. Plans show the path, the options and the selection. Raises OptionError for an unknown
    column.
    """
    from .scanning import scan_of

    return scan_of(spark, path, columns, where, options)


def source_metrics(source: Mapping[str, Any]) -> dict[str, str]:
    """Returns the lag of a stream, from one source of its progress
    (`query.lastProgress["sources"][0]`), as Spark's Kafka source has it in `metrics`, which PySpark
    leaves empty for a Python source: `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and
    `avgOffsetsBehindLatest`, by how many offsets the partitions' ends were ahead of the last batch.

    The result is empty before the first batch. Raises ValueError if it is a source neither of
    kafkafs nor of Spark's Kafka source.
    """
    from .read.partition_offsets import offsets_behind

    behind = offsets_behind(source)
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
