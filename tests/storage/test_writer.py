"""Tests a partition that is written: what appends, flushes, deletions and truncations leave."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    LogDirOffline,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PolicyViolation,
    Refused,
    SegmentGone,
    UnknownPartition,
)
from kafkafs.storage.format.files.checkpoints import EpochEntry
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.io.durable import Calls, replaced
from kafkafs.storage.log.append.appending import AppendRequest, LogAppendInfo
from kafkafs.storage.log.append.group_commit import GroupCommit
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.delete.retention import Rule
from tests.building import MessageFields, build_messages
from tests.reading import COMMITTED, open_view, read
from tests.threads import in_threads, repeating
from tests.waiting import wait_until
from tests.writing import NOW, batch, config, files, open_log

SIZE = len(batch())
IN_TRANSACTION: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}


@pytest.fixture
def writer(path: Path) -> LogWriter:
    """Opens an empty log with segments of three batches, all with index entries."""
    return open_log(path, config(segment_bytes=3 * SIZE, index_interval_bytes=0), SetClock(NOW))


def offsets(path: Path, start: int = 0) -> list[int]:
    return [record.offset for record in read(open_view(path, start))]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def bases(writer: LogWriter) -> list[int]:
    return [segment.base_offset for segment in writer.retention_state().segments]


# -- appending ------------------------------------------------------------------------------------


def test_a_new_partition_has_the_files_that_a_broker_makes(path: Path, writer: LogWriter) -> None:
    found = files(path)
    assert sorted(found) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
    ]
    assert found["leader-epoch-checkpoint"] == b"0\n1\n0 0\n"
    assert found["00000000000000000000.log"] == b""
    assert writer.end_offset == 0
    writer.append(batch())
    found = files(path)
    assert len(found["00000000000000000000.index"]) == 10485760
    assert len(found["00000000000000000000.timeindex"]) == 10485756
    assert (path / "00000000000000000000.index").stat().st_blocks == 0


def test_batches_are_appended_as_they_are_and_a_reader_sees_them_at_once(
    path: Path, writer: LogWriter
) -> None:
    assert writer.append(batch(2)) == LogAppendInfo(0, 1, -1)
    assert writer.append(batch(3, codec=Codec.ZSTD)) == LogAppendInfo(2, 4, -1)
    assert offsets(path) == [0, 1, 2, 3, 4]
    assert (writer.end_offset, writer.high_watermark, writer.recovery_point) == (5, 5, 0)
    data = files(path)["00000000000000000000.log"]
    assert data == batch(2) + batch(3, codec=Codec.ZSTD, base_offset=2)


def test_records_become_batches(path: Path, writer: LogWriter) -> None:
    records = [SimpleRecord(NOW + n, b"k", b"v%d" % n, [("h", b"x")]) for n in range(100)]
    columns = RecordColumns.from_records(records)
    appended = writer.append_records(columns, BatchPlan(batch_bytes=300, codec=Codec.LZ4))
    assert appended == LogAppendInfo(0, 99, -1)
    found = read(open_view(path))
    assert [(r.timestamp, r.key, r.value) for r in found] == [
        (r.timestamp, r.key, r.value) for r in records
    ]
    assert len(bases(writer)) > 3


def test_the_topics_settings_count_for_records(path: Path) -> None:
    settings = config(compression_type="gzip", message_timestamp_type="LogAppendTime")
    writer = open_log(path, settings, SetClock(NOW))
    appended = writer.append_records(RecordColumns.from_values([b"a", b"b"]), BatchPlan())
    assert appended == LogAppendInfo(0, 1, NOW)
    assert writer.append(batch(codec=Codec.LZ4)).append_time == NOW
    view = open_view(path)
    assert [record.timestamp for record in read(view)] == [NOW] * 3
    assert files(path)["00000000000000000000.log"][22] & 7 == Codec.GZIP


@pytest.mark.parametrize(
    ("settings", "given", "error"),
    [
        ({"max_message_bytes": 100}, batch(), MessageTooLarge),
        ({}, batch(timestamp=NOW + 3_600_001), InvalidTimestamp),
        ({"message_timestamp_before_max_ms": 10}, batch(timestamp=NOW - 11), InvalidTimestamp),
        ({}, batch()[:-1], InvalidRecord),
        ({}, batch()[:-1] + b"?", InvalidRecord),
        ({}, b"", InvalidRecord),
    ],
)
def test_what_is_refused_changes_nothing(
    path: Path, settings: dict[str, Any], given: bytes, error: type[Refused]
) -> None:
    writer = open_log(path, config(**settings), SetClock(NOW))
    before = files(path)
    with pytest.raises(error):
        writer.append(given)
    assert files(path) == before
    assert writer.end_offset == 0


@pytest.mark.parametrize(
    ("settings", "given", "error"),
    [
        ({"cleanup_policy": ("compact",)}, SimpleRecord(NOW, None, b"v"), InvalidRecord),
        ({}, SimpleRecord(NOW + 3_600_001, b"k", b"v"), InvalidTimestamp),
        ({"max_message_bytes": 100}, SimpleRecord(NOW, b"k", bytes(100)), MessageTooLarge),
        ({"max_message_bytes": 50}, SimpleRecord(NOW, b"k", b""), MessageTooLarge),
    ],
)
def test_records_are_refused_by_their_number(
    path: Path, settings: dict[str, Any], given: SimpleRecord, error: type[Refused]
) -> None:
    writer = open_log(path, config(**settings), SetClock(NOW))
    records = [SimpleRecord(NOW, b"k", b"v"), given]
    with pytest.raises(error) as raised:
        writer.append_records(RecordColumns.from_records(records))
    assert raised.value.index == (-1 if error is MessageTooLarge else 1)
    assert writer.end_offset == 0


def test_no_record_is_no_append(writer: LogWriter) -> None:
    with pytest.raises(InvalidRecord, match="no record"):
        writer.append_records(RecordColumns.from_values([]))


def test_settings_can_change_while_it_is_open(path: Path, writer: LogWriter) -> None:
    writer.append(batch() * 2)
    writer.config = config(max_message_bytes=SIZE - 1)
    with pytest.raises(MessageTooLarge):
        writer.append(batch())
    writer.config = config(segment_bytes=SIZE)
    writer.append(batch())
    assert bases(writer) == [0, 2]


def test_batches_of_another_log_keep_offsets_and_epochs(path: Path, writer: LogWriter) -> None:
    given = batch(base_offset=5, leader_epoch=3) + batch(base_offset=9, leader_epoch=4)
    assert writer.append(given, AppendOrigin.REPLICATION) == LogAppendInfo(5, 9, -1)
    assert writer.epochs.entries == (EpochEntry(0, 0), EpochEntry(3, 5), EpochEntry(4, 9))
    assert offsets(path) == [5, 9]
    with pytest.raises(OffsetOutOfRange):
        writer.append(batch(base_offset=9), AppendOrigin.REPLICATION)
    old = build_messages([SimpleRecord(1, b"k", b"v")], MessageFields(magic=1, base_offset=12))
    writer.append(old, AppendOrigin.REPLICATION)
    assert not writer.epochs.entries


def test_transactions_and_their_markers(path: Path, writer: LogWriter) -> None:
    writer.append(batch(base_sequence=0, **IN_TRANSACTION))
    writer.append(batch())
    assert (writer.last_stable_offset, writer.high_watermark) == (0, 2)
    assert writer.producers.open_transactions()[0].first_offset == 0
    assert writer.end_transaction(9, 0, commit=False) == LogAppendInfo(2, 2, -1)
    assert writer.last_stable_offset == 3
    assert "00000000000000000000.txnindex" in names(path)
    writer.append(batch(base_sequence=1, **IN_TRANSACTION))
    writer.end_transaction(9, 1, commit=True)
    with pytest.raises(InvalidProducerEpoch):
        writer.append(batch(base_sequence=2, **IN_TRANSACTION))
    assert [record.offset for record in read(open_view(path), isolation=COMMITTED)] == [1, 3]
    writer.close()
    again = open_log(path, is_clean=True)
    assert again.last_stable_offset == 5
    assert again.producers.state(9) is not None


def test_a_batch_sent_twice_is_answered_with_its_offsets(path: Path) -> None:
    writer = open_log(path, clock=SetClock(NOW))
    sent = [
        batch(2, producer_id=5, producer_epoch=0, base_sequence=sequence) for sequence in (0, 2)
    ]
    for one in sent:
        writer.append(one)
    before = files(path)
    assert writer.append(sent[0]) == LogAppendInfo(0, 1, -1, is_duplicate=True)
    assert writer.append(sent[1], durable=True) == LogAppendInfo(2, 3, -1, is_duplicate=True)
    assert files(path) == before
    writer.close()
    again = open_log(path, is_clean=True)
    assert again.append(sent[1]).is_duplicate


# -- many threads ---------------------------------------------------------------------------------


class CountedCalls(Calls):
    """Counts fsyncs and writes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def fsync(self, fd: int) -> None:
        self.counts["fsync"] += 1
        super().fsync(fd)

    def pwritev(self, fd: int, buffers: Any, position: int) -> int:
        self.counts["pwritev"] += 1
        return super().pwritev(fd, buffers, position)


class Gathering:
    """Makes every group of appends take until each of the threads that still append either is in
    it or waits."""

    def __init__(self, group: GroupCommit, threads: int) -> None:
        self._group, self._append, self._threads = group, group._append, threads
        self._lock = threading.Lock()
        group._append = self._append_late

    def _append_late(self, requests: Sequence[AppendRequest]) -> None:
        wait_until(lambda: len(self._group._waiting) == self._threads - len(requests))
        self._append(requests)

    def work(self, append: Callable[[int], object], times: int) -> None:
        """Calls `append` so many times with a number, in a thread that then ends."""
        for number in range(times):
            append(number)
        with self._lock:
            self._threads -= 1


def test_threads_share_fsyncs_and_each_gets_offsets_of_its_own(path: Path) -> None:
    writer = open_log(path, config(segment_bytes=50 * SIZE), SetClock(NOW))
    got: list[tuple[int, bytes]] = []
    calls, gathering = CountedCalls(), Gathering(writer._durable_appends, 8)

    def append(thread: int, n: int) -> None:
        value = b"%d.%d" % (thread, n)
        appended = writer.append_records(RecordColumns.from_values([value]), durable=True)
        assert writer.recovery_point > appended.last_offset
        got.append((appended.first_offset, value))

    with replaced(calls):
        in_threads(*[partial(gathering.work, partial(append, number), 20) for number in range(8)])
    assert calls.counts["fsync"] < 100
    assert sorted(got) == [(record.offset, record.value) for record in read(open_view(path))]
    assert [offset for offset, _ in sorted(got)] == list(range(160))


def test_appends_that_wait_are_written_together(path: Path) -> None:
    writer = open_log(path, clock=SetClock(NOW))
    calls, gathering = CountedCalls(), Gathering(writer._appends, 10)

    def append(number: int, sequence: int) -> None:
        writer.append(
            batch(producer_id=number, producer_epoch=0, base_sequence=sequence, codec=Codec.LZ4)
        )

    with replaced(calls):
        in_threads(*[partial(gathering.work, partial(append, number), 10) for number in range(10)])
    assert calls.counts["pwritev"] < 70
    assert offsets(path) == list(range(100))
    assert {state.last_sequence for state in writer.producers.states()} == {9}


def test_an_append_that_is_refused_does_not_harm_those_beside_it(path: Path) -> None:
    writer = open_log(path, clock=SetClock(NOW))
    refused: list[int] = []

    def work(number: int) -> None:
        sequence = 0
        for n in range(20):
            given = sequence + 7 if number % 2 == 1 and n % 3 == 2 else sequence
            try:
                writer.append(batch(producer_id=number, producer_epoch=0, base_sequence=given))
                sequence += 1
            except OutOfOrderSequence:
                refused.append(number)

    in_threads(*[partial(work, number) for number in range(6)])
    assert sorted(refused) == [1] * 6 + [3] * 6 + [5] * 6
    assert offsets(path) == list(range(102))
    assert writer.end_offset == 102


def test_everything_at_once(path: Path) -> None:
    clock = SetClock(NOW)
    writer = open_log(
        path,
        config(segment_bytes=10 * SIZE, retention_bytes=30 * SIZE, file_delete_delay_ms=0),
        clock,
    )
    got: dict[int, bytes] = {}
    seen: list[int] = []

    def append(number: int) -> None:
        for n in range(60):
            value = b"%d.%d" % (number, n)
            durable = n % 3 == 0
            appended = writer.append(batch(value=value, size=60), durable=durable)
            got[appended.first_offset] = value + bytes(60)

    def look() -> None:
        try:
            records = read(open_view(path, writer.start_offset))
        except SegmentGone:  # deleted without delay
            return
        assert [record.offset for record in records] == sorted({r.offset for r in records})
        seen.append(len(records))

    with repeating(writer.retain, writer.remove_deleted, writer.flush, writer.roll, look):
        in_threads(*[partial(append, number) for number in range(6)])
    assert sorted(got) == list(range(360))
    start = writer.start_offset
    kept = [(offset, value) for offset, value in sorted(got.items()) if offset >= start]
    writer.close()
    again = open_log(path, clock=clock, is_clean=True, start_offset=start)
    assert (again.start_offset, again.end_offset) == (start, 360)
    assert [(r.offset, r.value) for r in read(open_view(path, start))] == kept
    assert seen


# -- flushing -------------------------------------------------------------------------------------


def test_nothing_is_synced_unless_it_is_asked_for(writer: LogWriter) -> None:
    calls = CountedCalls()
    with replaced(calls):
        writer.append(batch())
        assert (calls.counts["fsync"], writer.recovery_point) == (0, 0)
        writer.append(batch(), durable=True)
        assert writer.recovery_point == 2
        count = calls.counts["fsync"]
        assert count >= 1
        writer.flush()
        assert calls.counts["fsync"] == count


def roll_and_flush(writer: LogWriter) -> None:
    writer.roll()
    writer.flush()


@pytest.mark.parametrize("call", [LogWriter.flush, LogWriter.close, roll_and_flush])
def test_what_a_killed_process_left_is_synced_before_it_counts_as_durable(
    path: Path, call: Callable[[LogWriter], None]
) -> None:
    settings = config(segment_bytes=SIZE)
    writer = open_log(path, settings, SetClock(NOW), later=lambda task: None)
    for _ in range(4):
        writer.append(batch())
    writer.abandon()
    again = open_log(path, settings, SetClock(NOW), recovery_point=1)
    assert (again.recovery_point, again.end_offset) == (1, 4)
    synced: list[str] = []

    class NotingCalls(Calls):
        def fsync(self, fd: int) -> None:
            synced.append(Path(f"/proc/self/fd/{fd}").resolve().name)
            super().fsync(fd)

    with replaced(NotingCalls()):
        call(again)
    assert again.recovery_point == 4
    logs = [name for name in synced if name.endswith(".log")]
    assert logs == [f"{base:020}.log" for base in (1, 2, 3)]
    assert f"{1:020}.index" in synced


def test_flush_messages(path: Path) -> None:
    clock = SetClock(NOW)
    writer = open_log(path, config(flush_messages=3), clock)
    clock.advance(500)
    writer.append(batch(2))
    assert (writer.recovery_point, writer.last_flush_ms) == (0, NOW)
    writer.append(batch(2))
    assert (writer.recovery_point, writer.last_flush_ms) == (4, NOW + 500)


def test_a_rolled_segment_is_synced_in_the_background(path: Path) -> None:
    tasks: list[Callable[[], None]] = []
    writer = open_log(path, config(segment_bytes=SIZE), SetClock(NOW), later=tasks.append)
    for _ in range(3):
        writer.append(batch())
    assert (writer.recovery_point, len(tasks)) == (0, 2)
    tasks[0]()
    assert writer.recovery_point == 2  # the other batch was rolled in the meantime
    tasks[1]()
    assert writer.recovery_point == 2
    writer.flush()
    assert writer.recovery_point == 3


def test_a_roll_with_nothing_unflushed_syncs_the_indexes_that_it_closes(path: Path) -> None:
    writer = open_log(path, config(segment_bytes=SIZE), SetClock(NOW), later=lambda task: None)
    writer.append(batch(), durable=True)
    calls = CountedCalls()
    with replaced(calls):
        writer.append(batch())
    assert calls.counts["fsync"] == 3 + 1  # and that of the directory


# -- deleting -------------------------------------------------------------------------------------


def fill(writer: LogWriter, count: int = 9) -> None:
    """Fills segments of three batches, one record per batch."""
    for number in range(count):
        writer.append(batch(timestamp=NOW - 1000 + number))


def test_deleting_records_moves_the_start_and_leaves_the_files(
    path: Path, writer: LogWriter
) -> None:
    fill(writer)
    before = names(path)
    assert writer.delete_records(4) == 4
    assert writer.delete_records(2) == 4
    assert (writer.start_offset, names(path)) == (4, before)
    assert writer.epochs.entries == (EpochEntry(0, 4),)
    assert writer.retain().deletions[0].rule is Rule.LOG_START
    assert (bases(writer), writer.start_offset) == ([3, 6], 4)
    assert writer.delete_records(-1) == 9
    assert writer.recovery_point == 9
    with pytest.raises(OffsetOutOfRange):
        writer.delete_records(10)
    writer.config = config(cleanup_policy=("compact",))
    with pytest.raises(PolicyViolation):
        writer.delete_records(9)


def test_segments_go_in_two_steps(path: Path, writer: LogWriter) -> None:
    fill(writer)
    writer.config = replace(writer.config, retention_bytes=4 * SIZE, file_delete_delay_ms=100)
    assert writer.retain(NOW).count == 1
    assert (bases(writer), writer.start_offset) == ([3, 6], 3)
    gone = [name for name in names(path) if name.endswith(".deleted")]
    stem = "00000000000000000000"
    assert gone == [f"{stem}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
    assert writer.remove_deleted(NOW + 99) == 0
    assert writer.remove_deleted(NOW + 100) == 3
    writer.config = replace(writer.config, retention_bytes=-1, retention_ms=993)
    writer.retain(NOW)
    assert "00000000000000000003.snapshot.deleted" in names(path)
    assert offsets(path, writer.start_offset) == [6, 7, 8]
    assert writer.remove_deleted(NOW + 100) == 4


def test_when_all_is_old_an_empty_segment_stays(path: Path, writer: LogWriter) -> None:
    fill(writer)
    writer.config = replace(writer.config, retention_ms=10)
    plan = writer.retain(NOW)
    assert (plan.count, plan.rolls) == (3, True)
    assert (bases(writer), writer.start_offset, writer.end_offset) == ([9], 9, 9)
    assert offsets(path, 9) == []
    assert writer.retain(NOW + 10**9).count == 0
    writer.append(batch())
    writer.close()
    again = open_log(path, is_clean=True)
    assert (again.start_offset, again.end_offset) == (9, 10)


# -- truncating -----------------------------------------------------------------------------------


def logs_of(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if name.endswith(".log")}


def entries(name: str, data: bytes) -> list[tuple[int, ...]]:
    """Returns the entries of an index, and none for other files."""
    layout = {".index": ">ii", ".timeindex": ">qi"}.get(name[20:])
    return list(struct.iter_unpack(layout, data)) if layout else []


@pytest.mark.parametrize("offset", range(10))
def test_truncated_it_is_as_if_no_more_had_been_appended(tmp_path: Path, offset: int) -> None:
    settings = config(segment_bytes=3 * SIZE, index_interval_bytes=0, file_delete_delay_ms=0)
    found = []
    for name, count in (("long", 9), ("short", offset)):
        writer = open_log(tmp_path / name, settings, SetClock(NOW))
        fill(writer, count)
        assert writer.truncate_to(offset) == (count > offset)
        assert writer.end_offset == offset
        writer.remove_deleted()
        fill(writer, 2)
        writer.close()
        found.append(files(tmp_path / name))
        # there are fewer entries where the interval restarted, and none is wrong
        assert read(open_view(tmp_path / name))[-2:] == read(open_view(tmp_path / name), offset)
    assert logs_of(found[0]) == logs_of(found[1])
    for name, data in found[1].items():
        assert set(entries(name, found[0][name])) <= set(entries(name, data))


def test_a_batch_that_holds_the_offset_goes_as_a_whole(path: Path, writer: LogWriter) -> None:
    writer.append(batch(3))
    writer.append(batch(3))
    assert writer.truncate_to(4)
    assert (writer.end_offset, offsets(path)) == (4, [0, 1, 2])
    writer.append(batch())
    assert offsets(path) == [0, 1, 2, 4]
    with pytest.raises(OffsetOutOfRange):
        writer.truncate_to(-1)


def test_truncation_takes_producers_transactions_and_epochs_back(path: Path) -> None:
    writer = open_log(path, config(segment_bytes=4 * SIZE), SetClock(NOW), leader_epoch=2)
    for sequence in range(6):
        writer.append(batch(base_sequence=sequence, **IN_TRANSACTION))
    writer.end_transaction(9, 0, commit=False)
    writer.append(batch(base_offset=7, leader_epoch=3), AppendOrigin.REPLICATION)
    assert writer.epochs.latest == 3
    writer.truncate_to(5)
    assert writer.epochs.entries == (EpochEntry(2, 0),)
    assert (writer.last_stable_offset, writer.end_offset) == (0, 5)
    assert writer.append(batch(base_sequence=4, **IN_TRANSACTION)).is_duplicate
    writer.append(batch(base_sequence=5, **IN_TRANSACTION))
    writer.end_transaction(9, 0, commit=False)
    assert writer.last_stable_offset == 7


def test_below_its_first_offset_a_log_begins_anew(path: Path, writer: LogWriter) -> None:
    fill(writer)
    writer.delete_records(6)
    writer.retain()
    writer.truncate_to(2)
    assert (writer.start_offset, writer.end_offset, bases(writer)) == (2, 2, [2])
    writer.append(batch(2))
    assert offsets(path, 2) == [2, 3]
    writer.truncate_fully_and_start_at(100)
    writer.append(batch())
    assert offsets(path, 100) == [100]
    writer.close()
    assert open_log(path, is_clean=True).end_offset == 101


# -- opening and closing --------------------------------------------------------------------------


def test_closed_and_opened_again_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    settings = config(segment_bytes=10 * SIZE, index_interval_bytes=SIZE)
    paths = tmp_path / "once-0", tmp_path / "often-0"
    once = open_log(paths[0], settings, SetClock(NOW))
    for number in range(25):
        one = batch(timestamp=NOW + number * 7 % 5)
        once.append(one)
        often = open_log(paths[1], settings, SetClock(NOW), is_clean=True)
        often.append(one)
        often.close()
    once.close()
    logs = [logs_of(files(path)) for path in paths]
    assert logs[0] == logs[1]
    assert offsets(paths[1]) == list(range(25))


def test_after_it_was_closed_everything_is_refused(path: Path, writer: LogWriter) -> None:
    writer.append(batch())
    writer.close()
    before = files(path)
    for call in (lambda: writer.append(batch()), writer.roll, writer.retain, writer.close):
        with pytest.raises(LogDirOffline, match="closed"):
            call()
    assert files(path) == before


def test_given_up_it_writes_nothing(path: Path, writer: LogWriter) -> None:
    writer.append(batch())
    before = files(path)
    writer.abandon()
    path.rename(path.with_name("gone"))
    with pytest.raises(UnknownPartition):
        writer.append(batch())
    with pytest.raises(UnknownPartition):
        writer.flush()
    assert not path.exists()
    assert files(path.with_name("gone")) == before


def test_a_log_that_is_preallocated_has_its_size_when_it_is_closed(path: Path) -> None:
    settings = config(segment_bytes=5 * SIZE, preallocate=True)
    writer = open_log(path, settings, SetClock(NOW))
    for _ in range(7):
        writer.append(batch())
    first, second = (path / f"{base:020}.log" for base in (0, 5))
    assert (first.stat().st_size, second.stat().st_size) == (5 * SIZE, 5 * SIZE)
    assert offsets(path) == list(range(7))
    writer.close()
    assert second.stat().st_size == 2 * SIZE
    writer = open_log(path, settings, SetClock(NOW), is_clean=True)
    writer.append(batch())
    assert second.stat().st_size == 5 * SIZE
    crashed = open_log(path, settings, SetClock(NOW))
    assert crashed.end_offset == 8
    crashed.append(batch())
    assert offsets(path) == list(range(9))


def test_the_leader_epoch_is_noted_when_it_is_opened(path: Path) -> None:
    writer = open_log(path, clock=SetClock(NOW), leader_epoch=5)
    assert writer.epochs.entries == (EpochEntry(5, 0),)
    writer.append(batch())
    writer.close()
    assert open_log(path, is_clean=True).leader_epoch == 5
    assert open_log(path, is_clean=True, leader_epoch=6).epochs.latest == 6


def test_producers_expire(writer: LogWriter) -> None:
    writer.append(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    assert writer.expire_producers(NOW + 86_400_000 - 1) == 0
    assert writer.expire_producers(NOW + 86_400_000) == 1


def test_a_partition_that_was_deleted_takes_nothing_at_once(path: Path, writer: LogWriter) -> None:
    """The append itself then reports that the partition does not exist."""
    writer.append(batch())
    assert writer.takes_at_once(100)
    writer.abandon()
    path.rename(path.with_name("t-0.0123456789abcdef0123456789abcdef-delete"))
    assert not writer.takes_at_once(100)
    with pytest.raises(UnknownPartition):
        writer.append(batch())
