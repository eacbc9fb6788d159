"""Tests restoring records that were deleted from the front of a partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.errors import CannotUndelete
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.delete.deletions import Cause
from kafkafs.storage.log.delete.retention import Hold, outlook
from tests.faults import RecordingCalls, Sync
from tests.reading import COMMITTED, open_view, read
from tests.reading import open_log as open_to_read
from tests.writing import NOW, batch, config, files, open_log

SIZE = len(batch())
DELAY_MS = 60_000
#: Three batches of one record per segment, with an index entry for each but the first.
SETTINGS = config(segment_bytes=3 * SIZE, index_interval_bytes=0, retention_ms=-1)


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


def partition(path: Path, clock: SetClock, settings: TopicConfig = SETTINGS) -> LogWriter:
    """Writes a partition with the offsets 0 to 19 in segments 0, 3, …, 18."""
    writer = open_log(path, settings, clock)
    for _ in range(20):
        writer.append(batch())
    return writer


@pytest.fixture
def writer(path: Path, clock: SetClock) -> LogWriter:
    return partition(path, clock)


def offsets(path: Path, writer: LogWriter) -> list[int]:
    return [record.offset for record in read(open_view(path, writer.start_offset))]


def live(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(path).items() if not name.endswith(".deleted")}


def ranges(writer: LogWriter) -> list[tuple[int, int, Cause]]:
    return [(each.start_offset, each.end_offset, each.cause) for each in writer.deleted()]


def epochs(writer: LogWriter) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in writer.epochs.entries]


def test_what_was_deleted_is_listed_and_comes_back_as_it_was(
    writer: LogWriter, path: Path, clock: SetClock
) -> None:
    before = files(path)
    writer.delete_records(10)
    clock.advance(5000)
    writer.retain()
    deleted = sorted(name for name in files(path) if name.endswith(".deleted"))
    assert deleted[:4] == [
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.deleted",
        "00000000000000000003.index.deleted",
    ]
    [found] = writer.deleted()
    assert (found.path, found.start_offset, found.end_offset) == ("t/0", 0, 10)
    assert (found.segments, found.size) == ((0, 3, 6), 9 * SIZE)
    assert (found.cause, found.deleted_at_ms) == (Cause.RECORDS, NOW)
    assert found.until_ms == NOW + DELAY_MS
    log = open_to_read(path)
    assert log.view().start_offset == 9  # as far as this reader can tell
    assert writer.undelete() == [found]
    assert files(path) == before
    assert (writer.start_offset, writer.deleted()) == (0, [])
    assert [record.offset for record in read(log.view())] == list(range(20))
    writer.close()
    again = open_log(path, SETTINGS, clock, is_clean=True)
    assert (again.start_offset, again.end_offset) == (0, 20)
    assert offsets(path, again) == list(range(20))


def test_it_comes_back_from_any_offset_and_the_rest_later(path: Path, writer: LogWriter) -> None:
    writer.delete_records(11)
    writer.retain()
    for start, bases in ((10, [9]), (7, [6, 9]), (3, [3, 6, 9]), (1, [0, 3, 6, 9])):
        [back] = writer.undelete(start)
        assert back.start_offset == start
        assert (writer.start_offset, offsets(path, writer)[0]) == (start, start)
        assert sorted(int(each.stem) for each in path.glob("*.log"))[: len(bases)] == bases
        assert ranges(writer) == [(0, start, Cause.RECORDS)]
    with pytest.raises(CannotUndelete, match="not from offset 1 on, only the offsets 0 to 0 can"):
        writer.undelete(1)
    writer.undelete(0)
    assert offsets(path, writer) == list(range(20))


def test_records_in_a_segment_that_stays_come_back_too(
    writer: LogWriter, path: Path, clock: SetClock
) -> None:
    writer.delete_records(2)
    assert [(each.segments, each.size) for each in writer.deleted()] == [((), 0)]
    clock.advance(DELAY_MS - 1)
    assert ranges(writer) == [(0, 2, Cause.RECORDS)]
    writer.undelete()
    assert offsets(path, writer) == list(range(20))
    writer.delete_records(2)
    clock.advance(DELAY_MS)
    with pytest.raises(CannotUndelete, match="its files were removed, or"):
        writer.undelete()
    assert (writer.start_offset, writer.deleted()) == (2, [])


def test_when_files_go_what_is_below_them_cannot_come_back(
    writer: LogWriter, path: Path, clock: SetClock
) -> None:
    writer.delete_records(4)
    writer.retain()
    clock.advance(30_000)
    writer.delete_records(10)
    writer.retain()
    assert ranges(writer) == [(0, 4, Cause.RECORDS), (4, 10, Cause.RECORDS)]
    clock.advance(30_000)
    assert writer.remove_deleted() == 3
    assert ranges(writer) == [(4, 10, Cause.RECORDS)]
    assert [each.segments for each in writer.deleted()] == [(3, 6)]
    with pytest.raises(CannotUndelete, match="only the offsets 4 to 9 can be"):
        writer.undelete(3)
    writer.undelete()
    assert offsets(path, writer) == list(range(4, 20))
    clock.advance(DELAY_MS)
    writer.remove_deleted()
    assert not list(path.glob("*.deleted"))
    assert offsets(path, writer) == list(range(4, 20))


def test_a_shorter_delay_takes_what_was_deleted_earlier_along(
    writer: LogWriter, path: Path, clock: SetClock
) -> None:
    writer.delete_records(3)
    writer.retain()
    writer.config = replace(SETTINGS, file_delete_delay_ms=10)
    writer.delete_records(9)
    writer.retain()
    clock.advance(10)
    writer.remove_deleted()
    assert writer.deleted() == []
    with pytest.raises(CannotUndelete):
        writer.undelete()
    assert [each.name for each in path.glob("*.log.deleted")] == [
        "00000000000000000000.log.deleted"
    ]


def test_each_rule_is_told_and_many_deletions_are_one(
    writer: LogWriter, path: Path, clock: SetClock
) -> None:
    for offset in range(1, 8):
        writer.delete_records(offset)
        clock.advance(100)
    writer.config = replace(SETTINGS, retention_bytes=5 * SIZE)
    writer.retain()
    assert ranges(writer) == [(0, 7, Cause.RECORDS), (7, 15, Cause.SIZE)]
    assert [each.segments for each in writer.deleted()] == [(0, 3), (6, 9, 12)]
    assert writer.deleted()[0].deleted_at_ms == NOW + 600
    clock.advance(1000)
    writer.config = replace(SETTINGS, retention_ms=0)
    writer.retain()
    assert ranges(writer)[2:] == [(15, 20, Cause.TIME)]
    writer.config = SETTINGS
    assert [each.cause for each in writer.undelete(9)] == [Cause.SIZE, Cause.TIME]
    assert offsets(path, writer) == list(range(9, 20))
    writer.append(batch())
    assert offsets(path, writer) == list(range(9, 21))


def test_retention_leaves_alone_what_came_back_but_not_for_ever(
    writer: LogWriter, clock: SetClock
) -> None:
    strict = replace(SETTINGS, retention_bytes=5 * SIZE)
    writer.config = strict
    writer.retain()
    assert writer.start_offset == 15
    writer.undelete(6)
    state = writer.retention_state()
    holds = [future.hold for future in outlook(state, strict, NOW)]
    assert holds == [Hold.UNDELETED] * 3 + [Hold.NO_BREACH] * 2
    assert writer.retain().count == 0
    clock.advance(DELAY_MS - 1)
    assert (writer.retain().count, writer.start_offset) == (0, 6)
    # DeleteRecords takes effect at once.
    writer.delete_records(9)
    assert (writer.retain().count, writer.start_offset) == (1, 9)
    clock.advance(1)
    assert (writer.retain().count, writer.start_offset) == (2, 15)
    assert ranges(writer)[-1] == (9, 15, Cause.SIZE)


def test_only_what_lies_below_the_start_can_be_deleted(path: Path, clock: SetClock) -> None:
    """Deleting one record must not delete a whole topic whose retention has not run yet."""
    writer = partition(path, clock, replace(SETTINGS, retention_ms=0, retention_bytes=0))
    clock.advance(1000)
    writer.delete_records(7)
    assert writer.delete_below_start() == 2
    assert (writer.delete_below_start(), writer.start_offset, writer.first_base_offset) == (0, 7, 6)
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n1\n0 7\n"
    writer.undelete()
    assert writer.delete_below_start() == 0
    assert offsets(path, writer) == list(range(20))


def cut(writer: LogWriter) -> None:
    writer.delete_records(5)
    writer.truncate_to(4)


def start_anew(writer: LogWriter) -> None:
    writer.delete_records(5)
    writer.retain()
    writer.truncate_fully_and_start_at(2)


def remove_by_hand(writer: LogWriter) -> None:
    writer.delete_records(9)
    writer.retain()
    Path(writer.path, "00000000000000000003.index.deleted").unlink()


def nothing(writer: LogWriter) -> None:
    pass


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (nothing, "nothing was deleted recently"),
        (cut, "the log was truncated meanwhile"),
        (start_anew, "the log was truncated meanwhile"),
        (remove_by_hand, "its files were removed by another process"),
    ],
)
def test_what_cannot_come_back_says_why_and_changes_nothing(
    path: Path, writer: LogWriter, happens: Callable[[LogWriter], None], why: str
) -> None:
    happens(writer)
    before = (files(path), writer.start_offset)
    with pytest.raises(CannotUndelete, match=f"t-0: cannot be restored: {why}"):
        writer.undelete()
    assert (files(path), writer.start_offset) == before
    assert writer.deleted() == []


def test_what_is_cut_behind_it_does_not_keep_it_away(path: Path, writer: LogWriter) -> None:
    writer.delete_records(10)
    writer.retain()
    writer.truncate_to(12)
    writer.append(batch())
    writer.undelete()
    assert offsets(path, writer) == list(range(13))


def test_producers_transactions_and_snapshots_are_as_before(path: Path, clock: SetClock) -> None:
    writer = open_log(path, SETTINGS, clock)
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    for number in range(12):
        writer.append(batch(base_sequence=number, **fields))
        if number in (1, 9):
            writer.end_transaction(7, 0, commit=number == 9)
    writer.append(batch())
    before = live(path)
    assert "00000000000000000000.txnindex" in before
    assert "00000000000000000003.snapshot" in before
    view = open_view(path)
    committed = read(view, isolation=COMMITTED)
    stable = writer.last_stable_offset
    assert stable < writer.end_offset
    writer.delete_records(stable)
    writer.retain()
    assert "00000000000000000003.snapshot.deleted" in files(path)
    writer.undelete()
    assert live(path) == before
    assert writer.last_stable_offset == stable
    assert read(open_view(path), isolation=COMMITTED) == committed
    assert writer.append(batch(base_sequence=11, **fields)).is_duplicate
    writer.abandon()
    again = open_log(path, SETTINGS, clock)
    assert again.append(batch(base_sequence=11, **fields)).is_duplicate
    assert read(open_view(path), isolation=COMMITTED) == committed


def test_leader_epochs_are_as_before(path: Path, clock: SetClock) -> None:
    for epoch in (0, 2, 5):
        writer = open_log(path, SETTINGS, clock, leader_epoch=epoch)
        for _ in range(4):
            writer.append(batch())
        writer.close()
    writer = open_log(path, SETTINGS, clock, leader_epoch=5)
    before = writer.epochs
    assert epochs(writer) == [(0, 0), (2, 4), (5, 8)]
    for start in (2, 5, 6, 9):
        writer.delete_records(start)
    writer.retain()
    assert epochs(writer) == [(5, 9)]
    writer.undelete(6)
    assert epochs(writer) == [(2, 6), (5, 8)]
    writer.delete_records(7)
    writer.undelete(5)
    assert epochs(writer) == [(2, 5), (5, 8)]
    writer.undelete()
    assert writer.epochs == before
    text = (path / "leader-epoch-checkpoint").read_text()
    assert text == "0\n3\n0 0\n2 4\n5 8\n"


def test_an_unsynced_segment_is_on_the_disk_when_it_is_back(
    path: Path, tmp_path: Path, clock: SetClock
) -> None:
    """It is then below the recovery point, so no recovery will examine it."""
    tasks: list[Callable[[], None]] = []
    writer = partition_with(path, clock, tasks)
    assert tasks  # the flush of rolled segments has not run
    assert writer.recovery_point == 0
    writer.delete_records(9)
    writer.retain()
    assert writer.recovery_point == 9
    recording = RecordingCalls(tmp_path)
    with replaced(recording):
        writer.undelete()
    synced = [each for each in recording.operations if isinstance(each, Sync)]
    assert len(synced) >= 3 * 3 + 2


def partition_with(path: Path, clock: SetClock, tasks: list[Callable[[], None]]) -> LogWriter:
    writer = open_log(path, SETTINGS, clock, later=tasks.append)
    for _ in range(20):
        writer.append(batch())
    return writer
