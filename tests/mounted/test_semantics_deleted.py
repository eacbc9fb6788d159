"""The promises of SEMANTICS.md about deleted records and topics, one by one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import Mount, errno_of
from tests.mounted.promises import promise
from tests.waiting import wait_until
from tests.warm_python import run_kafkafs

_END = 50


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The topics `t`, `u`, `empty` and `brief`; all but `empty` have five segments of ten records
    each, and deleted files of `brief` are kept for two seconds."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", configs={"retention.ms": "-1"})
        engine.create_topic("u", configs={"retention.ms": "-1"})
        engine.create_topic("empty", 2)
        brief = {"retention.ms": "-1", "file.delete.delay.ms": "2000"}
        engine.create_topic("brief", configs=brief)
        for topic in ("t", "u", "brief"):
            writer = engine.writer(topic, 0)
            for base in range(0, _END, 10):
                if base:
                    writer.roll()
                values = [bytes([offset]) * 1000 for offset in range(base, base + 10)]
                writer.append_records(RecordColumns.from_values(values))
    return tmp_path / "data"


@pytest.fixture
def mounted(data: Path, mount: Mounting) -> Mount:
    return mount(data, "writable")


@pytest.fixture
def point(mounted: Mount) -> Path:
    return mounted.point


def deleted(point: Path) -> list[str]:
    return sorted(os.listdir(point / ".kafkafs/deleted"))


def told(point: Path, name: str) -> Any:
    return json.loads((point / ".kafkafs/deleted" / name).read_bytes())


@promise(
    "`.kafkafs/deleted` lists what can be restored: `TOPIC-PARTITION@FIRST-LAST.json` for records,"
    " with the first and the last deleted offset, and `TOPIC@topic.json` for a topic."
)
def test_names(point: Path) -> None:
    assert deleted(point) == []
    os.unlink(point / "t/0/offset/12")
    assert deleted(point) == ["t-0@0-12.json"]
    os.unlink(point / f"t/0/segments/{20:020}.log")
    assert deleted(point) == ["t-0@0-29.json"]
    os.unlink(point / "u/0/offset/3")
    (point / ".kafkafs/control").write_bytes(b"delete-topic empty\n")
    names = ["empty@topic.json", "t-0@0-29.json", "u-0@0-3.json"]
    wait_until(lambda: deleted(point) == names)
    assert told(point, "empty@topic.json")["what"] == "topic empty, partitions 2"
    assert errno_of(os.stat, point / ".kafkafs/deleted/t-0@0-12.json") == errno.ENOENT


@promise(
    "Each is a JSON object that says what was deleted, why, when, until when it can be restored,"
    " and by which command.",
    "The modification time of such a file is that of the deletion.",
)
def test_contents(data: Path, point: Path) -> None:
    before = time.time()
    os.unlink(point / "t/0/offset/12")
    after = time.time()
    found = told(point, "t-0@0-12.json")
    assert (found["what"], found["why"]) == ("t/0, offsets 0 to 12", "DeleteRecords")
    assert found["bringBack"] == f"kafkafs undelete {data} t/0"
    assert found["deletion"]["segments"] == [0]
    at = found["deletion"]["deletedAt"]
    assert int(before * 1000) <= at <= after * 1000
    assert found["deletion"]["until"] == at + 60_000
    assert found["when"][:19] == time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 1000))
    status = os.stat(point / ".kafkafs/deleted/t-0@0-12.json")
    assert status.st_mtime_ns == at * 1_000_000


@promise(
    "What was restored is there under its names as soon as `kafkafs undelete` has returned, byte"
    " for byte as it was."
)
def test_undelete(data: Path, point: Path) -> None:
    offsets = point / "t/0/offset"
    before = {name: (offsets / name).read_bytes() for name in os.listdir(offsets)}
    segment = point / f"t/0/segments/{0:020}.log"
    log = segment.read_bytes()
    held = offsets.joinpath("5").open("rb")
    inode = os.fstat(held.fileno()).st_ino
    for name in sorted(before, key=str):
        if name.isdigit() and int(name) < 40:
            os.unlink(offsets / name)
    wait_until(lambda: not segment.exists() or not os.path.lexists(data / "t-0" / segment.name))
    done = run_kafkafs("undelete", str(data), "t/0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"t/0: offsets 0 to 39 restored")
    assert {name: (offsets / name).read_bytes() for name in os.listdir(offsets)} == before
    assert segment.read_bytes() == log
    assert os.stat(offsets / "5").st_ino == inode
    with held:
        assert held.read() == before["5"]
    assert deleted(point) == []


def test_a_topic_that_was_removed_with_all_that_was_in_it(data: Path, point: Path) -> None:
    values = (point / "t/0/values").read_bytes()
    assert subprocess.run(["rm", "-r", point / "t"], check=False).returncode == 0
    assert "t" not in os.listdir(point)
    first = run_kafkafs("undelete", str(data), "t")
    assert first.returncode == 0
    assert first.stdout.startswith(b"t: topic, with 1 partition, restored")
    assert b"t/0: offsets 0 to 49 were deleted before" in first.stderr
    assert (point / "t/0/values").read_bytes() == b""
    second = run_kafkafs("undelete", str(data), "t")
    assert (second.returncode, second.stderr) == (0, b"")
    assert (point / "t/0/values").read_bytes() == values


@promise(
    "What can no longer be restored is not listed, and `kafkafs undelete` says that there is"
    " nothing."
)
def test_too_late(data: Path, point: Path) -> None:
    began = time.monotonic()
    os.unlink(point / "brief/0/offset/25")
    listed = deleted(point)
    assert listed == ["brief-0@0-25.json"] or time.monotonic() - began > 2
    wait_until(lambda: not deleted(point))
    done = run_kafkafs("undelete", str(data), "brief/0")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cannot be restored" in done.stderr
    assert (point / "brief/0/offset/first").readlink() == Path("26")


@promise("Nothing in `.kafkafs/deleted` can be changed or removed: EPERM.")
def test_it_is_read_only(point: Path) -> None:
    os.unlink(point / "t/0/offset/12")
    [name] = deleted(point)
    directory = point / ".kafkafs/deleted"
    assert errno_of(os.unlink, directory / name) == errno.EPERM
    assert errno_of(os.truncate, directory / name, 0) == errno.EPERM
    assert errno_of(os.rename, directory / name, directory / "new") == errno.EPERM
    assert errno_of(os.mkdir, directory / "new") == errno.EPERM
    assert errno_of(os.rmdir, directory) == errno.EPERM
    assert deleted(point) == [name]


def leftovers(data: Path) -> list[str]:
    return sorted(
        path.name for path in (data / "t-0").iterdir() if path.suffix in (".deleted", ".cleaned")
    )


@promise(
    "`kafkafs purge` has the mount remove what other processes have left in the log directories;"
    " what the mount itself has deleted is kept, and can be restored, until its time is over."
)
def test_purge(data: Path, mount: Mounting) -> None:
    left = data / "t-0" / f"{90:020}.log.cleaned"
    left.write_bytes(b"left")
    point = mount(data, "writable").point
    os.unlink(point / "t/0/offset/12")
    wait_until(lambda: f"{0:020}.log.deleted" in leftovers(data))
    for options in (["--dry-run"], []):
        assert left.exists()
        done = run_kafkafs("purge", "--json", *options, str(data))
        assert (done.returncode, done.stderr) == (0, b"")
        (row,) = map(json.loads, done.stdout.splitlines())
        assert row["path"] == str(left)
    assert not left.exists()
    assert f"{0:020}.log.deleted" in leftovers(data)
    assert run_kafkafs("undelete", str(data), "t/0").returncode == 0
    assert (point / "t/0/offset/0").exists()


@promise(
    "A leftover file whose name the mount needs, such as an old `.deleted` file, is not replaced:"
    " its name then ends in `.N.deleted`, and only `purge` or the option `maintain` removes it."
)
def test_a_leftover_that_is_in_the_way(data: Path, mount: Mounting) -> None:
    (data / "t-0" / f"{0:020}.log.deleted").write_bytes(b"the only copy")
    point = mount(data, "writable").point
    os.unlink(point / "t/0/offset/12")
    aside = data / "t-0" / f"{0:020}.log.1.deleted"
    wait_until(aside.exists)
    assert aside.read_bytes() == b"the only copy"
    assert run_kafkafs("undelete", str(data), "t/0").returncode == 0
    assert aside.read_bytes() == b"the only copy"
    assert run_kafkafs("purge", str(data)).returncode == 0
    assert leftovers(data) == []


def test_nothing_of_it_on_a_mount_that_only_reads(data: Path, mount: Mounting) -> None:
    point = mount(data).point
    assert "deleted" not in os.listdir(point / ".kafkafs")
    assert errno_of(os.listdir, point / ".kafkafs/deleted") == errno.ENOENT


@promise(
    "`kafkafs erase` has the mount erase records from all files of a partition, also from those"
    " that it has deleted itself, which can no longer be restored then. When the command returns,"
    " the tree no longer has these records, and all others are as they were. `rm offset/N` still"
    " deletes all records up to N, and erases none."
)
def test_erase(data: Path, mount: Mounting) -> None:
    partition = mount(data, "writable").point / "t/0"
    os.unlink(partition / "offset/12")
    wait_until(lambda: f"{0:020}.log.deleted" in leftovers(data))
    for offset, is_removed in ((3, True), (_END - 1, False), (44, False)):
        done = run_kafkafs("erase", "--json", "--offset", str(offset), str(data), "t/0")
        assert done.returncode == 0
        (row,) = map(json.loads, done.stdout.splitlines())
        assert (row["records"], row["removed"]) == (1, is_removed)
        with pytest.raises(OSError, match=r"No such file|Stale file"):
            (partition / f"offset/{offset}").read_bytes()
    assert f"{0:020}.log.deleted" not in leftovers(data)
    there = sorted(int(name) for name in os.listdir(partition / "offset") if name.isdigit())
    assert there == [each for each in range(13, _END) if each not in (44, _END - 1)]
    assert (partition / "offset/45").read_bytes() == bytes([45]) * 1000
    assert run_kafkafs("undelete", str(data), "t/0").returncode == 0
    assert (partition / "offset/10").exists()
    assert not (partition / "offset/44").exists()
    with pytest.raises(OSError, match=r"No such file|Stale file"):
        (partition / "offset/9").read_bytes()
