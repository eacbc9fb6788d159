"""Tests of the parts of the source that Spark uses outside of reads and writes, without a session:
how it finds the format, tables' options on their way through the catalog, and a stream's lag."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from pyspark.sql.worker import lookup_data_sources

import kafkafs.spark
from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read.range_reader import KafkafsReader
from kafkafs.spark.source import KafkafsSource

DISCOVERED = Path(kafkafs.spark.__file__).parent / "discovery"


def test_spark_finds_the_format_beside_the_installed_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DISCOVERED))
    answer = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), answer)
    found = answer.getvalue()
    name = b"\0\0\0\x07kafkafs"
    assert found.startswith(b"\0\0\0\x01" + name)
    assert pickle.loads(found[4 + len(name) + 4 :]) is KafkafsSource


# -- tables ---------------------------------------------------------------------------------------

#: What Spark's catalog passes for a new table.
PROPERTIES = {
    "location": "file:/data,/more",
    "option.subscribe": "a",
    "subscribe": "a",
    "option.kafka.sasl.jaas.config": "a password",
    "owner": "root",
    "provider": "kafkafs",
    "comment": "the orders",
    "mine": "a property",
    "path": "file:/data,/more",
}


def options_read(given: dict[str, str], columns: StructType) -> ReadOptions:
    """Returns the options of a reader of a table with these columns."""
    reader = KafkafsSource(given).reader(columns)
    assert isinstance(reader, KafkafsReader)
    return reader._options


def test_a_table_keeps_its_options_in_its_columns() -> None:
    columns = KafkafsSource(PROPERTIES).schema()
    stored = json.loads(columns[0].metadata["kafkafs.options"])
    assert stored == {"subscribe": "a", "path": "file:/data,/more"}
    assert not any(field.metadata for field in columns.fields[1:])
    options = options_read({"subscribe": "b", "minPartitions": "2"}, columns)
    assert (options.paths, options.topics) == (("/data", "/more"), ("b",))
    options = options_read({"assign": '{"a": [1]}'}, columns)
    assert (options.topics, options.assigned) == (None, (("a", 1),))
    options = options_read({"path": "/other"}, columns)
    assert (options.paths, options.topics) == (("/other",), None)


def test_a_table_is_not_written_by_the_options_in_its_columns() -> None:
    columns = KafkafsSource(PROPERTIES).schema()
    with pytest.raises(OptionError, match=r"option path: .* INSERT INTO t WITH \(path = "):
        KafkafsSource({"topic": "a"}).writer(columns, overwrite=False)


def test_a_table_whose_columns_are_declared_has_no_options() -> None:
    with pytest.raises(OptionError, match=r"option path: .* create the table without columns"):
        KafkafsSource({}).reader(StructType().add("topic", "string"))
    with pytest.raises(OptionError, match="option subscribr: there is no such option"):
        KafkafsSource(PROPERTIES | {"option.subscribr": "a"}).schema()


# -- streams --------------------------------------------------------------------------------------


def test_a_stream_that_cannot_start_says_why_on_its_first_use() -> None:
    given = {"path": "/data", "endingOffsets": "latest"}
    reader = KafkafsSource(given).streamReader(KafkafsSource(given).schema())
    reader.stop()
    with pytest.raises(OptionError, match="option endingOffsets: cannot be used in a stream"):
        reader.initialOffset()


def test_the_lag_of_a_stream_is_that_of_sparks_kafka_source() -> None:
    ids = {":topicIds": {"a": "nGzD2cX5TF6uAl_9vaE5hA"}}
    source: dict[str, str | None] = {
        "endOffset": json.dumps({"a": {"0": 6, "1": 6, "3": 0}} | ids),
        "latestOffset": json.dumps({"a": {"0": 6, "1": 8, "2": 5, "3": 3}} | ids),
    }
    assert kafkafs.spark.source_metrics(source) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "5",
        "avgOffsetsBehindLatest": "2.5",
    }
    assert kafkafs.spark.source_metrics(source | {"latestOffset": None}) == {}
    with pytest.raises(ValueError, match="is not a JSON object: 7"):
        kafkafs.spark.source_metrics(source | {"endOffset": "7"})
