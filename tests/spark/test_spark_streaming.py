"""Tests of `spark.readStream.format("kafkafs")`: every record reaches the sink exactly once,
whatever happens to the directory and the query meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import kafkafs
from kafkafs import WritableLogDirectories
from kafkafs.spark import source_metrics
from tests import answers
from tests.readme import ROOT
from tests.spark.cluster import JOB_SECONDS
from tests.spark.expected import rows_of_kafka
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]

SMALL = {"internal.segment.bytes": "100000"}
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}


def stream(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.readStream.format("kafkafs").options(**options).load(str(path))


def start(frame: DataFrame, to: Path, **trigger: Any) -> StreamingQuery:
    """Starts a query that writes Parquet and its checkpoint under `to`."""
    writer = frame.writeStream.format("parquet").option("path", str(to / "rows"))
    writer = writer.option("checkpointLocation", str(to / "checkpoint"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def all_now(frame: DataFrame, to: Path) -> StreamingQuery:
    query = start(frame, to, availableNow=True)
    query.awaitTermination()
    return query


def rows(spark: SparkSession, to: Path) -> list[dict[str, object]]:
    """Returns the rows of the sink, in order; timestamps in microseconds since 1970."""
    frame = spark.read.parquet(str(to / "rows")).orderBy("topic", "partition", "offset")
    frame = frame.withColumn("timestamp", frame["timestamp"].cast("double") * 1_000_000)
    frame = frame.withColumn("timestamp", frame["timestamp"].cast("long"))
    found: list[dict[str, object]] = frame.toArrow().to_pylist()
    return found


def offsets(spark: SparkSession, path: Path) -> dict[tuple[str, int], list[int]]:
    """Returns the sorted offsets of a sink by partition."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in spark.read.parquet(str(path)).select("topic", "partition", "offset").collect():
        found.setdefault((row.topic, row.partition), []).append(row.offset)
    return {key: sorted(each) for key, each in found.items()}


@contextmanager
def directory(path: Path, **settings: str) -> Iterator[WritableLogDirectories]:
    """Yields a writable directory without background cleaning."""
    settings = {"log.cleaner.enable": "false", **settings}
    with kafkafs.open(path, writable=True, configs=settings) as opened:
        yield opened


def append(logs: WritableLogDirectories, topic: str, partition: int, count: int) -> None:
    """Appends records whose keys are their offsets."""
    first = logs[topic, partition].end_offset
    numbers = range(first, first + count)
    records = [kafkafs.ProducerRecord(key=b"%d" % n, value=bytes(60)) for n in numbers]
    logs[topic, partition].append(records)


@pytest.mark.parametrize("isolation", [answers.READ_COMMITTED, answers.READ_UNCOMMITTED])
def test_every_record_as_kafka_gave_it(
    spark: SparkSession, corpus: Corpus, tmp_path: Path, isolation: str
) -> None:
    frame = stream(
        spark,
        corpus("kafka43-clean"),
        **{"kafka.isolation.level": isolation, "startingOffsets": "earliest"},
        includeHeaders="true",
        maxOffsetsPerTrigger="30000",
    )
    query = all_now(frame, tmp_path)
    answer = list(rows_of_kafka("kafka43-clean", isolation))
    assert rows(spark, tmp_path) == sorted(
        answer, key=lambda row: (row["topic"], row["partition"], row["offset"])
    )
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert len(progress) == 2
    lags = [source_metrics(each["sources"][0])["maxOffsetsBehindLatest"] for each in progress]
    assert int(lags[0]) > 0 == int(lags[1])
    last = json.loads(progress[-1]["sources"][0]["endOffset"])
    which = "last_stable" if isolation == answers.READ_COMMITTED else "end"
    for (topic, partition), ends in answers.offsets("kafka43-clean").items():
        if not topic.startswith("__"):
            assert last[topic][str(partition)] == getattr(ends, which)
    (checkpoint,) = (tmp_path / "checkpoint" / "commits").glob(str(progress[-1]["batchId"]))
    written = tmp_path / "checkpoint" / "offsets" / checkpoint.name
    assert json.loads(written.read_text().splitlines()[-1]) == last


def test_a_stream_that_cannot_start_says_why(
    spark: SparkSession, corpus: Corpus, tmp_path: Path
) -> None:
    frame = stream(spark, corpus("kafka43-clean"), endingOffsets="latest")
    with pytest.raises(PySparkException, match="option endingOffsets: cannot be") as refused:
        all_now(frame, tmp_path)
    assert "UnboundLocalError" not in str(refused.value)


def test_a_directory_that_is_written_rolled_retained_and_compacted_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Retention deletes only records that have been read; every key occurs once, so compaction
    removes no record but replaces every segment."""
    with directory(tmp_path / "logs") as logs:
        logs.create_topic("plain", 2, SMALL)
        logs.create_topic("keyed", 1, COMPACTED)
        frame = stream(spark, tmp_path / "logs", startingOffsets="earliest")
        query = start(frame, tmp_path)
        for turn in range(4):
            for topic, partition in (("plain", 0), ("plain", 1), ("keyed", 0)):
                append(logs, topic, partition, 1500)
            if turn == 2:
                logs.create_topic("later")
                append(logs, "later", 0, 70)
            logs.compact("keyed", force=True)
            query.processAllAvailable()
            logs["plain", 0].delete_records(1500 * (turn + 1) - 10)
            logs.run("start-offsets")
            logs.run("retention")
        query.processAllAvailable()
        query.stop()
        assert logs["plain", 0].start_offset == 5990
        assert (tmp_path / "logs" / "keyed-0" / f"{0:020}.log").stat().st_size > 0
    assert offsets(spark, tmp_path / "rows") == {
        ("plain", 0): [*range(6000)],
        ("plain", 1): [*range(6000)],
        ("keyed", 0): [*range(6000)],
        ("later", 0): [*range(70)],
    }


# A separate driver that slowly writes each batch to a directory with its number.
DRIVER = """
import sys, time
from pyspark.sql import SparkSession
import kafkafs.spark
from tests.spark.conftest import CONFIGURATION
from tests.spark.test_spark_streaming import batches_to, stream
from pathlib import Path

where = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]")
for name, value in CONFIGURATION.items():
    builder = builder.config(name, value)
spark = builder.config("spark.local.dir", str(where / "local")).getOrCreate()
kafkafs.spark.register(spark)
frame = stream(spark, where / "logs", startingOffsets="earliest", maxOffsetsPerTrigger="400")
batches_to(frame, where, seconds=0.3).start().awaitTermination()
"""


def batches_to(frame: DataFrame, where: Path, seconds: float = 0.0) -> DataStreamWriter:
    """Returns a query that writes each batch to its own directory; a retry overwrites it."""

    def write(rows: DataFrame, number: int) -> None:
        time.sleep(seconds)
        rows.write.mode("overwrite").parquet(str(where / "sink" / f"batch={number}"))

    writer = frame.writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", str(where / "checkpoint"))


def test_a_killed_driver_and_another_one_read_everything_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Between the two, the log rolls, loses records that were read, and is compacted."""
    with directory(tmp_path / "logs") as logs:
        logs.create_topic("plain", 2, SMALL)
        logs.create_topic("keyed", 1, COMPACTED)
        for topic, partition in (("plain", 0), ("plain", 1), ("keyed", 0)):
            append(logs, topic, partition, 3000)
        done = tmp_path / "checkpoint" / "commits"
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: len(list(done.glob("[0-9]*"))) >= 3 or driver.poll() is not None,
                seconds=JOB_SECONDS,
            )
            assert driver.poll() is None
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        begun, finished = (
            max(int(path.name) for path in (tmp_path / "checkpoint" / name).glob("[0-9]*"))
            for name in ("offsets", "commits")
        )
        assert finished >= 2
        committed = tmp_path / "checkpoint" / "offsets" / str(finished)
        position = json.loads(committed.read_text().splitlines()[-1])
        logs["plain", 0].delete_records(position["plain"]["0"])
        logs.run("start-offsets")
        logs.run("retention")
        logs.compact("keyed", force=True)
        append(logs, "plain", 1, 1000)
    frame = stream(spark, tmp_path / "logs", startingOffsets="earliest")
    query = batches_to(frame, tmp_path).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.recentProgress[0]["batchId"] == max(begun, finished + 1)
    assert offsets(spark, tmp_path / "sink") == {
        ("plain", 0): [*range(3000)],
        ("plain", 1): [*range(4000)],
        ("keyed", 0): [*range(3000)],
    }


def test_a_first_batch_that_failed_begins_where_it_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Holds although the end of the log, where the query started, has moved meanwhile."""

    def fail(rows: DataFrame, number: int) -> None:
        raise RuntimeError(f"batch {number} fails")

    with directory(tmp_path / "logs") as logs:
        logs.create_topic("t")
        append(logs, "t", 0, 10)
        failing = stream(spark, tmp_path / "logs").writeStream.foreachBatch(fail)
        failing = failing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(PySparkException, match="batch 0 fails"):
            failing.start().awaitTermination()
        append(logs, "t", 0, 20)
        query = batches_to(stream(spark, tmp_path / "logs"), tmp_path)
        query.trigger(availableNow=True).start().awaitTermination()
        assert offsets(spark, tmp_path / "sink") == {("t", 0): [*range(10, 30)]}


def test_what_retention_took_fails_the_query_or_is_passed_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    with directory(tmp_path / "logs") as logs:
        logs.create_topic("t", 1, SMALL)
        append(logs, "t", 0, 500)
        options = {"subscribe": "t", "startingOffsets": "earliest"}
        all_now(stream(spark, tmp_path / "logs", **options), tmp_path)
        append(logs, "t", 0, 500)
        logs["t", 0].delete_records(700)
        logs.run("start-offsets")
        loss = "t-0 offsets 500 to 699 no longer exist: the log starts at 700 now"
        with pytest.raises(PySparkException, match=loss):
            all_now(stream(spark, tmp_path / "logs", **options), tmp_path)
        all_now(stream(spark, tmp_path / "logs", **options, failOnDataLoss="false"), tmp_path)
    assert offsets(spark, tmp_path / "rows") == {("t", 0): [*range(500), *range(700, 1000)]}


def test_wrong_options_are_refused(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    for options, why in (
        ({"endingOffsets": "latest"}, "option endingOffsets: cannot be used in a stream"),
        ({"subscribe": "odrers"}, "option subscribe: there is no topic odrers"),
    ):
        with pytest.raises(PySparkException, match=why):
            all_now(stream(spark, corpus("kafka43-clean"), **options), tmp_path)
    with pytest.raises(PySparkException, match="maxOffsetsPerTrigger: must be a whole number"):
        stream(spark, corpus("kafka43-clean"), maxOffsetsPerTrigger="many")


def test_damage_fails_the_query_or_is_skipped_and_listed(
    spark: SparkSession, corpus: Corpus, tmp_path: Path
) -> None:
    options = {"subscribe": "crash-txn", "startingOffsets": "earliest"}
    torn = corpus("kafka43-torn")
    with pytest.raises(PySparkException, match=r"0+2648\.log: position 10401: .*crc"):
        all_now(stream(spark, torn, **options), tmp_path / "failed")
    all_now(stream(spark, torn, **options, mode="PERMISSIVE"), tmp_path / "skipped")
    found = offsets(spark, tmp_path / "skipped" / "rows")["crash-txn", 0]
    assert not set(range(2873, 2881)) & set(found)
    assert {2871, 2881} <= set(found)
    all_now(stream(spark, torn, **options, losses="true"), tmp_path / "losses")
    (loss,) = spark.read.parquet(str(tmp_path / "losses" / "rows")).collect()
    assert (loss.firstOffset, loss.nextOffset, loss.position) == (2873, 2881, 10401)
