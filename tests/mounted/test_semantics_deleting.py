"""The promises of SEMANTICS.md about deleting, one by one."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kafkafs.storage.format.files.names import LOG_START_OFFSET_FILE
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import Mount, clear, errno_of, sh, start
from tests.mounted.promises import promise
from tests.waiting import wait_until

_TIMESTAMP = 1_700_000_000_000
_SEGMENTS = 5
_EACH = 20
_END = _SEGMENTS * _EACH


def value(offset: int) -> bytes:
    return b"value %d" % offset


def _fill(engine: LogManager, topic: str, partition: int = 0) -> None:
    """Appends `_SEGMENTS` segments of `_EACH` records, a second apart."""
    writer = engine.writer(topic, partition)
    for base in range(0, _END, _EACH):
        if base:
            writer.roll()
        for offset in range(base, base + _EACH):
            at = _TIMESTAMP + offset * 1000
            key = b"key %d" % offset
            columns = RecordColumns.from_values([value(offset)], keys=[key], timestamp=at)
            writer.append_records(columns)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The topic `t` with two partitions whose records never expire."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 2, {"retention.ms": "-1"})
        _fill(engine, "t", 0)
        _fill(engine, "t", 1)
        engine.create_topic("keyless")
        engine.writer("keyless", 0).append_records(RecordColumns.from_values([b"v"]))
    return tmp_path / "data"


@pytest.fixture
def mounted(data: Path, mount: Mounting) -> Mount:
    return mount(data, "writable")


@pytest.fixture
def partition(mounted: Mount) -> Path:
    return mounted.point / "t" / "0"


def listed(partition: Path) -> list[int]:
    """Returns the offsets in `offset`."""
    return sorted(int(name) for name in os.listdir(partition / "offset") if name.isdigit())


def start_of(partition: Path) -> int:
    start = json.loads((partition / "status.json").read_bytes())["logStartOffset"]
    assert isinstance(start, int)
    return start


def checkpointed(data: Path, partition: int = 0) -> int:
    """Returns the checkpointed log start offset, or that of the first segment if there is none."""
    for line in (data / LOG_START_OFFSET_FILE).read_text().splitlines()[2:]:
        topic, number, offset = line.split()
        if (topic, int(number)) == ("t", partition):
            return int(offset)
    return min(int(path.stem) for path in (data / f"t-{partition}").glob("*.log"))


def segments(data: Path, partition: int = 0) -> list[int]:
    """Returns the base offsets of the segments that are not deleted."""
    return sorted(int(path.stem) for path in (data / f"t-{partition}").glob("*.log"))


def _has_one_segment(data: Path, partition: int) -> bool:
    return segments(data, partition) == [_END - _EACH]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def finds(*paths: Path) -> list[bool]:
    """Returns which of these another process finds."""
    code = "import os, sys; print(*(int(os.path.lexists(path)) for path in sys.argv[1:]))"
    done = run(sys.executable, "-c", code, *paths)
    return [found == "1" for found in done.stdout.split()]


@promise(
    "`rm offset/N` deletes the records up to and including N, like Kafka's DeleteRecords: the log"
    " start offset becomes N + 1."
)
def test_records(data: Path, partition: Path) -> None:
    assert run("rm", partition / "offset/33").returncode == 0
    assert listed(partition) == list(range(34, _END))
    assert start_of(partition) == 34
    assert os.readlink(partition / "offset/first") == "34"
    assert errno_of(os.unlink, partition / "offset/33") == errno.ENOENT
    assert errno_of(os.unlink, partition / f"offset/{_END}") == errno.ENOENT
    assert run("rm", partition / "offset/000040").returncode == 0
    assert start_of(partition) == 41
    assert listed(partition.parent / "1") == list(range(_END))


@promise(
    "`rm offset/first` and `rm offset/last` delete the record that the link leads to, and all"
    " records before it."
)
def test_links(partition: Path) -> None:
    for offset in range(3):
        assert run("rm", partition / "offset/first").returncode == 0
        assert start_of(partition) == offset + 1
    assert run("rm", partition / "offset/last").returncode == 0
    assert listed(partition) == []
    assert start_of(partition) == _END
    assert finds(partition / "offset/first", partition / "offset/last") == [False, False]
    assert errno_of(os.unlink, partition / "offset/last") == errno.ENOENT


@promise(
    "`rm time/T` deletes the records before the one that `time/T` leads to; if there are none,"
    " nothing happens."
)
def test_times(partition: Path) -> None:
    in_ms = _TIMESTAMP + 10_500
    assert run("rm", partition / f"time/{in_ms}").returncode == 0
    assert start_of(partition) == 11
    assert os.readlink(partition / f"time/{in_ms}") == "../offset/11"
    assert run("rm", partition / "time/2023-11-14").returncode == 0  # before all records
    assert start_of(partition) == 11
    assert run("rm", partition / "time/2023-11-14T22:13:50.500Z").returncode == 0
    assert start_of(partition) == 31
    assert errno_of(os.unlink, partition / f"time/{_TIMESTAMP + _END * 1000}") == errno.ENOENT
    assert errno_of(os.unlink, partition / "time/noon") == errno.ENOENT
    assert start_of(partition) == 31


@promise(
    "`rm` of a segment's `.log`, `.index` or `.timeindex` in `segments` deletes that segment and"
    " all older ones, whose files have the suffix `.deleted` when it returns; the active segment is"
    " EBUSY, and any other file there EPERM."
)
def test_segments(data: Path, mounted: Mount, partition: Path) -> None:
    for base, suffix in ((0, "log"), (20, "index"), (40, "timeindex")):
        name = f"segments/{base:020}.{suffix}"
        assert run("rm", partition / name).returncode == 0
        assert finds(partition / name, partition / f"{name}.deleted") == [False, True]
        assert start_of(partition) == base + 20
        assert segments(data) == list(range(base + 20, _END, 20))
        assert (data / "t-0" / f"{base:020}.{suffix}.deleted").exists()
    for suffix in ("log", "index", "timeindex"):
        active = partition / f"segments/{_END - _EACH:020}.{suffix}"
        assert errno_of(os.unlink, active) == errno.EBUSY
    others = ("leader-epoch-checkpoint", "partition.metadata", f"{0:020}.log.deleted")
    for name in (*others, f"{60:020}.snapshot"):
        assert errno_of(os.unlink, partition / "segments" / name) == errno.EPERM, name
    assert errno_of(os.unlink, partition / f"segments/{0:020}.log") == errno.ENOENT
    assert start_of(partition) == 60
    assert any("is in use: it is the active segment's" in each for each in mounted.lines("INFO"))


@promise(
    "`rm` of `offset/N.key`, `offset/N.json`, a stream or any other name that a partition always"
    " has is EPERM."
)
def test_fixed_names(partition: Path) -> None:
    names = [name for name in os.listdir(partition) if (partition / name).is_file()]
    assert {"values", "status.json"} <= set(names)
    others = ("follow", "compacted/summary.json", "compacted/offset/5")
    for name in (*names, "offset/5.json", "offset/5.key", *others):
        assert errno_of(os.unlink, partition / name) == errno.EPERM, name
    assert errno_of(os.unlink, partition / "nothing") == errno.ENOENT
    assert listed(partition) == list(range(_END))


@promise(
    'If `cleanup.policy` does not include "delete", nothing can be deleted from the front: EPERM,'
    " and the log says why."
)
def test_compacted_topics(tmp_path: Path, mount: Mounting) -> None:
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("keyed", configs={"cleanup.policy": "compact"})
        _fill(engine, "keyed")
    held = mount(data, "writable")
    partition = held.point / "keyed" / "0"
    for name in ("offset/5", "offset/first", f"time/{_TIMESTAMP + 9000}", f"segments/{0:020}.log"):
        assert errno_of(os.unlink, partition / name) == errno.EPERM, name
    assert listed(partition) == list(range(_END))
    assert any("cleanup.policy does not include delete" in line for line in held.lines("INFO"))


@promise(
    "Names that disappeared together with a removed name can still be looked up and removed, but"
    " not opened, by the process that removed it, until it has removed nothing for ten seconds;"
    " for all other processes they are ENOENT at once."
)
def test_names_that_went_with_others(partition: Path) -> None:
    offsets = partition / "offset"
    os.unlink(offsets / "50")
    assert errno_of(os.stat, offsets / "50") == errno.ENOENT  # by itself
    assert offsets.joinpath("49").stat().st_size == 0
    assert errno_of(open, offsets / "49") != 0
    assert "49" not in os.listdir(offsets)
    assert finds(offsets / "49", offsets / "50", offsets / "51") == [False, False, True]
    assert errno_of(os.stat, offsets / "49.json") == errno.ENOENT
    segment = partition / f"segments/{20:020}.log"
    wait_until(lambda: not finds(segment)[0])
    for gone in (segment, partition / "dump" / f"{segment.name}.txt"):
        os.unlink(gone)
        assert errno_of(os.stat, gone) == errno.ENOENT
    os.unlink(offsets / "49")
    assert errno_of(os.unlink, offsets / "49") == errno.ENOENT
    assert start_of(partition) == 51


_REMOVALS = [
    "rm offset/*",
    "rm offset/[0-9]*",
    "rm -r offset",
    "rm offset/* time/*",
    "find offset -name '[0-9]*' -delete",
    "find offset -newermt @1699999999 -type f -delete",
    "rm -r offset time segments values",
    'rm -r "$PWD"',
]


@promise(
    "`rm offset/*`, `rm -r offset`, `rm -r` of a partition and `find … -delete` therefore finish"
    " without an error, in whatever order they remove names."
)
def test_many(tmp_path: Path, mount: Mounting) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", len(_REMOVALS) + 1, {"retention.ms": "-1"})
        for number in range(len(_REMOVALS) + 1):
            _fill(engine, "t", number)
    topic = mount(tmp_path / "data", "writable").point / "t"
    for number, command in enumerate(_REMOVALS):
        done = run("bash", "-c", f"cd {topic / str(number)} && {command}")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert listed(topic / str(number)) == []
        assert (topic / str(number) / "values").read_bytes() == b""
        wait_until(partial(_has_one_segment, tmp_path / "data", number))
    assert listed(topic / str(len(_REMOVALS))) == list(range(_END))


@promise(
    "`rm offset/*`, `rm -r offset`, `rm -r` of a partition and `find … -delete` therefore finish"
    " without an error, in whatever order they remove names."
)
def test_some(partition: Path) -> None:
    sh(f"find offset -type f ! -newermt @{_TIMESTAMP // 1000 + 42} -delete", partition)
    assert listed(partition) == list(range(43, _END))
    sh("rm segments/0*2*.*index segments/*60.log || true", partition)
    assert listed(partition) == list(range(80, _END))
    assert sh("rm offset/8* && ls offset", partition).split()[-2:] == ["first", "last"]
    assert listed(partition) == list(range(90, _END))


@promise(
    "In a partition that has no record left, `rm` of any name and `rmdir` of any directory"
    " succeed, as does `rmdir` of a directory that lists nothing, and change nothing; otherwise"
    " `rmdir` of a directory in a partition is ENOTEMPTY."
)
def test_emptied(data: Path, partition: Path) -> None:
    directories = ["offset", "time", "compacted", "segments", "dump", "compacted/offset"]
    for name in directories:
        assert errno_of(os.rmdir, partition / name) == errno.ENOTEMPTY, name
    keyless = partition.parent.parent / "keyless" / "0"
    os.rmdir(keyless / "key")
    assert errno_of(os.rmdir, keyless / "offset") == errno.ENOTEMPTY
    assert os.listdir(keyless / "key") == []
    before = os.listdir(partition)
    os.chdir(partition / "offset")  # a process that is in it can still use it
    try:
        os.unlink("last")
        for name in directories:
            os.rmdir(partition / name)
            os.rmdir(partition / name)
        for name in ("values", "follow", "status.json", f"segments/{_END - _EACH:020}.log"):
            os.unlink(partition / name)
        assert os.listdir(partition) == before
        sh("echo anew >> append", partition)
        assert listed(partition) == [_END]
        assert (partition / f"offset/{_END}").read_bytes() == b"anew"
        assert errno_of(os.rmdir, partition / "offset") == errno.ENOTEMPTY
        assert errno_of(os.unlink, partition / "values") == errno.EPERM
        assert (data / "t-0" / f"{_END - _EACH:020}.log").stat().st_size > 0
    finally:
        os.chdir("/")


@contextmanager
def appending(partition: Path) -> Iterator[list[int]]:
    """Appends records one by one during the block; yields a list with their number at the end."""
    done: list[int] = []
    ends = threading.Event()

    def append() -> None:
        with (partition / "append").open("ab", buffering=0) as file:
            while not ends.is_set():
                file.write(b"value %d\n" % (_END + len(done)))
                done.append(1)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield done
    finally:
        ends.set()
        thread.join()


@promise(
    "Records that are appended while others are removed are kept, unless their own names are"
    " removed."
)
def test_appends_meanwhile(partition: Path) -> None:
    names = [name for name in os.listdir(partition / "offset") if name.isdigit()]
    with appending(partition) as appended:
        wait_until(lambda: len(appended) > 20)
        done = run("rm", *(partition / "offset" / name for name in names))
        assert (done.returncode, done.stderr) == (0, "")
    assert listed(partition) == list(range(_END, _END + len(appended)))
    values = (partition / "values").read_bytes().splitlines()
    assert values == [value(offset) for offset in range(_END, _END + len(appended))]


def uncached_size(fd: int) -> int:
    """Returns the size of an open file, for which the kernel asks the daemon."""
    place = f"/proc/{os.getpid()}/fd/{fd}"
    return int(run("stat", "--cached=never", "-L", "-c", "%s", place).stdout)


@promise(
    "A file that was open when its record or segment was deleted keeps its attributes and bytes"
    " until it is closed."
)
def test_open_files(data: Path, partition: Path) -> None:
    names = ("offset/5", "offset/5.json", f"segments/{0:020}.log", "values")
    expected = [(partition / name).read_bytes() for name in names]
    opened = [os.open(partition / name, os.O_RDONLY) for name in names]
    sizes = [os.fstat(fd).st_size for fd in opened]
    os.unlink(partition / "offset/70")
    wait_until(lambda: segments(data) == [60, 80])
    paths = [partition / name for name in names]
    wait_until(lambda: finds(*paths) == [False, False, False, True])
    assert [uncached_size(fd) for fd in opened] == sizes
    for fd, data_then in zip(opened, expected, strict=True):
        assert os.pread(fd, 1 << 20, 0) == data_then
        os.close(fd)


@promise(
    "A deletion is on disk within a second, and when `fsync` of a directory in the partition"
    " returns or the daemon exits: the log start offset is checkpointed, and segments below it"
    " have the suffix `.deleted`."
)
def test_durability(data: Path, mounted: Mount, partition: Path) -> None:
    os.unlink(partition / "offset/25")
    wait_until(lambda: checkpointed(data) == 26 and segments(data) == [20, 40, 60, 80])
    for offset, directory in ((44, "offset"), (50, "."), (65, "segments")):
        os.unlink(partition / f"offset/{offset}")
        sh(f"sync {directory}", partition)
        assert checkpointed(data) == offset + 1
        assert segments(data)[0] == offset // 20 * 20
    os.unlink(partition / "offset/85")
    assert mounted.end() == 0
    assert checkpointed(data) == 86
    assert segments(data) == [80]


@promise(
    "If the daemon is killed, deletions that were on disk persist, and all others are undone"
    " completely."
)
def test_kill(data: Path, tmp_path: Path, mount: Mounting) -> None:
    point = tmp_path / "killed"
    point.mkdir()
    killed = start([data], point, "writable", tmp_path / "log")
    try:
        partition = point / "t" / "0"
        wait_until(partition.exists)
        os.unlink(partition / "offset/25")
        sh("sync offset", partition)
        os.unlink(partition / "offset/30")
    finally:
        clear(killed)
    again = mount(data, "writable").point / "t" / "0"
    begin = start_of(again)
    assert begin in (26, 31)
    assert listed(again) == list(range(begin, _END))
    values = (again / "values").read_bytes().splitlines()
    assert values == [value(offset) for offset in range(begin, _END)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@promise(
    "While a deletion cannot be written to disk, the log and `.kafkafs/status.json` say why,"
    " `fsync` returns the error, and it is retried every second; if the disk is full, nothing is"
    " lost."
)
def test_full_disk(small_disk: Path, mount: Mounting) -> None:
    data = small_disk / "data"
    with LogManager(str(data), {"log.index.size.max.bytes": "4096"}) as engine:
        engine.create_topic("t", configs={"retention.ms": "-1"})
        _fill(engine, "t")
    held = mount(data, "writable", {"log.index.size.max.bytes": "4096"})
    partition = held.point / "t" / "0"
    filler = small_disk / "filler"
    assert run("dd", "if=/dev/zero", f"of={filler}", "bs=1K").returncode == 1
    os.unlink(partition / "offset/25")
    assert start_of(partition) == 26

    def problems() -> list[str]:
        status = json.loads((held.point / ".kafkafs/status.json").read_bytes())
        return [line for line in status["problems"] if line.startswith("deletions: ")]

    (problem,) = wait_until(problems)
    assert "No space left on device" in problem
    warned = "deletions are not on the disk yet"
    assert len([line for line in held.lines("WARNING") if warned in line]) == 1
    directory = os.open(partition / "offset", os.O_RDONLY)
    assert errno_of(os.fsync, directory) == errno.ENOSPC
    assert checkpointed(data) == 0
    filler.unlink()
    wait_until(lambda: checkpointed(data) == 26 and segments(data)[0] == 20)
    assert problems() == []
    os.fsync(directory)
    os.close(directory)


def test_random(data: Path, partition: Path) -> None:
    """Random removals, appends and lookups, against a model of where the log starts and ends."""
    chance = random.Random(17)
    begin, end = 0, _END
    for _ in range(200):
        what = chance.choice(["rm", "rm", "time", "append", "segment", "missing", "sync"])
        offset = chance.randrange(begin, min(begin + 12, end)) if begin < end else begin
        if what == "append":
            count = chance.randrange(1, 15)
            with (partition / "append").open("ab") as file:
                file.writelines(b"value %d\n" % each for each in range(end, end + count))
            end += count
        elif what == "sync":
            sh("sync offset", partition)
            assert checkpointed(data) == begin
        elif what == "missing":
            gone = chance.choice([end, end + 7, *([begin - 1] if begin else [])])
            assert not finds(partition / f"offset/{gone}")[0]
        elif begin < end and what == "rm":
            os.unlink(partition / f"offset/{offset}")
            begin = offset + 1
        elif begin < end and what == "time" and offset < _END:
            os.unlink(partition / f"time/{_TIMESTAMP + offset * 1000}")
            begin = max(begin, offset)
        elif what == "segment":
            base = chance.choice(segments(data))
            is_active = base == segments(data)[-1]
            expected = errno.EBUSY if is_active and begin < end else 0
            assert errno_of(os.unlink, partition / f"segments/{base:020}.log") == expected
            if not is_active:
                begin = max(begin, base + _EACH)
        assert start_of(partition) == begin
        assert listed(partition) == list(range(begin, end))
        if begin < end:
            assert (partition / "offset/first").read_bytes() == value(begin)
            assert (partition / "offset/last").read_bytes() == value(end - 1)
