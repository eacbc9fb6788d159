"""Row 34: Spark writes a table, into a log directory and through its own Kafka sink into a
broker."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.bench.broker import with_topic
from tests.bench.data import TOPIC, kept, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Outcomes, race, versus
from tests.bench.sessions import spark_session
from tests.broker.kafka import Broker
from tests.spark import kafka_source

_PARTITIONS = 4
#: The topic that is written.
_SUNK = "sunk"


def against_kafka(plan: Plan) -> Outcomes:
    """Writes the values of a Parquet table, without keys, to partitions of a topic, uncompressed.
    Ours are flushed when it returns, the broker's are in its page cache."""
    log = plain_log(plan.records)
    with (
        tempfile.TemporaryDirectory(prefix="kafkafs-bench-sink-") as directory,
        spark_session(kafka_source.jars()) as spark,
    ):
        source = spark.read.format("kafkafs").option("subscribe", TOPIC)
        parquet = kept(
            f"values-{plan.records}",
            lambda to: source.schema("value binary").load(str(log)).write.parquet(str(to / "t")),
        )
        frame = spark.read.parquet(str(parquet / "t"))
        with with_topic(_SUNK, _PARTITIONS) as broker:
            seconds = race(
                {
                    "kafkafs": Call(lambda: _ours(frame, Path(directory), plan.records)),
                    "kafka": Call(lambda: _kafka(frame, broker)),
                },
                plan.repetitions,
            )
    yield versus(
        34, "Spark, write of a table", (seconds["kafkafs"], seconds["kafka"]),
        "Spark's Kafka sink, local broker", 3, amount=plan.records / 1e6, unit="M rec/s",
    )  # fmt: skip


def _ours(frame: DataFrame, directory: Path, records: int) -> float:
    """Writes to a topic that is created again each time."""
    log_dir = str(directory / "logs")
    with LogManager(log_dir, {"file.delete.delay.ms": "0"}) as engine:
        if _SUNK in engine.topics():
            engine.delete_topic(_SUNK)
        engine.create_topic(_SUNK, _PARTITIONS)
    start = time.perf_counter()
    frame.write.format("kafkafs").option("topic", _SUNK).mode("append").save(log_dir)
    taken = time.perf_counter() - start
    written = Engine(log_dir)
    ends = [written.log(_SUNK, number).view().end_offset for number in range(_PARTITIONS)]
    assert sum(ends) == records
    return taken


def _kafka(frame: DataFrame, broker: Broker) -> float:
    writer = frame.write.format("kafka").option("topic", _SUNK)
    start = time.perf_counter()
    writer.option("kafka.bootstrap.servers", broker.bootstrap).mode("append").save()
    return time.perf_counter() - start
