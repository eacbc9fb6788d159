"""Tests of writing with Spark: the resulting logs, rejected input, and cleanup after failures; a
real broker continues with the result."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from glob import glob
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.write.job_names import is_stale, new_job
from kafkafs.spark.write.write_options import WriteOptions
from kafkafs.spark.write.writing import (
    Target,
    TaskWriter,
    _grouped,
    commit,
    remove_job,
    remove_stale,
)
from kafkafs.storage.errors import UnknownTopic
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.ingest.commit_file import COMMIT_FILE, IngestWrite
from kafkafs.storage.ingest.staging import StagingPlace, staging_path
from kafkafs.storage.log_manager import LogManager
from tests.answers import READ_UNCOMMITTED
from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.crash.checks import complaints
from tests.reading import Plain, read
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
#: Where fsync costs nothing; None if it cannot be used.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
HEADERS = "array(named_struct('key', 'h', 'value', cast('x' as binary)))"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    with LogManager(str(path)) as engine:
        engine.create_topic("t", 3, {"internal.segment.bytes": "20000"})
    return path


@pytest.fixture
def nothing_staged(log_dir: Path) -> Iterator[None]:
    yield
    assert not Path(staging_path(str(log_dir))).exists()


def write(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("kafkafs").options(**options).mode("append").save(str(path))


def records(path: Path, topic: str = "t") -> dict[int, list[Plain]]:
    """Returns the records by partition; asserts that the directory has no faults."""
    with LogManager(str(path)) as engine:
        assert complaints(engine) == []
        return {n: read(engine.log(topic, n).view()) for n in engine.topics().get(topic, [])}


def target_of(log_dir: Path) -> Target:
    """Returns the target of a new job that writes to `t`."""
    return Target(
        log_dirs=(str(log_dir),),
        configs={},
        staging_dir=None,
        job=new_job(),
        topic="t",
        create_topics=None,
        unregistered=False,
        plan=BatchPlan(),
        ignore_keys=False,
    )


def values(path: Path, topic: str = "t") -> list[str]:
    return [(r.value or b"").decode() for some in records(path, topic).values() for r in some]


def refused(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.write.format("kafkafs").options(**options).mode(mode).save(str(path))
    return str(caught.value)


@pytest.mark.usefixtures("nothing_staged")
def test_what_was_written_is_what_is_read(spark: SparkSession, log_dir: Path) -> None:
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "cast(id as string) as key",
        "if(id % 7 = 0, null, concat('v', id)) as value",
        "if(id % 3 = 0, 2, null) as partition",
        f"if(id % 2 = 0, {HEADERS}, null) as headers",
        "timestamp_millis(1700000000000 + id) as timestamp",
    )
    write(frame, log_dir, topic="t", **{"kafka.compression.type": "lz4"})
    back = spark.read.format("kafkafs").option("includeHeaders", "true").load(str(log_dir))
    columns = ("cast(key as string) key", "cast(value as string) value", "headers", "timestamp")
    wanted = frame.selectExpr(*columns).toArrow().to_pylist()
    found = back.orderBy("timestamp").selectExpr(*columns).toArrow().to_pylist()
    assert found == wanted
    by_partition = records(log_dir)
    assert sum(map(len, by_partition.values())) == 3000
    for some in by_partition.values():
        keys = [int(record.key or b"-1") for record in some]
        assert keys == sorted(keys)  # tasks follow one another, with their rows in order
    assert {int(r.key or b"") for r in by_partition[2]} >= set(range(0, 3000, 3))


def test_paths_that_are_no_log_directories(spark: SparkSession, tmp_path: Path) -> None:
    """A write may create topics, but no log directory."""
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    missing, plain = tmp_path / "missing", tmp_path / "plain"
    plain.mkdir()
    (tmp_path / "file").touch()
    errors = {
        missing: f"{missing}: no such directory",
        missing / "below": f"{missing}/below: no such directory",
        tmp_path / "miss*": f"{tmp_path}/miss*: no directory matches",
        plain: f"{plain}: not a Kafka log directory",
        tmp_path / "file": f"{tmp_path}/file: ",
    }
    for path, why in errors.items():
        for options in ({}, {"createTopics": "2"}):
            answer = refused(frame, path, topic="t", **options)
            assert why in answer
            assert "was removed" not in answer
    stream = spark.readStream.format("rate").load().selectExpr("'v' as value")
    options = {"topic": "t", "checkpointLocation": f"{tmp_path}/c"}
    writing = stream.writeStream.format("kafkafs").options(**options)
    with pytest.raises(PySparkException, match=re.escape(f"{missing}: no such directory")):
        writing.start(str(missing)).awaitTermination()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "c") == ["file", "plain"]
    assert not list(plain.iterdir())


@pytest.mark.usefixtures("nothing_staged")
def test_topics_of_rows_and_a_missing_topic(spark: SparkSession, log_dir: Path) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "concat('v', id) as value", "if(id % 2 = 0, 't', 'new') as topic"
    )
    assert "new" in refused(frame, log_dir)
    assert values(log_dir) == []
    write(frame, log_dir, createTopics="2")
    assert len(values(log_dir)) == 50
    assert {n: len(some) for n, some in records(log_dir, "new").items()} == {0: 25, 1: 25}
    write(frame, log_dir, topic="t")  # the option overrides the column
    assert len(values(log_dir)) == 150


def test_topics_that_a_cluster_does_not_know(
    spark: SparkSession, writable_corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    """Rejected before any task runs if the option names the topic, else in the task."""
    data = writable_corpus("kafka43-crash-recovered")
    before = sorted(path.name for path in data.iterdir())
    beside = sorted(path.name for path in tmp_path.iterdir())
    rows = spark.range(0, 40, 1, 2).selectExpr("cast(id as string) as value", "'new' as topic")
    failing = rows.selectExpr("cast(raise_error('a task ran') as string) as value")
    why = refused(failing, data, topic="new", createTopics="2")
    assert "belongs to a KRaft cluster" in why
    assert "the option unregistered=true" in why
    assert "a task ran" not in why
    why = refused(rows, data, createTopics="2", unregistered="false")
    assert "belongs to a KRaft cluster" in why
    stream = spark.readStream.format("rate").load().selectExpr("'v' as value")
    streamed = {"topic": "new", "createTopics": "2", "checkpointLocation": f"{tmp_path}/c"}
    with pytest.raises(PySparkException, match="belongs to a KRaft cluster"):
        stream.writeStream.format("kafkafs").options(**streamed).start(str(data)).awaitTermination()
    shutil.rmtree(tmp_path / "c")
    assert sorted(path.name for path in data.iterdir()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == beside
    write(rows, data, topic="new", createTopics="2", unregistered="true")
    assert sorted(records(data, "new")) == [0, 1]
    assert len(values(data, "new")) == 40
    write(rows, data, createTopics="1")  # the topic already exists
    assert len(values(data, "new")) == 80


def test_a_topic_that_cannot_be_made_is_refused_before_a_task_runs(
    spark: SparkSession, log_dir: Path
) -> None:
    with LogManager(str(log_dir)) as engine:
        engine.create_topic("a_b")
    failing = spark.range(3).selectExpr("cast(raise_error('a task ran') as string) as value")
    why = refused(failing, log_dir, topic="a.b", createTopics="1")
    assert "a_b" in why
    assert "a task ran" not in why


def test_what_is_refused(spark: SparkSession, log_dir: Path) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    assert "topic option required when no 'topic' attribute is present" in refused(frame, log_dir)
    null = frame.selectExpr("value", "cast(null as string) as topic")
    assert "null topic present in the data" in refused(null, log_dir)
    keys = frame.selectExpr("value as key")
    assert "Required attribute 'value' not found" in refused(keys, log_dir, topic="t")
    numbers = frame.selectExpr("cast(value as int) as value")
    assert "value attribute unsupported type int" in refused(numbers, log_dir, topic="t")
    far = frame.selectExpr("value", "3 as partition")
    assert "partition 3 of t: it has partitions 0 to 2" in refused(far, log_dir, topic="t")
    assert "option mode: overwrite" in refused(frame, log_dir, "overwrite", topic="t")
    assert "Ignore" in refused(frame, log_dir, "ignore", topic="t")
    assert "option acks: there is no such option" in refused(frame, log_dir, topic="t", acks="1")
    with LogManager(str(log_dir)):
        assert "has it locked" in refused(frame, log_dir, topic="t")
    assert values(log_dir) == []
    assert not list(Path(staging_path(str(log_dir))).glob("*"))


@pytest.mark.usefixtures("nothing_staged")
def test_what_is_large_is_taken_as_it_is_and_what_is_small_is_joined(
    spark: SparkSession, log_dir: Path
) -> None:
    """One task writes 38 MiB per partition, then each of two tasks 2 MiB per partition."""
    value = "concat(id, ':', repeat('x', 100)) as value"
    for rows, tasks in ((700_000, 1), (80_000, 2)):
        frame = spark.range(0, rows, 1, tasks).selectExpr(value)
        write(frame, log_dir, topic="large", createTopics="2")
    sizes = [[path.stat().st_size >> 20 for path in segments(log_dir, each)] for each in range(2)]
    assert sizes == [[38, 4], [39, 4]]  # the later half of the numbers has more digits
    with LogManager(str(log_dir)) as engine:
        assert complaints(engine) == []
    there = spark.read.format("kafkafs").option("subscribe", "large").load(str(log_dir))
    found = there.selectExpr(
        "count(*)", "count(distinct value)", "count(distinct partition, offset)"
    )
    assert tuple(found.first() or ()) == (780_000, 700_000, 780_000)


def segments(path: Path, partition: int) -> list[Path]:
    return sorted((path / f"large-{partition}").glob("*.log"))


def test_a_numbered_write_of_a_batch_is_done_once(spark: SparkSession, log_dir: Path) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) as value")
    for _ in range(2):
        write(frame, log_dir, topic="t", queryId="q", epoch="5")
    assert len(values(log_dir)) == 10


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("nothing_staged")
def test_a_repeated_epoch_of_a_stream_is_written_once(
    spark: SparkSession, log_dir: Path, tmp_path: Path
) -> None:
    """The driver crashes between the commit and Spark's record of it."""
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        source = spark.readStream.format("kafkafs").option("startingOffsets", "earliest")
        frame = source.option("subscribe", "t").load(str(log_dir)).selectExpr("key", "value")
        query = (
            frame.writeStream.format("kafkafs")
            .options(topic="copy", createTopics="2", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start(str(log_dir))
        )
        assert query.awaitTermination(300)

    write(spark.range(500).selectExpr("cast(id as string) as value"), log_dir, topic="t")
    run()
    assert len(values(log_dir, "copy")) == 500
    shutil.rmtree(checkpoint / "commits")
    run()
    assert Counter(Counter(values(log_dir, "copy")).values()) == {1: 500}
    write(spark.range(500, 600).selectExpr("cast(id as string) as value"), log_dir, topic="t")
    run()
    assert Counter(Counter(values(log_dir, "copy")).values()) == {1: 600}
    assert '"epoch":1' in (log_dir / COMMIT_FILE).read_text()
    assert [len(list(log_dir.glob(f"copy-{number}/*.log"))) for number in range(2)] == [1, 1]


@pytest.mark.timeout(900)
def test_killed_workers_and_a_killed_driver_leave_no_trace(
    spark: SparkSession, log_dir: Path, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with open(scratch / "output", "wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.writing_driver", log_dir, scratch],
            cwd=ROOT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        staged = Path(staging_path(str(log_dir)))

        def is_waiting() -> bool:
            assert driver.poll() is None, (scratch / "output").read_text()[-4000:]
            first = glob(f"{staged}/*/0-*/t-*/*.timeindex.cleaned")
            return (scratch / "waiting").exists() and len(first) > 0

        wait_until(is_waiting, seconds=300)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert (scratch / "killed").exists()
    assert (scratch / "written").exists()
    assert sorted(map(int, values(log_dir))) == list(range(20_000))
    write(spark.range(1).selectExpr("'x' as value"), log_dir, topic="t")
    assert not staged.exists()
    assert len(values(log_dir)) == 20_001


@pytest.mark.timeout(900)
def test_a_broker_goes_on_with_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    broker.start()
    frame = spark.range(0, 2000, 1, 2).selectExpr(
        "cast(id as string) as key", "concat('v', id) as value", f"{HEADERS} as headers"
    )
    try:
        driver = Driver(broker.bootstrap, tmp_path / "driver.log")
        driver.create_topic("t", 3)
        driver.produce("t", [Message(b"k", b"before", 1_700_000_000_000)], partition=1)
        driver.close()
        assert "has it locked" in refused(frame, broker.log_dir, topic="t")
        broker.stop()
        write(frame, broker.log_dir, topic="t", **{"kafka.compression.type": "zstd"})
        broker.start()
        driver = Driver(broker.bootstrap, tmp_path / "driver2.log")
        driver.produce("t", [Message(b"k", b"behind", 1_700_000_000_000)], partition=1)
        written = [r for n in range(3) for r in driver.records("t", n, READ_UNCOMMITTED)]
        driver.close()
        broker.stop()
    finally:
        broker.close()
    found = Counter((record.value or b"").decode() for record in written)
    assert found == Counter([*(f"v{n}" for n in range(2000)), "before", "behind"])
    assert sorted(values(broker.log_dir)) == sorted(found)


# -- without Spark -------------------------------------------------------------------------------


def test_options() -> None:
    given = {"path": "/a,/b", "TOPIC": "t", "kafka.compression.type": "zstd", "kafka.acks": "all"}
    options = WriteOptions.parse({**given, "kafka.compression.zstd.level": "5"})
    assert (options.paths, options.topic, options.codec, options.level) == (
        ("/a", "/b"),
        "t",
        Codec.ZSTD,
        5,
    )


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("subscribe", "t", "no such option"),
        ("topic", "a/b", "cannot be a topic's name"),
        ("kafka.key.serializer", "x", "as in Spark's Kafka sink"),
        ("kafka.transactional.id", "x", "not supported"),
        ("stagingDir", "here", "not an absolute path"),
        ("stagingDir", "s3a://bucket/x", "a URL of the scheme s3a"),
        ("path", "s3a://bucket/x", "a URL of the scheme s3a"),
        ("createTopics", "0", "at least 1"),
        ("queryId", "q", "option queryId: needs the option epoch"),
    ],
)
def test_options_that_are_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        WriteOptions.parse({"path": "/data", name: value})


def test_jobs_of_the_living_and_the_dead(tmp_path: Path) -> None:
    job = new_job()
    random, machine, boot, pid, started = job.split("@")
    assert not is_stale(job, 0)
    assert is_stale("@".join((random, machine, boot, pid, str(int(started) + 1))), 0)
    assert is_stale("@".join((random, machine, "0-0", pid, started)), 0)
    elsewhere = "@".join((random, "elsewhere", boot, pid, started))
    assert is_stale(elsewhere, 0)
    assert not is_stale(elsewhere, 1 << 50)
    assert not is_stale("somebody's", 0)
    staging = StagingPlace(str(tmp_path / "kafkafs-staging"))
    staging.attempt(job, "0-0")
    assert staging.stale(is_stale) == []


@given(st.lists(st.integers(0, 6), max_size=40))
@example([2, 2, 3, 3, 0, 1])  # runs
@example([0, 1, 0])
@example([5, 0])
def test_rows_are_grouped_by_their_numbers(numbers: list[int]) -> None:
    rows = np.arange(len(numbers))
    found = {
        number: (rows if some is None else rows[some]).tolist()
        for number, some in _grouped(np.array(numbers, dtype=np.int64))
    }
    wanted: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        wanted.setdefault(number, []).append(row)
    assert found == wanted


def test_small_batches_of_a_stream_continue_the_active_segment() -> None:
    """101 batches, each staged by two tasks, as Spark calls them; every tenth is repeated."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        log_dir = Path(path) / "logs"
        with LogManager(str(log_dir)) as engine:
            engine.create_topic("t", 3, {"internal.segment.bytes": "20000"})
        check_small_batches(log_dir)
        assert not Path(staging_path(str(log_dir))).exists()


def check_small_batches(log_dir: Path) -> None:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])
    expected: dict[int, list[bytes]] = {number: [] for number in range(3)}
    for batch in range(101):
        for _ in range(2 if batch % 10 == 0 else 1):
            target, parts = target_of(log_dir), []
            for task in range(2):
                rows = [[b"k"] * 6, [b"%d:%d:%d" % (batch, task, i) for i in range(6)]]
                columns = [*rows, [i % 3 for i in range(6)]]
                frame = pa.record_batch(columns, schema=schema)
                parts += TaskWriter(target, task, f"{task}-0").write([frame])
            commit(target, IngestWrite("query", batch), parts, [target.job])
        for number in range(3):
            expected[number] += [
                b"%d:%d:%d" % (batch, task, i) for task in range(2) for i in (number, number + 3)
            ]
    found = records(log_dir)
    assert {n: [each.value for each in some] for n, some in found.items()} == expected
    assert all(len(list((log_dir / f"t-{n}").glob("*.log"))) <= 2 for n in range(3))


def test_nothing_staged_is_removed_while_the_commit_records_cannot_be_read(log_dir: Path) -> None:
    """The job may be committed; then the next opening for writing needs the staged files."""
    target = target_of(log_dir)
    attempt = Path(target.place_of(str(log_dir)).attempt(target.job, "0-0-0").path)
    (attempt / "part").write_bytes(b"records")
    records = log_dir / COMMIT_FILE
    records.write_bytes(b"damaged")
    remove_job(target, target.job)
    assert (attempt / "part").read_bytes() == b"records"
    records.unlink()
    records.mkdir()  # reading it raises OSError, or the engine's error for it
    remove_job(target, target.job)
    assert (attempt / "part").read_bytes() == b"records"
    records.rmdir()
    remove_job(target, target.job)
    assert not Path(staging_path(str(log_dir))).exists()


def test_staged_files_of_another_user_are_reported(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit succeeds, and so does the next write, which also removes what it can."""

    def remove(staging: StagingPlace, job: str) -> None:
        if job == target.job:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), job)
        original(staging, job)

    target, original = target_of(log_dir), StagingPlace.remove
    monkeypatch.setattr(StagingPlace, "remove", remove)
    frame = pa.record_batch([[b"a", b"b"]], names=["value"])
    commit(target, IngestWrite("w", 0), TaskWriter(target, 0, "0-0").write([frame]), [target.job])
    assert sorted(values(log_dir)) == ["a", "b"]
    assert "run driver and tasks as the same user" in caplog.text

    later = target_of(log_dir)
    later.place_of(str(log_dir)).attempt("another", "0-0")
    caplog.clear()
    monkeypatch.setattr("kafkafs.spark.write.writing.is_stale", lambda job, changed_ms: True)
    remove_stale(later)
    assert caplog.text.count("staged files remain") == 1
    assert [path.name for path in Path(staging_path(str(log_dir))).iterdir()] == [target.job]


def test_the_last_task_that_fails_leaves_nothing(log_dir: Path) -> None:
    """The driver has already removed the job, because of another task."""
    target = replace(target_of(log_dir), topic=None)
    frame = pa.record_batch([[b"a", b"b"], ["t", "new"]], names=["value", "topic"])
    with pytest.raises(UnknownTopic):
        TaskWriter(target, 0, "0-0").write([frame])
    assert not Path(staging_path(str(log_dir))).exists()
