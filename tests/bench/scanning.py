"""Rows 31 to 33: Spark scans a log, against Parquet with the same columns, and against its own
Kafka source with a broker; and reads a hundredth of the log by time."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read.planning import plan as plan_ranges
from kafkafs.spark.read.reading import Reading
from kafkafs.storage.format.records.arrow import RECORD_SCHEMA
from tests.bench.broker import serving
from tests.bench.data import TOPIC, kept, plain_log, time_of
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, versus
from tests.bench.sessions import spark_session
from tests.broker.kafka import Broker
from tests.spark import kafka_source

_COLUMNS = "value binary, partition int, offset bigint, timestamp timestamp"
_AGGREGATES = ("count(*)", "sum(length(value))", "max(offset)", "max(timestamp)", "max(partition)")
# As many tasks as our source creates; otherwise one task would read the single partition.
_KAFKA_TASKS = 8
_MOST_BYTES = Figure(0.05, "of the bytes")


def batch(plan: Plan) -> Outcomes:
    """Row 31: the same aggregates of the same columns, on two cores; each turn loads again."""
    log = plain_log(plan.records)
    with spark_session() as spark:
        parquet = kept(
            f"parquet-{plan.records}", lambda to: ours(spark, log).write.parquet(str(to / "t"))
        )
        seconds = race(
            {
                "kafkafs": Call(lambda: aggregate(ours(spark, log), plan.records)),
                "parquet": Call(
                    lambda: aggregate(spark.read.parquet(str(parquet / "t")), plan.records)
                ),
            },
            plan.repetitions,
        )
    yield versus(
        31, "Spark, batch scan", (seconds["kafkafs"], seconds["parquet"]),
        "Parquet of the same columns", 0.5, amount=plan.records / 1e6, unit="M rec/s",
    )  # fmt: skip


def by_time(plan: Plan) -> Outcomes:
    """Row 32: bytes read by planning and reading, as the kernel counts them, without mapped
    ones."""
    log = plain_log(plan.records)
    middle, hundredth = plan.records // 2, plan.records // 100
    bounds = {
        "startingTimestamp": str(time_of(middle)),
        "endingTimestamp": str(time_of(middle + hundredth)),
    }
    everything, part = _bytes_read(log, {}), _bytes_read(log, bounds)
    share = Figure(part / everything, "of the bytes")
    yield Outcome(32, "Spark, scan of 1 % by timestamp", share, limit=_MOST_BYTES)


def against_kafka(plan: Plan) -> Outcomes:
    """Row 33: the same aggregates of the same columns, from the broker and from its directory."""
    with serving(plain_log(plan.records)) as broker, spark_session(kafka_source.jars()) as spark:
        seconds = race(
            {
                "kafkafs": Call(lambda: aggregate(ours(spark, broker.log_dir), plan.records)),
                "kafka": Call(lambda: aggregate(_kafka(spark, broker), plan.records)),
            },
            plan.repetitions,
        )
    yield versus(
        33, "Spark, batch scan", (seconds["kafkafs"], seconds["kafka"]),
        "Spark's source, local broker", 3, amount=plan.records / 1e6, unit="M rec/s",
    )  # fmt: skip


def ours(spark: SparkSession, log: Path) -> DataFrame:
    """Returns our source of the topic in a log directory."""
    reader = spark.read.format("kafkafs").option("subscribe", TOPIC)
    return reader.schema(_COLUMNS).load(str(log))


def _kafka(spark: SparkSession, broker: Broker) -> DataFrame:
    reader = spark.read.format("kafka").option("subscribe", TOPIC)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("minPartitions", _KAFKA_TASKS).load()


def aggregate(frame: DataFrame, records: int) -> float:
    """Returns the seconds in which Spark aggregates the columns of so many records."""
    start = time.perf_counter()
    (row,) = frame.selectExpr(*_AGGREGATES).collect()
    taken = time.perf_counter() - start
    assert row[0] == records
    return taken


def _bytes_read(log: Path, bounds: dict[str, str]) -> int:
    options = ReadOptions.parse({"path": str(log), **bounds})
    before = _counted()
    reading = Reading(options.paths, {}, options.isolation, True, False)
    for _ in reading.records(plan_ranges(options.paths, options), RECORD_SCHEMA):
        pass
    return _counted() - before


def _counted() -> int:
    """Returns the bytes that this process has read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))
