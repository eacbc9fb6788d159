"""Registers the format "kafkafs" with every Spark session, so that SQL needs no Python.

It is installed beside the package kafkafs, because Spark looks for data sources in all top-level
modules whose names start with `pyspark_`, and registers what they call DefaultSource.
"""

from kafkafs.spark.source import KafkafsSource as DefaultSource

__all__ = ["DefaultSource"]
