"""Runs `examples/pipeline.sh` as a user would: without arguments, and on own directories."""

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

from tests import answers
from tests.readme import ROOT
from tests.spark.expected import rows_of_kafka

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run(temporary: Path, *arguments: str) -> str:
    """Returns its output. Hides the active environment, because the script must find its own."""
    programs = str(ROOT / ".venv" / "bin")
    path = [part for part in os.environ["PATH"].split(os.pathsep) if part != programs]
    with subprocess.Popen(
        [ROOT / "examples" / "pipeline.sh", *arguments],
        env=os.environ | {"PATH": os.pathsep.join(path), "TMPDIR": str(temporary)},
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


def test_a_table_of_ones_own(corpus: Corpus, tmp_path: Path) -> None:
    """Log directories are given by a wildcard, and the table's name contains a space."""
    log_dirs, table = f"{corpus('kafka43-two-dirs')}/dir*", tmp_path / "my table"
    run(tmp_path, log_dirs, str(table))
    columns = {"topic": pa.string(), "date": pa.string()}
    hive = pa.dataset.partitioning(pa.schema(columns.items()), flavor="hive")
    found = pa.dataset.dataset(table, format="parquet", partitioning=hive).to_table()
    names = ("topic", "date", "partition", "offset", "key", "value")
    answer = rows_of_kafka("kafka43-two-dirs", answers.READ_COMMITTED)
    expected = [{**record, "date": date_of(record)} for record in answer]
    assert sorted(
        (tuple(row[name] for name in names) for row in found.to_pylist()), key=str
    ) == sorted((tuple(record[name] for name in names) for record in expected), key=str)
