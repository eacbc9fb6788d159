"""A Spark session with two threads, to measure in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

import kafkafs.spark
from tests.bench import trial
from tests.spark import class_data, kafka_source

_CONFIGURATION = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(jars: str = "") -> Iterator[SparkSession]:
    """Yields a session that knows the format "kafkafs" and has these jars (comma-separated paths).
    The rows of a trial share one, with the jars of Spark's Kafka source."""
    given = kafka_source.jars() if trial.is_trial() else jars
    with trial.shared("spark", lambda: _session(given)) as spark:
        yield spark


@contextmanager
def _session(jars: str) -> Iterator[SparkSession]:
    _end_jvm()
    builder = SparkSession.builder.master("local[2]").appName("kafkafs")
    for name, value in _CONFIGURATION.items():
        builder = builder.config(name, value)
    if trial.is_trial():
        builder = builder.config("spark.driver.defaultJavaOptions", class_data.options())
    spark = builder.config("spark.jars", jars).getOrCreate()
    kafkafs.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _end_jvm() -> None:
    """Ends the JVM of an earlier session, which would go on with the jars that it was started
    with."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # it ends with its standard input
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None
