"""Tests that a task reads its range exactly once, even if the log changes; damage; bytes read."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

import kafkafs
from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read.planning import find_log_dirs, plan
from kafkafs.spark.read.reading import LOSSES, Reading
from kafkafs.storage.errors import CorruptError, DataLoss, LogDirError
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io import opening
from kafkafs.storage.io.disk import OpenFile
from kafkafs.storage.io.remote import block_source
from kafkafs.storage.operations.offset_ranges import OffsetRange
from tests import answers, s3
from tests.building import BatchFields, build_batch, frame_batch
from tests.logs import PartitionWriter, TopicSettings, walk, write_log_dir, write_partition
from tests.spark.expected import rows_of_kafka

Corpus = Callable[[str], Path]

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
#: As Spark requires: timestamps in microseconds, and its own name for list items.
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
    ]
)
OFFSETS = pa.schema([SCHEMA.field("offset")])
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


@dataclass(frozen=True)
class Read:
    """Reads as the source does: plans, then reads each range separately."""

    path: Path | str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def parsed(self) -> ReadOptions:
        return ReadOptions.parse({"path": str(self.path), **self.options})

    @property
    def reading(self) -> Reading:
        options = self.parsed
        return Reading(
            log_dirs=tuple(find_log_dirs(options.paths)),
            configs=options.configs,
            isolation=options.isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            permissive=options.permissive,
            at_ms=options.at_ms,
        )

    def plan(self) -> list[OffsetRange]:
        return plan(find_log_dirs(self.parsed.paths), self.parsed)

    def table(self, schema: pa.Schema = SCHEMA) -> pa.Table:
        batches = [b for each in self.plan() for b in self.reading.records([each], schema)]
        return pa.Table.from_batches(batches, schema)

    def offsets(self) -> list[int]:
        found: list[int] = self.table(OFFSETS)["offset"].to_pylist()
        return found

    def losses(self) -> list[dict[str, object]]:
        batches = [b for each in self.plan() for b in self.reading.losses([each], LOSSES)]
        found: list[dict[str, object]] = pa.Table.from_batches(batches, LOSSES).to_pylist()
        return found


@pytest.mark.parametrize("isolation", [answers.READ_COMMITTED, answers.READ_UNCOMMITTED])
@pytest.mark.parametrize("name", ["kafka28", "kafka39", "kafka43-clean", "compact-after2"])
def test_every_record_as_kafka_gave_it(corpus: Corpus, name: str, isolation: str) -> None:
    """Uses small ranges, so that most begin in the middle of a segment."""
    read = Read(corpus(name), {"kafka.isolation.level": isolation, "maxBytesPerPartition": "30000"})
    table = read.table()
    assert table.schema.equals(SCHEMA)
    plain = table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64()))
    assert plain.to_pylist() == list(rows_of_kafka(name, isolation))


@pytest.mark.parametrize("isolation", [answers.READ_COMMITTED, answers.READ_UNCOMMITTED])
def test_the_records_as_of_a_time(corpus: Corpus, isolation: str) -> None:
    """Tasks end where the plan does, whether they open the planned files or the log."""
    name, at_ms = "kafka43-clean", 1788393600000
    options = {"subscribe": "orders,unordered,txn", "kafka.isolation.level": isolation}
    read = Read(corpus(name), {**options, "at": str(at_ms), "maxBytesPerPartition": "30000"})
    found = read.table()
    with kafkafs.open(corpus(name), at=at_ms) as then:
        selected = [each for each in then if each.topic in ("orders", "txn", "unordered")]
        expected = [each.scan(isolation=isolation).read_all() for each in selected]
    key = ["topic", "partition", "offset"]
    expected_rows = sorted(tuple(r.values()) for t in expected for r in t.select(key).to_pylist())
    assert sorted(tuple(r.values()) for r in found.select(key).to_pylist()) == expected_rows
    assert 1000 < len(expected_rows) < Read(corpus(name), options).table().num_rows
    for each in read.plan():
        again = list(read.reading.records([replace(each, view=None)], SCHEMA))
        assert again == list(read.reading.records([each], SCHEMA))


def test_only_the_columns_asked_for_are_made(corpus: Corpus) -> None:
    schema = pa.schema([SCHEMA.field("timestamp"), SCHEMA.field("offset")])
    table = Read(corpus("kafka43-clean"), {"subscribe": "orders"}).table(schema)
    assert table.schema.equals(schema)
    assert table.num_rows == 20_000


# -- damage ---------------------------------------------------------------------------------------

TORN = {"subscribe": "crash-txn"}


def test_damage_is_named_by_file_and_position(corpus: Corpus) -> None:
    with pytest.raises(CorruptError, match=r"00002648\.log: position 10401: .* crc is"):
        Read(corpus("kafka43-torn"), TORN).table()


def test_damage_is_skipped_and_told(corpus: Corpus) -> None:
    read = Read(corpus("kafka43-torn"), {**TORN, "mode": "PERMISSIVE"})
    found = read.offsets()
    assert not set(range(2873, 2881)) & set(found)
    assert {2871, 2881} <= set(found)
    (loss,) = Read(corpus("kafka43-torn"), {**TORN, "losses": "true"}).losses()
    assert (loss["topic"], loss["partition"]) == ("crash-txn", 0)
    assert (loss["firstOffset"], loss["nextOffset"]) == (2873, 2881)
    assert str(loss["file"]).endswith("crash-txn-0/00000000000000002648.log")
    assert loss["position"] == 10401
    assert "crc" in str(loss["what"])


def test_damage_behind_the_last_batch_is_told(corpus: Corpus) -> None:
    """The log was cut off inside a batch, so the next offset is unknown: 0 are known as lost."""
    read = Read(corpus("kafka43-torn"), {"subscribe": "crash-plain"})
    cut = [row for row in read.losses() if row["partition"] == 0]
    assert len(cut) == 1
    assert cut[0]["nextOffset"] is None
    with pytest.raises(CorruptError, match=r"crash-plain-0/00000000000000005170\.log: position"):
        read.table()


def test_nothing_is_lost_in_a_sound_log(corpus: Corpus) -> None:
    assert Read(corpus("kafka43-clean"), {"losses": "true"}).losses() == []


# -- a log that changes ---------------------------------------------------------------------------


def write_log(directory: Path, records: int, batch: int, size: int, segment: int) -> Path:
    """Writes partition t-0 with `records` records of `size` bytes, `batch` per batch, with
    timestamps from 1,000,000 on."""
    batches = []
    for base in range(0, records, batch):
        made = [SimpleRecord(1_000_000 + base + i, b"k", b"v" * size, []) for i in range(batch)]
        batches.append(build_batch(made, BatchFields(base_offset=base)))
    shape = TopicSettings(segment_bytes=segment, index_interval_bytes=1000)
    write_partition(directory / "t-0", batches, shape)
    write_log_dir(directory, {("t", 0): records})
    return directory


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with 2,000 records in a dozen segments."""
    return write_log(tmp_path, records=2000, batch=10, size=100, segment=20_000)


def drop_segments(log: Path, count: int) -> int:
    """Deletes the oldest segments as retention does; returns the first remaining base offset."""
    bases = sorted(int(path.stem) for path in (log / "t-0").glob("*.log"))
    for base in bases[:count]:
        for path in (log / "t-0").glob(f"{base:020}.*"):
            path.unlink()
    return bases[count]


def test_what_retention_took_after_planning(log: Path) -> None:
    read = Read(log)
    (piece,) = read.plan()
    left = drop_segments(log, 3)
    with pytest.raises(DataLoss, match=f"the log starts at {left} now"):
        next(read.reading.records([piece], OFFSETS))
    lenient = replace(read.reading, fail_on_data_loss=False)
    found = pa.Table.from_batches(lenient.records([piece], OFFSETS))["offset"].to_pylist()
    assert found == list(range(left, 2000))


def test_what_retention_takes_while_it_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open segment is read to its end; then reading continues at the new log start. This is a
    task for which no view could be planned."""
    monkeypatch.setattr("kafkafs.spark.read.reading._TINY_BYTES", 0)
    read = Read(log)
    (piece,) = read.plan()
    reading = replace(read.reading, fail_on_data_loss=False)
    batches = reading.records([replace(piece, view=None)], OFFSETS)
    first = next(batches)["offset"].to_pylist()
    left = drop_segments(log, 5)
    found = first + [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert found[: len(first)] == first
    assert found == [*range(found.index(left)), *range(left, 2000)]
    assert len(found) < 2000


def test_a_partition_that_was_deleted(log: Path) -> None:
    read = Read(log)
    (piece,) = read.plan()
    (log / "t-0").rename(log / "t-0.0123456789abcdef0123456789abcdef-delete")
    with pytest.raises(DataLoss, match=r"t-0, offsets 0 to 1999: no "):
        next(read.reading.records([piece], OFFSETS))
    lenient = replace(read.reading, fail_on_data_loss=False)
    assert list(lenient.records([piece], OFFSETS)) == []


def test_a_worker_that_does_not_see_the_directory(log: Path) -> None:
    """This is not data loss that may be skipped: the records exist."""
    read = Read(log)
    (piece,) = read.plan()
    lenient = replace(read.reading, fail_on_data_loss=False)
    log.rename(log.with_name("elsewhere"))
    with pytest.raises(LogDirError, match="no such directory"):
        next(lenient.records([piece], OFFSETS))


def test_what_came_after_planning_is_not_read(log: Path) -> None:
    read = Read(log)
    (piece,) = read.plan()
    last = max((log / "t-0").glob("*.log"))
    batch = build_batch([SimpleRecord(1, None, b"new", [])], BatchFields(base_offset=2000))
    with last.open("ab") as file:
        file.write(batch)
    found = pa.Table.from_batches(read.reading.records([piece], OFFSETS))["offset"].to_pylist()
    assert found == list(range(2000))


# -- the planned files ----------------------------------------------------------------------------


def read_offsets(read: Read, piece: OffsetRange) -> list[int]:
    batches = pickle.loads(pickle.dumps(read.reading)).records(
        [pickle.loads(pickle.dumps(piece))], OFFSETS
    )
    found: list[int] = pa.Table.from_batches(batches, OFFSETS)["offset"].to_pylist()
    return found


def test_a_task_lists_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Read(log, {"maxBytesPerPartition": "30000"})
    pieces = read.plan()
    assert len(pieces) > 5
    monkeypatch.setattr("os.scandir", None)
    found = [offset for piece in pieces for offset in read_offsets(read, piece)]
    assert found == list(range(2000))


def copy_of(path: Path, data: bytes) -> None:
    """Replaces a file by another with the same time."""
    status = path.stat()
    new = path.with_name("new")
    new.write_bytes(data)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(path)


def test_files_that_were_replaced_are_not_read_as_planned(log: Path) -> None:
    """As a cleaner does it: the new segment lacks records, which are lost without an error."""
    read = Read(log)
    (piece,) = read.plan()
    first, second, *_ = sorted((log / "t-0").glob("*.log"))
    batches = list(walk(second.read_bytes()))
    copy_of(second, b"".join(each.data for each in batches[3:]))
    second.with_suffix(".index").unlink()
    lost = range(batches[0].base_offset, batches[3].base_offset)
    expected = [offset for offset in range(2000) if offset not in lost]
    assert read_offsets(read, piece) == expected
    copy_of(first, first.read_bytes())  # the same bytes in another file
    assert read_offsets(read, piece) == expected


def test_files_that_were_truncated_are_not_read_as_planned(log: Path) -> None:
    read = Read(log)
    (piece,) = read.plan()
    last = max((log / "t-0").glob("*.log"))
    *_, batch = walk(last.read_bytes())
    os.truncate(last, batch.position)
    with pytest.raises(DataLoss, match=f"the log ends at {batch.base_offset} now"):
        read_offsets(read, piece)


def test_small_ranges_are_read_together_as_alone(tmp_path: Path) -> None:
    """Some can only be read alone: a transaction, damage, malformed records with a right CRC."""
    ok = [SimpleRecord(1000 + i, b"k%d" % i, b"v" * i, [("h", b"x")]) for i in range(9)]
    fields = [
        BatchFields(),
        BatchFields(codec=Codec.ZSTD),
        BatchFields(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
        BatchFields(codec=Codec.LZ4),
    ]
    for number in range(20):
        write_partition(tmp_path / f"t-{number}", [build_batch(ok, fields[number % 4])])
    write_log_dir(tmp_path, {("t", number): 9 for number in range(20)})
    read = Read(tmp_path, {"mode": "PERMISSIVE", "failOnDataLoss": "false"})
    ranges = read.plan()
    assert len(ranges) == 20

    def numbers() -> list[int]:
        alone = [b for each in ranges for b in read.reading.records([each], SCHEMA)]
        together = pa.Table.from_batches(read.reading.records(ranges, SCHEMA), SCHEMA)
        assert together == pa.Table.from_batches(alone, SCHEMA)
        return sorted(set(together["partition"].to_pylist()))

    assert numbers() == list(range(20))
    for number, is_right in ((4, False), (16, True)):
        path = tmp_path / f"t-{number}" / f"{0:020}.log"
        data, status = bytearray(path.read_bytes()), path.stat()
        data[61] = 0xFF  # the length of the first record
        path.write_bytes(frame_batch(0, 0, bytes(data[21:])) if is_right else data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert numbers() == [number for number in range(20) if number not in (4, 16)]


def test_damage_after_planning_is_found(log: Path) -> None:
    """The planned files are read until the damage, then the log as it is now."""
    read = Read(log, {"mode": "PERMISSIVE"})
    (piece,) = read.plan()
    third = sorted((log / "t-0").glob("*.log"))[2]
    batch = list(walk(third.read_bytes()))[4]
    status = third.stat()
    with third.open("r+b") as file:
        file.seek(batch.position + batch.size - 1)
        file.write(b"?")
    os.utime(third, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = read_offsets(read, piece)
    assert sorted(set(range(2000)) - set(found)) == [
        *range(batch.base_offset, batch.last_offset + 1)
    ]
    assert len(found) == 1990


# -- how much is read -----------------------------------------------------------------------------


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes in each read from a `.log` file."""
    sizes: list[int] = []
    read, read_into = OpenFile.read, OpenFile.read_into

    def counted_read(self: OpenFile, position: int, size: int) -> bytes:
        data = read(self, position, size)
        sizes.append(len(data) if self.path.endswith(".log") else 0)
        return data

    def counted_read_into(self: OpenFile, position: int, buffer: memoryview | bytearray) -> int:
        count = read_into(self, position, buffer)
        sizes.append(count if self.path.endswith(".log") else 0)
        return count

    monkeypatch.setattr(OpenFile, "read", counted_read)
    monkeypatch.setattr(OpenFile, "read_into", counted_read_into)
    return sizes


def test_offsets_and_times_are_looked_up(tmp_path: Path, bytes_read: list[int]) -> None:
    """Reads everything, then a hundredth by offset and by time; includes planning."""
    log = write_log(tmp_path, records=20_000, batch=50, size=1000, segment=5 << 20)
    assert len(Read(log).offsets()) == 20_000
    everything = sum(bytes_read)
    assert everything > 20_000_000
    by_offset = {
        name: json.dumps({"t": {"0": at}})
        for name, at in {"startingOffsets": 7000, "endingOffsets": 7200}.items()
    }
    for options in (by_offset, {"startingTimestamp": "1007000", "endingTimestamp": "1007200"}):
        bytes_read.clear()
        assert Read(log, options).offsets() == list(range(7000, 7200))
        assert sum(bytes_read) < everything / 20, options


def test_a_range_by_json(corpus: Corpus) -> None:
    of = {"assign": '{"orders": [1]}'}
    options = {
        **of,
        "startingOffsets": json.dumps({"orders": {"1": 600}}),
        "endingOffsets": json.dumps({"orders": {"1": 610}}),
    }
    assert Read(corpus("kafka43-clean"), options).offsets() == list(range(600, 610))


def test_segments_in_a_bucket_take_a_request_each(tmp_path: Path) -> None:
    count = 40
    writer = PartitionWriter(tmp_path / "t-0", TopicSettings())
    for base in range(0, 2 * count, 2):
        if base:
            writer.roll(base)
        records = [SimpleRecord(1000 + base, b"key", b"value")] * 2
        writer.append(build_batch(records, BatchFields(base_offset=base)))
    writer.close()
    write_log_dir(tmp_path, {("t", 0): 2 * count})
    with s3.serving() as server:
        read = Read(server.upload(tmp_path, "segments"))

        def requests() -> tuple[int, int]:
            paths = [path for _, path, _ in server.proxy.requests]
            server.proxy.requests.clear()
            lists = sum("list-type" in path for path in paths)
            return lists, len(paths) - lists

        ranges = plan(find_log_dirs(read.parsed.paths), read.parsed)
        lists, objects = requests()
        assert lists == 1
        assert objects <= 8  # of the directory and the partition, and of no segment but the last
        opening._sources.clear()  # as in another process
        block_source.block_cache.cache_clear()
        assert sum(map(len, read.reading.records(ranges, OFFSETS))) == 2 * count
        lists, objects = requests()
        assert lists == 1
        assert count <= objects <= count + 8
