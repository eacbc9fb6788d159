"""Tests of import: it restores the exported records in every file format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kafkafs.cli.main import cli
from kafkafs.spark import jobs
from kafkafs.storage.errors import CorruptError, LogDirLocked, Refused, UnknownTopic, Unregistered
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.arrow import RECORD_SCHEMA, to_record_batch
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.import_batches import record_batches
from kafkafs.storage.operations.transfer.record_files import SCHEMA
from tests.spark.in_process import NO_SESSION, in_process
from tests.spark.test_spark_jobs_export import made
from tests.spark.test_spark_jobs_salvage import findings

__all__ = ["in_process"]

Corpus = Callable[[str], Path]
Key = tuple[str, int]


def records(
    where: Path | str, isolation: Isolation = Isolation.READ_COMMITTED
) -> dict[Key, pa.Table]:
    """Returns all that a consumer sees, except properties of batches; skips damage."""
    engine = Engine(str(where))
    found: dict[Key, pa.Table] = {}
    for topic, numbers in engine.topics().items():
        for number in numbers if not topic.startswith("__") else ():
            parts = [
                to_record_batch(part, topic, number)
                for part in engine.log(topic, number).view().scan(isolation=isolation)
                if isinstance(part, Columns)
            ]
            rows = pa.Table.from_batches(parts, RECORD_SCHEMA)
            if len(rows):
                found[topic, number] = _shown(rows)
    return found


def _shown(rows: pa.Table) -> pa.Table:
    # Format v0 has no timestamp type; in v2 a record without a timestamp has type CreateTime.
    column = rows.schema.get_field_index("timestampType")
    kinds = pc.max_element_wise(rows["timestampType"], 0)
    return rows.set_column(column, "timestampType", kinds)


def table(rows: list[tuple[int, int, int]]) -> pa.Table:
    """Returns a table of records with these offsets, timestamps and timestamp types."""
    made = [
        {
            "key": b"k",
            "value": b"%d" % offset,
            "partition": 0,
            "offset": offset,
            "timestamp": None if timestamp < 0 else timestamp,
            "timestampType": kind,
            "headers": [{"key": "h", "value": None}],
        }
        for offset, timestamp, kind in rows
    ]
    return pa.Table.from_pylist(made, SCHEMA)


# -- batches, without Spark ------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_offsets_and_times_of_batches(codec: Codec) -> None:
    rows = [(at, 1000 + at, 0) for at in range(100)]  # a separate run
    rows += [(at, -1, 0) for at in range(200, 1000, 7)]  # gaps
    rows += [(at, 5000, 1) for at in range(1000, 1050)]  # one append
    rows += [(at, 6000 + at // 4, 1) for at in range(1050, 1090)]  # many
    found: list[tuple[int, ...]] = []
    for first, last, data in record_batches(table(rows), codec):
        batches, _ = b.scan(bytes(data), len(data), 0, b.BatchTable.empty(1000), whole=True)
        found += [(each.base_offset, each.last_offset, each.record_count) for each in batches]
        assert {each.codec for each in batches} == {codec}
        assert (batches[0].base_offset, batches[-1].last_offset) == (first, last)
    assert sum(count for *_, count in found) == len(rows)
    assert [base for base, *_ in found] == sorted(base for base, *_ in found)
    assert found[-1][1] == rows[-1][0]
    assert len(found) < len(rows) / 4


# -- the job ---------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "format"),
    [("kafka43-clean", "parquet"), ("kafka43-clean", "jsonl"), ("kafka28", "arrow")],
)
def test_there_and_back(
    spark: SparkSession, corpus: Corpus, tmp_path: Path, name: str, format: Any
) -> None:
    source = corpus(name)
    jobs.export(
        spark, str(source), str(tmp_path / "out"), format=format, isolation="read_committed"
    )
    report = jobs.import_(spark, str(tmp_path / "in"), str(tmp_path / "out"))
    expected = records(source)
    assert records(tmp_path / "in") == expected
    assert report.totals["records"] == sum(map(len, expected.values()))
    assert findings(tmp_path / "in") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [".in.kafkafs-staging", "in", "out"]
    assert not list((tmp_path / ".in.kafkafs-staging").iterdir())


@pytest.mark.usefixtures("in_process")
def test_once_and_into_what_is_there(tmp_path: Path) -> None:
    source, output, target = made(tmp_path / "a"), tmp_path / "out", str(tmp_path / "in")
    jobs.export(NO_SESSION, str(source), str(output))
    with pytest.raises(UnknownTopic):
        jobs.import_(NO_SESSION, target, str(output), [("other", None)])
    first = jobs.import_(NO_SESSION, target, str(output), configs={"compression.type": "lz4"})
    again = jobs.import_(NO_SESSION, target, str(output))
    assert (first.skipped, again.skipped) == (0, again.units)
    assert records(tmp_path / "in") == records(source)
    # A deleted topic may be imported again, but not into existing records.
    with LogManager(target) as engine:
        engine.delete_topic("t")
    jobs.import_(NO_SESSION, target, str(output))
    assert records(tmp_path / "in") == records(source)
    with LogManager(target), pytest.raises(LogDirLocked):
        jobs.import_(NO_SESSION, target, str(output))
    other = tmp_path / "b"
    jobs.import_(NO_SESSION, str(other), str(output))
    (tmp_path / "moved").mkdir()
    output.rename(tmp_path / "moved" / "out")
    moved = jobs.import_(NO_SESSION, str(other), str(tmp_path / "moved" / "out"))
    assert moved.skipped == moved.units
    jobs.export(NO_SESSION, str(source), str(tmp_path / "second"))
    with pytest.raises(Refused, match="t-0 has offsets up to 9; the import begins at 0"):
        jobs.import_(NO_SESSION, str(other), str(tmp_path / "second"))


@pytest.mark.usefixtures("in_process")
def test_topics_that_a_cluster_does_not_know(
    tmp_path: Path, writable_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown topics are rejected before staging, and created with `--unregistered`."""
    output, data = tmp_path / "out", writable_corpus("kafka43-clean")
    jobs.export(NO_SESSION, str(made(tmp_path / "a")), str(output))
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with pytest.raises(Unregistered, match="belongs to a KRaft cluster"):
        jobs.import_(NO_SESSION, str(data), str(output))
    assert before == sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    monkeypatch.setattr("kafkafs.cli.verbs.spark.session", lambda *_: nullcontext(NO_SESSION))
    words = ["spark", "import", "--from", str(output), str(data)]
    refused = CliRunner().invoke(cli, words)
    assert refused.exit_code == 1
    assert "--unregistered" in refused.stderr
    done = CliRunner().invoke(cli, [*words, "--unregistered"])
    assert done.exit_code == 0, done.output
    key = ("t", 0)
    assert records(data)[key] == records(tmp_path / "a")[key]


@pytest.mark.usefixtures("in_process")
def test_partitions_that_a_cluster_does_not_know(tmp_path: Path, writable_corpus: Corpus) -> None:
    """Partitions that the cluster knows are not created, so they are not rejected."""
    output, data = tmp_path / "out", writable_corpus("kafka43-clean")
    jobs.export(NO_SESSION, str(data), str(output), [("orders", None)])
    with LogManager(str(data)) as engine:
        topic_id = engine.topic_id("orders")
    for number in range(3):
        shutil.rmtree(data / f"orders-{number}")
    with pytest.raises(Unregistered):
        jobs.import_(NO_SESSION, str(data), str(output))
    with LogManager(str(data)) as engine:
        engine.create_topic("orders", 3, topic_id=topic_id)
    jobs.import_(NO_SESSION, str(data), str(output))
    assert sum(len(rows) for key, rows in records(data).items() if key[0] == "orders") == 20_000


@pytest.mark.usefixtures("in_process")
def test_an_export_that_is_not_whole(tmp_path: Path) -> None:
    output, target = tmp_path / "out", tmp_path / "in"
    jobs.export(NO_SESSION, str(made(tmp_path / "a")), str(output))
    (note,) = (output / "_kafkafs").glob("unit-*")
    noted = json.loads(note.read_text())
    file = output / noted["files"][0]["path"]
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    with pytest.raises(Exception, match="not those that were exported"):
        jobs.import_(NO_SESSION, str(target), str(output))
    file.write_bytes(whole)
    note.write_text(json.dumps({**noted, "records": 4}))
    with pytest.raises(CorruptError, match="field records: 4 is not the number of rows"):
        jobs.import_(NO_SESSION, str(target), str(output))
    noted["files"][0]["rows"] -= 1
    note.write_text(json.dumps({**noted, "records": 4}))
    with pytest.raises(Exception, match="not the 4 records that were exported"):
        jobs.import_(NO_SESSION, str(target), str(output))
    note.unlink()
    with pytest.raises(CorruptError, match="the export is not finished"):
        jobs.import_(NO_SESSION, str(target), str(output))
    assert records(target) == {}
