"""Log directories as a Spark source: segments are read where they lie, without a broker.

    import kafkafs.spark

    kafkafs.spark.register(spark)
    spark.read.format("kafkafs").option("subscribe", "orders").load("/data")

Schema and options are those of Spark's own Kafka source. Every worker must see the directories by
the same path. The road of a read: `options.py`, `planning.py` on the driver, `reading.py` in the
tasks; `streaming.py` says which offsets a stream's batch has. What Spark sees of these, in its own
terms, are `source.py` and `stream_reader.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes the format "kafkafs" known to the session."""
    from .source import KafkafsSource

    spark.dataSource.register(KafkafsSource)
