"""Tests of the counts of `spark stats` against Kafka's recorded answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kafkafs
from kafkafs.spark import jobs
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import write_log_dir, write_partition

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]
HOUR = 3_600_000
TIME = 1_700_000_000_000 // HOUR * HOUR


def test_by_partition(spark: SparkSession, corpus: Corpus) -> None:
    report = jobs.stats(spark, str(corpus("kafka43-clean")))
    found = {(row["topic"], row["partition"]): row for row in report.rows}
    for key in answers.partitions_with_records("kafka43-clean"):
        answer = list(answers.records("kafka43-clean", *key, answers.READ_UNCOMMITTED))
        if not answer or key[0].startswith("__"):
            assert key not in found
            continue
        row = found.pop(key)
        assert row["records"] == len(answer)
        assert row["keyBytes"] == sum(len(each.key or b"") for each in answer)
        assert row["valueBytes"] == sum(len(each.value or b"") for each in answer)
        assert row["nullValues"] == sum(each.value is None for each in answer)
        assert (row["firstOffset"], row["lastOffset"]) == (answer[0].offset, answer[-1].offset)
        times = [each.timestamp for each in answer if each.timestamp != -1]
        assert row["firstTimestamp"] == min(times, default=None)
        assert row["lastTimestamp"] == max(times, default=None)
    assert found == {}
    assert report.exit_code == 0


def test_as_of_a_time(spark: SparkSession, corpus: Corpus) -> None:
    report = jobs.stats(spark, str(corpus("kafka43-clean")), [("orders", None)], at="2026-09-03")
    found = {row["partition"]: (row["records"], row["lastOffset"] + 1) for row in report.rows}
    with kafkafs.open(corpus("kafka43-clean"), at="2026-09-03") as then:
        ends = {number: then["orders", number].end_offset for number in range(3)}
    assert found == {number: (end, end) for number, end in ends.items()}


def test_by_hour_and_prefix(spark: SparkSession, tmp_path: Path) -> None:
    expected: dict[tuple[Any, ...], int] = defaultdict(int)
    for partition in (0, 1):
        records = []
        for number in range(200):
            key = [None, b"", b"user:%d" % number, b"\xff:x", b"order"][number % 5]
            time = -1 if number % 7 == 0 else TIME + number * HOUR // 60
            records.append(SimpleRecord(time, key, b"v" * number))
            prefix = None if key is None else key.partition(b":")[0]
            expected[None if time == -1 else time // HOUR * HOUR, prefix] += 1
        batches = [
            build_batch(records[at : at + 40], BatchFields(base_offset=at))
            for at in range(0, 200, 40)
        ]
        write_partition(tmp_path / "in" / f"t-{partition}", batches)
    write_log_dir(tmp_path / "in", {("t", 0): 200, ("t", 1): 200})
    output = tmp_path / "counts.parquet"
    report = jobs.stats(
        spark, str(tmp_path / "in"), by=("hour", "prefix"), separator=b":", output=str(output)
    )
    rows = pq.read_table(output).to_pylist()
    assert {(row["hour"], row["prefix"]): row["records"] for row in rows} == expected
    assert report.totals["records"] == 400
    assert report.totals["valueBytes"] == 2 * sum(range(200))
    assert {row["prefix"] for row in report.rows} == {None, "", "user", "0xff", "order"}
    cut = jobs.stats(spark, str(tmp_path / "in"), by=("prefix",), prefix_bytes=2)
    assert [row["prefix"] for row in cut.rows] == [None, "", "or", "us", "0xff3a"]


def test_damage_is_told_and_the_rest_counted(spark: SparkSession, corpus: Corpus) -> None:
    report = jobs.stats(spark, str(corpus("kafka43-torn")), [("crash-txn", None)])
    (wrong,) = report.wrong
    assert (wrong["position"], report.exit_code) == (10401, 1)
    assert report.rows[0]["lastOffset"] > 2881
