"""Tests a disk that fails under a partition being written: every single system call, once.

Later appends must not depend on the error, and what was acknowledged must be there when the
partition is opened again, whether it was closed in between or not.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import LogDirOffline
from kafkafs.storage.io.durable import Calls, replaced
from kafkafs.storage.log.append.writer import LogWriter
from tests.faults import FailingCalls, path_of
from tests.reading import open_view, read
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.writing import NOW, Unsynced, batch, config, files, open_log

SIZE = len(batch())
SMALL = len(batch(size=0))
SETTINGS = config(segment_bytes=3 * SIZE, index_interval_bytes=0, file_delete_delay_ms=0)


@dataclass
class Run:
    """Steps on a partition, each repeated if it fails. `values` must be in the log; `perhaps` may
    be: their append failed in a way that took the directory offline."""

    writer: LogWriter
    values: list[bytes] = field(default_factory=list)
    perhaps: list[bytes] = field(default_factory=list)
    errors: list[OSError] = field(default_factory=list)
    start: int = 0

    def step(self, call: Callable[[], Any]) -> bool:
        for _ in range(2):
            try:
                call()
            except LogDirOffline:
                assert self.writer.failed is not None
                return False
            except OSError as error:
                self.errors.append(error)
                assert self.writer.failed is None
            else:
                return True
        raise AssertionError("the step failed twice")

    def append(self, count: int = 1, **options: Any) -> bool:
        values = [b"%050d" % (len(self.values) + n) for n in range(count)]
        data = b"".join(batch(value=value, size=0) for value in values)
        done = self.step(lambda: self.writer.append(data, **options))
        (self.values if done else self.perhaps).extend(values)
        return done

    def drop_old(self, count: int) -> bool:
        """Applies retention to all but the newest `count` bytes."""
        self.writer.config = replace(self.writer.config, retention_bytes=count)
        done = self.step(self.writer.retain)
        self.start = self.writer.start_offset
        return done and self.step(self.writer.remove_deleted)

    def everything(self) -> bool:
        transaction: dict[str, Any] = {
            "producer_id": 9,
            "producer_epoch": 0,
            "is_transactional": True,
        }
        return (
            all(self.append() for _ in range(4))
            and self.append(durable=True)
            and self.append(5)
            and self.step(lambda: self.writer.append(batch(base_sequence=0, **transaction)))
            and self.note(b"")
            and self.step(lambda: self.writer.end_transaction(9, 0, commit=False))
            and self.note(b"")
            and self.append()
            and self.drop_old(3 * SIZE)
            and self.append(2, durable=True)
            and self.step(self.writer.roll)
            and self.append()
            and self.step(self.writer.close)
        )

    def note(self, value: bytes) -> bool:
        self.values.append(value)
        return True


class QuickCalls(FailingCalls):
    """Calls whose fsyncs do nothing unless they fail, as there are thousands."""

    def fsync(self, fd: int) -> None:
        self._call("fsync", path_of(fd), lambda: None)


def run(path: Path, calls: Calls) -> Run:
    with replaced(Unsynced()):
        writer = open_log(path, SETTINGS, SetClock(NOW))
    with replaced(calls):
        found = Run(writer)
        found.everything()
    return found


def test_every_call_of_a_partitions_life_fails_once(tmp_path: Path) -> None:
    counting = QuickCalls(-1, errno.EIO)
    whole = run(tmp_path / "whole", counting)
    assert not whole.errors
    count = len(counting.made)
    assert count > 100
    offline = 0
    for number in range(count):
        code = (errno.ENOSPC, errno.EIO, errno.EMFILE)[number % 3]
        path = tmp_path / str(number)
        calls = QuickCalls(number, code)
        found = run(path, calls)
        assert calls.failed, number
        offline += found.writer.failed is not None
        assert found.errors or found.writer.failed, calls.failed
        assert all(str(error).endswith(f": {error.filename!r}") for error in found.errors)
        with replaced(Unsynced()):
            check(path, found)
    assert 0 < offline < count // 2


def check(path: Path, found: Run) -> None:
    """Checks that all acknowledged records are there after reopening, and that appends work."""
    is_clean = found.writer.failed is None
    again = open_log(path, SETTINGS, SetClock(NOW), start_offset=found.start, is_clean=is_clean)
    assert again.append(batch(size=0, value=b"last")).first_offset == again.end_offset - 1
    values = [record.value for record in read(open_view(path, again.start_offset))]
    got = {bytes(value) for value in values if value and value.isdigit()}
    kept = [value for value in found.values[again.start_offset :] if value]
    assert values[-1] == b"last"
    assert set(kept) <= got <= {*kept, *found.perhaps}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("at", range(3))
def test_an_append_that_cannot_be_written_leaves_no_trace(path: Path, code: int, at: int) -> None:
    writer = open_log(path, SETTINGS, SetClock(NOW))
    for _ in range(2):
        writer.append(batch(producer_id=5, producer_epoch=0, base_sequence=writer.end_offset))
    before = files(path)
    later: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2}
    later["timestamp"] = NOW + 1
    with (
        replaced(FailingCalls(at, code, ["pwritev"])),
        pytest.raises(OSError, match=os.strerror(code)),
    ):
        writer.append(batch(**later))
    assert files(path) == before
    assert (writer.end_offset, writer.failed) == (2, None)
    again = writer.append(batch(**later))
    assert (again.first_offset, again.is_duplicate) == (2, False)


def test_an_append_over_several_segments_is_taken_back_as_a_whole(path: Path) -> None:
    writer = open_log(path, SETTINGS, SetClock(NOW))
    writer.append(batch())
    before = {name: data for name, data in files(path).items() if name.endswith(".log")}
    for at in range(2, 9):
        calls = FailingCalls(at, errno.ENOSPC, ["pwritev"])
        with replaced(calls), pytest.raises(OSError, match="No space left"):
            writer.append(batch() * 8)
        found = {name: data for name, data in files(path).items() if name.endswith(".log")}
        assert (found, writer.end_offset, writer.failed) == (before, 1, None)
    writer.append(batch() * 8)
    assert len(read(open_view(path))) == 9


def test_what_cannot_be_taken_back_takes_the_directory_offline(tmp_path: Path) -> None:
    failures: list[LogDirOffline] = []
    writer = open_log(tmp_path / "t-0", SETTINGS, SetClock(NOW), on_failure=failures.append)
    writer.append(batch())
    calls = FailingCalls(0, errno.EIO, ["pwritev", "ftruncate"], lasting=True)
    with replaced(calls), pytest.raises(LogDirOffline, match="cannot be undone"):
        writer.append(batch())
    assert [str(failure) for failure in failures] == [str(writer.failed)]
    with pytest.raises(LogDirOffline, match="cannot be undone"):
        writer.append(batch())
    with pytest.raises(LogDirOffline):
        writer.close()


def test_a_failed_fsync_is_never_tried_again(tmp_path: Path) -> None:
    failures: list[LogDirOffline] = []
    path = tmp_path / "t-0"
    writer = open_log(path, SETTINGS, SetClock(NOW), on_failure=failures.append)
    calls = FailingCalls(0, errno.EIO, ["fsync"])
    with replaced(calls):
        with pytest.raises(LogDirOffline, match="Input/output error"):
            writer.append(batch(), durable=True)
        with pytest.raises(LogDirOffline):
            writer.append(batch())
        with pytest.raises(LogDirOffline):
            writer.flush()
    assert calls.made == ["fsync"]
    assert len(failures) == 1
    assert (writer.recovery_point, writer.end_offset) == (0, 1)
    assert open_log(path, SETTINGS, SetClock(NOW)).end_offset == 1


def test_another_partitions_failure_ends_this_one_too(tmp_path: Path) -> None:
    writer = open_log(tmp_path / "t-0", SETTINGS, SetClock(NOW))
    writer.fail(LogDirOffline(str(tmp_path), "offline since something"))
    with pytest.raises(LogDirOffline, match="offline since something"):
        writer.append(batch())


def test_a_vanished_directory_is_an_error_and_no_new_directory(path: Path, tmp_path: Path) -> None:
    writer = open_log(path, SETTINGS, SetClock(NOW))
    writer.append(batch() * 3)
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        writer.append(batch())
    assert not path.exists()
    assert (writer.end_offset, writer.failed) == (3, None)


def test_an_interrupted_append_is_not_trusted(tmp_path: Path) -> None:
    class Interrupted(Calls):
        def pwritev(self, fd: int, buffers: Any, position: int) -> int:
            raise KeyboardInterrupt

    path = tmp_path / "t-0"
    writer = open_log(path, SETTINGS, SetClock(NOW))
    writer.append(batch())
    with replaced(Interrupted()), pytest.raises(KeyboardInterrupt):
        writer.append(batch())
    with pytest.raises(LogDirOffline, match="interrupted"):
        writer.append(batch())
    assert open_log(path, SETTINGS, SetClock(NOW)).end_offset == 1


def test_an_interrupted_flush_is_nobodys_success(tmp_path: Path) -> None:
    """One of the threads that appended together makes the appends durable for all."""
    flushing, may_flush = threading.Event(), threading.Event()

    class Interrupted(Calls):
        flushes = 0

        def fsync(self, fd: int) -> None:
            self.flushes += 1
            if self.flushes == 1:
                flushing.set()
                assert may_flush.wait(PATIENCE_SECONDS)
            else:
                raise KeyboardInterrupt

    writer = open_log(tmp_path / "t-0", SETTINGS, SetClock(NOW))
    outcomes: list[str] = []

    def append() -> None:
        try:
            writer.append(batch(size=0), durable=True)
        except KeyboardInterrupt:
            outcomes.append("interrupted")
        else:
            outcomes.append("durable")

    threads = [threading.Thread(target=append) for _ in range(3)]
    with replaced(Interrupted()):
        threads[0].start()
        assert flushing.wait(PATIENCE_SECONDS)
        for thread in threads[1:]:
            thread.start()
        wait_until(lambda: len(writer._durable_appends._waiting) == 2)
        may_flush.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert sorted(outcomes) == ["durable", "interrupted", "interrupted"]
    assert writer.recovery_point < writer.end_offset


@pytest.mark.parametrize("at", range(2))
def test_indexes_that_cannot_be_lengthened_are_not_taken_for_full(path: Path, at: int) -> None:
    first = open_log(path, SETTINGS, SetClock(NOW))
    first.append(batch(size=0))
    first.close()
    writer = open_log(path, SETTINGS, SetClock(NOW), is_clean=True)
    with (
        replaced(FailingCalls(at, errno.ENOSPC, ["ftruncate"])),
        pytest.raises(OSError, match="No space left"),
    ):
        writer.append(batch(size=0))
    for _ in range(2):
        writer.append(batch(size=0))
    writer.close()
    assert [file.name for file in path.glob("*.log")] == ["00000000000000000000.log"]
    # With index interval 0, the second batch after opening has an entry.
    assert (path / "00000000000000000000.index").read_bytes() == pack(">ii", 2, 2 * SMALL)


@pytest.mark.parametrize("ending", ["close", "roll"])
def test_a_segment_that_was_left_open_and_is_not_written_to_again(path: Path, ending: str) -> None:
    left = open_log(path, SETTINGS, SetClock(NOW))
    for _ in range(2):
        left.append(batch(size=0))
    writer = open_log(path, SETTINGS, SetClock(NOW))
    getattr(writer, ending)()
    assert (path / "00000000000000000000.index").stat().st_size == 8
    assert (path / "00000000000000000000.timeindex").stat().st_size == 12
