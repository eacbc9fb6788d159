"""Tests of `kafkafs.open(…, writable=True)`: topics, appends, transactions, compaction."""

from __future__ import annotations

import errno
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkafs
from kafkafs import ProducerRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from tests.faults import FailingCalls
from tests.threads import in_threads
from tests.waiting import wait_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def directory(root: Path) -> Iterator[kafkafs.WritableLogDirectories]:
    with kafkafs.open(root, writable=True) as opened:
        opened.create_topic("orders", 2)
        yield opened


def values(partition: kafkafs.Partition, isolation: str = "read_committed") -> list[bytes | None]:
    found: list[bytes | None] = (
        partition.scan(isolation=isolation).read_all().column("value").to_pylist()
    )
    return found


def test_what_is_appended_is_read_and_is_there_the_next_time(root: Path) -> None:
    with kafkafs.open(root, writable=True) as d:
        topic_id = d.create_topic("orders", 2, {"retention.ms": "86400000"})
        p = d["orders", 0]
        assert isinstance(p, kafkafs.WritablePartition)
        assert p.append([b"tea", b"pie"]) == range(2)
        assert p.append([b"cake"]) == range(2, 3)
        assert (p.start_offset, p.end_offset, values(p)) == (0, 3, [b"tea", b"pie", b"cake"])
        assert d.topic_id("orders") == topic_id
        assert [(each.topic, each.partition) for each in d] == [("orders", 0), ("orders", 1)]
    with kafkafs.open(str(root)) as reading:
        assert values(reading["orders", 0]) == [b"tea", b"pie", b"cake"]
        assert not isinstance(reading, kafkafs.WritableLogDirectories)
    with pytest.raises(kafkafs.LogDirOffline):
        p.append([b"late"])


def test_parts_are_appended_one_after_the_other(directory: kafkafs.WritableLogDirectories) -> None:
    p = directory["orders", 0]
    many = [b"%d" % n for n in range(100)]
    table = pa.table({"value": pa.array(many, pa.large_binary())})
    assert p.append_all([]) == []
    parts = p.append_all([[b"first"], table, (ProducerRecord(b"x", b"k") for _ in range(2))])
    assert parts == [range(1), range(1, 101), range(101, 103)]
    batches = table.to_batches(max_chunksize=30)
    assert p.append_all(batches, compression="zstd") == [
        range(103, 133), range(133, 163), range(163, 193), range(193, 203),
    ]  # fmt: skip
    assert values(p) == [b"first", *many, b"x", b"x", *many]


def test_a_part_that_is_refused_tells_what_is_appended(
    directory: kafkafs.WritableLogDirectories,
) -> None:
    p = directory["orders", 0]
    with pytest.raises(kafkafs.Refused) as raised:
        p.append_all([[b"1", b"2"], [b"3"], [bytes(2 << 20)], [b"4"]])
    assert raised.value.__notes__ == ["2 parts were appended, up to offset 2"]
    with pytest.raises(TypeError) as wrong:
        p.append_all([b"not a list"])
    assert wrong.value.__notes__ == ["0 parts were appended"]
    assert values(p) == [b"1", b"2", b"3"]


def test_records_keep_what_they_say(directory: kafkafs.WritableLogDirectories) -> None:
    p = directory["orders", 0]
    before = time.time_ns() // 1_000_000
    p.append(
        [
            ProducerRecord(b"v", b"k", 5, [("h", b"1"), ("h", None)]),
            ProducerRecord(None, b"tombstone"),
            b"plain",
        ]
    )
    first, second, third = (p.record(offset) for offset in range(3))
    assert (first.timestamp, first.key, first.value) == (5, b"k", b"v")
    assert first.headers == [("h", b"1"), ("h", None)]
    assert (second.key, second.value) == (b"tombstone", None)
    assert second.timestamp == third.timestamp >= before
    # A record that was read can be appended.
    assert directory["orders", 1].append([first, second]) == range(2)
    again = directory["orders", 1].record(0)
    assert (again.timestamp, again.key, again.headers) == (5, b"k", first.headers)


def test_arrow_in_arrow_out(directory: kafkafs.WritableLogDirectories) -> None:
    one, two = directory["orders", 0], directory["orders", 1]
    one.append([ProducerRecord(b"%d" % n, b"k", 1000 + n, [("h", b"x")]) for n in range(100)])
    table = one.scan().read_all()
    assert two.append(table) == range(100)
    kept = ["key", "value", "timestamp", "headers"]
    assert two.scan(columns=kept).read_all() == table.select(kept)
    assert two.append(one.scan(start=90)) == range(100, 110)  # a reader
    [batch] = table.select(["value"]).slice(0, 3).combine_chunks().to_batches()
    assert two.append(batch) == range(110, 113)
    assert two.record(112).value == b"2"
    with pytest.raises((ValueError, TypeError, pa.ArrowInvalid)):
        two.append(pa.table({"value": [1, 2]}))


@pytest.mark.parametrize("records", [b"one", "one", [b"x", 1.5], [1], [ProducerRecord, b"x"]])
def test_what_is_no_list_of_records(
    directory: kafkafs.WritableLogDirectories, records: object
) -> None:
    with pytest.raises(TypeError, match="record"):
        directory["orders", 0].append(records)
    assert directory["orders", 0].end_offset == 0


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_and_size_of_batches(
    directory: kafkafs.WritableLogDirectories, compression: str
) -> None:
    p = directory["orders", 0]
    p.append([b"x" * 50] * 100, compression=compression, batch_size=1000)
    batch = p.record(60).batch
    assert batch.codec.name.lower() == compression
    assert 1 < batch.record_count < 20


def test_wrong_arguments(directory: kafkafs.WritableLogDirectories) -> None:
    with pytest.raises(ValueError, match="no compression 'brotli'; there are none, gzip"):
        directory["orders", 0].append([b"x"], compression="brotli")
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        directory["orders", 0].append([b"x"], batch_size=0)
    with pytest.raises(kafkafs.UnknownPartition):
        directory["orders", 2]
    with pytest.raises(kafkafs.Refused, match=r"max\.message\.bytes"):
        directory["orders", 0].append([b"x" * 2_000_000])
    with pytest.raises(KeyError):
        directory.run("everything")


def test_durable_is_on_the_disk_when_it_returns(directory: kafkafs.WritableLogDirectories) -> None:
    directory.create_topic("safe", configs={"flush.messages": "1"})

    def syncs(topic: str, durable: bool = False) -> int:
        calls = FailingCalls(-1, errno.EIO, ("fsync",))
        with replaced(calls):
            directory[topic, 0].append([b"x"], durable=durable)
        return len(calls.made)

    assert syncs("orders") == 0
    assert syncs("orders", durable=True) > 0
    assert syncs("safe") > 0
    assert syncs("orders") == 0
    directory["orders", 0].flush()


def test_topics(directory: kafkafs.WritableLogDirectories) -> None:
    assert directory.topics == {"orders": [0, 1]}
    directory.create_partitions("orders", 3)
    assert directory.configure("orders", {"retention.ms": "5"}) == {"retention.ms": "5"}
    assert directory.configure("orders", {"retention.ms": None}) == {}
    with pytest.raises(kafkafs.ConfigError):
        directory.configure("orders", {"retention.ms": "soon"})
    with pytest.raises(kafkafs.TopicExists):
        directory.create_topic("orders")
    directory.delete_topic("orders")
    assert directory.topics == {}


def test_deleting_records(directory: kafkafs.WritableLogDirectories) -> None:
    p = directory["orders", 0]
    p.append([b"a", b"b", b"c"])
    assert p.delete_records(2) == 2
    assert (p.start_offset, values(p)) == (2, [b"c"])
    assert p.delete_records(-1) == 3
    assert values(p) == []


def _append_and_fail(transaction: kafkafs.Transaction) -> None:
    transaction.append("orders", 0, [b"never"])
    transaction.append("orders", 1, b"no list")


def test_a_transaction_counts_as_a_whole(directory: kafkafs.WritableLogDirectories) -> None:
    one, two = directory["orders", 0], directory["orders", 1]
    with directory.transaction() as transaction:
        assert transaction.append("orders", 0, [b"a"]) == range(1)
        transaction.append("orders", 1, [b"b"])
        assert values(one) == []
        assert values(one, "read_uncommitted") == [b"a"]
    assert (values(one), values(two)) == ([b"a"], [b"b"])
    with pytest.raises(TypeError), directory.transaction() as transaction:
        _append_and_fail(transaction)
    assert values(one) == [b"a"]
    assert one.last_stable_offset == one.end_offset
    with directory.transaction(durable=True) as transaction:
        transaction.append("orders", 0, [b"c"], compression="zstd")
    assert values(one) == [b"a", b"c"]


def test_transactions_of_several_threads(directory: kafkafs.WritableLogDirectories) -> None:
    def work(number: int) -> None:
        for _ in range(10):
            with directory.transaction() as transaction:
                for partition in (0, 1):
                    transaction.append("orders", partition, [b"%d" % number])

    in_threads(*[partial(work, number) for number in range(4)])
    for partition in directory:
        assert Counter(values(partition)) == dict.fromkeys((b"0", b"1", b"2", b"3"), 10)


def test_a_commit_that_could_not_be_finished_is_finished_later(
    directory: kafkafs.WritableLogDirectories,
) -> None:
    def both() -> None:
        with directory.transaction() as transaction:
            transaction.append("orders", 0, [b"a"])
            transaction.append("orders", 1, [b"b"])

    for at in range(2, 8):
        calls = FailingCalls(at, errno.ENOSPC, ("pwritev",), lasting=True)
        with replaced(calls), suppress(OSError):
            both()
        with directory.transaction() as transaction:
            transaction.append("orders", 0, [b"later"])
        first, second = (values(directory["orders", number]) for number in (0, 1))
        # Committed or not, both partitions agree, and no transaction remains open.
        assert first.count(b"a") == second.count(b"b")
        assert first.count(b"later") == at - 1
        assert all(each.last_stable_offset == each.end_offset for each in directory)


class Unended:
    """A producer whose transaction cannot be ended; the first attempt raises `error`."""

    def __init__(self, error: BaseException) -> None:
        self.is_in_transaction = True
        self._error: BaseException | None = error

    def abort(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.is_in_transaction = False


def test_no_unended_transaction_is_forgotten(directory: kafkafs.WritableLogDirectories) -> None:
    """Holds even if ending one is interrupted, or other threads end them, too."""
    producers: list[Any] = [
        Unended(OSError()), Unended(KeyboardInterrupt()), Unended(OSError()),
    ]  # fmt: skip
    guard = directory._guard

    class Guarded(list[Any]):
        def append(self, each: Any) -> None:
            assert guard.locked()
            super().append(each)

    directory._unended = [*producers]
    directory._idle = Guarded()
    with pytest.raises(KeyboardInterrupt):
        directory._end_transactions()
    assert sorted(map(id, directory._unended)) == sorted(map(id, producers))
    directory._end_transactions()
    directory._end_transactions()
    assert directory._unended == []
    assert sorted(map(id, directory._idle)) == sorted(map(id, producers))
    directory._idle = []  # stand-ins, which cannot write


def test_a_transaction_that_nobody_ends_can_be_seen_and_ended(
    root: Path, directory: kafkafs.WritableLogDirectories, tmp_path: Path
) -> None:
    with directory.transaction() as transaction:
        transaction.append("orders", 0, [b"half"])
        shutil.copytree(root, tmp_path / "copy")  # as if killed in the middle
    with kafkafs.open(tmp_path / "copy", writable=True) as d:
        p = d["orders", 0]
        assert p.append([b"behind it"]) == range(1, 2)
        assert values(p) == []
        [found] = p.open_transactions()
        assert found.first_offset == 0
        with pytest.raises(kafkafs.Refused):
            p.abort_transaction(found.producer_id + 1)
        p.abort_transaction(found.producer_id)
        assert p.open_transactions() == []
        assert values(p) == [b"behind it"]


def test_what_a_killed_process_wrote_is_there(
    root: Path, directory: kafkafs.WritableLogDirectories, tmp_path: Path
) -> None:
    directory["orders", 0].append([b"x"], durable=True)
    shutil.copytree(root, tmp_path / "copy")
    with kafkafs.open(tmp_path / "copy", writable=True) as d:
        assert values(d["orders", 0]) == [b"x"]


def test_a_partition_is_a_topic_and_a_number(directory: kafkafs.WritableLogDirectories) -> None:
    wrong: Any = "orders"
    with pytest.raises(TypeError, match=r"directory\[TOPIC, NUMBER\], not directory\['orders'\]"):
        directory[wrong]


def test_writable_directories_close_idle_files(
    directory: kafkafs.WritableLogDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(directory._writable, "close_removed_if_due", lambda: calls.append(None))
    assert directory["orders", 0].partition == 0
    assert len(calls) == 1


def test_nobody_else_may_write(root: Path, directory: kafkafs.WritableLogDirectories) -> None:
    with pytest.raises(kafkafs.LogDirLocked):
        kafkafs.open(root, writable=True)
    with pytest.raises(kafkafs.LogDirLocked):
        LogManager(str(root))
    # Reading is still possible.
    directory["orders", 0].append([b"x"])
    assert values(kafkafs.open(root)["orders", 0]) == [b"x"]


def test_settings_of_the_run(root: Path) -> None:
    settings = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "5"}
    settings["retention.ms"] = "0"
    with kafkafs.open(root, writable=True, configs=settings) as d:
        d.create_topic("a")
        d["a", 0].append([ProducerRecord(b"old", timestamp=1)])
        assert d._writable.task_status()[0].why_not_scheduled
        assert d["a", 0].start_offset == 0
        d.delete_topic("a")
    with kafkafs.open(root, writable=True, maintain=True, configs=settings) as d:
        d.create_topic("a")
        d["a", 0].append([ProducerRecord(b"old", timestamp=1)])
        wait_until(lambda: d["a", 0].start_offset == 1)
    with pytest.raises(kafkafs.ConfigError):
        kafkafs.open(root, writable=True, configs={"retention.ms": "soon"})
    with pytest.raises(kafkafs.LogDirError):
        kafkafs.open("", writable=True)
    reading: Any = kafkafs.open
    with pytest.raises(ValueError, match="needs writable=True"):
        reading(root, maintain=True)


# -- compaction -----------------------------------------------------------------------------------


@pytest.fixture
def compacted(directory: kafkafs.WritableLogDirectories) -> kafkafs.WritableLogDirectories:
    """A directory whose topic has 30 records of 3 keys in several segments per partition."""
    settings = {"cleanup.policy": "compact", "internal.segment.bytes": "1000"}
    directory.create_topic("latest", 2, settings)
    for number in range(2):
        for at in range(30):
            record = ProducerRecord(bytes(100) + b"%d" % at, key=b"k%d" % (at % 3))
            directory["latest", number].append([record])
    return directory


def test_compaction(compacted: kafkafs.WritableLogDirectories) -> None:
    found = compacted.compact("latest")
    assert [(each.topic, each.partition) for each in found] == [("latest", 0), ("latest", 1)]
    for number, each in enumerate(found):
        left = compacted["latest", number].scan().read_all()
        assert each.is_eligible
        assert (each.before.records, each.after.records) == (30, left.num_rows)
        assert each.gone["superseded"] == 30 - left.num_rows > 15
        assert each.after.bytes < each.before.bytes
        last = compacted["latest", number].latest(b"k2")
        assert last is not None
        assert last.offset == 29
    assert not any(each.is_change for each in compacted.compact("latest", force=True))


def test_compaction_of_one_partition_that_is_not_due(
    compacted: kafkafs.WritableLogDirectories,
) -> None:
    compacted.configure("latest", {"min.cleanable.dirty.ratio": "1"})
    (untouched,) = compacted.compact("latest", 1)
    assert (untouched.is_eligible, untouched.is_change, untouched.dirty_ratio) == (False, False, 1)
    (forced,) = compacted.compact("latest", 1, force=True)
    assert forced.passes == 1
    assert compacted["latest", 0].scan().read_all().num_rows == 30


def test_what_cannot_be_compacted(root: Path, compacted: kafkafs.WritableLogDirectories) -> None:
    with pytest.raises(kafkafs.Refused, match='does not include "compact"'):
        compacted.compact("orders")
    with pytest.raises(kafkafs.UnknownTopic):
        compacted.compact("nothing")
    with pytest.raises(kafkafs.UnknownPartition):
        compacted.compact("latest", 2)
    log = root / "latest-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[80] ^= 1
    log.write_bytes(damaged)
    with pytest.raises(kafkafs.CorruptError, match="position 0"):
        compacted.compact("latest")
    assert compacted["latest", 1].scan().read_all().num_rows < 30  # still compacted
    assert any("latest-0: not cleaned" in problem for problem in compacted.problems)
    with pytest.raises(kafkafs.StorageError, match=r"aborted.*position 0"):
        compacted.compact("latest", 0)


def test_texts_dates_and_mappings_stand_for_bytes_milliseconds_and_headers(
    directory: kafkafs.WritableLogDirectories,
) -> None:
    partition = directory["orders", 0]
    time = datetime(2018, 5, 15, 11, 45, 18, 288000, tzinfo=UTC)
    partition.append(
        [
            "täglich",
            ProducerRecord("tea", key="karin", timestamp=time, headers={"a": b"1", "b": "ü"}),
            ProducerRecord(None, key="karin", timestamp="2018-05-15", headers={"none": None}),
            ProducerRecord(b"x", timestamp=5, headers=[("a", "1"), ("a", None)]),
        ]
    )
    plain, full, tombstone, pairs = partition.records()
    assert (plain.value, plain.key) == ("täglich".encode(), None)
    assert (full.value, full.key, full.timestamp) == (b"tea", b"karin", 1526384718288)
    assert full.headers == [("a", b"1"), ("b", "ü".encode())]
    assert (tombstone.value, tombstone.timestamp) == (None, 1526342400000)
    assert tombstone.headers == [("none", None)]
    assert (pairs.timestamp, pairs.headers) == (5, [("a", b"1"), ("a", None)])
    latest = partition.latest("karin")
    assert latest is not None
    assert latest.offset == tombstone.offset


def test_a_record_with_what_is_not_a_time(directory: kafkafs.WritableLogDirectories) -> None:
    partition = directory["orders", 0]
    with pytest.raises(ValueError, match="'soon' is not a time"):
        partition.append([ProducerRecord(b"x", timestamp="soon")])
    assert partition.end_offset == 0


def test_writing_to_what_was_opened_for_reading(root: Path) -> None:
    with kafkafs.open(root, writable=True) as writing:
        writing.create_topic("orders")
    reading = kafkafs.open(root)
    for thing, names in (
        (reading, ("create_topic", "delete_topic", "transaction")),
        (reading["orders", 0], ("append", "append_all", "delete_records")),
    ):
        for name in names:
            with pytest.raises(AttributeError, match=f"{name} writes.*open it with writable=True"):
                getattr(thing, name)
            assert not hasattr(thing, name)
        with pytest.raises(AttributeError, match="has no attribute 'apend'"):
            getattr(thing, "apend")  # noqa: B009 - type checkers reject the plain attribute


# -- erasing --------------------------------------------------------------------------------------


def test_erasing(root: Path, compacted: kafkafs.WritableLogDirectories) -> None:
    files = sorted((root / "latest-0").glob("*.log"))
    dry = compacted.erase("latest", 0, keys="k1", dry_run=True)
    assert [each.file for each in dry] == [
        str(file) for file in files if b"\x04k1" in file.read_bytes()
    ]
    done = compacted.erase("latest", 0, keys=["k1", b"nobody"])
    assert sorted((each.file, each.records, each.sha256) for each in done) == [
        (each.file, each.records, each.sha256) for each in dry
    ]
    assert sum(each.records for each in done) == 10
    keys = [[record.key for record in compacted["latest", number].records()] for number in (0, 1)]
    assert (len(keys[0]), len(keys[1])) == (20, 30)
    assert b"k1" not in keys[0]
    assert compacted.erase("latest", 0, keys="k1") == []
    (one,) = compacted.erase("latest", 1, offset=29)
    assert one.records == 1
    assert sum(each.records for each in compacted.erase("latest", prefix="k")) == 20 + 29
    assert [list(compacted["latest", number].records()) for number in (0, 1)] == [[], []]


def test_what_cannot_be_erased(root: Path, compacted: kafkafs.WritableLogDirectories) -> None:
    with pytest.raises(kafkafs.UnknownTopic):
        compacted.erase("nothing", keys="k1")
    with pytest.raises(kafkafs.UnknownPartition):
        compacted.erase("latest", 2, keys="k1")
    with pytest.raises(ValueError, match="exactly one"):
        compacted.erase("latest")
    shutil.copytree(root / "latest-0", root / f"latest-0.{'a' * 32}-stray")
    with pytest.raises(kafkafs.StorageError, match="stray partition") as caught:
        compacted.erase("latest", keys="k1")
    assert any("latest-1" in note for note in caught.value.__notes__)
    for number in (0, 1):
        assert b"k1" not in [record.key for record in compacted["latest", number].records()]
