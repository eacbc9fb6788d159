"""Runs the examples on the pages about Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kafkafs
from tests.readme import README, SPARK_PAGE, blocks, placed, section

pytestmark = pytest.mark.spark


@pytest.fixture
def place(writable_corpus: Callable[[str], Path], tmp_path: Path) -> Path:
    """A directory with `data`, and `new` for the output of the examples."""
    writable_corpus("kafka43-clean").rename(tmp_path / "data")
    with kafkafs.open(str(tmp_path / "new"), writable=True):
        pass
    return tmp_path


def example(title: str, place: Path) -> str:
    [text] = blocks(section(SPARK_PAGE.read_text(), title), "python")
    return placed(text, place)


def test_the_readme(spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(placed(blocks(README.read_text(), "python")[1], place), {})
    assert "|        0| 6674|" in capsys.readouterr().out


def test_reading(spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("Reading", place), {})
    printed = capsys.readouterr().out
    assert '{"order":1780,' in printed
    assert "|        0| 6674|" in printed
    assert "|        4|" in printed
    assert "2026-09-01" in printed
    assert "where topic in orders and offset >= 600" in printed


def test_sql(spark: SparkSession, place: Path) -> None:
    [text] = blocks(section(SPARK_PAGE.read_text(), "SQL"), "sql")
    try:
        for statement in placed(text, place).rstrip(";\n").split(";\n"):
            spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS orders")
        spark.sql("DROP VIEW IF EXISTS times")
    with kafkafs.open(str(place / "new")) as d:
        assert d["copy", 0].end_offset == 20_000


def test_streams(spark: SparkSession, place: Path) -> None:
    exec(example("Streams", place), {"spark": spark})
    found = spark.read.parquet(str(place / "lake" / "orders"))
    assert found.columns == ["topic", "partition", "offset", "value"]
    assert found.count() == 20_000


def test_writing(spark: SparkSession, place: Path) -> None:
    reader = spark.read.format("kafkafs").option("includeHeaders", "true")
    orders = reader.option("subscribe", "orders").load(str(place / "data"))
    scope: dict[str, Any] = {"spark": spark, "orders": orders}
    exec(example("Writing", place), scope)
    try:
        scope["query"].processAllAvailable()
    finally:
        scope["query"].stop()
    with kafkafs.open(str(place / "new")) as d:
        assert sum(d["copy", n].end_offset for n in d.topics["copy"]) == 40_000
