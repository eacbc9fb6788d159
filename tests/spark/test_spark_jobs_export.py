"""Tests of export: every record complete in each file format; restarts; damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import kafkafs
from kafkafs.cli.main import cli
from kafkafs.spark import jobs
from kafkafs.spark.jobs import Report
from kafkafs.storage.errors import OtherJob
from kafkafs.storage.format.layout import TimestampType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.operations.transfer.record_files import SCHEMA
from kafkafs.storage.operations.transfer.record_reading import read_file
from kafkafs.storage.operations.transfer.request import FORMATS
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import write_log_dir, write_partition
from tests.readme import ROOT
from tests.spark.cluster import JOB_SECONDS
from tests.waiting import wait_until

Corpus = Callable[[str], Path]

DAY = 86_400_000
TIME = 1_700_000_000_000
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def made(root: Path) -> Path:
    """Writes a partition with every kind of content that a record may have."""
    records = [
        SimpleRecord(TIME, None, None),
        SimpleRecord(TIME + DAY, b"", b"", [("a", None), ("a", b"\xff"), ("", b"")]),
        SimpleRecord(-1, b"\x00\xff", 'ü\n"'.encode()),
        SimpleRecord(TIME, b"k", b"v", [("h", b"1")]),
    ]
    appended = BatchFields(
        base_offset=9, max_timestamp=TIME + 2 * DAY, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    batches = [build_batch(records, BatchFields()), build_batch(records[:1], appended)]
    write_partition(root / "t-0", batches)
    write_log_dir(root, {("t", 0): 10})
    return root


def exported(output: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Returns the exported records of each partition by offset."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for path in sorted(output.glob("topic=*/date=*/[!.]*")):
        topic, date = (part.name.split("=")[1] for part in (path.parent.parent, path.parent))
        for batch in read_file(DirFd(str(path.parent)).open(path.name)):
            assert batch.schema == SCHEMA
            table = batch.set_column(4, "timestamp", batch.column("timestamp").cast("int64"))
            for row in table.to_pylist():
                row["date"] = date
                found.setdefault((topic, row["partition"]), []).append(row)
    for rows in found.values():
        rows.sort(key=lambda row: int(row["offset"]))
    return found


@pytest.mark.spark
@pytest.mark.parametrize("format", FORMATS)
def test_nothing_of_a_record_is_lost(spark: SparkSession, tmp_path: Path, format: Any) -> None:
    report = jobs.export(spark, str(made(tmp_path / "in")), str(tmp_path / "out"), format=format)
    assert (report.exit_code, report.totals["records"]) == (0, 5)
    rows = exported(tmp_path / "out")["t", 0]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 9]
    assert [row["timestamp"] for row in rows] == [TIME, TIME + DAY, None, TIME, TIME + 2 * DAY]
    assert [row["timestampType"] for row in rows] == [0, 0, 0, 0, 1]
    assert [row["key"] for row in rows] == [None, b"", b"\x00\xff", b"k", None]
    assert [row["value"] for row in rows] == [None, b"", 'ü\n"'.encode(), b"v", None]
    headers = [[(h["key"], h["value"]) for h in row["headers"]] for row in rows]
    assert headers == [[], [("a", None), ("a", b"\xff"), ("", b"")], [], [("h", b"1")], []]
    none = "__HIVE_DEFAULT_PARTITION__"
    days = ["2023-11-14", "2023-11-15", none, "2023-11-14", "2023-11-16"]
    assert [row["date"] for row in rows] == days


@pytest.mark.spark
def test_every_record_of_a_broker(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    report = jobs.export(spark, str(corpus("kafka43-clean")), str(tmp_path))
    assert report.exit_code == 0
    rows = exported(tmp_path)
    for topic, partition in answers.partitions_with_records("kafka43-clean"):
        answer = list(answers.records("kafka43-clean", topic, partition, answers.READ_UNCOMMITTED))
        found = rows.pop((topic, partition), [])
        if topic.startswith("__"):
            assert found == []
            continue
        assert [row["offset"] for row in found] == [each.offset for each in answer]
        for row, each in zip(found, answer, strict=True):
            assert (row["key"], row["value"]) == (each.key, each.value)
            assert row["timestamp"] == (None if each.timestamp == -1 else each.timestamp)
            assert row["timestampType"] == TYPES[each.timestamp_type]
            assert tuple((h["key"], h["value"]) for h in row["headers"]) == each.headers
    assert rows == {}
    read = spark.read.parquet(str(tmp_path))  # other files are skipped
    assert read.count() == report.totals["records"]
    assert {"topic", "date"} <= set(read.columns)


@pytest.mark.spark
def test_started_again_it_goes_on(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    source, output = str(corpus("kafka43-clean")), tmp_path / "out"
    settings: dict[str, Any] = {"topics": [("orders", None)], "format": "jsonl"}
    whole = jobs.export(spark, source, str(output), **settings)
    before = exported(output)
    # As after a kill: some ranges have no note, one has its file, another half of it.
    (output / "_SUCCESS").unlink()
    notes = sorted((output / "_kafkafs").glob("unit-*"))
    files = []
    for note in notes[::2]:
        files += json.loads(note.read_text())["files"]
        note.unlink()
    (output / files[0]["path"]).write_text("torn")
    leftover = (output / files[0]["path"]).with_name(".part-00000-x.jsonl.1-2.tmp")
    leftover.write_text("half")
    again = jobs.export(spark, source, str(output), **settings)
    assert again.skipped == len(notes) - len(notes[::2])
    assert again.rows == whole.rows
    assert exported(output) == before
    assert not leftover.exists()
    assert (output / "_SUCCESS").exists()
    with pytest.raises(OtherJob, match="different isolation"):
        jobs.export(spark, source, str(output), **settings, isolation="read_committed")


@pytest.mark.spark
def test_begun_with_spark_and_continued_without_and_back(
    spark: SparkSession, corpus: Corpus, tmp_path: Path
) -> None:
    """`kafkafs export` and the job have the same units, files and notes; Spark reads the table. So
    have the imports."""
    source, output = str(corpus("kafka43-clean")), tmp_path / "out"
    whole = jobs.export(spark, source, str(output), by="hour")
    before = sorted(path.relative_to(output) for path in output.rglob("part-*"))
    for begin, go_on in (("spark", "kafkafs"), ("kafkafs", "spark")):
        if begin == "kafkafs":
            shutil.rmtree(output)
            kafkafs_verb(source, output, "--isolation", "read_uncommitted")
        notes = sorted((output / "_kafkafs").glob("unit-*"))
        for note in notes[::3]:
            note.unlink()
        (output / "_SUCCESS").unlink()
        if go_on == "kafkafs":
            lines = kafkafs_verb(source, output)
            assert f"{len(notes) - len(notes[::3])} of {len(notes)} parts were already" in lines
        else:
            again = jobs.export(spark, source, str(output), by="hour")
            assert (again.skipped, again.rows) == (len(notes) - len(notes[::3]), whole.rows)
        assert sorted(path.relative_to(output) for path in output.rglob("part-*")) == before
    read = spark.read.parquet(str(output))
    assert {"topic", "date", "hour"} <= set(read.columns)
    assert read.count() == whole.totals["records"]
    orders = read.where("topic = 'orders' and partition = 1 and offset >= 100")
    assert orders.count() == sum(
        each.offset >= 100
        for each in answers.records("kafka43-clean", "orders", 1, answers.READ_UNCOMMITTED)
    )


def kafkafs_verb(source: str, output: Path, *options: str) -> str:
    words = ["export", source, "-o", str(output), "--by", "hour", *options]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.spark
def test_as_of_a_time(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    """Exports what there was then, also when it is repeated, and not into an export of now."""
    source, output = str(corpus("kafka43-clean")), str(tmp_path)
    settings: dict[str, Any] = {"topics": [("orders", None)], "format": "jsonl"}
    then = "2026-09-03"
    for skipped in (0, 3):
        report = jobs.export(spark, source, output, **settings, at=then)
        assert (report.exit_code, report.skipped) == (0, skipped)
    rows = exported(tmp_path)
    with kafkafs.open(source, at=then) as past:
        ends = {number: past["orders", number].end_offset for number in range(3)}
    assert {number: len(rows["orders", number]) for number in ends} == ends
    assert {row["partition"]: row["endOffset"] for row in report.rows} == ends
    for other in (None, "2026-09-04"):
        with pytest.raises(OtherJob, match="different at"):
            jobs.export(spark, source, output, **settings, at=other)


@pytest.mark.spark
def test_a_finished_one_goes_on_with_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"

    def grow(ends: dict[tuple[str, int], int]) -> Report:
        for (topic, partition), end in ends.items():
            batches = [
                build_batch([SimpleRecord(TIME, b"k", b"v")], BatchFields(base_offset=at))
                for at in range(end)
            ]
            write_partition(source / f"{topic}-{partition}", batches)
        write_log_dir(source, ends)
        return jobs.export(spark, str(source), str(output))

    grow({("t", 0): 5})
    same = grow({("t", 0): 5})
    assert (same.units, same.skipped) == (1, 1)
    more = grow({("t", 0): 9, ("t", 1): 3, ("u", 0): 2})
    assert (more.units, more.skipped) == (4, 1)
    rows = {key: [row["offset"] for row in found] for key, found in exported(output).items()}
    assert rows == {("t", 0): [*range(9)], ("t", 1): [0, 1, 2], ("u", 0): [0, 1]}
    assert (output / "_SUCCESS").exists()


@pytest.mark.spark
def test_a_driver_that_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Finished units are kept; the executor exits with the driver, whatever it is writing."""
    source, output = tmp_path / "in", tmp_path / "out"
    batches = [
        build_batch([SimpleRecord(TIME + at, b"k", b"%d" % at)], BatchFields(base_offset=at))
        for at in range(2000)
    ]
    for partition in range(30):
        write_partition(source / f"t-{partition}", batches)
    write_log_dir(source, {("t", partition): 2000 for partition in range(30)})
    script = (
        "import sys; from pyspark.sql import SparkSession\n"
        "from kafkafs.spark import jobs\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "jobs.export(spark.getOrCreate(), *sys.argv[1:], format='jsonl')\n"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", script, str(source), str(output)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: len(list(output.glob("_kafkafs/unit-*"))) >= 2 or started.poll() is not None,
            seconds=JOB_SECONDS,
        )
        assert started.poll() is None
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    finished = len(list(output.glob("_kafkafs/unit-*")))
    assert 2 <= finished < 30
    report = jobs.export(spark, str(source), str(output), format="jsonl")
    assert finished <= report.skipped < 30
    rows = exported(output)
    assert len(rows) == 30
    expected = [b"%d" % at for at in range(2000)]
    assert all([row["value"] for row in found] == expected for found in rows.values())


@pytest.mark.spark
def test_damage_is_left_out_and_told(spark: SparkSession, corpus: Corpus, tmp_path: Path) -> None:
    source = str(corpus("kafka43-torn"))
    report = jobs.export(spark, source, str(tmp_path / "strict"), [("crash-txn", 0)])
    (wrong,) = report.wrong
    assert (report.exit_code, wrong["position"]) == (1, 10401)
    assert "are not exported" in wrong["what"]
    assert not (tmp_path / "strict" / "_SUCCESS").exists()
    report = jobs.export(
        spark, source, str(tmp_path / "permissive"), [("crash-txn", 0)], permissive=True
    )
    (wrong,) = report.wrong
    assert (wrong["firstOffset"], wrong["position"]) == (2873, 10401)
    rows = exported(tmp_path / "permissive")["crash-txn", 0]
    assert {2872, 2881} & {row["offset"] for row in rows} or rows[-1]["offset"] > 2881
