"""Tests that our source on a broker's directory returns the same rows as Spark's Kafka source.

Both get the same options. Kafka's own client sends batches of several kinds, transactions that
leave gaps between offsets, and records that not every consumer sees.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafkafs.spark import source_metrics
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED
from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = ("codecs", "transactions", "compacted", "appended", "trimmed", "empty")
KAFKA, OURS = range(2)
WITHOUT_IDS = {"checkpointTopicIds": "false"}
BASE_MS = 1_700_000_000_000
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "20000",
    "segment.index.bytes": "8192",
}


@dataclass(frozen=True)
class Both:
    """Both sources reading the same broker."""

    spark: SparkSession
    broker: Broker

    def theirs(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafka").options(**options)
        return reader.option("kafka.bootstrap.servers", self.broker.bootstrap).load()

    def ours(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafkafs").options(**options)
        return reader.load(str(self.broker.log_dir))

    def streams(self, **options: str) -> Iterator[DataFrame]:
        """Yields the stream of Kafka's source, then of ours."""
        reader = self.spark.readStream.format("kafka").options(**options)
        yield reader.option("kafka.bootstrap.servers", self.broker.bootstrap).load()
        ours = self.spark.readStream.format("kafkafs").options(**options)
        yield ours.load(str(self.broker.log_dir))


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A broker with TOPICS, in which one transaction is left open."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    driver = Driver(broker.bootstrap, tmp_path_factory.mktemp("driver") / "driver.log")
    try:
        fill(driver, broker)
        yield Both(spark, broker)
    finally:
        driver.close()
        broker.close()


def fill(driver: Driver, broker: Broker) -> None:
    driver.create_topic("codecs", len(CODECS))
    for partition, codec in enumerate(CODECS):
        configs = {"compression.type": codec}
        driver.produce("codecs", odd(), partition, producer=codec, configs=configs, batch=70)
    driver.create_topic("transactions", 2)
    transactions(driver)
    driver.create_topic("appended", 1, {"message.timestamp.type": "LogAppendTime"})
    driver.produce("appended", odd()[:50], batch=20)
    driver.create_topic("trimmed", 2)
    driver.call("generate", topic="trimmed", partition=0, count=700, timestamp=BASE_MS, step=1000)
    driver.call("delete_records", topic="trimmed", partition=0, before=123)
    driver.create_topic("empty", 2)
    driver.create_topic("compacted", 1, COMPACTED)
    driver.call("generate", topic="compacted", partition=0, count=2500, keys=100, value_size=50)
    active = max((broker.log_dir / "compacted-0").glob("*.log")).stem
    noted(broker, "cleaner-offset-checkpoint", f"compacted 0 {int(active)}")
    noted(broker, "log-start-offset-checkpoint", "trimmed 0 123")


def noted(broker: Broker, checkpoint: str, line: str) -> None:
    """Waits until the broker has written this line to a checkpoint, which it does periodically."""
    path = broker.log_dir / checkpoint
    wait_until(lambda: path.exists() and line in path.read_text().splitlines())


def odd() -> list[Message]:
    """Returns records with and without keys, values and headers; some timestamps go back."""
    headers: Sequence[tuple[tuple[str, bytes | None], ...]] = (
        (),
        (("trace", b"\x00\xff"), ("trace", None), ("", b"")),
        (("naïve", "ключ".encode()),),
    )
    keys = (None, b"", b"key")
    values = (b"value " * 20, None, b"", bytes(range(256)))
    kinds = itertools.cycle(itertools.product(keys, values, headers))
    return [
        Message(key, value, BASE_MS + number * 1000 - number % 7 * 60_000, headers)
        for number, (key, value, headers) in zip(range(400), kinds, strict=False)
    ]


def transactions(driver: Driver) -> None:
    """Sends committed and aborted transactions among plain records, and leaves one open."""
    for number, end in enumerate(("commit", "abort", "commit", "abort")):
        inside = {"producer": f"transactional-{number}", "transactional": True}
        driver.call("begin", **inside)
        for partition in range(2):
            driver.produce("transactions", odd()[: 20 + number], partition, **inside)
            driver.produce("transactions", odd()[30:35], partition)
        driver.call(end, **inside)
    left = {"producer": "left", "transactional": True}
    driver.call("begin", **left)
    driver.produce("transactions", odd()[:11], 1, **left)
    driver.produce("transactions", odd()[:13], 1)


def table(frame: DataFrame) -> pa.Table:
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    return frame.toArrow().sort_by(order)


def partitions(**topics: Sequence[int]) -> str:
    """Returns JSON with these numbers for the partitions 0, 1, … of each topic."""
    return json.dumps(
        {name: {str(n): value for n, value in enumerate(each)} for name, each in topics.items()}
    )


ALL = {"subscribe": ",".join(TOPICS), "includeHeaders": "true"}
OPTIONS = {
    "everything": ALL,
    "without-headers": {"subscribe": "codecs"},
    "pattern": {"subscribePattern": "c.*|appended"},
    "assign": {"assign": '{"codecs": [0, 3], "transactions": [1]}'},
    "offsets": {
        "subscribe": "codecs",
        "startingOffsets": partitions(codecs=[10, -2, 399, 77, 400]),
        "endingOffsets": partitions(codecs=[11, 30, -1, 300, 400]),
    },
    "offsets-between-records": {
        "subscribe": "transactions,compacted",
        "startingOffsets": partitions(transactions=[20, 27], compacted=[7]),
        "endingOffsets": partitions(transactions=[80, -1], compacted=[2490]),
    },
    "times": {
        "subscribe": "codecs",
        "startingTimestamp": str(BASE_MS + 50_000),
        "endingTimestamp": str(BASE_MS + 200_000),
    },
    "times-by-partition": {
        "subscribe": "trimmed,empty",
        "startingOffsetsByTimestamp": partitions(trimmed=[BASE_MS + 200_000, 0], empty=[0, 5]),
        "endingOffsetsByTimestamp": partitions(trimmed=[BASE_MS + 300_500, 7], empty=[9, 9]),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "many-tasks": {**ALL, "minPartitions": "23"},
    "small-tasks": {"subscribe": "codecs", "maxRecordsPerPartition": "130"},
}


@pytest.mark.parametrize(
    ("name", "isolation"),
    [
        *((name, READ_COMMITTED) for name in OPTIONS),
        *((name, READ_UNCOMMITTED) for name in ("everything", "offsets-between-records")),
    ],
)
def test_the_same_rows(both: Both, name: str, isolation: str) -> None:
    options = {**OPTIONS[name], "kafka.isolation.level": isolation}
    kafka, ours = both.theirs(**options), both.ours(**options)
    assert ours.schema == kafka.schema
    expected, found = table(kafka), table(ours)
    assert found.schema == expected.schema
    assert found.equals(expected)
    assert len(expected) > 5


def test_the_same_is_refused(both: Both) -> None:
    wrong = [
        {"subscribe": "codecs", "startingOffsets": "latest"},
        {"subscribe": "codecs", "endingOffsets": "earliest"},
        {"subscribe": "codecs", "startingOffsets": partitions(codecs=[0, 0])},
        {"subscribe": "missing"},
        {"subscribe": "trimmed", "startingTimestamp": str(BASE_MS * 2)},
        {"subscribe": "codecs", "minPartitions": "0"},
        {"subscribe": "codecs", "kafka.auto.offset.reset": "earliest"},
    ]
    for options in wrong:
        options["fetchOffset.numRetries"] = "1"
        with pytest.raises((PySparkException, Py4JJavaError)):
            both.theirs(**options).count()
        with pytest.raises(PySparkException, match=r"option \w+(\.\w+)*: "):
            both.ours(**options).count()


# -- streams --------------------------------------------------------------------------------------


def all_now(frame: DataFrame, name: str, checkpoint: Path) -> StreamingQuery:
    """Runs a query of all available rows into the table `name`; returns it when finished."""
    writer = frame.writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def ends(query: StreamingQuery) -> list[object]:
    """Returns the end offsets of each batch, without batches that found nothing new."""
    found = [json.loads(progress["sources"][0]["endOffset"]) for progress in query.recentProgress]
    return [end for end, before in zip(found, [None, *found], strict=False) if end != before]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("limited", {**ALL, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1700"}),
        (
            "from_offsets",
            {
                "subscribe": "codecs,compacted",
                "startingOffsets": partitions(codecs=[10, -2, -1, 77, 400], compacted=[30]),
                "maxOffsetsPerTrigger": "1100",
                "minPartitions": "9",
            },
        ),
        ("from_now", {"subscribe": "codecs"}),
    ],
)
def test_the_same_batches_of_a_stream(
    both: Both, spark: SparkSession, tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    options = {**options, "kafka.isolation.level": READ_COMMITTED, **WITHOUT_IDS}
    kafka, ours = (
        all_now(frame, f"{name}_{source}", tmp_path / source)
        for source, frame in zip(("kafka", "ours"), both.streams(**options), strict=True)
    )
    assert ends(ours) == ends(kafka)
    sources = [progress["sources"][0] for progress in kafka.recentProgress]
    metrics = [{name: float(n) for name, n in each["metrics"].items()} for each in sources]
    lags = [{name: float(n) for name, n in source_metrics(each).items()} for each in sources]
    assert lags == [pytest.approx(each, abs=0.05) for each in metrics]  # Spark rounds the average
    expected, found = (table(spark.table(f"{name}_{source}")) for source in ("kafka", "ours"))
    assert found.equals(expected)
    assert len(expected) > 0 or name == "from_now"


def test_a_query_moves_from_the_broker_to_its_files_and_back(
    both: Both, spark: SparkSession, tmp_path: Path
) -> None:
    """With its checkpoint a query continues where the other source stopped. Spark's source rejects
    topic ids in a checkpoint until a batch, possibly without records, has left them out."""
    topic = "moving"
    with_driver = Driver(both.broker.bootstrap, tmp_path / "driver.log")

    def read(source: int, **options: str) -> list[int]:
        frames = list(both.streams(subscribe=topic, startingOffsets="earliest", **options))
        writer = frames[source].writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.option("path", str(tmp_path / "sink")).start().awaitTermination()
        found: list[int] = table(spark.read.parquet(str(tmp_path / "sink")))["offset"].to_pylist()
        return found

    def generate(turn: int) -> list[int]:
        """Generates records; returns all offsets that now exist."""
        for partition in range(2):
            how = {"count": 100, "first": turn * 100}
            with_driver.call("generate", topic=topic, partition=partition, **how)
        return [*range((turn + 1) * 100)] * 2

    try:
        with_driver.create_topic(topic, 2)
        expected = generate(0)
        assert read(KAFKA) == expected
        expected = generate(1)
        assert read(OURS) == expected
        with pytest.raises(PySparkException, match=r"Expected e\.g\. .* got .*:topicIds"):
            read(KAFKA)
        assert read(OURS, **WITHOUT_IDS) == expected
        expected = generate(2)
        assert read(KAFKA) == expected
        expected = generate(3)
        assert read(OURS, **WITHOUT_IDS) == expected
        expected = generate(4)
        assert read(KAFKA) == expected
    finally:
        with_driver.close()
