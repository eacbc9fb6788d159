"""One Spark session with two threads for all tests, because starting it takes ten seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import kafkafs.spark
from tests.spark import kafka_source

DISCOVERY = Path(kafkafs.spark.__file__).parent / "discovery"
CONFIGURATION = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session that discovers the format, as where kafkafs is installed; its JVM exits after the
    tests."""
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in CONFIGURATION.items():
        builder = builder.config(name, value)
    builder = (
        builder.config("spark.jars", kafka_source.jars())
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    with pytest.MonkeyPatch.context() as environment:
        # An editable installation hides the directory from Spark's search for modules.
        environment.setenv("PYTHONPATH", str(DISCOVERY))
        session = builder.getOrCreate()
    yield session
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
