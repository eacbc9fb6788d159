"""Tests walks over a segment: all batches of a valid one, and around any damage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchHeader
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd, OpenFile
from kafkafs.storage.segment.extent import Extent, Fault
from kafkafs.storage.segment.walk import BatchRun, read_runs, walk_headers
from tests.batches import MUTATIONS, logs, mutated
from tests.building import BatchFields, build_batch, put
from tests.logs import walk

LIMIT = 1 << 20


def batch(base: int, records: int = 1, size: int = 20, **fields: Any) -> bytes:
    """Builds a batch of `records` from `base` on, each with a value of `size` bytes."""
    values = [SimpleRecord(1000 + base + n, None, bytes([n % 256]) * size) for n in range(records)]
    return build_batch(values, BatchFields(base_offset=base, **fields))


class Log:
    """A `.log` file of these batches, with walks over it."""

    def __init__(self, path: Path, *parts: bytes) -> None:
        self.data = b"".join(parts)
        (path / "log").write_bytes(self.data)
        file = DirFd(str(path)).open("log")
        self.extent = Extent(file, 0, 0, len(self.data), LIMIT)

    def headers(self, **changes: Any) -> tuple[list[int], list[Fault]]:
        """Returns base offsets and faults of a walk over headers."""
        bases: list[int] = []
        faults: list[Fault] = []
        for part in walk_headers(replace(self.extent, **changes)):
            if isinstance(part, Fault):
                faults.append(part)
            else:
                bases += part.column(b.BASE_OFFSET).tolist()
        return bases, faults

    def runs(self, run_bytes: int = 1 << 20, **changes: Any) -> tuple[list[int], list[Fault]]:
        """Returns base offsets and faults of a walk over whole batches."""
        bases: list[int] = []
        faults: list[Fault] = []
        for part in read_runs(replace(self.extent, **changes), run_bytes):
            if isinstance(part, Fault):
                faults.append(part)
            else:
                bases += part.table.column(b.BASE_OFFSET).tolist()
        return bases, faults


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def whole_batches(runs: Iterator[BatchRun | Fault]) -> list[bytes]:
    """Returns the bytes of all batches in some runs."""
    return [
        bytes(run.data[header.position - run.base : header.next_position - run.base])
        for run in runs
        if isinstance(run, BatchRun)
        for header in run.table
    ]


@given(logs(), st.sampled_from([1, 70, 300, 1 << 20]))
def test_a_sound_log_is_walked_whole(log: bytes, run_bytes: int) -> None:
    with TemporaryDirectory() as name:
        found = Log(Path(name), log)
        batches = list(walk(log))
        bases = [
            header.base_offset if header.magic == 2 else header.last_offset for header in batches
        ]
        assert found.headers() == (bases, [])
        assert found.runs(run_bytes) == (bases, [])
        data = whole_batches(read_runs(found.extent, run_bytes))
        assert data == [header.data for header in batches]


@pytest.mark.parametrize("size", [1, 400, 70_000])
def test_many_batches_of_one_size(directory: Path, size: int) -> None:
    """Small batches fill tables and chunks, large ones exceed them."""
    count = 3000 if size < 1000 else 40
    log = Log(directory, *(batch(base, size=size) for base in range(count)))
    assert log.headers() == (list(range(count)), [])
    assert log.runs(1 << 16) == (list(range(count)), [])


def test_a_walk_may_begin_in_the_middle_and_end_early(directory: Path) -> None:
    parts = [batch(base) for base in range(6)]
    log = Log(directory, *parts)
    size = len(parts[0])
    assert log.headers(start=2 * size, end=4 * size) == ([2, 3], [])
    assert log.runs(start=2 * size, end=4 * size) == ([2, 3], [])
    assert log.headers(start=6 * size) == ([], [])


def both(log: Log, **changes: Any) -> tuple[list[int], list[Fault]]:
    """Returns what both walks find; they must agree on what is readable."""
    bases, faults = log.runs(**changes)
    for run_bytes in (1, 200):
        again, _ = log.runs(run_bytes, **changes)
        assert again == bases
    return bases, faults


THREE = [batch(10, 2), batch(12, 2), batch(14, 2)]
AT = len(THREE[0])  # where the middle batch begins
SIZE = len(THREE[1])


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (put(THREE[1], 17, ">I", 1), "batch 12-13: crc is"),
        (put(THREE[1], 16, ">b", 9), "magic is 9"),
        (put(THREE[1], 16, ">b", 1), ""),
        (put(THREE[1], 8, ">i", 0), "batch size field is 0"),
        (put(THREE[1], 8, ">i", -5), "batch size field is -5"),
        (put(THREE[1], 8, ">i", SIZE - 13), "crc is"),
        (put(THREE[1], 8, ">i", SIZE + 40), "crc is"),
        (put(THREE[1], 8, ">i", 2**31 - 1), "is cut off"),
        (put(THREE[1], 8, ">i", 900_000), "is cut off"),
        (put(THREE[1], 23, ">i", 2**31 - 1), "crc is"),
        (put(THREE[1], 23, ">i", -1), "out of order"),
        (put(THREE[1], 57, ">i", 2**31 - 1), "record count is 2147483647"),
        (put(THREE[1], 57, ">i", -1), "record count is -1"),
        (put(THREE[1], 22, ">b", 7), "codec 7"),
        (put(THREE[1], 0, ">q", 0), "base offset 0"),
        (put(THREE[1], 0, ">q", 1 << 40), "its base offset is wrong"),
        (put(THREE[1], 0, ">q", (1 << 63) - 5), "its base offset is wrong"),
        (put(THREE[1], 0, ">q", -1), "base offset -1"),
        (bytes(SIZE), "zeros where a batch should begin"),
        (b"\xff" * SIZE, "batch size field is -1"),
        (THREE[1][: SIZE // 2], ""),
        (THREE[1][:30], ""),
        (THREE[1][:9], ""),
        (b"\x07" * 5000, "magic is 7"),
    ],
)
def test_one_bad_batch_costs_itself_alone(directory: Path, bad: bytes, what: str) -> None:
    log = Log(directory, THREE[0], bad, THREE[2])
    bases, faults = both(log)
    assert bases == [10, 14]
    assert what in faults[0].error.what
    assert faults[0].error.position == AT
    assert faults[0].error.file == log.extent.file.path
    assert faults[-1].resume == AT + len(bad)
    # Headers may seem valid if only the checksum is wrong, but hide no later batches.
    walked, _ = log.headers()
    assert set(walked) - {12} == {10, 14}


@given(MUTATIONS, st.integers(0, 2))
def test_whatever_became_of_one_batch_the_others_are_read(
    mutations: list[tuple[str, int, int]], which: int
) -> None:
    parts = [batch(base, 3) for base in (10, 20, 30, 40)]
    parts[which] = mutated(parts[which], mutations[:1])
    # A batch that lost its last bytes may find the same bytes at the start of the next one, which
    # is then the damaged batch.
    may_be_lost: tuple[set[int], ...] = ({10 * (which + 1)}, {10 * (which + 2)}, set())
    with TemporaryDirectory() as name:
        log = Log(Path(name), *parts)
        bases, _ = both(log)
        assert {10, 20, 30, 40} - set(bases) in may_be_lost
        walked, _ = log.headers()
        assert {10, 20, 30, 40} - set(walked) in may_be_lost


@pytest.mark.parametrize("lost", range(1, 12))
def test_a_cut_off_end_is_one_fault(directory: Path, lost: int) -> None:
    cut = THREE[2][: -lost * 5]
    log = Log(directory, THREE[0], THREE[1], cut)
    bases, [fault] = both(log)
    assert bases == [10, 12]
    assert fault.error.position == AT + SIZE
    assert fault.reaches(len(log.data))
    words = "cut off" if len(cut) >= 12 else "stray bytes"
    assert words in fault.error.what
    bases, [again] = log.headers()
    assert bases == [10, 12]
    assert again.error.what == fault.error.what


@pytest.mark.parametrize("garbage", [b"\0", b"\1" * 11, bytes(5834), b"\xd0" * 3576])
def test_garbage_at_the_end_is_one_fault(directory: Path, garbage: bytes) -> None:
    log = Log(directory, *THREE, garbage)
    for bases, faults in (both(log), log.headers()):
        assert bases == [10, 12, 14]
        assert len(faults) == 1
        assert faults[0].error.position == len(log.data) - len(garbage)


def test_a_file_of_nothing_but_garbage(directory: Path) -> None:
    log = Log(directory, b"\1\2\3" * 40_000)
    assert both(log)[0] == log.headers()[0] == []


@pytest.mark.parametrize("first", [0, 9])
def test_offsets_below_the_segment_are_not_its_own(directory: Path, first: int) -> None:
    log = Log(directory, batch(first), batch(10))
    bases, faults = both(log, base_offset=10)
    assert bases == [10]
    assert f"base offset {first}" in faults[0].error.what


def test_offsets_that_belong_to_the_next_segment_are_not_its_own(directory: Path) -> None:
    log = Log(directory, batch(10, 2), batch(12, 3), batch(15))
    bases, faults = both(log, limit_offset=14)
    assert bases == [10]
    assert "12-14 goes past 13, the last offset that its segment can hold" in faults[0].error.what
    assert log.headers(limit_offset=14)[0] == [10]
    assert both(log, limit_offset=15)[0] == [10, 12]
    assert both(log, limit_offset=16) == ([10, 12, 15], [])


def test_a_log_appended_twice_is_served_once(directory: Path) -> None:
    log = Log(directory, *THREE, *THREE)
    bases, faults = both(log)
    assert bases == [10, 12, 14]
    assert all("out of order" in fault.error.what for fault in faults)


def test_a_batch_at_the_limit_of_memory_is_read_and_one_above_it_is_not(directory: Path) -> None:
    large = batch(10, size=50_000)
    log = Log(directory, batch(1), large, batch(20))
    assert both(log, max_batch_bytes=len(large)) == ([1, 10, 20], [])
    bases, [fault] = log.runs(1000, max_batch_bytes=len(large) - 1)
    assert bases == [1, 20]
    assert f"batch of {len(large)} bytes is larger than {len(large) - 1}" in fault.error.what
    # Locating it does not require its bytes.
    assert log.headers(max_batch_bytes=1000) == ([1, 10, 20], [])


def test_a_length_that_lies_about_a_large_batch_hides_nothing(directory: Path) -> None:
    parts = [batch(base, size=5000) for base in range(30)]
    parts[3] = put(parts[3], 8, ">i", 100_000)
    bases, [fault] = Log(directory, *parts).runs(20_000, max_batch_bytes=50_000)
    assert bases == [base for base in range(30) if base != 3]
    assert "larger than 50000" in fault.error.what


def test_a_batch_in_a_value_is_no_batch_of_the_log(directory: Path) -> None:
    inner = batch(13, 5)
    outer = build_batch([SimpleRecord(1, None, inner)], BatchFields(base_offset=12))
    bad = put(outer, 17, ">I", 5)
    bases, [fault] = both(Log(directory, THREE[0], bad, batch(20)))
    assert bases == [10, 20]
    assert fault.resume == AT + len(outer)


def test_memory_does_not_follow_what_lengths_claim(directory: Path) -> None:
    """Every position claims a batch of nearly 1 GB, and the file has that many bytes, as holes."""
    header = put(batch(5), 8, ">i", 1 << 29)
    with (directory / "log").open("wb") as file:
        for at in range(0, 64 << 10, 4096):
            file.seek(at)
            file.write(put(header, 0, ">q", at))
        file.truncate(1 << 30)
    extent = Extent(DirFd(str(directory)).open("log"), 0, 0, 1 << 30, LIMIT)
    tracemalloc.start()
    found = list(read_runs(extent))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert all(isinstance(part, Fault) for part in found)
    assert peak < 16 << 20


def test_a_file_of_false_headers_ends_in_bounded_time(directory: Path) -> None:
    """Each claims megabytes, so that computing every checksum would read a terabyte."""
    header = put(batch(5), 8, ">i", (1 << 20) - 100)[:61]
    with (directory / "log").open("wb") as file:
        for number in range(40_000):
            file.write(put(header, 0, ">q", number + 1))
    extent = Extent(DirFd(str(directory)).open("log"), 0, 0, 40_000 * 61, LIMIT)
    assert all(isinstance(part, Fault) for part in read_runs(extent))
    assert list(walk_headers(extent))


def test_a_header_that_was_read_is_not_read_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch of a run is confirmed by what follows it, which is usually in memory."""
    log = Log(directory, *(batch(base) for base in range(500)))
    reads: list[int] = []
    read = OpenFile.read

    def counted(file: OpenFile, position: int, size: int) -> bytes:
        reads.append(position)
        return read(file, position, size)

    monkeypatch.setattr(OpenFile, "read", counted)
    runs = 0
    for run in read_runs(log.extent, 1040):
        assert isinstance(run, BatchRun)
        runs += 1
    assert runs > 40
    assert len(reads) < runs // 2


@pytest.mark.parametrize("kept", [0, 1, 30, AT, AT + 5, AT + 70])
def test_a_file_that_becomes_shorter_is_no_damage(directory: Path, kept: int) -> None:
    """A live broker truncated it; the missing part is no damage."""
    log = Log(directory, *THREE)
    with (directory / "log").open("r+b") as file:
        file.truncate(kept)
    expected = [10, 12][: (kept >= AT) + (kept >= AT + SIZE)]
    bases, faults = log.runs()
    assert (bases, faults) == (expected, [])
    bases, faults = log.headers()
    assert bases[:1] == expected[:1]


def test_faults_in_a_row_are_told_apart(directory: Path) -> None:
    bad = [put(batch(base, 2), 17, ">I", 1) for base in (12, 14)]
    log = Log(directory, batch(10, 2), *bad, batch(16))
    bases, faults = both(log)
    assert bases == [10, 16]
    headers = [fault.batch for fault in faults]
    assert [header and header.base_offset for header in headers] == [12, 14]
    assert all(isinstance(header, BatchHeader) for header in headers)


@pytest.mark.parametrize("codec", Codec)
def test_runs_carry_the_bytes_that_the_table_names(directory: Path, codec: Codec) -> None:
    parts = [
        build_batch([SimpleRecord(1, b"k", b"v" * 99)], BatchFields(base_offset=n, codec=codec))
        for n in range(50)
    ]
    log = Log(directory, *parts)
    assert whole_batches(read_runs(log.extent, 700)) == parts
