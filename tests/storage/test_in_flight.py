"""Tests appends that are written while the next ones are prepared."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import InvalidRecord, LogDirOffline, RecordListTooLarge
from kafkafs.storage.format.records.batch import Bytes
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.io.durable import Buffer, Calls, replaced
from kafkafs.storage.log.append import in_flight
from kafkafs.storage.log.append.appending import LogAppendInfo
from tests.faults import FailingCalls
from tests.reading import open_view, read
from tests.threads import in_threads
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.writing import NOW, batch, config, files, open_log

SIZE = len(batch())
LOG = "00000000000000000000.log"


@pytest.fixture(params=[1, 2])
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Simulates one or two processors. With one there is no other thread; results are the same."""
    monkeypatch.setattr(in_flight, "processors", lambda: request.param)
    return int(request.param)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "processors", lambda: 2)


def values(path: Path) -> list[bytes | None]:
    return [record.value for record in read(open_view(path))]


def columns(*given: bytes) -> RecordColumns:
    return RecordColumns.from_values(list(given), timestamp=NOW)


def is_flying() -> bool:
    return any(thread.name == "kafkafs-append" for thread in threading.enumerate())


class _FullDisk(Calls):
    """Calls on a disk that is full once half of the write that contains `marker` is done."""

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self.is_full = False

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        if self._marker not in data:
            return super().pwritev(fd, buffers, position)
        os.pwrite(fd, data[: len(data) // 2], position)
        self.is_full = True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Fsyncs(Calls):
    def __init__(self) -> None:
        self.count = 0

    def fsync(self, fd: int) -> None:
        self.count += 1
        super().fsync(fd)


def test_the_files_are_those_of_one_append_after_the_other(tmp_path: Path, processors: int) -> None:
    settings = config(segment_bytes=5000, index_interval_bytes=300)
    parts = [columns(*(b"%d-%d" % (n, m) for m in range(1 + n % 7))) for n in range(200)]
    plan = BatchPlan(batch_bytes=200)
    one = open_log(tmp_path / "one-0", settings, SetClock(NOW))
    each = open_log(tmp_path / "each-0", settings, SetClock(NOW))
    expected = [one.append_records(part, plan) for part in parts]
    assert list(each.append_records_each(iter(parts), plan)) == expected
    one.close()
    each.close()
    assert files(tmp_path / "each-0") == files(tmp_path / "one-0")
    assert len(files(tmp_path / "one-0")) > 12, "no segment was rolled"


def test_batches_are_appended_as_they_are(path: Path, processors: int) -> None:
    writer = open_log(path)
    parts: list[Bytes] = [bytearray(batch(3)), batch(2)]
    assert list(writer.append_each(parts)) == [LogAppendInfo(0, 2), LogAppendInfo(3, 4)]
    assert files(path)[LOG] == batch(3) + batch(2, base_offset=3)


@pytest.mark.parametrize("bad", [0, 1, 4, 9])
def test_none_gets_past_one_that_is_refused(path: Path, processors: int, bad: int) -> None:
    writer = open_log(path)
    parts = [batch(2) for _ in range(10)]
    parts[bad] = parts[bad][:-1] + b"?"
    found: list[LogAppendInfo] = []
    with pytest.raises(InvalidRecord, match="batch 0: its checksum is wrong"):
        found.extend(writer.append_each(parts))
    assert found == [LogAppendInfo(2 * n, 2 * n + 1) for n in range(bad)]
    assert writer.end_offset == 2 * bad
    assert files(path)[LOG] == b"".join(batch(2, base_offset=2 * n) for n in range(bad))
    assert not is_flying()
    assert writer.append(batch()) == LogAppendInfo(2 * bad, 2 * bad)


def test_none_gets_past_one_that_the_log_refuses(path: Path, two: None) -> None:
    """All are ready before the first is written, so they are written together."""
    writer = open_log(path, config(segment_bytes=4 * SIZE))
    sent = threading.Event()

    def parts() -> Iterator[bytes]:
        yield from [batch(), batch(), batch(size=5 * SIZE), batch()]
        sent.set()

    found: list[LogAppendInfo] = []

    def ask() -> None:
        with pytest.raises(RecordListTooLarge):
            found.extend(writer.append_each(parts()))
        found.append(LogAppendInfo(-1, -1))

    with writer._lock:
        asking = threading.Thread(target=ask)
        asking.start()
        assert sent.wait(PATIENCE_SECONDS)
    asking.join(PATIENCE_SECONDS)
    assert found == [LogAppendInfo(0, 0), LogAppendInfo(1, 1), LogAppendInfo(-1, -1)]
    assert values(path) == [bytes(100)] * 2


@pytest.mark.parametrize("at", range(4))
def test_a_full_disk(path: Path, processors: int, at: int) -> None:
    """Acknowledged records are in the log; all others may be appended again."""
    writer = open_log(path)
    found: list[LogAppendInfo] = []
    given = [b"value %d" % n for n in range(6)]
    disk = _FullDisk(given[at])
    with replaced(disk), pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        found.extend(writer.append_records_each(map(columns, given)))
    assert disk.is_full
    done = len(found)
    assert done <= at
    assert found == [LogAppendInfo(n, n) for n in range(done)]
    assert values(path) == given[:done]
    rest = writer.append_records_each(map(columns, given[done:]))
    assert list(rest) == [LogAppendInfo(n, n) for n in range(done, 6)]
    assert values(path) == given


def test_an_fsync_that_fails(path: Path, processors: int) -> None:
    writer = open_log(path, config(flush_messages=2))
    with replaced(FailingCalls(0, errno.EIO, ["fsync"])), pytest.raises(LogDirOffline):
        list(writer.append_records_each([columns(b"1"), columns(b"2"), columns(b"3")]))
    assert writer.failed is not None


@pytest.mark.parametrize(("every", "most"), [(1, 100), (10, 10), (1000, 0)])
def test_the_topics_flush_messages(path: Path, processors: int, every: int, most: int) -> None:
    writer = open_log(path, config(flush_messages=every))
    fsyncs = _Fsyncs()
    with replaced(fsyncs):
        for appended in writer.append_records_each(columns(b"%d" % n) for n in range(100)):
            assert writer.recovery_point > appended.last_offset - every
    assert fsyncs.count <= most
    assert bool(fsyncs.count) == bool(most)


def test_who_asks_no_more_finds_all_appended_that_was_asked_for(path: Path, two: None) -> None:
    writer = open_log(path)
    asked: list[int] = []

    def parts() -> Iterator[RecordColumns]:
        for n in range(1000):
            asked.append(n)
            yield columns(b"%d" % n)

    appending = writer.append_records_each(parts())
    next(appending)
    appending.close()
    assert not is_flying()
    assert values(path) == [b"%d" % n for n in asked]


def test_one_that_is_dropped_does_not_wait_for_what_it_appends(path: Path, two: None) -> None:
    """The garbage collector may drop it while a lock is held that the other thread needs."""
    writer = open_log(path)
    appending = writer.append_records_each(columns(b"%d" % n) for n in range(1000))
    next(appending)
    asked = writer.end_offset
    with writer._lock:  # no append can proceed
        del appending
    wait_until(lambda: not is_flying())
    assert len(values(path)) >= asked


def test_an_interruption_leaves_no_thread(path: Path, two: None) -> None:
    writer = open_log(path)

    def parts() -> Iterator[RecordColumns]:
        yield columns(b"1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(writer.append_records_each(parts()))
    assert not is_flying()
    assert values(path) == [b"1"]


def test_no_more_is_held_than_a_few_megabytes(path: Path, two: None) -> None:
    writer = open_log(path, config(max_message_bytes=1 << 30))
    part = columns(*[bytes(1 << 20)] * 3)
    asked: list[int] = []
    found: list[object] = []
    held: list[int] = []  # parts that were asked for and not appended yet, at each request

    def parts() -> Iterator[RecordColumns]:
        for n in range(20):
            asked.append(n)
            held.append(len(asked) - len(found))
            yield part

    with writer._lock:
        asking = threading.Thread(target=lambda: found.extend(writer.append_records_each(parts())))
        asking.start()
        wait_until(lambda: len(asked) == 3)  # two are waiting, and one is ready
    asking.join(PATIENCE_SECONDS)
    assert len(found) == 20
    assert max(held) <= 4
    large = columns(bytes(9 << 20))  # more than may be held in memory
    assert [each.first_offset for each in writer.append_records_each([large] * 3)] == [60, 61, 62]


def test_threads_side_by_side(path: Path, two: None) -> None:
    writer = open_log(path, config(segment_bytes=20_000))
    found: list[list[LogAppendInfo]] = []

    def work(name: int) -> None:
        parts = (columns(b"%d-%d" % (name, n)) for n in range(200))
        found.append(list(writer.append_records_each(parts)))

    in_threads(*[partial(work, name) for name in range(4)])
    assert sorted(each.first_offset for some in found for each in some) == list(range(800))
    read_ = values(path)
    for name in range(4):
        mine = [value for value in read_ if value and value.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, n) for n in range(200)]
