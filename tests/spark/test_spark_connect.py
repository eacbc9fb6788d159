"""Tests of sessions of other kinds, which discover the format: over Spark Connect, and, with
KAFKAFS_SPARK=all, in spark-sql, where no Python runs but the workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafkafs
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests.spark.cluster import SPARK_HOME
from tests.spark.conftest import CONFIGURATION, DISCOVERY
from tests.spark.connect_client import COUNTS

pytestmark = pytest.mark.spark

RECORDS = 100
EXPECTED = [[partition, RECORDS, 0, RECORDS - 1] for partition in range(2)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the log directory `data`, of two partitions, and two empty ones."""
    for name in ("data", "written", "streamed"):
        (tmp_path / name).mkdir()
        with LogManager([str(tmp_path / name)]) as engine:
            if name == "data":
                engine.create_topic("t", 2)
                for partition in range(2):
                    made = [SimpleRecord(n, b"", b"%d-%d" % (partition, n), []) for n in range(100)]
                    writer = engine.writer("t", partition)
                    writer.append_records(RecordColumns.from_records(made))
    return tmp_path


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The URL of a Connect server in the JVM of the session."""
    jvm: Any = spark._jvm
    package = jvm.org.apache.spark.sql.connect.service
    service = getattr(package, "SparkConnectService$").__getattr__("MODULE$")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    none = jvm.scala.Option.empty()
    service.stop(none, none)


def values(log_dir: Path) -> list[bytes]:
    with kafkafs.open(str(log_dir)) as opened:
        return sorted(row["value"] for each in opened for row in each.scan().read_all().to_pylist())


@pytest.mark.slow
def test_spark_connect(server: str, place: Path) -> None:
    program = Path(__file__).with_name("connect_client.py")
    done = subprocess.run(
        [sys.executable, program, server, place], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["counts"] == EXPECTED
    assert answer["scanned"] == RECORDS
    assert "`sparkContext` is not supported in Spark Connect" in answer["job"]
    written = values(place / "data")
    assert len(written) == 2 * RECORDS
    assert values(place / "written") == written
    assert values(place / "streamed") == written


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("KAFKAFS_SPARK") != "all", reason="not KAFKAFS_SPARK=all")
def test_spark_sql(place: Path) -> None:
    table = f"CREATE TABLE orders USING kafkafs OPTIONS (path '{place}/data')"
    configs = {
        **CONFIGURATION,
        "spark.local.dir": f"{place}/local",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": f"{place}/warehouse",
    }
    options = [part for pair in configs.items() for part in ("--conf", "=".join(pair))]
    command = [str(SPARK_HOME / "bin" / "spark-sql"), "--master", "local[1]", *options]
    done = subprocess.run(
        [*command, "-e", f"{table}; {COUNTS.format('orders')}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(DISCOVERY)},
    )
    assert done.returncode == 0, done.stderr
    assert [list(map(int, line.split())) for line in done.stdout.splitlines()] == EXPECTED
