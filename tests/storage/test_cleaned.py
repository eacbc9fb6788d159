"""Tests cleaned segments: they equal those of Kafka's cleaner, and failures leave nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.cleaner.cleaned import CleanedSegment
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.durable import WritableDirFd, replaced
from kafkafs.storage.segment.txn_index import AbortedTxn, TransactionIndex
from tests.building import BatchFields, build_batch
from tests.faults import FailingCalls
from tests.test_logs import settings_of

ABORTED = [AbortedTxn(1, 2, 5, 3), AbortedTxn(7, 6, 9, 10)]


def batches(first: int, count: int) -> bytes:
    return b"".join(
        build_batch(
            [SimpleRecord(1000 + offset, b"k", b"v" * 100)],
            BatchFields(base_offset=offset, last_offset=offset),
        )
        for offset in range(first, first + count)
    )


def table_of(data: bytes) -> BatchTable:
    table, walk = scan(data, len(data), 0, BatchTable.empty(len(data) // 61 + 1), whole=True)
    assert walk.end == len(data)
    return table


def append(segment: CleanedSegment, data: bytes) -> None:
    segment.append(data, table_of(data))


def aborted_of(log: Path) -> list[AbortedTxn]:
    name = log.with_suffix(".txnindex").name
    if not (log.parent / name).exists():
        return []
    return list(TransactionIndex.open(DirFd(str(log.parent)), name).entries())


@pytest.mark.parametrize("batches_at_once", [1, 7, 1000])
def test_the_files_are_those_of_kafkas_cleaner(
    batches_at_once: int,
    corpus: Callable[[str], Path],
    expected: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    name, aborted = "compact-after2", 0
    for theirs in sorted(corpus(name).glob("cmp-*")):
        settings = settings_of(expected(name), theirs.name.rpartition("-")[0])
        config = TopicConfig(
            index_interval_bytes=settings.index_interval_bytes,
            segment_index_bytes=settings.segment_index_bytes,
        )
        ours = tmp_path / theirs.name
        ours.mkdir()
        for log in sorted(theirs.glob("*.log")):
            segment = CleanedSegment(WritableDirFd(str(ours)), int(log.stem), config)
            data = log.read_bytes()
            table = table_of(data)
            for first in range(0, len(table), batches_at_once):
                part = BatchTable(table.rows[first : first + batches_at_once].copy())
                start, end = part[0].position, part[-1].next_position
                part.rows[:, 0] -= start
                segment.append(data[start:end], part)
            entries = aborted_of(log)
            segment.append_aborted(entries)
            segment.finish(log.stat().st_mtime_ns)
            aborted += len(entries)
            made = {path.name: path.read_bytes() for path in ours.glob(f"{log.stem}*")}
            kinds = [log.with_suffix(end) for end in (".log", ".index", ".timeindex", ".txnindex")]
            assert made == {
                f"{path.name}.cleaned": path.read_bytes() for path in kinds if path.exists()
            }
    assert aborted


class TestFiles:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> WritableDirFd:
        return WritableDirFd(str(tmp_path))

    def test_an_empty_one_has_empty_files(self, directory: WritableDirFd, tmp_path: Path) -> None:
        segment = CleanedSegment(directory, 7, TopicConfig())
        segment.append(b"", BatchTable.empty())
        segment.append_aborted([])
        segment.finish(1_000_000_000)
        sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
        base = "00000000000000000007"
        assert sizes == {f"{base}.{kind}.cleaned": 0 for kind in ("log", "index", "timeindex")}
        assert (segment.base_offset, segment.size, segment.largest_timestamp) == (7, 0, -1)

    def test_what_an_old_one_left_is_gone(self, directory: WritableDirFd, tmp_path: Path) -> None:
        old = CleanedSegment(directory, 0, TopicConfig())
        append(old, batches(0, 200))
        old.append_aborted(ABORTED)
        segment = CleanedSegment(directory, 0, TopicConfig())
        append(segment, batches(3, 2))
        segment.finish(1_000_000_000)
        base = "00000000000000000000"
        assert (tmp_path / f"{base}.log.cleaned").read_bytes() == batches(3, 2)
        assert not (tmp_path / f"{base}.txnindex.cleaned").exists()
        assert (tmp_path / f"{base}.index.cleaned").stat().st_size == 0

    def test_log_and_indexes_have_the_time_that_they_are_given(
        self, directory: WritableDirFd, tmp_path: Path
    ) -> None:
        segment = CleanedSegment(directory, 0, TopicConfig())
        append(segment, batches(0, 50))
        segment.finish(1_700_000_000_123_000_000)
        times = {path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        assert times == {1_700_000_000_123_000_000}

    def test_discarded_nothing_is_left(self, directory: WritableDirFd, tmp_path: Path) -> None:
        segment = CleanedSegment(directory, 0, TopicConfig())
        append(segment, batches(0, 50))
        segment.append_aborted(ABORTED)
        (tmp_path / "00000000000000000000.log").write_bytes(b"the old one")
        segment.discard()
        segment.discard()
        assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000000.log"]

    def test_files_that_were_renamed_are_not_discarded(
        self, directory: WritableDirFd, tmp_path: Path
    ) -> None:
        segment = CleanedSegment(directory, 0, TopicConfig())
        segment.finish(1)
        name = "00000000000000000000.log"
        os.rename(tmp_path / f"{name}.cleaned", tmp_path / f"{name}.swap")
        segment.discard()
        assert [path.name for path in tmp_path.iterdir()] == [f"{name}.swap"]


def fill(directory: WritableDirFd) -> CleanedSegment:
    """Fills a segment as the cleaner does; discards it if that fails."""
    segment = CleanedSegment(directory, 0, TopicConfig())
    try:
        append(segment, batches(0, 50))
        append(segment, batches(50, 50))
        segment.append_aborted(ABORTED)
        segment.finish(1_700_000_000_000_000_000)
    except OSError:
        segment.discard()
        raise
    return segment


def test_whatever_call_fails_nothing_is_left(tmp_path: Path) -> None:
    made = FailingCalls(-1, errno.ENOSPC)
    directory = WritableDirFd(str(tmp_path))
    with replaced(made):
        segment = fill(directory)
    segment.discard()
    assert len(made.made) > 15
    for at in range(len(made.made)):
        with replaced(FailingCalls(at, errno.ENOSPC)), pytest.raises(OSError, match="No space"):
            fill(directory)
        assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_from_the_start_leaves_nothing(tmp_path: Path) -> None:
    directory = WritableDirFd(str(tmp_path))
    for at in range(3):
        failing = FailingCalls(at, errno.ENOSPC, ["open"])
        with replaced(failing), pytest.raises(OSError, match="No space"):
            fill(directory)
        assert list(tmp_path.iterdir()) == []


def test_all_of_it_is_synced_after_the_last_change(tmp_path: Path) -> None:
    calls = FailingCalls(-1, errno.ENOSPC, ["pwritev", "utime", "fsync", "ftruncate"])
    with replaced(calls):
        fill(WritableDirFd(str(tmp_path)))
    assert calls.made[-7:] == ["utime"] * 3 + ["fsync"] * 4
