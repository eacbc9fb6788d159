"""Scans with decoded values: `scan(decode=…)`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import kafkafs
import kafkafs.duckdb
from tests import registry_records

Corpus = Callable[[str], Path]
REFUND = {
    "type": "record",
    "name": "Refund",
    "fields": [
        {"name": "cents", "type": "long"},
        {"name": "why", "type": "string", "default": ""},
    ],
}
OLD = {**REFUND, "fields": REFUND["fields"][:1]}


@pytest.fixture
def schemas(corpus: Corpus) -> Iterator[kafkafs.LogDirectories]:
    with kafkafs.open(corpus("schemas43")) as directories:
        yield directories


@pytest.fixture
def refunds(tmp_path: Path) -> Path:
    """Returns directories with a topic of two partitions, whose values have two versions."""
    path = tmp_path / "data"
    versions = [
        registry_records.schema("refunds-value", 1, 7, json.dumps(OLD)),
        registry_records.schema("refunds-value", 2, 8, json.dumps(REFUND)),
    ]
    with kafkafs.open(path, writable=True) as directories:
        directories.create_topic("_schemas")
        records = [kafkafs.ProducerRecord(each.value, key=each.key) for each in versions]
        directories["_schemas", 0].append(records)
        directories.create_topic("refunds", 2)
        directories.create_topic("plain")
        directories["refunds", 0].append([b"\0\0\0\0\x07\x02", b"\0\0\0\0\x08\x04\x04ab", b"?"])
        directories["refunds", 1].append([b"\0\0\0\0\x08\x06\x02c"])
    return path


DECODED: list[dict[str, Any]] = [
    {"decoded": {"cents": 1, "why": ""}, "decodeError": None},
    {"decoded": {"cents": 2, "why": "ab"}, "decodeError": None},
    {"decoded": None, "decodeError": "its bytes name no schema"},
    {"decoded": {"cents": 3, "why": "c"}, "decodeError": None},
]


def test_a_whole_topic(refunds: Path) -> None:
    with kafkafs.open(refunds) as d:
        table = d.scan("refunds", decode=True).read_all()
        assert table.select(["decoded", "decodeError"]).to_pylist() == DECODED
        assert table.drop(["decoded", "decodeError"]).equals(d.scan("refunds").read_all())
        assert d["refunds", 1].scan(decode=True).read_all().equals(table.slice(3))
        frame = pl.from_arrow(d.scan("refunds", columns=["decoded"], decode=True))
    assert isinstance(frame, pl.DataFrame)
    assert frame.drop_nulls().unnest("decoded").columns == ["cents", "why"]


def test_only_the_columns_that_are_asked_for(refunds: Path) -> None:
    with kafkafs.open(refunds) as d:
        found = d["refunds", 0].scan(columns=["decoded", "offset"], decode=True).read_all()
        assert found.schema.names == ["decoded", "offset"]
        assert found["offset"].to_pylist() == [0, 1, 2]
        alone = d["refunds", 0].scan(columns=["decodeError"], decode=True).read_all()
        assert alone["decodeError"].to_pylist() == [None, None, "its bytes name no schema"]
        with pytest.raises(ValueError, match=r"no column 'decoded'; .*; others with decode=True"):
            d["refunds", 0].scan(columns=["decoded"])


def test_a_given_schema(refunds: Path, tmp_path: Path) -> None:
    wrong: Any = 3
    file = tmp_path / "refund.avsc"
    file.write_text(json.dumps({**REFUND, "fields": REFUND["fields"][1:]}))
    with kafkafs.open(refunds) as d:
        [old, _] = d.schemas("refunds-value")
        for given in (old, old.schema):
            found = d.scan("refunds", columns=["decoded"], decode=given).read_all()
            assert found["decoded"][1].as_py() == {"cents": 2}
        found = d.scan("refunds", columns=["decoded"], decode=file).read_all()
        assert found["decoded"].to_pylist() == [{"why": ""}, {"why": "ab"}, None, {"why": "c"}]
        with pytest.raises(TypeError, match="decode must be True, the path of a file"):
            d.scan("refunds", decode=wrong)


def test_data_without_a_registry(tmp_path: Path) -> None:
    file = tmp_path / "refund.avsc"
    file.write_text(json.dumps(REFUND))
    with kafkafs.open(tmp_path / "data", writable=True) as d:
        d.create_topic("refunds")
        d["refunds", 0].append([b"\x04\x04ab", b"\0\0\0\0\x63\x04\x04ab"])
        found = d.scan("refunds", decode=str(file), columns=["decoded"]).read_all()
        assert found["decoded"].to_pylist() == [{"cents": 2, "why": "ab"}] * 2
    configs = {"kafkafs.schemas": f"refunds={file}"}
    with kafkafs.open(tmp_path / "data", configs=configs) as d:
        found = d.scan("refunds", decode=True, columns=["decoded"]).read_all()
        assert found["decoded"].to_pylist() == [{"cents": 2, "why": "ab"}] * 2


def test_keys_have_columns_of_their_own(schemas: kafkafs.LogDirectories) -> None:
    table = schemas.scan("s-keyed", decode=True).read_all()
    assert table["decodedKey"][0].as_py() == {"region": "fjord", "no": -20}
    assert table["decodeKeyError"].null_count == 30
    assert set(table["decodeError"].to_pylist()) == {None, "long does not fit string"}


def test_a_topic_without_a_schema_says_what_to_do(schemas: kafkafs.LogDirectories) -> None:
    with pytest.raises(kafkafs.SchemaError, match=r"^topic s-hard: .*: s-hard=FILE$"):
        schemas["s-hard", 0].scan(decode=True)


def test_the_newest_version_is_that_of_the_time(corpus: Corpus) -> None:
    path = corpus("schemas43")
    with kafkafs.open(path, at=0) as then, pytest.raises(kafkafs.SchemaError):
        then.scan("s-avro", decode=True)


def test_what_compaction_would_retain(refunds: Path) -> None:
    with kafkafs.open(refunds) as d:
        table = d["refunds", 0].compacted().scan(decode=True).read_all()
    assert table.select(["decoded", "decodeError"]).to_pylist() == DECODED[:3]


def test_duckdb_has_the_columns_where_there_is_a_schema(refunds: Path) -> None:
    connection = duckdb.connect()
    with kafkafs.duckdb.register(connection, refunds):
        query = "SELECT sum(decoded.cents), count(decodeError) FROM refunds WHERE partition = 0"
        assert connection.execute(query).fetchall() == [(3, 1)]
        query = "SELECT \"offset\" FROM refunds WHERE decoded.why = 'c'"
        assert connection.execute(query).fetchall() == [(0,)]
        columns = [row[0] for row in connection.execute("DESCRIBE plain").fetchall()]
    assert "decoded" not in columns


def test_duckdb_reads_each_column_of_the_corpus(corpus: Corpus) -> None:
    connection = duckdb.connect()
    with kafkafs.duckdb.register(connection, corpus("schemas43")) as d:
        found = connection.sql('SELECT * FROM "s-avro"').to_arrow_table()
        assert found["decodeError"].null_count == found.num_rows == 125
        for topic in d.topics:
            [(count,)] = connection.execute(f'SELECT count(*) FROM "{topic}"').fetchall()
            assert count == d.scan(topic).read_all().num_rows
