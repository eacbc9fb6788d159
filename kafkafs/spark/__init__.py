"""A Spark data source that reads and writes log directories directly, without a broker.

    import kafkafs.spark

    kafkafs.spark.register(spark)
    spark.read.format("kafkafs").option("subscribe", "orders").load("/data")

Schema and options are those of Spark's own Kafka source. All workers must see the directories under
the same path. A read passes through `options.py`, `planning.py` on the driver and `reading.py` in
the tasks; `streaming.py` selects the offsets of a stream's batches. `source.py`,
`range_reader.py`, `stream_reader.py` and `writer.py` implement PySpark's interfaces on top of
these.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Registers the format "kafkafs" with the session."""
    from kafkafs.storage import warn_if_uncompiled

    from .source import KafkafsSource

    warn_if_uncompiled(logging.getLogger("kafkafs").warning)
    spark.dataSource.register(KafkafsSource)
