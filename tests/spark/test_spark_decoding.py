"""The option `decodeValue`: a typed column that is fixed when a read is planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafkafs.spark
from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.read.decoding import _fitted, _for_spark
from tests import registry_records

Corpus = Callable[[str], Path]


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("kafkafs").options(**options).load(str(path))


def register(d: kafkafs.WritableLogDirectories, version: int, number: int, text: object) -> None:
    record = registry_records.schema("t-value", version, number, json.dumps(text))
    d["_schemas", 0].append([kafkafs.ProducerRecord(record.value, key=record.key)])


@pytest.mark.spark
def test_reads_scans_and_tables(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    path = corpus("schemas43")
    with kafkafs.open(path) as d:
        expected = d.scan("s-avro", decode=True).read_all()
        text = d.schemas("s-avro-value")[0].schema.text
    frame = load(spark, path, subscribe="s-avro", decodeValue="registry")
    found = frame.selectExpr("partition", "offset", "decoded.*", "decodeError").toArrow()
    found = found.sort_by([("partition", "ascending"), ("offset", "ascending")])
    for name in ("id", "n", "total", "status", "tags", "lines", "hash"):
        plain = [each and each[name] for each in expected["decoded"].to_pylist()]
        assert found[name].to_pylist() == plain
    assert found["decodeError"].null_count == 125

    file = tmp_path / "first.avsc"
    file.write_text(text)
    options = {"subscribe": "s-avro", "decodeValue": str(file)}
    read = kafkafs.spark.scan(
        spark, path, columns=["decoded"], where="decoded.f > 0 AND partition = 1", **options
    )
    assert {row["decoded"]["f"] > 0 for row in read.toLocalIterator()} == {True}

    told = f"path '{path}', subscribe 's-proto', decodeValue 'registry'"
    spark.sql(f"CREATE TABLE decoded_orders USING kafkafs OPTIONS ({told})")
    try:
        query = "SELECT count(*), count(decoded.id), count(decodeError) FROM decoded_orders"
        assert [tuple(row) for row in spark.sql(query).toLocalIterator()] == [(60, 37, 23)]
    finally:
        spark.sql("DROP TABLE decoded_orders")

    with pytest.raises(PySparkException, match=r"s-avro and s-json have different schemas"):
        load(spark, path, subscribe="s-avro,s-json", decodeValue="registry")
    with pytest.raises(PySparkException, match=r"decodeValue: no schema is known for .* s-hard"):
        load(spark, path, subscribe="s-hard", decodeValue="registry")


@pytest.mark.spark
def test_keys_are_decoded_alone_or_with_values(
    spark: SparkSession, corpus: Corpus, tmp_path: Path
) -> None:
    path = corpus("schemas43")
    columns = ["offset", "decoded", "decodeError", "decodedKey", "decodeKeyError"]
    with kafkafs.open(path) as d:
        expected = d.scan("s-keyed", decode=True, columns=columns).read_all()
        text = d.schemas("s-keyed-key")[-1].schema.text
    both = load(spark, path, subscribe="s-keyed", decodeValue="registry", decodeKey="registry")
    assert both.columns[-4:] == columns[1:]
    found = both.select(columns).toArrow().sort_by("offset")
    assert found.to_pylist() == expected.to_pylist()
    assert found["decodedKey"].null_count < len(found)

    (tmp_path / "key.avsc").write_text(text)
    keys = load(spark, path, subscribe="s-keyed", decodeKey=str(tmp_path / "key.avsc"))
    assert "decoded" not in keys.columns
    assert keys.select("offset", "decodedKey").toArrow().sort_by("offset").to_pylist() == (
        expected.select(["offset", "decodedKey"]).to_pylist()
    )
    reasons = kafkafs.spark.scan(
        spark, path, columns=["decodeKeyError"], subscribe="s-keyed", decodeKey="registry"
    )
    assert reasons.toArrow()["decodeKeyError"].null_count == len(expected)
    with pytest.raises(PySparkException, match=r"decodeKey: no schema is known for the keys of"):
        load(spark, path, subscribe="s-json", decodeKey="registry")

    unions = load(spark, path, subscribe="s-records", decodeValue="registry")
    query = unions.selectExpr("count(decoded.Order.id)", "count(decoded.Refund.why)")
    assert sum(next(query.toLocalIterator())) == 20


@pytest.mark.spark
def test_a_stream_meets_versions_that_are_registered_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They are resolved to the version with which the stream began."""
    path = tmp_path / "data"
    with kafkafs.open(path, writable=True) as d:
        for topic in ("_schemas", "t"):
            d.create_topic(topic)
        register(d, 1, 7, "long")
        d["t", 0].append([b"\0\0\0\0\x07\x02"])
    reader = spark.readStream.format("kafkafs").option("startingOffsets", "earliest")
    stream = reader.options(subscribe="t", decodeValue="registry").load(str(path))

    def run() -> None:
        writer = stream.select("offset", "decoded", "decodeError").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "state"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()

    run()
    with kafkafs.open(path, writable=True) as d:
        register(d, 2, 8, "int")
        register(d, 3, 9, "string")
        d["t", 0].append([b"\0\0\0\0\x08\x04", b"\0\0\0\0\x09\x02a"])
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").toLocalIterator()
    assert [tuple(row) for row in rows] == [
        (0, 1, None),
        (1, 2, None),
        (2, None, "string does not fit long"),
    ]


def test_times_that_spark_does_not_have_are_errors_of_their_records() -> None:
    times = pa.array([0, 1 << 62, None], pa.timestamp("ms", "UTC"))
    values = pa.StructArray.from_arrays([times], ["t"])
    kind = _for_spark(values.type)
    found, reasons = _fitted(values, pa.nulls(3, pa.string()), kind)
    assert found.type == pa.struct([("t", pa.timestamp("us", "UTC"))])
    assert found.cast(pa.struct([("t", pa.int64())])).to_pylist() == [{"t": 0}, None, {"t": None}]
    outside = "a time or decimal is outside the range of Spark"
    assert reasons.to_pylist() == [None, outside, None]


def test_types_become_those_of_spark() -> None:
    kind = pa.struct(
        [
            ("a", pa.list_(pa.time32("ms"))),
            ("b", pa.map_(pa.string(), pa.binary(3))),
            ("c", pa.decimal256(50, 2)),
            ("d", pa.uint64()),
            ("e", pa.duration("ns")),
            ("f", pa.null()),
        ]
    )
    assert _for_spark(kind) == pa.struct(
        [
            ("a", pa.list_(pa.int32())),
            ("b", pa.map_(pa.string(), pa.binary())),
            ("c", pa.string()),
            ("d", pa.decimal128(20)),
            ("e", pa.duration("us")),
            ("f", pa.string()),
        ]
    )


def test_the_option_needs_a_place() -> None:
    with pytest.raises(OptionError, match="decodeValue"):
        kafkafs.spark.options.ReadOptions.parse({"path": "/data", "decodeValue": "s3://a/b.avsc"})
