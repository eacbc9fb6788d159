"""Tests of the format in a real Spark: its rows, its errors, and pushdown of queries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafkafs.spark
from kafkafs.spark.option_texts import OptionError
from tests import answers
from tests.spark.expected import rows_of_kafka

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int>"
)


def load(spark: SparkSession, path: Path | list[str], **options: str) -> DataFrame:
    where = str(path) if isinstance(path, Path) else path
    return spark.read.format("kafkafs").options(**options).load(where)


def rows(frame: DataFrame) -> list[dict[str, object]]:
    """Returns the rows in the order of tasks; timestamps in microseconds since 1970."""
    if "timestamp" in frame.columns:
        frame = frame.selectExpr(
            *(f"unix_micros({c}) as {c}" if c == "timestamp" else c for c in frame.columns)
        )
    found: list[dict[str, object]] = frame.toArrow().to_pylist()
    return found


def offsets(frame: DataFrame) -> list[int]:
    return [int(str(row["offset"])) for row in rows(frame.select("offset"))]


def parts(frame: DataFrame) -> int:
    """Returns the number of tasks that read a frame."""
    return frame.rdd.getNumPartitions()


@pytest.mark.parametrize(
    ("name", "isolation"),
    [
        ("kafka43-clean", answers.READ_COMMITTED),
        ("kafka43-clean", answers.READ_UNCOMMITTED),
        ("kafka28", answers.READ_UNCOMMITTED),
    ],
)
def test_every_record_as_kafka_gave_it(
    spark: SparkSession, corpus: Corpus, name: str, isolation: str
) -> None:
    options = {"kafka.isolation.level": isolation, "maxBytesPerPartition": "1000000"}
    frame = load(spark, corpus(name), includeHeaders="true", **options)
    assert rows(frame) == list(rows_of_kafka(name, isolation))


def test_the_schema_is_that_of_the_kafka_source(spark: SparkSession, corpus: Corpus) -> None:
    frame = load(spark, corpus("kafka43-clean"))
    assert frame.schema.simpleString() == SCHEMA
    frame = load(spark, corpus("kafka43-clean"), includeHeaders="true")
    headers = ",headers:array<struct<key:string,value:binary>>>"
    assert frame.schema.simpleString() == SCHEMA[:-1] + headers


def test_a_schema_of_ones_own_chooses_columns(spark: SparkSession, corpus: Corpus) -> None:
    reader = spark.read.format("kafkafs").option("subscribe", "orders")
    frame = reader.schema("timestamp timestamp, offset long").load(str(corpus("kafka43-clean")))
    assert frame.columns == ["timestamp", "offset"]
    assert frame.count() == 20_000
    with pytest.raises(PySparkException, match="option schema: offset is bigint, not int"):
        reader.schema("offset int").load(str(corpus("kafka43-clean"))).count()
    with pytest.raises(PySparkException, match="option schema: no column ofset"):
        reader.schema("ofset long").load(str(corpus("kafka43-clean"))).count()


def test_wrong_options_are_refused_when_it_is_loaded(spark: SparkSession, corpus: Corpus) -> None:
    with pytest.raises(PySparkException, match="option subscribr: there is no such option"):
        load(spark, corpus("kafka43-clean"), subscribr="orders")
    with pytest.raises(PySparkException, match="must be a whole number of at least 1"):
        load(spark, corpus("kafka43-clean"), minPartitions="0")


def test_a_topic_that_is_not_there_is_refused(spark: SparkSession, corpus: Corpus) -> None:
    with pytest.raises(PySparkException, match="option subscribe: there is no topic odrers"):
        load(spark, corpus("kafka43-clean"), subscribe="odrers").count()


@pytest.mark.parametrize("kind", ["TEMPORARY VIEW", "TABLE"])
def test_sql(spark: SparkSession, corpus: Corpus, kind: str) -> None:
    spark.sql(
        f"CREATE {kind} orders USING kafkafs"
        f" OPTIONS (path '{corpus('kafka43-clean')}', Subscribe 'orders')"
    )
    try:
        query = "SELECT partition, count(*) AS n, max(offset) AS last FROM orders GROUP BY 1"
        answer = answers.offsets("kafka43-clean")
        assert {(row.partition, row.n, row.last) for row in spark.sql(query).collect()} == {
            (number, answer["orders", number].end, answer["orders", number].end - 1)
            for number in range(3)
        }
    finally:
        spark.sql("DROP VIEW orders" if "VIEW" in kind else "DROP TABLE orders")


def test_a_table_is_read_with_options_written_with_a_path_and_dropped_without_its_files(
    spark: SparkSession, writable_corpus: Corpus
) -> None:
    where = writable_corpus("kafka43-clean")
    spark.sql(f"CREATE TABLE everything USING kafkafs LOCATION '{where}' TBLPROPERTIES ('a' = 'b')")
    try:
        assert spark.read.option("subscribe", "orders").table("everything").count() == 20_000
        few = "SELECT count(*) FROM everything WITH (assign = '{\"orders\": [1]}')"
        assert spark.sql(few).collect() == [(answers.offsets("kafka43-clean")["orders", 1].end,)]
        into = f"WITH (path = '{where}', createTopics = 1, unregistered = true) (topic, value)"
        spark.sql(f"INSERT INTO everything {into} VALUES ('from-sql', X'01')")
        with pytest.raises(PySparkException, match="option path: name the log directories"):
            spark.sql("INSERT INTO everything (topic, value) VALUES ('from-sql', X'02')")
        added = spark.table("everything").where("topic = 'from-sql'")
        assert added.select("offset", "value").collect() == [(0, b"\1")]
    finally:
        spark.sql("DROP TABLE everything")
    assert (where / "from-sql-0").is_dir()


def test_a_view_with_typed_columns_builds_only_these(spark: SparkSession, corpus: Corpus) -> None:
    columns = "(topic STRING, timestamp TIMESTAMP)"
    for kind in ("TEMPORARY VIEW", "TABLE"):
        path = f"OPTIONS (path '{corpus('kafka43-clean')}', subscribe 'orders')"
        spark.sql(f"CREATE {kind} times {columns} USING kafkafs {path}")
        try:
            query = spark.sql("SELECT topic, count(timestamp) FROM times GROUP BY 1")
            if kind == "TABLE":
                with pytest.raises(PySparkException, match="create the table without columns"):
                    query.collect()
            else:
                assert query.collect() == [("orders", 20_000)]
        finally:
            spark.sql("DROP VIEW times" if "VIEW" in kind else "DROP TABLE times")


def test_several_directories(spark: SparkSession, corpus: Corpus) -> None:
    both = corpus("kafka43-two-dirs")
    expected = sum(1 for _ in rows_of_kafka("kafka43-two-dirs", answers.READ_UNCOMMITTED))
    for where in ([f"{both}/dir1", f"{both}/dir2"], [f"{both}/dir1,{both}/dir2"], [f"{both}/d*"]):
        assert load(spark, where).select("offset").count() == expected


def test_an_empty_topic(spark: SparkSession, corpus: Corpus) -> None:
    assert rows(load(spark, corpus("kafka43-clean"), subscribe="empty")) == []


def test_ranges_of_offsets(spark: SparkSession, corpus: Corpus) -> None:
    frame = load(
        spark,
        corpus("kafka43-clean"),
        assign='{"orders": [1]}',
        startingOffsets=json.dumps({"orders": {"1": 600}}),
        endingOffsets=json.dumps({"orders": {"1": 700}}),
        maxRecordsPerPartition="30",
    )
    assert parts(frame) == 4
    assert offsets(frame) == list(range(600, 700))


# -- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_every_query_on_a_dataframe_sees_every_record(
    spark: SparkSession, corpus: Corpus, pushdown: str
) -> None:
    """Spark reuses the plan of one query for all others, whatever its filters are."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, pushdown)
    try:
        frame = load(spark, corpus("kafka43-clean"), subscribe="orders").select(
            "partition", "offset"
        )
        ends = {n: answers.offsets("kafka43-clean")["orders", n].end for n in range(3)}
        first, second = frame.where("partition = 1"), frame.where("partition = 2")
        few = frame.where("offset < 7")
        assert first.union(second).count() == ends[1] + ends[2]
        assert second.union(frame).count() == ends[2] + 20_000
        assert few.count() == 21
        assert frame.count() == 20_000
        assert (first.count(), second.count()) == (ends[1], ends[2])
        assert few.where("partition = 0").count() == 7
        assert few.join(second, "offset").count() == 21
        assert frame.join(frame.withColumnRenamed("partition", "p"), "offset").count() > 20_000
        young = frame.where("offset >= 600").cache()
        assert young.where("partition = 1").count() == ends[1] - 600
        assert young.count() == 20_000 - 3 * 600
        young.unpersist()
        assert sorted(
            row.n
            for row in frame.groupBy("partition")
            .agg({"*": "count"})
            .toDF("partition", "n")
            .collect()
        ) == sorted(ends.values())
    finally:
        spark.conf.set(name, "true")


def test_a_view_serves_several_queries(spark: SparkSession, corpus: Corpus) -> None:
    load(spark, corpus("kafka43-clean"), subscribe="orders").createOrReplaceTempView("several")
    counts = spark.sql(
        "SELECT (SELECT count(*) FROM several WHERE partition = 1 AND offset < 5) AS few,"
        " (SELECT count(*) FROM several WHERE topic = 'orders') AS every"
    )
    assert counts.collect() == [(5, 20_000)]
    assert spark.sql("SELECT count(*) FROM several").collect() == [(20_000,)]


def test_a_read_as_of_a_time(spark: SparkSession, corpus: Corpus) -> None:
    path, options = corpus("kafka43-clean"), {"subscribe": "orders", "at": "2026-09-03"}
    with kafkafs.open(path, at=options["at"]) as then:
        ends = [then["orders", number].end_offset for number in range(3)]
    assert load(spark, path, **options).count() == sum(ends)
    found = kafkafs.spark.scan(spark, path, ["offset"], "partition = 1", **options)
    assert offsets(found) == list(range(ends[1]))


def test_filters_cannot_be_pushed_down(spark: SparkSession, corpus: Corpus) -> None:
    with pytest.raises(PySparkException, match="option pushFilters: filters cannot be pushed down"):
        load(spark, corpus("kafka43-clean"), pushFilters="true")


def test_other_filters_are_left_to_spark(spark: SparkSession, corpus: Corpus) -> None:
    frame = load(spark, corpus("kafka43-clean"), subscribe="orders")
    found = frame.where("cast(key as string) = 'customer-519' OR offset = 3").count()
    assert found == sum(
        answer.key == b"customer-519" or answer.offset == 3
        for number in range(3)
        for answer in answers.records("kafka43-clean", "orders", number)
    )


def test_a_scan_reads_only_what_it_names(
    spark: SparkSession, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {n: answers.offsets("kafka43-clean")["orders", n].end for n in range(3)}

    def scan(where: str | None, *columns: str) -> DataFrame:
        return kafkafs.spark.scan(spark, corpus("kafka43-clean"), columns, where)

    first = scan("topic = 'orders' AND partition = 1 AND offset >= 600", "offset")
    second = scan("topic = 'orders' AND partition = 2", "offset")
    assert first.union(second).count() == ends[1] - 600 + ends[2]
    assert offsets(first) == list(range(600, ends[1]))
    assert second.where("offset < 5").count() == 5
    assert second.columns == ["offset"]
    capsys.readouterr()
    first.explain()
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "BatchScan" in line)
    shown = f"kafkafs {corpus('kafka43-clean')} where topic in orders and partition = 1"
    assert f"{shown} and offset >= 600" in line
    assert re.findall(r"(\w+)#", line.partition("[")[2]) == ["topic", "partition", "offset"]
    late = scan("topic = 'orders' AND timestamp >= '2100-01-01'", "value", "headers")
    assert (late.columns, late.count()) == (["value", "headers"], 0)
    with pytest.raises(OptionError, match="option columns: no column ofset"):
        scan(None, "ofset")


# -- damage and loss ------------------------------------------------------------------------------


def test_damage_fails_with_file_and_position(spark: SparkSession, corpus: Corpus) -> None:
    frame = load(spark, corpus("kafka43-torn"), subscribe="crash-txn")
    with pytest.raises(PySparkException, match=r"crash-txn-0/0+2648\.log: position 10401: .*crc"):
        frame.count()


def test_damage_can_be_skipped_and_listed(spark: SparkSession, corpus: Corpus) -> None:
    torn = corpus("kafka43-torn")
    found = offsets(load(spark, torn, subscribe="crash-txn", mode="PERMISSIVE"))
    assert not set(range(2873, 2881)) & set(found)
    assert {2871, 2881} <= set(found)
    losses = load(spark, torn, losses="true")
    (loss,) = losses.where("topic = 'crash-txn'").collect()
    assert (loss.partition, loss.firstOffset, loss.nextOffset, loss.position) == (
        0,
        2873,
        2881,
        10401,
    )
    assert loss.file == f"{torn}/crash-txn-0/{2648:020}.log"
    assert "crc" in loss.what


def test_what_retention_took_meanwhile(spark: SparkSession, writable_corpus: Corpus) -> None:
    directory = writable_corpus("kafka43-clean")
    frames = {
        strict: load(spark, directory, assign='{"orders": [0]}', failOnDataLoss=strict).rdd
        for strict in ("true", "false")
    }
    assert [frame.getNumPartitions() for frame in frames.values()] == [1, 1]
    bases = sorted(int(path.stem) for path in (directory / "orders-0").glob("*.log"))
    for path in (directory / "orders-0").glob(f"{bases[0]:020}.*"):
        path.unlink()
    with pytest.raises(Exception, match=re.escape(f"the log starts at {bases[1]} now")):
        frames["true"].count()
    end = answers.offsets("kafka43-clean")["orders", 0].end
    assert frames["false"].count() == end - bases[1]
