"""Reads every corpus with the engine and compares it with Kafka's own answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kafkafs.storage.format.records.columns import Columns, Damage, Record
from kafkafs.storage.log.read.explain import broker_answer
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.reading import COMMITTED, UNCOMMITTED

# No broker served records in the crashed state: its answers are those after recovery.
RECORDS_OF = {name: name for name in answers.CORPORA} | {"kafka43-crash": "kafka43-crash-recovered"}
# The broker truncated a torn log; kafkafs reads on after the damage (see the last tests here).
WHOLE = [name for name in answers.CORPORA if name != "kafka43-torn"]

ALL = [
    (corpus, topic, partition)
    for corpus in WHOLE
    for topic, partition in answers.partitions_with_records(RECORDS_OF[corpus])
]
#: Where the records do not depend on the isolation level, one corpus shows that.
LEVELS = [
    (corpus, topic, partition, isolation)
    for corpus, topic, partition in ALL
    for isolation in Isolation
    if corpus == "kafka43-clean"
    or isolation.value in answers.isolations(RECORDS_OF[corpus], topic, partition)
]
EVERY = [
    (corpus, topic, partition)
    for corpus in WHOLE
    for topic, partition in answers.partitions(corpus)
]


@pytest.fixture(scope="module")
def view(corpus: Callable[[str], Path]) -> Callable[[str, str, int], View]:
    """Returns `view(corpus, topic, partition)`, which opens each corpus once."""

    @cache
    def engine(name: str) -> Engine:
        path = corpus(name)
        inner = sorted(str(found.parent) for found in path.glob("*/meta.properties"))
        return Engine(inner or str(path))

    return lambda name, topic, partition: engine(name).log(topic, partition).view()


def as_expected(record: Record) -> answers.ExpectedRecord:
    epoch = record.batch.leader_epoch
    return answers.ExpectedRecord(
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type.kafka_name,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        leader_epoch=None if epoch < 0 else epoch,
    )


def records(view: View, isolation: Isolation) -> Iterator[Record]:
    for columns in view.read(isolation=isolation):
        yield from (columns.record(row) for row in range(len(columns)))


@pytest.mark.parametrize(("name", "topic", "partition", "isolation"), LEVELS)
def test_records_are_those_that_a_consumer_was_given(
    view: Callable[[str, str, int], View],
    name: str,
    topic: str,
    partition: int,
    isolation: Isolation,
) -> None:
    found = [as_expected(record) for record in records(view(name, topic, partition), isolation)]
    given = answers.records(RECORDS_OF[name], topic, partition, isolation.value)
    assert found == list(given)


@pytest.mark.parametrize(("name", "topic", "partition"), EVERY)
def test_offsets_are_those_that_the_broker_named(
    view: Callable[[str, str, int], View], name: str, topic: str, partition: int
) -> None:
    found = view(name, topic, partition)
    named = answers.offsets(name)[topic, partition]
    assert (found.start_offset, found.end_offset, found.last_stable_offset) == (
        named.beginning,
        named.end,
        named.last_stable,
    )
    if named.max_timestamp is not None:
        assert found.max_timestamp == named.max_timestamp[1]


def test_every_isolation_finds_each_record_by_its_offset(
    view: Callable[[str, str, int], View],
) -> None:
    """Tests every seventh record in the two corpora that have the most formats and features."""
    for name, topic, partition in ALL:
        if name not in ("kafka28", "kafka43-clean"):
            continue
        partition_view = view(name, topic, partition)
        for isolation in Isolation:
            for number, record in enumerate(records(partition_view, isolation)):
                if number % 7 == 0:
                    assert as_expected(partition_view.find(record.offset, isolation)) == (
                        as_expected(record)
                    )


class Times:
    """Timestamps and offsets of a partition's served records, for time lookups by brute force."""

    def __init__(self, view: View) -> None:
        parts = [part.copy() for part in view.read(isolation=UNCOMMITTED)]
        empty = np.empty(0, dtype=np.int64)
        self.offsets = np.concatenate([empty, *(part.offsets for part in parts)])
        self.timestamps = np.concatenate([empty, *(part.timestamps for part in parts)])

    def first_since(self, timestamp: int) -> int | None:
        rows = np.flatnonzero(self.timestamps >= timestamp)
        return int(self.offsets[rows[0]]) if len(rows) else None


TIMED = [
    (corpus, topic, partition)
    for corpus in WHOLE
    for topic, partition in sorted({(a.topic, a.partition) for a in answers.times(corpus)})
]
# Kafka finds no offset for any time in these: a leading segment has no timestamps, because it is of
# magic 0 or was emptied by the cleaner, so its file's mtime counts as its largest timestamp.
WITHOUT_LEADING_TIMESTAMPS = {
    ("kafka28", "mixed"),
    ("kafka39", "compacted"),
    ("kafka43-clean", "compacted"),
    ("compact-after", "cmp-plain"),
    ("compact-before2", "cmp-plain"),
}
# In these, Kafka answers some lookups with a control record.
WITH_MARKERS_FOUND = {
    ("kafka28", "v2"),
    ("kafka43-crash", "crash-txn"),
    ("kafka43-crash-recovered", "crash-txn"),
    ("kafka43-torn-recovered", "crash-txn"),
}


@pytest.mark.parametrize(("name", "topic", "partition"), TIMED)
def test_a_time_is_answered_as_kafka_does_or_truly(
    view: Callable[[str, str, int], View], name: str, topic: str, partition: int
) -> None:
    partition_view = view(name, topic, partition)
    truth = Times(partition_view)
    data_offsets = set(truth.offsets.tolist())
    asked = [a for a in answers.times(name) if (a.topic, a.partition) == (topic, partition)]
    assert asked
    differing = set()
    for answer in asked:
        found = partition_view.offset_for_time(answer.timestamp, UNCOMMITTED)
        assert found == truth.first_since(answer.timestamp)
        if found == answer.offset:
            continue
        if answer.offset is None:
            differing.add("none")
        else:
            assert answer.offset not in data_offsets
            differing.add("control record")
    assert ("none" in differing) == ((name, topic) in WITHOUT_LEADING_TIMESTAMPS)
    assert ("control record" in differing) == ((name, topic) in WITH_MARKERS_FOUND)


@pytest.mark.parametrize(("name", "topic", "partition"), TIMED)
def test_what_a_broker_answers_to_a_time_is_known_too(
    view: Callable[[str, str, int], View], name: str, topic: str, partition: int
) -> None:
    partition_view = view(name, topic, partition)
    for answer in answers.times(name):
        if (answer.topic, answer.partition) == (topic, partition):
            told = broker_answer(partition_view, answer.timestamp, UNCOMMITTED)
            assert told.offset == (-1 if answer.offset is None else answer.offset), answer


def test_nothing_sound_is_reported_as_damage(view: Callable[[str, str, int], View]) -> None:
    for name, topic, partition in EVERY:
        for isolation in Isolation:
            parts = view(name, topic, partition).scan(isolation=isolation)
            assert all(isinstance(part, Columns) for part in parts), (name, topic, partition)


def test_read_committed_is_the_default(view: Callable[[str, str, int], View]) -> None:
    txn = view("kafka43-clean", "txn", 0)
    default = [
        record.offset for part in txn.read() for record in map(part.record, range(len(part)))
    ]
    assert default == [record.offset for record in records(txn, COMMITTED)]
    assert default != [record.offset for record in records(txn, UNCOMMITTED)]


def test_a_torn_log_is_read_up_to_and_past_each_damage(
    view: Callable[[str, str, int], View],
) -> None:
    """The damage listed in torn.json is reported, and nothing else is missing."""
    done = {
        entry["file"].partition("/")[0]: entry
        for entry in answers.damage()
        if entry["file"].endswith(".log")
    }
    assert set(done) == {"crash-plain-0", "crash-plain-1", "crash-idem-0", "crash-txn-0"}
    for topic, partition in answers.partitions("kafka43-torn"):
        torn, sound = (view(c, topic, partition) for c in ("kafka43-torn", "kafka43-crash"))
        damage = [part for part in torn.scan(isolation=UNCOMMITTED) if isinstance(part, Damage)]
        entry = done.get(f"{topic}-{partition}")
        assert len(damage) == (entry is not None)
        left = [
            part.record(row)
            for part in torn.scan(isolation=UNCOMMITTED)
            if isinstance(part, Columns)
            for row in range(len(part))
        ]
        lost: range = range(0)
        if entry is not None:
            [found] = damage
            assert found.error.file.endswith(entry["file"])
            lost = range(found.first_offset, found.next_offset % (1 << 62))
        if entry is not None and entry["what"] == "bit flipped":
            assert found.error.position == entry["batch_position"]
            assert (lost.start, lost.stop) == (2873, 2881)
        kept = [r for r in records(sound, UNCOMMITTED) if r.offset not in lost]
        assert [as_expected(record) for record in left] == [as_expected(r) for r in kept]


def test_the_end_of_a_torn_log_is_where_its_last_whole_batch_ends(
    view: Callable[[str, str, int], View],
) -> None:
    for topic, partition in answers.partitions("kafka43-torn"):
        found = view("kafka43-torn", topic, partition)
        # The broker truncated crash-txn at the damage in its middle; kafkafs reads past it.
        of = "kafka43-crash" if topic == "crash-txn" else "kafka43-torn"
        named = answers.offsets(of)[topic, partition]
        assert (found.end_offset, found.last_stable_offset) == (named.end, named.last_stable)
