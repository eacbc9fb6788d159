"""Runs `examples/pipeline.sh` as a user would, and its program on own directories."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from examples.pipeline import convert
from tests import answers
from tests.readme import ROOT
from tests.spark.expected import rows_of_kafka

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run(temporary: Path, *arguments: str, **environment: str) -> str:
    """Returns the script's output. Hides the active environment, because it must find its own."""
    programs = str(ROOT / ".venv" / "bin")
    path = [part for part in os.environ["PATH"].split(os.pathsep) if part != programs]
    with subprocess.Popen(
        [ROOT / "examples" / "pipeline.sh", *arguments],
        env={
            **os.environ,
            "PATH": os.pathsep.join(path),
            "TMPDIR": str(temporary),
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=280)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # includes the JVM
            raise
    assert process.returncode == 0
    return printed


def date_of(record: dict[str, object]) -> str:
    microseconds = record["timestamp"]
    assert isinstance(microseconds, int)
    return str((EPOCH + timedelta(microseconds=microseconds)).date())


def test_the_charts_count_the_records(tmp_path: Path) -> None:
    """The temporary directory is empty at the end."""
    printed = run(tmp_path)
    answer = list(rows_of_kafka("kafka43-clean", answers.READ_COMMITTED))
    topics = Counter(str(record["topic"]) for record in answer)
    for topic, _ in topics.most_common(3):
        [chart] = re.findall(rf"^{re.escape(topic)}, .*\n.*\n((?:\d.*\n)+)", printed, re.MULTILINE)
        lines = re.findall(r"^(\d{4}-\d\d-\d\d) (.{24}) +([\d,]+)$", chart, re.MULTILINE)
        assert {date: int(count.replace(",", "")) for date, _, count in lines} == Counter(
            date_of(record) for record in answer if record["topic"] == topic
        )
        assert "█" in "".join(bars for _, bars, _ in lines)
    assert f"{len(answer):,} records with a timestamp in {len(topics)} topics" in printed
    assert "topic=orders" in printed
    assert "date=2026-09-01" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_script_passes_own_directories_on(corpus: Corpus, tmp_path: Path) -> None:
    """Prints the arguments in place of Spark, which `spark-submit` finds in SPARK_HOME."""
    log_dirs, table = f"{corpus('kafka43-two-dirs')}/dir*", f"{tmp_path}/my table"
    spark_class = tmp_path / "spark" / "bin" / "spark-class"
    spark_class.parent.mkdir(parents=True)
    spark_class.write_text("#!/bin/sh\nprintf 'argument %s\\n' \"$@\"\n")
    spark_class.chmod(0o755)
    printed = run(tmp_path, log_dirs, table, SPARK_HOME=str(tmp_path / "spark"))
    passed = re.findall(r"^argument (.*)$", printed, re.MULTILINE)
    assert passed[0] == "org.apache.spark.deploy.SparkSubmit"
    assert passed[-3:] == [str(ROOT / "examples" / "pipeline.py"), log_dirs, table]


def test_a_table_of_ones_own(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    """Log directories are given by a wildcard, and the table's name contains a space."""
    log_dirs, table = f"{corpus('kafka43-two-dirs')}/dir*", tmp_path / "my table"
    convert(spark, log_dirs, str(table))
    columns = {"topic": pa.string(), "date": pa.string()}
    hive = pa.dataset.partitioning(pa.schema(columns.items()), flavor="hive")
    found = pa.dataset.dataset(table, format="parquet", partitioning=hive).to_table()
    names = ("topic", "date", "partition", "offset", "key", "value")
    answer = rows_of_kafka("kafka43-two-dirs", answers.READ_COMMITTED)
    expected = [{**record, "date": date_of(record)} for record in answer]
    assert sorted(
        (tuple(row[name] for name in names) for row in found.to_pylist()), key=str
    ) == sorted((tuple(record[name] for name in names) for record in expected), key=str)
