"""Tests of topics that are recreated while a stream reads them, or between two of its runs.

They run without Spark, as in `test_spark_streaming_offsets.py`, except the last, real queries.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import kafkafs
from kafkafs import WritableLogDirectories
from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read.partition_offsets import (
    CheckpointError,
    PartitionOffsets,
    from_json,
    to_json,
)
from kafkafs.spark.read.planning import plan
from kafkafs.spark.read.reading import Reading
from kafkafs.spark.read.topic_ids import read_ids
from kafkafs.storage.errors import CorruptError, DataLoss
from kafkafs.storage.format.primitives import random_uuid_text
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.log_dir import PartitionDir
from kafkafs.storage.operations.range_reader import id_of
from tests.profiles import percent
from tests.spark import test_spark_streaming as with_spark
from tests.spark.test_spark_streaming_offsets import SCHEMA, SMALL, Query, append, logs

__all__ = ["logs"]

EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {**EARLIEST, "failOnDataLoss": "false"}
WITHOUT_IDS = {"checkpointTopicIds": "false"}


def recreate(logs: WritableLogDirectories, topic: str, count: int, partitions: int = 1) -> str:
    """Deletes the topic, creates it again with `count` records in partition 0; returns its id."""
    logs.delete_topic(topic)
    topic_id = logs.create_topic(topic, partitions)
    append(logs, topic, 0, count)
    return topic_id


def message(topic: str, old: str, new: str) -> str:
    return f"topic {topic} was deleted and created again: the topic id is {new} now, not {old}"


def metadata(path: Path, partition: str = "t-0") -> Path:
    return path / partition / "partition.metadata"


# -- in one query ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, WITHOUT_IDS])
@pytest.mark.parametrize("count", [3, 10, 25])
def test_the_next_batch_fails_and_names_both_ids(
    logs: WritableLogDirectories, tmp_path: Path, options: dict[str, str], count: int
) -> None:
    """The new topic has fewer, as many, or more records than were read."""
    old = logs.create_topic("t")
    logs.create_topic("u")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST, **options)
    assert query.batch() == 10
    new = recreate(logs, "t", count)
    with pytest.raises(DataLoss) as raised:
        query.batch()
    assert message("t", old, new) in str(raised.value)
    assert "Start a query with a checkpoint of its own" in str(raised.value)
    assert "failOnDataLoss to false to continue at the new topic's log start" in str(raised.value)
    assert query.found == {("t", 0): [*range(10)]}


@pytest.mark.parametrize("options", [{}, WITHOUT_IDS, {"maxOffsetsPerTrigger": "10"}])
@pytest.mark.parametrize("count", [3, 10, 25])
def test_without_failing_the_new_topic_is_read_from_its_start(
    logs: WritableLogDirectories,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    count: int,
) -> None:
    old = logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **LENIENT, **options)
    assert query.batch() == 10
    new = recreate(logs, "t", count)
    logs["t", 0].delete_records(2)
    logs.run("start-offsets")
    with caplog.at_level(logging.WARNING):
        for _ in range(1 + count):
            query.batch()
    if count == 10 and options == WITHOUT_IDS:
        # The two positions look the same to Spark until another record is appended.
        assert query.found == {("t", 0): [*range(10)]}
        append(logs, "t", 0, 1)
        query.batch()
        assert query.found == {("t", 0): [*range(10), *range(2, 11)]}
    else:
        assert query.found == {("t", 0): [*range(10), *range(2, count)]}
        assert message("t", old, new) in caplog.text
        assert "no longer exist" not in caplog.text


def test_as_many_offsets_as_a_batch_may_have_are_not_mistaken_for_none(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    """Without ids in the checkpoint, the positions before and after the batch would be equal."""
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **LENIENT, **WITHOUT_IDS, maxOffsetsPerTrigger="10")
    assert query.batch() == 10
    recreate(logs, "t", 30)
    query.begin()
    assert query.ends[-1] != query.ends[-2]
    assert query.finish() == 30


def test_created_again_when_a_batch_was_decided(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    """The records of the batch are lost, and the next batch reads the new topic."""
    old = logs.create_topic("t")
    append(logs, "t", 0, 10)
    for options in (EARLIEST, LENIENT):
        query = Query(tmp_path / "logs", **options)
        query.batch()
        append(logs, "t", 0, 5)
        query.begin()
        new = recreate(logs, "t", 25)
        if options is EARLIEST:
            with pytest.raises(DataLoss, match=message("t", old, new)):
                query.finish()
        else:
            assert query.finish() == 0
            assert query.batch() == 25
        old = new


def test_created_again_before_the_first_batch_is_done_again(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    old = logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST)
    query.begin()
    new = recreate(logs, "t", 25)
    query.restart()
    with pytest.raises(DataLoss, match=message("t", old, new)):
        query.finish()
    query.restart(failOnDataLoss="false")
    assert query.finish() == 0
    assert query.batch() == 25


def test_other_topics_go_on(logs: WritableLogDirectories, tmp_path: Path) -> None:
    for topic in ("t", "u"):
        logs.create_topic(topic)
        append(logs, topic, 0, 10)
    query = Query(tmp_path / "logs", **LENIENT)
    assert query.batch() == 20
    recreate(logs, "t", 25)
    append(logs, "u", 0, 3)
    assert query.batch() == 28
    assert query.found == {("t", 0): [*range(10), *range(25)], ("u", 0): [*range(13)]}


def test_more_partitions_are_no_other_topic(logs: WritableLogDirectories, tmp_path: Path) -> None:
    """Neither is a partition whose id the broker has not written yet."""
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST)
    assert query.batch() == 10
    logs.create_partitions("t", 3)
    metadata(tmp_path / "logs", "t-2").unlink()
    append(logs, "t", 1, 4)
    assert query.batch() == 4


# -- after a restart -------------------------------------------------------------------------------


def test_a_checkpoint_knows_the_topic(logs: WritableLogDirectories, tmp_path: Path) -> None:
    old = logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST)
    assert query.batch() == 10
    assert json.loads(query.ends[-1]) == {"t": {"0": 10}, ":topicIds": {"t": old}}
    new = recreate(logs, "t", 25)
    for _ in range(2):
        query.restart()
        with pytest.raises(DataLoss, match=message("t", old, new)):
            query.batch()
        query.ends = query.ends[:1]
    query.restart(failOnDataLoss="false")
    assert query.batch() == 25
    query.restart(failOnDataLoss="true")  # no error, the loss was skipped before
    append(logs, "t", 0, 1)
    assert query.batch() == 1
    assert query.found == {("t", 0): [*range(10), *range(26)]}


@pytest.mark.parametrize("options", [{}, WITHOUT_IDS])
def test_a_checkpoint_without_ids_is_taken_at_its_word(
    logs: WritableLogDirectories, tmp_path: Path, options: dict[str, str]
) -> None:
    """As a checkpoint of Spark's Kafka source is. After its first batch a query knows the ids."""
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST, **WITHOUT_IDS)
    assert query.batch() == 10
    assert json.loads(query.ends[-1]) == {"t": {"0": 10}}
    old = recreate(logs, "t", 25)
    query.restart(**{"checkpointTopicIds": "true", **options})
    assert query.batch() == 15  # the two topics are indistinguishable
    assert query.batch() == 0
    new = recreate(logs, "t", 35)
    with pytest.raises(DataLoss, match=message("t", old, new)):
        query.batch()


def test_a_query_that_has_seen_no_new_record_knows_the_ids(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    old = logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST, **WITHOUT_IDS)
    assert query.batch() == 10
    query.restart()
    assert query.batch() == 0
    new = recreate(logs, "t", 25)
    with pytest.raises(DataLoss, match=message("t", old, new)):
        query.batch()


def test_ids_are_left_out_of_what_goes_back_to_spark(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    """Holds even without new records: the different JSON causes another batch."""
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST)
    query.batch()
    query.restart(**WITHOUT_IDS)
    assert query.batch() == 0
    assert [json.loads(end) for end in query.ends[-1:]] == [{"t": {"0": 10}}]


# -- what tasks read -------------------------------------------------------------------------------


def test_a_task_does_not_read_another_topic(logs: WritableLogDirectories, tmp_path: Path) -> None:
    old = logs.create_topic("t")
    append(logs, "t", 0, 10)
    parsed = ReadOptions.parse({"path": str(tmp_path / "logs")})
    how = (parsed.paths, parsed.configs, parsed.isolation)
    (piece,) = plan(parsed.paths, parsed)
    assert piece.topic_id == old
    new = recreate(logs, "t", 25)
    with pytest.raises(DataLoss, match=f"t-0, offsets 0 to 9: {message('t', old, new)}. Read the"):
        list(Reading(*how, True, False).records([piece], SCHEMA))
    assert list(Reading(*how, False, False).records([piece], SCHEMA)) == []
    (piece,) = plan(parsed.paths, parsed)
    assert sum(map(len, Reading(*how, True, False).records([piece], SCHEMA))) == 25


@pytest.mark.parametrize("by", ["us", "hand"])
def test_a_task_stops_where_another_topic_begins(
    logs: WritableLogDirectories, tmp_path: Path, by: str
) -> None:
    """It stops in the middle of its range, even if the new files have the same inodes."""
    path = tmp_path / "logs"
    old = logs.create_topic("t", 1, SMALL)
    for _ in range(300):
        append(logs, "t", 0, 100)
    parsed = ReadOptions.parse({"path": str(path), "maxBytesPerPartition": str(1 << 40)})
    how = (parsed.paths, parsed.configs, parsed.isolation)
    (piece,) = plan(parsed.paths, parsed)
    for fails in (True, False):
        batches = Reading(*how, fails, False).records([piece], SCHEMA)
        count = len(next(batches))
        assert count < 30_000
        new = random_uuid_text()
        if by == "us":
            new = recreate(logs, "t", 25)
            for _ in range(300):
                append(logs, "t", 0, 100)
        else:
            metadata(path).write_text(f"version: 0\ntopic_id: {new}")
        if fails:
            with pytest.raises(DataLoss, match=message("t", old, new)):
                list(batches)
        else:
            assert sum(map(len, batches)) == 0
        old = new
        (piece,) = plan(parsed.paths, parsed)


def test_a_partition_that_is_deleted_is_read_to_the_end_of_what_is_open(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    parsed = ReadOptions.parse({"path": str(tmp_path / "logs")})
    reading = Reading(parsed.paths, parsed.configs, parsed.isolation, True, False)
    (piece,) = plan(parsed.paths, parsed)
    batches = reading.records([replace(piece, is_last=False)], SCHEMA)
    found = len(next(batches))
    logs.delete_topic("t")
    assert found + sum(map(len, batches)) == 10


# -- ids that are missing or wrong -----------------------------------------------------------------


def test_topics_without_ids_are_compared_by_their_offsets_alone(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    """As for brokers before 2.8. A later broker adds ids, which is not data loss."""
    path = tmp_path / "logs"
    topic_id = logs.create_topic("t")
    metadata(path).unlink()
    append(logs, "t", 0, 10)
    query = Query(path, **EARLIEST)
    assert query.batch() == 10
    assert json.loads(query.ends[-1]) == {"t": {"0": 10}}
    metadata(path).write_text(f"version: 0\ntopic_id: {topic_id}")
    append(logs, "t", 0, 1)
    assert query.batch() == 1
    assert json.loads(query.ends[-1])[":topicIds"] == {"t": topic_id}
    metadata(path).unlink()
    query = Query(path, **EARLIEST)
    assert query.batch() == 11
    recreate(logs, "t", 3)
    metadata(path).unlink()
    with pytest.raises(DataLoss, match="t-0 was read up to offset 11, but ends at 3 now"):
        query.batch()


def test_an_id_that_has_gone_is_a_loss(logs: WritableLogDirectories, tmp_path: Path) -> None:
    topic_id = logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs", **EARLIEST)
    query.batch()
    metadata(tmp_path / "logs").unlink()
    with pytest.raises(DataLoss, match=f"there is no topic id now, not {topic_id}"):
        query.batch()


def test_partitions_of_different_topics_are_refused(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    path = tmp_path / "logs"
    topic_id = logs.create_topic("t", 2)
    other = random_uuid_text()
    metadata(path, "t-1").write_text(f"version: 0\ntopic_id: {other}")
    for options in (EARLIEST, LENIENT):
        with pytest.raises(
            CorruptError, match=f"t-0 has topic id {topic_id} and t-1 has topic id {other}"
        ):
            Query(path, **options).batch()


def test_partitions_that_change_while_they_are_read_are_read_again(
    logs: WritableLogDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first partition is read before a change, the second after it."""
    old = logs.create_topic("t", 2)
    read = PartitionDir.topic_id
    seen: list[str] = []

    def torn(self: PartitionDir) -> str:
        seen.append(read(self))
        if len(seen) == 1:
            recreate(logs, "t", 1, partitions=2)
        return seen[-1]

    monkeypatch.setattr(PartitionDir, "topic_id", torn)
    ids = read_ids(Engine(str(tmp_path / "logs")), [("t", 0), ("t", 1)])
    assert ids == dict.fromkeys([("t", 0), ("t", 1)], seen[-1])
    assert seen[-1] != old == seen[0]


def test_a_partition_that_goes_while_it_is_looked_at_has_gone(
    logs: WritableLogDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported as missing, not as having no id."""
    logs.create_topic("t")
    read = PartitionDir.topic_id

    def late(self: PartitionDir) -> str:
        monkeypatch.undo()
        logs.delete_topic("t")
        return read(self)

    monkeypatch.setattr(PartitionDir, "topic_id", late)
    assert id_of(Engine(str(tmp_path / "logs")), ("t", 0)) is None


@pytest.mark.parametrize("text", ["", "version: 0\n", "version: 0\ntopic_id: x", "x" * 9999])
def test_a_malformed_id_fails_a_stream_and_not_a_batch(
    logs: WritableLogDirectories, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Batch reads also work on the remains of a damaged directory."""
    path = tmp_path / "logs"
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(path, **LENIENT)
    query.batch()
    metadata(path).write_text(text)
    for restarts in (False, True):
        if restarts:
            query.restart()
        with pytest.raises(CorruptError, match=r"t-0/partition\.metadata"):
            query.batch()
    parsed = ReadOptions.parse({"path": str(path)})
    (piece,) = plan(parsed.paths, parsed)
    assert "partition.metadata" in caplog.text
    reading = Reading(parsed.paths, parsed.configs, parsed.isolation, True, False)
    assert sum(map(len, reading.records([piece], SCHEMA))) == 10


# -- checkpoints -----------------------------------------------------------------------------------

ID = "AbCdEfGhIjKlMnOpQrStUw"


def test_ids_are_one_more_member() -> None:
    positions = PartitionOffsets({("b", 0): 3, ("a", 1): 2}, {"b": ID, "gone": ID})
    text = json.dumps(to_json(positions), separators=(",", ":"))
    assert text == f'{{"a":{{"1":2}},"b":{{"0":3}},":topicIds":{{"b":"{ID}"}}}}'
    assert from_json(json.loads(text)) == replace(positions, topic_ids={"b": ID})
    assert to_json(positions, with_ids=False) == {"a": {"1": 2}, "b": {"0": 3}}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "is not a JSON object: []"),
        ({"t": {"0": 1}, ":topicIds": [ID]}, "has a member :topicIds that is not a JSON object"),
        ({"t": {"0": 1}, ":topicIds": None}, "has a member :topicIds that is not a JSON object"),
        ({"t": {"0": 1}, ":topicIds": {"t": 5}}, "has a malformed topic id for t"),
        ({"t": {"0": 1}, ":topicIds": {"t": "x"}}, "has a malformed topic id for t"),
        ({"t": {"0": 1}, ":topicIds": {"t": "A" * 22}}, "has a malformed topic id for t"),
        ({"t": {"0": 1}, ":topicIds": {"u": ID}}, "has an id of 'u' in :topicIds, but no offsets"),
        ({"t": {"0": 1}, ":topicId": {"t": ID}}, "has ':topicId', which cannot be a topic's name"),
        ({"t": [1]}, "has a member t that is not a JSON object"),
        ({"t": {"x": 1}}, "has 'x' as a partition of t"),
        ({"t": {"99999999999": 1}}, "has '99999999999' as a partition of t"),
        ({"t": {"2147483648": 1}}, "has 2147483648 as a partition of t"),
        ({"t": {"0": -1}}, "has no offset for t-0"),
        ({"t": {"0": "1\n"}}, "has no offset for t-0"),
        ({"t": {"0": True}}, "has no offset for t-0"),
        ({"t": {"0": 1 << 63}}, "has no offset for t-0"),
        ({"t": {str(n): None for n in range(999)}}, "…"),
    ],
)
def test_hostile_checkpoints(value: object, why: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        from_json(value)
    assert str(raised.value).startswith("the offset in the checkpoint ")
    assert why in str(raised.value)
    assert len(str(raised.value)) < 300
    assert "\n" not in str(raised.value)


def test_offsets_of_a_checkpoint_are_no_starting_offsets() -> None:
    text = f'{{"t": {{"0": 1}}, ":topicIds": {{"t": "{ID}"}}}}'
    for streaming in (True, False):
        with pytest.raises(OptionError, match="member :topicIds belongs to the checkpoint of a"):
            ReadOptions.parse({"path": "/data", "startingOffsets": text}, streaming)


# -- any history -----------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 40)),
    st.tuples(st.just("batch"), st.just(0)),
    st.tuples(st.just("begin"), st.sampled_from([0, 7, 40])),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("recreate"), st.sampled_from([0, 7, 40])),
)


@settings(max_examples=percent(20), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(STEPS, min_size=5, max_size=25),
    most=st.integers(1, 50),
    with_ids=st.booleans(),
)
def test_topics_are_never_mixed(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    most: int,
    with_ids: bool,
) -> None:
    """Of each topic with the name, a prefix is read; of the last one, everything."""
    path = tmp_path_factory.mktemp("history") / "logs"
    with kafkafs.open(path, writable=True, configs={"log.cleaner.enable": "false"}) as logs:
        logs.create_topic("t")
        ends = [0]

        def add(count: int) -> None:
            numbers = range(ends[-1], ends[-1] + count)
            logs["t", 0].append([b"%d %d" % (len(ends), n) for n in numbers])
            ends[-1] += count

        def again(count: int) -> None:
            logs.delete_topic("t")
            logs.create_topic("t")
            ends.append(0)
            if count:
                add(count)

        query = Query(
            path,
            **LENIENT,
            maxOffsetsPerTrigger=str(most),
            checkpointTopicIds=str(with_ids).lower(),
        )
        add(3)
        query.batch()
        for step, count in steps:
            if step == "append":
                add(count)
            elif step == "batch":
                query.batch()
            elif step == "begin":
                query.begin()
                if query.ends[-1] == query.ends[-2]:
                    continue  # Spark runs no batch
                if count:
                    again(count)
                query.finish()
            elif step == "restart" and with_ids:
                query.restart()
            elif step == "recreate":
                again(count)
        for _ in range(2):  # without ids, as many records as were read go unnoticed
            add(1)
            for _ in range(3 + sum(ends)):
                query.batch()
    found: defaultdict[int, list[int]] = defaultdict(list)
    for value in query.values:
        which_topic, number = map(int, value.split())
        found[which_topic].append(number)
    for which, numbers in found.items():
        assert numbers == [*range(len(numbers))]
        assert len(numbers) <= ends[which - 1]
    assert len(found[len(ends)]) == ends[-1]
    assert list(found) == sorted(found)


# -- with Spark ------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, WITHOUT_IDS])
def test_a_query_notices_a_topic_that_was_created_again(
    spark: SparkSession, tmp_path: Path, options: dict[str, str]
) -> None:
    path = tmp_path / "logs"
    with with_spark.directory(path) as logs:
        ids = [logs.create_topic("t")]
        append(logs, "t", 0, 10)

        def query(**others: str) -> DataStreamWriter:
            frame = with_spark.stream(spark, path, subscribe="t", **EARLIEST, **options, **others)
            return frame.writeStream.foreachBatch(write).option(
                "checkpointLocation", str(tmp_path / "checkpoint")
            )

        def write(rows: DataFrame, number: int) -> None:
            rows.write.mode("overwrite").parquet(str(tmp_path / "sink" / f"batch={number}"))
            if len(ids) == 1:  # no batch is being planned
                ids.append(recreate(logs, "t", 25))

        with pytest.raises(PySparkException) as raised:
            query().start().awaitTermination()
        assert message("t", *ids) in str(raised.value)
        if not options:
            with pytest.raises(PySparkException) as raised:
                query().trigger(availableNow=True).start().awaitTermination()
            assert message("t", *ids) in str(raised.value)
            query(failOnDataLoss="false").trigger(availableNow=True).start().awaitTermination()
            append(logs, "t", 0, 5)
            query().trigger(availableNow=True).start().awaitTermination()
    found = with_spark.offsets(spark, tmp_path / "sink")
    assert found == {("t", 0): sorted([*range(10), *range(0 if options else 30)])}
    if not options:
        offsets = (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")
        last = max(offsets, key=lambda path: int(path.name)).read_text().splitlines()[-1]
        assert json.loads(last) == {"t": {"0": 30}, ":topicIds": {"t": ids[1]}}


@pytest.mark.spark
def test_a_checkpoint_that_somebody_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "logs"
    with with_spark.directory(path) as logs:
        topic_id = logs.create_topic("t")
        append(logs, "t", 0, 10)
    frame = with_spark.stream(spark, path, **EARLIEST)
    with_spark.all_now(frame, tmp_path / "before")
    offset = Path("checkpoint/offsets/0")
    text = (tmp_path / "before" / offset).read_text()
    assert topic_id in text
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    (tmp_path / "after" / offset).write_text(text.replace(topic_id, "x"))
    (tmp_path / "after" / offset.with_name(".0.crc")).unlink(missing_ok=True)
    with pytest.raises(PySparkException, match="has a malformed topic id for t in :topicIds"):
        with_spark.all_now(frame, tmp_path / "after")
