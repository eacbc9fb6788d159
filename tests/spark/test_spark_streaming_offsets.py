"""Tests that a stream's batches read every record once while directories change.

They run without Spark: `Stream` plans, and ranges are read as by a task.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkafs
from kafkafs import WritableLogDirectories
from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read.partition_offsets import PartitionOffsets, from_json, to_json
from kafkafs.spark.read.reading import Reading
from kafkafs.spark.read.streaming import Stream
from kafkafs.storage.errors import DataLoss
from tests.profiles import percent

SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", "binary")]
)
SMALL = {"segment.bytes": "1048576", "retention.ms": "-1"}
Records = dict[tuple[str, int], list[int]]


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[WritableLogDirectories]:
    """A writable directory without background retention and cleaning."""
    settings = {"log.retention.check.interval.ms": str(1 << 40), "log.cleaner.enable": "false"}
    with kafkafs.open(tmp_path / "logs", writable=True, configs=settings) as opened:
        yield opened


class Query:
    """Runs a stream as Spark does: one batch after another, with checkpointed ends as text."""

    def __init__(self, path: Path, **options: str) -> None:
        self._options = {"path": str(path), **options}
        self.ends: list[str] = []
        self.found: Records = {}
        self.values: list[bytes] = []
        self.restart()

    def restart(self, **options: str) -> None:
        self._options |= options
        self.options = ReadOptions.parse(self._options, streaming=True)
        self.stream = Stream(self.options.paths, self.options)

    @property
    def position(self) -> PartitionOffsets | None:
        return from_json(json.loads(self.ends[-1])) if self.ends else None

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        return self.position.offsets if self.position is not None else {}

    def begin(self) -> None:
        """Plans the end of the next batch."""
        end = self.stream.next_end(self.position, limited=True)
        self.ends.append(json.dumps(to_json(end, self.options.checkpoint_topic_ids)))

    def finish(self) -> int:
        """Reads the last planned batch; returns its number of records."""
        *_, end = self.ends
        start = from_json(json.loads(self.ends[-2])) if len(self.ends) > 1 else None
        options = self.options
        how = (options.paths, options.configs, options.isolation)
        reading = Reading(*how, options.fail_on_data_loss, options.permissive)
        count = 0
        for piece in self.stream.plan(start, from_json(json.loads(end))):
            for batch in reading.records([piece], SCHEMA):
                key, offsets = (piece.topic, piece.partition), batch["offset"].to_pylist()
                self.found.setdefault(key, []).extend(offsets)
                self.values += batch["value"].to_pylist()
                count += len(offsets)
        return count

    def batch(self) -> int:
        self.begin()
        return self.finish()


def append(logs: WritableLogDirectories, topic: str, partition: int, count: int) -> None:
    logs[topic, partition].append([b"x" * 50] * count)


def test_positions_are_written_as_sparks_kafka_source_writes_them() -> None:
    positions = PartitionOffsets({("b", 10): 3, ("a", 1): 2, ("b", 9): 1 << 60})
    text = json.dumps(to_json(positions), separators=(",", ":"))
    assert text == '{"a":{"1":2},"b":{"9":1152921504606846976,"10":3}}'
    assert from_json(json.loads(text)) == positions


def test_a_stream_begins_at_the_end_unless_told_otherwise(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    query = Query(tmp_path / "logs")
    assert query.batch() == 0
    append(logs, "t", 0, 5)
    assert query.batch() == 5
    assert query.found == {("t", 0): [10, 11, 12, 13, 14]}
    assert Query(tmp_path / "logs", startingOffsets="earliest").batch() == 15
    offsets = Query(tmp_path / "logs", startingOffsets='{"t": {"0": 12}}')
    assert offsets.batch() == 3


def test_a_first_batch_that_is_done_again_begins_where_it_began(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    """Records appended meanwhile are neither skipped nor read twice."""
    logs.create_topic("t")
    append(logs, "t", 0, 10)
    for start, expected in (("latest", range(10, 17)), ("earliest", range(17))):
        query = Query(tmp_path / "logs", startingOffsets=start)
        query.begin()
        if start == "latest":
            append(logs, "t", 0, 7)
        query.restart()  # Spark requests the same batch again
        query.finish()
        query.batch()
        assert query.found == {("t", 0): list(expected)}


def test_partitions_and_topics_that_come_later_are_read_from_their_start(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    logs.create_topic("a1")
    query = Query(tmp_path / "logs", subscribePattern="a.*")
    append(logs, "a1", 0, 10)
    assert query.batch() == 0
    logs.create_partitions("a1", 2)
    logs.create_topic("a2")
    logs.create_topic("b")
    append(logs, "a1", 0, 1)
    append(logs, "a1", 1, 2)
    append(logs, "a2", 0, 3)
    append(logs, "b", 0, 4)
    assert query.batch() == 6
    assert query.found == {("a1", 0): [10], ("a1", 1): [0, 1], ("a2", 0): [0, 1, 2]}


def test_a_pattern_may_match_nothing_yet(logs: WritableLogDirectories, tmp_path: Path) -> None:
    logs.create_topic("b")
    query = Query(tmp_path / "logs", subscribePattern="a")
    assert query.batch() == 0
    logs.create_topic("a")
    append(logs, "a", 0, 3)
    assert query.batch() == 3


def test_limits_are_shared_in_proportion(logs: WritableLogDirectories, tmp_path: Path) -> None:
    logs.create_topic("t", 3)
    for partition, count in enumerate((600, 300, 1)):
        append(logs, "t", partition, count)
    query = Query(tmp_path / "logs", startingOffsets="earliest", maxOffsetsPerTrigger="90")
    assert query.batch() == 59 + 29 + 1
    assert query.offsets == {("t", 0): 59, ("t", 1): 29, ("t", 2): 1}
    for _ in range(10):
        assert query.batch() <= 90
    assert query.found == {("t", 0): [*range(600)], ("t", 1): [*range(300)], ("t", 2): [0]}


def test_too_little_waits_but_not_forever(
    logs: WritableLogDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("kafkafs.spark.read.streaming.time.monotonic", lambda: now)
    logs.create_topic("t")
    append(logs, "t", 0, 1)
    limits = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12", "maxTriggerDelay": "5s"}
    query = Query(tmp_path / "logs", startingOffsets="earliest", **limits)
    assert query.batch() == 1  # the first does not wait
    append(logs, "t", 0, 9)
    assert query.batch() == 0
    append(logs, "t", 0, 1)
    assert query.batch() == 10
    append(logs, "t", 0, 3)
    now = 4.9
    assert query.batch() == 0
    now = 5.0
    assert query.batch() == 3
    append(logs, "t", 0, 30)
    assert [query.batch() for _ in range(3)] == [12, 12, 0]


def test_what_is_available_now_ends(logs: WritableLogDirectories, tmp_path: Path) -> None:
    """It stops at the log end as of its start, despite later records and the minimum."""
    logs.create_topic("t")
    append(logs, "t", 0, 100)
    limits = {"maxOffsetsPerTrigger": "60", "minOffsetsPerTrigger": "50"}
    query = Query(tmp_path / "logs", startingOffsets="earliest", **limits)
    query.stream.stop_at_the_present_end()
    append(logs, "t", 0, 100)
    logs.create_topic("later")
    append(logs, "later", 0, 1)
    assert [query.batch() for _ in range(3)] == [60, 40, 0]
    assert query.ends[-1] == query.ends[-2]
    assert query.stream.latest is not None
    assert query.stream.latest.offsets == {("t", 0): 100}


def test_committed_records_only(logs: WritableLogDirectories, tmp_path: Path) -> None:
    """A stream stops before an open transaction and skips an aborted one."""
    logs.create_topic("t")
    options = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    query = Query(tmp_path / "logs", **options)
    with logs.transaction() as transaction:
        transaction.append("t", 0, [b"kept"] * 2)
        append(logs, "t", 0, 3)
        assert query.batch() == 0
    assert query.batch() == 5
    with pytest.raises(RuntimeError), logs.transaction() as transaction:  # noqa: PT012
        transaction.append("t", 0, [b"dropped"] * 2)
        raise RuntimeError
    append(logs, "t", 0, 1)
    assert query.batch() == 1
    assert query.found == {("t", 0): [0, 1, 2, 3, 4, 9]}


def test_a_batch_is_many_tasks(logs: WritableLogDirectories, tmp_path: Path) -> None:
    logs.create_topic("t", 2)
    for _ in range(40):
        append(logs, "t", 0, 500)
    limits = {"maxBytesPerPartition": "100000", "maxRecordsPerPartition": "3000"}
    query = Query(tmp_path / "logs", startingOffsets="earliest", **limits)
    query.begin()
    assert query.position is not None
    pieces = query.stream.plan(None, query.position)
    assert len(pieces) > 8
    assert query.finish() == 20_000


# -- loss -----------------------------------------------------------------------------------------


def retained(logs: WritableLogDirectories, offset: int) -> None:
    logs["t", 0].delete_records(offset)
    logs.run("start-offsets")


def test_what_retention_took_is_named(
    logs: WritableLogDirectories, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs.create_topic("t")
    strict = Query(tmp_path / "logs", startingOffsets="earliest")
    lenient = Query(tmp_path / "logs", startingOffsets="earliest", failOnDataLoss="false")
    append(logs, "t", 0, 10)
    assert strict.batch() == lenient.batch() == 10
    append(logs, "t", 0, 10)
    retained(logs, 14)
    reported = "t-0 offsets 10 to 13 no longer exist: the log starts at 14 now"
    with pytest.raises(DataLoss, match=reported):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == 6
    assert reported in caplog.text
    assert lenient.found == {("t", 0): [*range(10), *range(14, 20)]}
    append(logs, "t", 0, 1)
    assert lenient.batch() == 1


def test_a_topic_that_has_gone_is_a_loss(
    logs: WritableLogDirectories, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("t", "u"):
        logs.create_topic(topic)
    options = {"startingOffsets": "earliest", "subscribe": "t,u"}
    strict = Query(tmp_path / "logs", **options)
    lenient = Query(tmp_path / "logs", **options, failOnDataLoss="false")
    append(logs, "t", 0, 10)
    append(logs, "u", 0, 10)
    assert strict.batch() == lenient.batch() == 20
    logs.delete_topic("t")
    append(logs, "u", 0, 1)
    reported = "t-0 was deleted; it was read up to offset 10"
    with pytest.raises(DataLoss, match=reported):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == 1
    assert reported in caplog.text
    logs.create_topic("t")
    append(logs, "t", 0, 3)
    assert lenient.batch() == 3


def test_what_a_batch_was_to_read_may_go_before_it_is_done_again(
    logs: WritableLogDirectories, tmp_path: Path
) -> None:
    logs.create_topic("t")
    query = Query(tmp_path / "logs", startingOffsets="earliest")
    query.batch()
    append(logs, "t", 0, 10)
    query.begin()
    retained(logs, 5)
    query.restart()
    with pytest.raises(DataLoss, match="offsets 0 to 4 no longer exist"):
        query.finish()
    query.restart(failOnDataLoss="false")
    assert query.finish() == 5


def test_a_query_that_cannot_begin_says_why(logs: WritableLogDirectories, tmp_path: Path) -> None:
    logs.create_topic("t", 2)
    for options, why in (
        ({"subscribe": "t,u"}, "option subscribe: there is no topic u"),
        ({"assign": '{"t": [7]}'}, "option assign: t has no partition 7"),
        ({"startingOffsets": '{"t": {"0": 1}}'}, "t-1 is read, but not named"),
        ({"startingTimestamp": "9000000000000"}, "has no record at"),
    ):
        with pytest.raises(OptionError, match=why):
            Query(tmp_path / "logs", **options).batch()


# -- any history ----------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 40)),
    st.tuples(st.just("batch"), st.just(0), st.just(0)),
    st.tuples(st.just("crash"), st.just(0), st.just(0)),
    st.tuples(st.just("retain"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("grow"), st.just(0), st.just(0)),
)


@settings(max_examples=percent(20), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(STEPS, min_size=5, max_size=30),
    most=st.integers(1, 50),
    start=st.sampled_from(["earliest", "latest"]),
)
def test_every_record_once_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, int]],
    most: int,
    start: str,
) -> None:
    """Histories contain appends, new partitions, retention of read records, and crashes."""
    path = tmp_path_factory.mktemp("history") / "logs"
    with kafkafs.open(path, writable=True, configs={"log.cleaner.enable": "false"}) as logs:
        logs.create_topic("t", 1, SMALL)
        append(logs, "t", 0, 3)
        query = Query(path, startingOffsets=start, maxOffsetsPerTrigger=str(most))
        ends = [3]
        query.batch()
        for step, partition, count in steps:
            number = partition % len(ends)
            if step == "append":
                append(logs, "t", number, count)
                ends[number] += count
            elif step == "batch":
                query.batch()
            elif step == "crash":
                query.begin()
                query.restart()
                query.finish()
            elif step == "retain":
                read = query.offsets.get(("t", number), 0)
                logs["t", number].delete_records(read)
                logs.run("start-offsets")
            elif len(ends) < 3:
                ends.append(0)
                logs.create_partitions("t", len(ends))
        query.batch()
        while query.ends[-1] != query.ends[-2]:
            query.batch()
        first = 0 if start == "earliest" else 3
        expected = {("t", n): [*range(0 if n else first, end)] for n, end in enumerate(ends)}
        assert query.found == {key: offsets for key, offsets in expected.items() if offsets}
