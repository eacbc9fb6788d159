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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "source_metrics"]


def register(spark: SparkSession) -> None:
    """Registers the format "kafkafs" with the session."""
    from kafkafs.storage import warn_if_uncompiled

    from .source import KafkafsSource

    warn_if_uncompiled(logging.getLogger("kafkafs").warning)
    spark.dataSource.register(KafkafsSource)


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
