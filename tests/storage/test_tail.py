"""Tests the end of a log: the last complete batch, and what follows it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kafkafs.storage.errors import CorruptError, OffsetNotFound
from kafkafs.storage.format.records.columns import Damage
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd, OpenFile
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.io.lock import DirectoryLock
from kafkafs.storage.log.check.verify import LogCheck
from kafkafs.storage.log.read.context import ReadLimits
from kafkafs.storage.log.read.tail import Tail, settled_fault, walk_from_start
from kafkafs.storage.log.state.snapshots import snapshot_offsets
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_partition
from tests.reading import UNCOMMITTED, open_log, open_view, scan

LIMIT = 128 << 20


def batch(base: int, count: int = 2) -> bytes:
    records = [SimpleRecord(100 + base + n, None, b"%02d" % (base + n)) for n in range(count)]
    return build_batch(records, BatchFields(base_offset=base))


BATCHES = [batch(base) for base in range(0, 20, 2)]
SIZE = len(BATCHES[0])


def written(directory: Path, *, clean: bool = True, segment_bytes: int = 1 << 20) -> Path:
    """Writes a partition of twenty records; returns its active `.log`."""
    settings = TopicSettings(segment_bytes=segment_bytes, index_interval_bytes=0)
    write_partition(directory, BATCHES, settings, clean=clean)
    return sorted(directory.glob("*.log"))[-1]


def age(path: Path, seconds: float = 60) -> None:
    """Makes `path` look as if it was last written so long ago."""
    past = time.time() - seconds
    os.utime(path, (past, past))


def offsets(directory: Path) -> tuple[list[int], list[Damage]]:
    records, damage = scan(open_view(directory))
    return [record.offset for record in records], damage


# -- torn ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("cut", [*range(1, SIZE, 7), SIZE - 1])
def test_a_torn_last_batch_is_not_served_and_is_damage_once_settled(
    tmp_path: Path, clean: bool, cut: int
) -> None:
    log = written(tmp_path / "p-0", clean=clean)
    os.truncate(log, len(BATCHES) * SIZE - cut)
    age(log)
    view = open_view(tmp_path / "p-0")
    assert (view.end_offset, view.last_stable_offset) == (18, 18)
    found, [damage] = offsets(tmp_path / "p-0")
    assert found == list(range(18))
    assert (damage.first_offset, damage.next_offset) == (18, -1)
    assert damage.error.position == 9 * SIZE
    assert damage.error.file == str(log)
    with pytest.raises(CorruptError, match=r"cut off|stray"):
        view.find(18)
    with pytest.raises(OffsetNotFound, match=r"past the end of topic/0 \(0 to 17\)"):
        view.find(19)


def test_a_fresh_file_may_just_be_being_written(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0", clean=False)
    os.truncate(log, len(BATCHES) * SIZE - 5)
    os.utime(log)
    partition = open_log(tmp_path / "p-0")
    view = partition.view()
    assert view.end_offset == 18
    assert view.tail is None
    records, damage = scan(view)
    assert (len(records), damage) == (18, [])
    with pytest.raises(OffsetNotFound):
        view.find(18)
    # The same bytes are damage if nothing has been written since.
    age(log)
    assert partition.view().tail is not None


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_a_clock_that_is_wrong_hides_no_damage(tmp_path: Path, seconds: int) -> None:
    log = written(tmp_path / "p-0")
    os.truncate(log, len(BATCHES) * SIZE - 5)
    age(log, seconds)
    assert open_view(tmp_path / "p-0").tail is not None


@pytest.mark.parametrize("garbage", [bytes(5000), b"\xd0" * 300, b"\0", Random(7).randbytes(4000)])
def test_garbage_behind_the_last_batch(tmp_path: Path, garbage: bytes) -> None:
    log = written(tmp_path / "p-0", clean=False)
    with log.open("ab") as file:
        file.write(garbage)
    age(log)
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == 20
    found, [damage] = offsets(tmp_path / "p-0")
    assert found == list(range(20))
    assert damage.error.position == 10 * SIZE


def test_a_preallocated_log_costs_no_reading_of_its_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path / "p-0", clean=False)
    os.truncate(log, 64 << 30)
    age(log)
    sizes: list[int] = []
    monkeypatch.setattr(OpenFile, "read", _noting(OpenFile.read, sizes))
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == 20
    assert 0 < sum(sizes) < 1 << 20


def test_zeros_are_preallocated_space_while_a_process_writes(tmp_path: Path) -> None:
    """With log.preallocate, a broker's active segment has its full size from the start."""
    log = written(tmp_path / "p-0", clean=False)
    os.truncate(log, 1 << 20)
    age(log)

    def findings() -> list[str]:
        directory = DirFd(str(tmp_path)).child("p-0")
        check = LogCheck(directory, 0, False, False, ReadLimits())
        return [found.what for found in check.findings() if found.file == str(log)]

    what = "zeros where a batch should begin"
    with DirectoryLock(WritableDirFd(tmp_path)):
        partition = open_log(tmp_path / "p-0")
        assert partition.view().tail is None
        assert offsets(tmp_path / "p-0") == (list(range(20)), [])
        assert findings() == []
        with log.open("r+b") as file:
            file.seek(10 * SIZE)
            file.write(batch(20))
        age(log, 30)
        assert partition.view().end_offset == 22
        assert partition.view().tail is None
        with log.open("r+b") as file:
            file.seek(12 * SIZE)
            file.write(b"?")
        age(log, 20)
        view = partition.view()
        assert (view.end_offset, view.tail is None) == (22, False)
        assert findings() == [what]
        os.truncate(log, 11 * SIZE)
        os.truncate(log, 1 << 20)
    age(log)
    assert len(offsets(tmp_path / "p-0")[1]) == 1
    assert findings() == [what]


def test_zeros_are_damage_from_the_moment_the_writer_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a reader that took them for preallocated space: a killed broker changes no file."""
    log = written(tmp_path / "p-0", clean=False)
    os.truncate(log, 1 << 20)
    age(log)
    monkeypatch.setattr("kafkafs.storage.log.read.log.WRITER_SECONDS", 0.0)
    partition = open_log(tmp_path / "p-0")
    for _ in range(2):
        with DirectoryLock(WritableDirFd(tmp_path)):
            view = partition.view()
            assert view.tail is None
            assert partition.view() is view
        found = partition.view()
        assert found.tail is not None
        assert found.tail.error.position == 10 * SIZE
        assert (found.end_offset, len(scan(found)[1])) == (20, 1)


def _noting(
    read: Callable[[OpenFile, int, int], bytes], sizes: list[int]
) -> Callable[[OpenFile, int, int], bytes]:
    """Returns a `read` that notes the number of bytes of each call."""

    def noted(file: OpenFile, position: int, size: int) -> bytes:
        data = read(file, position, size)
        sizes.append(len(data))
        return data

    return noted


def corrupt(log: Path, number: int, at: int, value: bytes) -> None:
    """Writes bytes into the batch with that number."""
    with log.open("r+b") as file:
        file.seek(number * SIZE + at)
        file.write(value)
    age(log)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (SIZE - 1, b"\x07"),  # a record
        (17, b"\0\0\0\0"),  # the checksum
        (23, b"\x7f\xff\xff\xff"),  # last offset: billions of records
        (0, b"\x20"),  # a base offset far away
        (23, b"\0\0\0\0"),
    ],
)
def test_the_last_batch_must_be_sound_for_the_log_to_end_behind_it(
    tmp_path: Path, at: int, value: bytes
) -> None:
    if at == 0:
        value = b"\x20" + bytes(7)
    log = written(tmp_path / "p-0")
    corrupt(log, 9, at, value)
    if at == 0:  # no checksum covers the base offset, so it would be believed
        corrupt(log, 9, 60, b"\x09")
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == 18
    found, [damage] = offsets(tmp_path / "p-0")
    assert found == list(range(18))
    assert (damage.first_offset, damage.error.position) == (18, 9 * SIZE)


def test_several_bad_batches_at_the_end(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0")
    for number in (6, 7, 8, 9):
        corrupt(log, number, 30, b"\x55\x55")
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == 12
    found, [damage] = offsets(tmp_path / "p-0")
    assert found == list(range(12))
    assert damage.error.position == 6 * SIZE


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("at", [0, 8, 17, 23])
def test_a_bad_batch_before_the_end_does_not_move_it(tmp_path: Path, number: int, at: int) -> None:
    log = written(tmp_path / "p-0", clean=number % 2 == 0)
    corrupt(log, number, at, b"\x7f\x7e\x7d\x7c")
    view = open_view(tmp_path / "p-0")
    assert (view.end_offset, view.last_stable_offset) == (20, 20)
    found, [damage] = offsets(tmp_path / "p-0")
    lost = {2 * number, 2 * number + 1}
    assert set(found) == set(range(20)) - lost
    assert damage.error.position == number * SIZE
    assert (damage.first_offset, damage.next_offset) == (2 * number, 2 * number + 2)
    for offset in set(range(20)) - lost:
        assert view.find(offset).offset == offset


def test_a_log_of_which_nothing_is_left(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0")
    log.write_bytes(b"\x11" * 1000)
    age(log)
    view = open_view(tmp_path / "p-0")
    assert (view.start_offset, view.end_offset) == (0, 0)
    found, [damage] = offsets(tmp_path / "p-0")
    assert (found, damage.error.position) == ([], 0)
    with pytest.raises(CorruptError):
        view.find(0)


def test_an_active_segment_of_which_nothing_is_left(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0", segment_bytes=4 * SIZE)
    log.write_bytes(bytes(500))
    age(log)
    assert int(log.stem) == 16
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == 16
    found, [damage] = offsets(tmp_path / "p-0")
    assert found == list(range(16))
    assert (damage.first_offset, damage.error.file) == (16, str(log))


def test_a_range_that_ends_before_the_damage_has_none(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0")
    os.truncate(log, len(BATCHES) * SIZE - 5)
    age(log)
    view = open_view(tmp_path / "p-0")
    assert scan(view, 3, 18)[1] == []
    assert len(scan(view, 3, 19)[1]) == 1
    assert len(scan(view, 18, None)[1]) == 1
    assert len(scan(view, isolation=UNCOMMITTED)[1]) == 1


# -- where the walk begins ----------------------------------------------------------------------


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    write_partition(tmp_path / "p-0", [], base_offset=77)
    view = open_view(tmp_path / "p-0")
    assert (view.start_offset, view.end_offset, view.last_stable_offset) == (77, 77, 77)
    assert offsets(tmp_path / "p-0") == ([], [])


def test_a_log_that_was_rolled_and_not_written_to_since(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0", segment_bytes=4 * SIZE)
    assert int(log.stem) == 16
    log.write_bytes(b"")
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == 16
    assert offsets(tmp_path / "p-0") == (list(range(16)), [])


@pytest.mark.parametrize("offset", [0, 3, 16, 18, 20, 5000, (1 << 63) - 1])
@pytest.mark.parametrize("content", [b"", b"\0\1garbage", bytes(10)])
def test_a_snapshot_that_lies_about_the_end_is_not_believed(
    tmp_path: Path, offset: int, content: bytes
) -> None:
    written(tmp_path / "p-0", segment_bytes=4 * SIZE)
    sound = (tmp_path / "p-0" / f"{8:020}.snapshot").read_bytes()
    for data in (content, sound):
        (tmp_path / "p-0" / f"{offset:020}.snapshot").write_bytes(data)
        view = open_view(tmp_path / "p-0")
        assert (view.end_offset, view.last_stable_offset) == (20, 20)


def test_an_index_that_points_behind_the_last_batch_is_not_where_the_walk_begins(
    tmp_path: Path,
) -> None:
    log = written(tmp_path / "p-0")
    os.truncate(log, 3 * SIZE)
    assert open_view(tmp_path / "p-0").end_offset == 6


def test_a_walk_goes_over_what_is_new_alone(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0")
    partition = open_log(tmp_path / "p-0")
    view = partition.view()
    snapshots = snapshot_offsets(partition.directory)
    tail = walk_from_start(partition.directory.hold, snapshots, list(view.segments), LIMIT)
    assert (tail.position, tail.next_offset, tail.counted) == (10 * SIZE, 20, 20)
    assert tail.last is not None
    assert tail.last.base_offset == 18
    assert tail.continues(list(view.segments))
    corrupt(log, 9, 0, b"\x01")
    assert not tail.continues(list(view.segments))
    assert not Tail(0, identity=(1, 2)).continues(list(view.segments))


def test_a_fault_settles_with_time(tmp_path: Path) -> None:
    log = written(tmp_path / "p-0")
    os.truncate(log, 10 * SIZE - 3)
    partition = open_log(tmp_path / "p-0")
    segments = list(partition.view().segments)
    age(log)
    view = open_view(tmp_path / "p-0")
    assert view.tail is not None
    tail = Tail(0, fault=view.tail)
    [active] = segments
    assert settled_fault(tail, active) is None  # as if just written
    assert settled_fault(tail, view.segments[-1]) == view.tail
    assert settled_fault(Tail(0), view.segments[-1]) is None


def test_a_snapshot_knows_the_transactions_in_the_damage_of_a_small_log(tmp_path: Path) -> None:
    begun = BatchFields(
        base_offset=2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    batches = [batch(0), build_batch([SimpleRecord(1, None, b"v")], begun), batch(4)]
    write_partition(tmp_path / "p-0", batches, TopicSettings())
    assert open_view(tmp_path / "p-0").last_stable_offset == 2
    log = tmp_path / "p-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[len(batches[0]) + 16] = 9  # its magic
    log.write_bytes(damaged)
    assert open_view(tmp_path / "p-0").last_stable_offset == 2
    (tmp_path / "p-0" / f"{6:020}.snapshot").unlink()
    assert open_view(tmp_path / "p-0").last_stable_offset == 6
