"""Tests of `Partition.scan`: records as Arrow, in selected ranges and columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import kafkafs
from kafkafs.storage.format.records.columns import Columns, Damage, Record
from tests import answers

Corpus = Callable[[str], Path]

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
LEVELS = [answers.READ_COMMITTED, answers.READ_UNCOMMITTED]


@pytest.fixture
def clean(corpus: Corpus) -> kafkafs.LogDirectories:
    return kafkafs.open(corpus("kafka43-clean"))


def expected_row(topic: str, number: int, expected: answers.ExpectedRecord) -> dict[str, object]:
    none = expected.timestamp == -1
    return {
        "key": expected.key,
        "value": expected.value,
        "topic": topic,
        "partition": number,
        "offset": expected.offset,
        "timestamp": None if none else datetime.fromtimestamp(expected.timestamp / 1000, UTC),
        "timestampType": TYPES[expected.timestamp_type],
        "headers": [{"key": name, "value": value} for name, value in expected.headers],
    }


def offsets(reader: pa.RecordBatchReader) -> list[int]:
    found: list[int] = reader.read_all()["offset"].to_pylist()
    return found


@pytest.mark.parametrize("isolation", LEVELS)
@pytest.mark.parametrize("corpus_name", ["kafka28", "kafka39", "kafka43-clean"])
def test_every_partition_as_kafka_gives_it(
    corpus: Corpus, corpus_name: str, isolation: str
) -> None:
    directory = kafkafs.open(corpus(corpus_name))
    for topic, number in answers.partitions_with_records(corpus_name):
        table = directory[topic, number].scan(isolation=isolation).read_all()
        assert table.schema == SCHEMA
        table.validate(full=True)
        expected = answers.records(corpus_name, topic, number, isolation)
        # A consumer never gets control records; a scan with read_uncommitted may return them.
        wanted = {record.offset: expected_row(topic, number, record) for record in expected}
        rows = [row for row in table.to_pylist() if row["offset"] in wanted]
        assert rows == list(wanted.values())
        if isolation == answers.READ_COMMITTED:
            assert len(rows) == table.num_rows


def test_a_range_of_offsets(clean: kafkafs.LogDirectories) -> None:
    partition = clean["orders", 0]
    assert offsets(partition.scan(start=595, end=606)) == list(range(595, 606))
    assert offsets(partition.scan(start=6670)) == [6670, 6671, 6672, 6673]
    assert offsets(partition.scan(end=3)) == [0, 1, 2]
    assert offsets(partition.scan(start=7, end=7)) == []
    assert offsets(partition.scan(start=10_000)) == []


def test_a_range_of_times(clean: kafkafs.LogDirectories) -> None:
    partition = clean["orders", 0]
    low, high = partition.record(600).timestamp, partition.record(700).timestamp
    assert offsets(partition.scan(start_time=low, end_time=high)) == list(range(600, 700))
    moment = datetime.fromtimestamp(low / 1000, UTC)
    assert offsets(partition.scan(start_time=moment, end=603)) == [600, 601, 602]
    assert offsets(partition.scan(start=6672, end_time=2**42)) == [6672, 6673]
    assert offsets(partition.scan(start_time=2**42)) == []
    # Of two starts the later applies, of two ends the earlier.
    assert offsets(partition.scan(start=599, start_time=low, end=602, end_time=high)) == [600, 601]


def test_chosen_columns_in_the_order_asked_for(clean: kafkafs.LogDirectories) -> None:
    table = clean["orders", 0].scan(columns=["value", "offset"], end=2).read_all()
    assert table.schema == pa.schema([SCHEMA.field("value"), SCHEMA.field("offset")])
    assert table.num_rows == 2


def test_no_column_at_all(clean: kafkafs.LogDirectories) -> None:
    with pytest.raises(ValueError, match="columns must not be empty"):
        clean["orders", 0].scan(columns=[])


def test_a_column_that_does_not_exist(clean: kafkafs.LogDirectories) -> None:
    with pytest.raises(ValueError, match="no column 'vlaue'; there are key, value, topic"):
        clean["orders", 0].scan(columns=["vlaue"])


def test_an_empty_partition(clean: kafkafs.LogDirectories) -> None:
    table = clean["empty", 0].scan().read_all()
    assert table.schema == SCHEMA
    assert table.num_rows == 0


def test_batches_stay_as_they_are_while_reading_goes_on(clean: kafkafs.LogDirectories) -> None:
    batches = list(clean["compacted-dirty", 0].scan())
    assert len(batches) > 1
    expected = answers.records("kafka43-clean", "compacted-dirty", 0)
    values = [value for batch in batches for value in batch["value"].to_pylist()]
    assert values == [record.value for record in expected]


def test_a_scan_shows_the_moment_of_its_beginning(writable_corpus: Corpus, tmp_path: Path) -> None:
    root = writable_corpus("kafka43-clean")
    log = root / "one-0" / "00000000000000000000.log"
    with kafkafs.open(root) as directory:
        partition = directory["one", 0]
        before = partition.scan()
        batch = bytearray(log.read_bytes())
        batch[7] = 1  # the same batch, at offset 1
        with log.open("ab") as appended:
            appended.write(batch)
        assert offsets(before) == [0]
        assert offsets(partition.scan()) == [0, 1]
        assert partition.end_offset == 2


def test_damage_ends_a_scan(corpus: Corpus) -> None:
    partition = kafkafs.open(corpus("kafka43-torn"))["crash-txn", 0]
    with pytest.raises(kafkafs.CorruptError, match=r"00002648\.log: position 10401: .* crc is"):
        partition.scan().read_all()


def test_damage_can_be_passed_over(corpus: Corpus) -> None:
    partition = kafkafs.open(corpus("kafka43-torn"))["crash-txn", 0]
    met: list[Damage] = []
    scan = partition.scan(isolation="read_uncommitted", on_damage=met.append)
    found = offsets(scan)
    assert [(damage.first_offset, damage.next_offset) for damage in met] == [(2873, 2881)]
    assert found[0] == 0
    assert not set(range(2873, 2881)) & set(found)
    # 2872 is the end marker of a transaction.
    assert 2871 in found
    assert 2881 in found


def test_scans_of_a_log_at_the_same_time(clean: kafkafs.LogDirectories) -> None:
    partition = clean["orders", 0]
    pairs = zip(partition.scan(), partition.scan(start=0), strict=True)
    assert all(one.equals(other) for one, other in pairs)


def test_records_one_by_one_are_those_of_a_scan(clean: kafkafs.LogDirectories) -> None:
    for partition in (clean["orders", 0], clean["txn", 0]):
        for isolation in ("read_committed", "read_uncommitted"):
            scanned = partition.scan(start=100, end=900, isolation=isolation).read_all()
            records = list(partition.records(start=100, end=900, isolation=isolation))
            assert [record.offset for record in records] == scanned.column("offset").to_pylist()
            assert [record.value for record in records] == scanned.column("value").to_pylist()
            assert [record.key for record in records] == scanned.column("key").to_pylist()


def test_records_are_read_while_they_are_asked_for(
    clean: kafkafs.LogDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0
    record = Columns.record

    def counted(self: Columns, row: int) -> Record:
        nonlocal decoded
        decoded += 1
        return record(self, row)

    monkeypatch.setattr(Columns, "record", counted)
    records = clean["orders", 0].records()
    assert decoded == 0
    assert next(records).offset == 0
    assert next(records).offset == 1
    assert decoded == 2


def test_records_and_damage(corpus: Corpus) -> None:
    partition = kafkafs.open(corpus("kafka43-torn"))["crash-txn", 0]
    with pytest.raises(kafkafs.CorruptError, match=r"00002648\.log: position 10401"):
        list(partition.records())
    damage: list[Damage] = []
    found = [record.offset for record in partition.records(on_damage=damage.append)]
    assert found == offsets(partition.scan(on_damage=lambda _: None))
    assert len(damage) == 1


@pytest.mark.parametrize(
    "time",
    [1788266144663, "1788266144663", "2026-09-01T12:35:44.663Z", "2026-09-01T14:35:44.663+02:00",
     datetime(2026, 9, 1, 12, 35, 44, 663000, tzinfo=UTC)],
)  # fmt: skip
def test_times_in_every_form_that_the_command_line_takes(
    clean: kafkafs.LogDirectories, time: int | str | datetime
) -> None:
    partition = clean["orders", 0]
    assert partition.offset_for_time(time) == 600
    assert next(partition.records(start_time=time)).offset == 600
    assert offsets(partition.scan(start_time=time, end=602)) == [600, 601]
    assert offsets(partition.scan(start=598, end_time=time)) == [598, 599]


def test_a_text_that_is_not_a_time(clean: kafkafs.LogDirectories) -> None:
    with pytest.raises(
        ValueError, match="'yesterdayish' is not a time: milliseconds since 1970 or"
    ):
        clean["orders", 0].offset_for_time("yesterdayish")
