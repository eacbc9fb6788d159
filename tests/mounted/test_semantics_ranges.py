"""The promises of SEMANTICS.md about ranges, one by one."""

from __future__ import annotations

import errno
import mmap
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_topic
from tests.mounted.conftest import Mounting
from tests.mounted.live import TIMESTAMP, LiveLog, value
from tests.mounted.mounting import errno_of, mounted
from tests.mounted.promises import promise
from tests.waiting import wait_until

CLEAN = "kafka43-clean"
TEXTS = ("values", "keys", "records.jsonl")
FILES = (*TEXTS, "records.arrow", "records.parquet", "decoded.jsonl")


def lines(*offsets: int) -> bytes:
    """Returns what `values` has for the records of a LiveLog."""
    return b"".join(value(offset) + b"\n" for offset in offsets)


def arrow_table(path: Path) -> pa.Table:
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return stream.read_all()


def segments(partition: Path) -> list[int]:
    """Returns the base offsets."""
    return sorted(int(path.stem) for path in (partition / "segments").glob("*.log"))


@pytest.fixture
def ranges(live: LiveLog, mount: Mounting) -> Path:
    """`range` of a LiveLog."""
    return mount(live.directory).point / "t/0/range"


@promise(
    "`range/A-B` contains `values`, `keys`, `records.jsonl`, `records.arrow`, `records.parquet` and"
    " `decoded.jsonl` with the records served at offsets A to B, and nothing else but the files of"
    " 29.8."
)
def test_a_range(clean: Path) -> None:
    chance = random.Random(1)
    for topic, number in answers.partitions_with_records(CLEAN):
        records = list(answers.records(CLEAN, topic, number))
        if not records:
            continue  # all were aborted
        first, last = sorted(chance.choice(records).offset for _ in range(2))
        directory = clean / topic / str(number) / "range" / f"{first}-{last}"
        assert set(os.listdir(directory)) == set(FILES)
        inside = [record for record in records if first <= record.offset <= last]
        for name, field in (("values", "value"), ("keys", "key")):
            expected = b"".join((getattr(record, field) or b"") + b"\n" for record in inside)
            assert (directory / name).read_bytes() == expected
        for table in (
            arrow_table(directory / "records.arrow"),
            pq.read_table(directory / "records.parquet"),
        ):
            assert table["offset"].to_pylist() == [record.offset for record in inside]


@promise(
    "The first four have the form of the streams beside `range`; `records.parquet` is a Parquet"
    " file with the eight columns of `records.arrow`."
)
def test_the_form_of_the_streams(clean: Path) -> None:
    for topic, number in answers.partitions_with_records(CLEAN):
        partition = clean / topic / str(number)
        listed = sorted(os.listdir(partition / "range"), key=lambda name: int(name.split("-")[0]))
        if not listed:
            continue  # all are in open transactions
        for name in TEXTS:
            parts = [(partition / "range" / each / name).read_bytes() for each in listed]
            assert b"".join(parts) == (partition / name).read_bytes()
        whole = partition / "range" / f"{listed[0].split('-')[0]}-{listed[-1].split('-')[1]}"
        streamed = arrow_table(partition / "records.arrow")
        assert arrow_table(whole / "records.arrow").equals(streamed)
        assert pq.read_table(whole / "records.parquet").equals(streamed)


@promise("Offsets may be written with leading zeros; they name the same range.")
def test_leading_zeros(clean: Path) -> None:
    ranges = clean / "orders/0/range"
    padded, plain = ranges / "0005-000000000000000020012", ranges / "5-20012"
    assert errno_of(os.stat, padded) == errno_of(os.stat, plain) == errno.ENOENT
    padded, plain = ranges / "0005-00000000000000000000000000012", ranges / "5-12"
    assert padded.stat().st_ino == plain.stat().st_ino
    assert (padded / "values").stat().st_ino == (plain / "values").stat().st_ino


@promise(
    "Listing `range` returns a range for each segment, from the log's start to the last offset"
    " served; any other range can be opened by its name."
)
def test_listing_ranges(clean: Path, live: LiveLog, mount: Mounting) -> None:
    for topic, number in answers.partitions(CLEAN):
        partition = clean / topic / str(number)
        offsets = answers.offsets(CLEAN)[topic, number]
        edges = [*segments(partition)[1:], offsets.last_stable]
        start, expected = offsets.beginning, set()
        for end in (min(edge, offsets.last_stable) for edge in edges):
            if start < end:
                expected.add(f"{start}-{end - 1}")
                start = end
        assert set(os.listdir(partition / "range")) == expected
    live.start_at(1)
    ranges = mount(live.directory).point / "t/0/range"
    assert os.listdir(ranges) == ["1-1", "2-3", "4-5"]
    live.append()
    wait_until(lambda: os.listdir(ranges) == ["1-1", "2-3", "4-6"])
    assert (ranges / "3-4" / "values").read_bytes() == lines(3, 4)


@promise(
    "A range that begins before the log's start, ends after the last offset served, or ends before"
    " it begins is ENOENT."
)
def test_no_such_range(live: LiveLog, mount: Mounting, clean: Path) -> None:
    live.start_at(1)
    ranges = mount(live.directory).point / "t/0/range"
    for name in ("0-3", "3-6", "3-2", "6-6", "1", "1-", "-1", "1-2-3", "1-x", "²-5", "1-2 "):
        assert errno_of(os.stat, ranges / name) == errno.ENOENT, name
    assert (ranges / "1-5" / "values").read_bytes() == lines(1, 2, 3, 4, 5)
    assert errno_of(os.stat, ranges / "1-5" / "other") == errno.ENOENT
    assert live.append() == [6]
    assert (ranges / "1-6" / "values").read_bytes() == lines(1, 2, 3, 4, 5, 6)
    for topic, number in answers.partitions(CLEAN):
        stable = answers.offsets(CLEAN)[topic, number].last_stable
        for name in (f"0-{stable}", f"{stable}-{stable}"):
            assert errno_of(os.stat, clean / topic / str(number) / "range" / name) == errno.ENOENT


@promise(
    "`stat` reports the exact size of a file before it is opened, also while and after the"
    " directory is listed; listing itself reads no record of the range."
)
def test_sizes(ranges: Path, live: LiveLog) -> None:
    directory = ranges / "1-4"
    with os.scandir(directory) as entries:
        found = [(entry.is_file(), entry.name, entry.stat().st_size) for entry in entries]
    assert [(True, name, len((directory / name).read_bytes())) for name in FILES] == found
    live.damage(2)
    damaged = ranges / "2-3"
    with os.scandir(damaged) as entries:
        assert [(entry.is_file(), entry.name) for entry in entries] == [(1, name) for name in FILES]


def test_listing_leaves_an_open_file_its_size(ranges: Path) -> None:
    """The kernel takes the sizes in a listing as those of the files, even if one is mapped."""
    with (
        (ranges / "0-5" / "values").open("rb") as file,
        mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped,
    ):
        for _ in range(3):
            os.listdir(ranges / "0-5")
            with os.scandir(ranges / "0-5") as entries:
                assert len([entry.stat() for entry in entries]) == len(FILES)
            assert os.fstat(file.fileno()).st_size == len(lines(*range(6)))
            assert mapped[:] == lines(*range(6))


@promise(
    "A file can be read from any position and in any pieces, mapped into memory, and sent by"
    " sendfile(2); the kernel caches what was read, and requests it only once."
)
def test_ways_of_reading(clean: Path, tmp_path: Path) -> None:
    chance = random.Random(2)
    for name in FILES:
        path = clean / "orders/0/range/10-6000" / name
        data = path.read_bytes()
        assert len(data) == path.stat().st_size > 20_000
        before = -reads(clean) + 2 * reads(clean)  # reading the counter counts, too
        with path.open("rb") as file:
            for _ in range(50):
                position, size = chance.randrange(len(data)), chance.randrange(200_000)
                assert os.pread(file.fileno(), size, position) == data[position : position + size]
            with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
                assert mapped[:] == data
            with (tmp_path / name).open("wb") as copy:
                while sent := os.sendfile(copy.fileno(), file.fileno(), copy.tell(), len(data)):
                    copy.seek(sent, os.SEEK_CUR)
        assert (tmp_path / name).read_bytes() == data
        assert reads(clean) == before


def reads(point: Path) -> int:
    """Returns the number of reads that the kernel has requested."""
    text = (point / ".kafkafs/metrics").read_text()
    [count] = re.findall(r'^kafkafs_request_seconds_count\{operation="read"\} (\d+)', text, re.M)
    return int(count)


@promise("The bytes of a file do not change as long as its inode number exists.")
def test_bytes_stay(live: LiveLog, mount: Mounting) -> None:
    ranges = mount(live.directory, settings={"kafkafs.range.parquet.bytes": "1048576"}).point
    ranges = ranges / "t/0/range"
    before = {name: known(ranges / "1-4" / name) for name in FILES}
    live.append(3)
    live.roll()
    live.append(3)
    live.start_at(1)
    wait_until(lambda: "1-1" in os.listdir(ranges))
    assert {name: known(ranges / "1-4" / name) for name in FILES} == before
    for name in FILES:
        with (ranges / "1-4" / name).open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert known(ranges / "1-4" / name) == before[name]


def known(path: Path) -> tuple[int, bytes]:
    return path.stat().st_ino, path.read_bytes()


@promise(
    "When records of a range are removed, its name is ENOENT or has another inode number within a"
    " second; an open file can be read to its end."
)
def test_records_that_go(ranges: Path, live: LiveLog) -> None:
    path = ranges / "0-5" / "values"
    number = path.stat().st_ino
    with path.open("rb", buffering=0) as before:
        live.replace(2, [3])
        wait_until(lambda: path.stat().st_ino != number)
        assert path.read_bytes() == lines(0, 1, 3, 4, 5)
        with path.open("rb", buffering=0) as cleaned:
            live.delete_before(2)
            wait_until(lambda: not path.exists())
            assert (ranges / "2-5" / "values").read_bytes() == lines(3, 4, 5)
            assert cleaned.read() == lines(0, 1, 3, 4, 5)
            assert os.fstat(cleaned.fileno()).st_size == len(lines(0, 1, 3, 4, 5))
        assert before.read() == lines(*range(6))
    live.delete()
    wait_until(lambda: not ranges.exists())


@promise(
    "A range without a record is as well-formed as any other: its lines are empty files, and its"
    " Arrow stream and Parquet file have no rows."
)
def test_a_range_without_records(ranges: Path, live: LiveLog) -> None:
    live.replace(2, [])
    directory = ranges / "2-3"
    wait_until(lambda: (directory / "values").stat().st_size == 0)
    for name in TEXTS:
        assert (directory / name).stat().st_size == 0
        assert (directory / name).read_bytes() == b""
    whole = arrow_table(ranges / "0-5" / "records.arrow")
    for table in (
        arrow_table(directory / "records.arrow"),
        pq.read_table(directory / "records.parquet"),
    ):
        assert table.num_rows == 0
        assert table.schema.equals(whole.schema)


@promise(
    "If a record of a range is damaged, the range's files are EIO to `stat` and `open`, so that no"
    " program takes a part for the whole; the ranges before and after the damage are served."
)
def test_damage_in_a_range(live: LiveLog, mount: Mounting) -> None:
    file = live.damage(2)
    mounting = mount(live.directory)
    ranges = mounting.point / "t/0/range"
    for range_ in ("0-5", "2-2", "1-3"):
        for name in FILES:
            assert errno_of(os.stat, ranges / range_ / name) == errno.EIO
            assert errno_of(os.open, ranges / range_ / name, os.O_RDONLY) == errno.EIO
    assert (ranges / "0-1" / "values").read_bytes() == lines(0, 1)
    assert (ranges / "3-5" / "values").read_bytes() == lines(3, 4, 5)
    [warning] = mounting.lines("WARNING")
    assert file.name in warning


def test_damage_that_comes_later(live: LiveLog, mount: Mounting) -> None:
    """If a file already has a size, a read of damage fails, however often it is repeated."""
    mounting = mount(live.directory)
    path = mounting.point / "t/0/range/0-5/values"
    with path.open("rb", buffering=0) as file:
        live.damage(3)
        for _ in range(2):
            assert errno_of(file.read) == errno.EIO
        assert len(mounting.lines("WARNING")) == 1
        assert os.fstat(file.fileno()).st_size == len(lines(*range(6)))


# -- at size ------------------------------------------------------------------------------------

_RECORDS = 72_000
_TOGETHER = 500
#: After so many readings, the allocators of nearly all threads of a mount keep what they ever will:
#: up to 100 MB, and more with each turn.
_TURNS = 8


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with 72,000 records of 1 to 4 KB in `t-0`, 180 MB."""
    directory = tmp_path_factory.mktemp("large") / "logs"
    chance = random.Random(3)

    def batches() -> Iterator[bytes]:
        for low in range(0, _RECORDS, _TOGETHER):
            records = [
                SimpleRecord(TIMESTAMP, b"key %d" % at, chance.randbytes(1000 + at % 3000))
                for at in range(low, low + _TOGETHER)
            ]
            yield build_batch(records, BatchFields(base_offset=low))

    return write_topic(directory, batches(), TopicSettings(segment_bytes=9 << 20))


@pytest.mark.slow
@promise(
    "Sizes and bytes are computed in a bounded amount of the daemon's memory, however long the"
    " range is."
)
def test_memory(large: Path, tmp_path: Path) -> None:
    with mounted([large], tmp_path) as mount:
        ranges = mount.point / "t/0/range"
        for start in range(_TURNS):  # what ranges of any length need, in every thread
            for name in FILES:
                read_through(ranges / f"{start}-{_RECORDS // 6}" / name)
        before = mount.memory_kb("VmHWM")
        for name in FILES:
            assert read_through(ranges / f"0-{_RECORDS - 1}" / name) > 9 * _RECORDS
        # Each of the files is 150 MB larger than those before.
        assert mount.memory_kb("VmHWM") - before < 64 << 10


def read_through(path: Path) -> int:
    """Returns the number of bytes read, discarding them; it must equal the size in `stat`."""
    with path.open("rb", buffering=0) as file:
        count = 0
        while data := file.read(1 << 20):
            count += len(data)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert count == path.stat().st_size
    return count


@pytest.mark.slow
def test_large_files_from_any_position(large: Path, tmp_path: Path) -> None:
    """Reading restarted far from the last position returns the same bytes."""
    chance = random.Random(4)
    with mounted([large], tmp_path) as mount:
        for name in FILES:
            path = mount.point / "t/0/range" / f"17-{_RECORDS // 3}" / name
            data = path.read_bytes()
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for _ in range(6):
                    position = chance.randrange(len(data))
                    assert os.pread(file.fileno(), 70_000, position) == data[position:][:70_000]


@promise(
    "A Parquet file is written to a temporary file without a name, in `$TMPDIR` or else /var/tmp;"
    " it is EFBIG if it is larger than `kafkafs.range.parquet.bytes`, and ENOSPC if other open"
    " ones leave too little of that."
)
def test_temporary_files(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    settings = {"kafkafs.range.parquet.bytes": str(1 << 20)}
    with mounted([large], tmp_path, settings=settings) as mount:
        ranges = mount.point / "t/0/range"
        assert errno_of(os.stat, ranges / "0-9999" / "records.parquet") == errno.EFBIG
        paths = [ranges / f"{low}-{low + 99}" / "records.parquet" for low in range(0, 2000, 100)]
        sizes = [path.stat().st_size for path in paths]
        assert sum(sizes) > 1 << 20
        kept = temporary_files(mount.daemon.pid, temporary)
        assert kept
        assert os.listdir(temporary) == []
        for path, size in zip(paths, sizes, strict=True):  # rebuilt if they were evicted
            assert len(path.read_bytes()) == size
        opened = []
        while (error := errno_of(lambda: opened.append(paths[len(opened)].open("rb")))) == 0:
            assert sum(sizes[: len(opened)]) <= 1 << 20
        assert error == errno.ENOSPC
        for file, size in zip(opened, sizes, strict=False):
            with file:
                assert len(file.read()) == size
        assert paths[-1].read_bytes()


def temporary_files(pid: int, directory: Path) -> list[str]:
    """Returns the files that the process has open there."""
    links = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith(str(directory))]
