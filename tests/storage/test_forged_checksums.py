"""Tests two batches whose wrong checksums cancel out, so that their combined checksum is right.

A broker verifies each batch, and so does everything here that vouches for a log or changes one.
Only readers that show records verify several megabytes at a time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafkafs.storage.cleaner.cleaning import clean
from kafkafs.storage.cleaner.offset_map import OffsetMap
from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.decoder import checksums_add_up, first_bad_checksum
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.check.sound import Lost, sound_batches
from kafkafs.storage.log.check.verify import LogCheck
from kafkafs.storage.log.read.context import ReadLimits
from kafkafs.storage.log.read.view import View
from kafkafs.storage.segment.dump.dump import Dump, DumpOptions
from kafkafs.storage.segment.extent import Extent, Fault
from kafkafs.storage.segment.walk import BatchRun, read_runs
from tests.building import BatchFields, build_batch
from tests.cleaning import Rewritten, log_to_clean
from tests.forging import forged_pair
from tests.logs import TopicSettings, write_partition
from tests.reading import open_view
from tests.writing import NOW, open_log

LOG = "00000000000000000000.log"


@pytest.fixture
def forged(tmp_path: Path) -> Path:
    """Makes a partition that was closed and then overwritten with the two batches."""
    path = tmp_path / "t-0"
    writer = open_log(path, clock=SetClock(NOW))
    for _ in range(2):
        writer.append(build_batch([SimpleRecord(NOW, b"k", bytes(8))]))
    writer.close()
    data = forged_pair()
    assert len(data) == (path / LOG).stat().st_size
    (path / LOG).write_bytes(data)
    return path


def test_together_they_are_right_and_alone_they_are_not() -> None:
    data = memoryview(forged_pair())
    table, _ = scan(data, len(data), 0, BatchTable.empty(3), whole=True)
    assert len(table) == 2
    assert checksums_add_up(data, table, 0)
    assert first_bad_checksum(data, table, 0) == 0
    assert first_bad_checksum(data, table.select(slice(1, 2)), 0) == 0
    assert not checksums_add_up(data, table.select(slice(0, 1)), 0)


def test_who_shows_records_shows_them(forged: Path) -> None:
    """The README says so; it is done only for speed."""
    size = (forged / LOG).stat().st_size
    extent = Extent(DirFd(str(forged)).open(LOG), 0, 0, size, 1 << 20)
    [run] = read_runs(extent, together=True)
    assert isinstance(run, BatchRun)
    assert run.table.column(b.BASE_OFFSET).tolist() == [0, 1]
    assert [type(part) for part in read_runs(extent)] == [Fault, Fault]


def test_verify_tells_of_both(forged: Path) -> None:
    check = LogCheck(
        DirFd(str(forged)), 0, limits=ReadLimits(), is_closed=True, may_have_gaps=False
    )
    found = {one.position: one.what for one in check.findings()}
    assert found.pop(0).startswith("batch 0-0: crc is ")
    assert found.pop(len(forged_pair()) // 2).startswith("batch 1-1: crc is ")
    assert found == {-1: "the log ends at offset 0"}


@pytest.mark.parametrize("deep", [False, True])
def test_dump_calls_neither_valid(forged: Path, deep: bool) -> None:
    text = b"".join(Dump(DumpOptions(deep=deep)).text(DirFd(str(forged)), LOG, LOG))
    assert re.findall("isvalid: (.*)", text.decode()) == ["false"] * 2


def test_recovery_cuts_the_log_in_front_of_them(forged: Path) -> None:
    assert open_log(forged, clock=SetClock(NOW)).end_offset == 0
    assert (forged / LOG).stat().st_size == 0


def test_neither_is_salvaged(forged: Path) -> None:
    [lost] = sound_batches(DirFd(str(forged)), 0, -1, 1 << 20)
    assert isinstance(lost, Lost)
    assert (lost.error.position, lost.resume) == (0, len(forged_pair()))


def test_compaction_refuses_them(tmp_path: Path) -> None:
    view = over_a_segment(tmp_path / "t-0")
    sink = Rewritten()
    with pytest.raises(CorruptError, match="batch 0-0: crc is"):
        clean(log_to_clean(view, 0, 2), OffsetMap(1 << 12), sink)
    assert not sink.data


def test_what_only_shows_a_compaction_takes_them(tmp_path: Path) -> None:
    log = replace(log_to_clean(over_a_segment(tmp_path / "t-0"), 0, 2), is_shown=True)
    sink = Rewritten()
    clean(log, OffsetMap(1 << 12), sink)
    assert sink.data == forged_pair()[len(forged_pair()) // 2 :]  # the later record of the key


def over_a_segment(path: Path) -> View:
    """Makes a log whose first segment was overwritten with the two batches; the active one is
    valid."""
    batches = [
        build_batch([SimpleRecord(NOW, b"k", bytes(8))], BatchFields(base_offset=offset))
        for offset in range(3)
    ]
    write_partition(path, batches, TopicSettings(segment_bytes=len(forged_pair())))
    view = open_view(path)
    assert [segment.base_offset for segment in view.segments] == [0, 2]
    (path / LOG).write_bytes(forged_pair())
    return view
