"""The promises of SEMANTICS.md about writable mounts in general, one by one."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.errors import LogDirLocked
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.conftest import differences, fingerprint
from tests.mounted.conftest import Mounting
from tests.mounted.conversing import ask
from tests.mounted.mounting import errno_of
from tests.mounted.promises import promise
from tests.waiting import wait_until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with ten records in the topic `t`."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t")
        values = [b"value %d" % number for number in range(10)]
        engine.writer("t", 0).append_records(RecordColumns.from_values(values))
    return tmp_path / "data"


@promise(
    "A writable mount locks the log directories as a broker does: if another process holds one of"
    " them, the mount is refused, and while it exists, it refuses other processes."
)
def test_it_holds_the_directories(data: Path, mount: Mounting) -> None:
    with (
        LogManager(str(data)),
        pytest.raises(AssertionError, match=r"process \d+ has it locked"),
    ):
        mount(data, "writable")
    held = mount(data, "writable")
    with pytest.raises(LogDirLocked) as refused:
        LogManager(str(data))
    assert refused.value.pid == held.daemon.pid
    assert mount(data).point.joinpath("t/0/values").read_bytes().count(b"\n") == 10


@promise(
    "A log directory that was not closed cleanly is recovered as a broker would before the mount"
    " is ready."
)
def test_recovery(data: Path, mount: Mounting) -> None:
    log = data / "t-0" / f"{0:020}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])  # an append cut short by a crash
    (data / ".kafka_cleanshutdown").unlink()
    point = mount(data, "writable").point
    assert log.read_bytes() == whole
    assert (point / "t/0/values").read_bytes().count(b"\n") == 10


@promise(
    "Directories have mode 0755 and records 0444; the kernel denies users other than the owner"
    " what those modes deny."
)
def test_modes(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable,allow_other").point
    for path in (point, point / "t", point / "t/0", point / "t/0/offset", point / "t/0/segments"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755, path
    (listed,) = [each for each in os.scandir(point) if each.name == "t"]
    assert stat.S_IMODE(listed.stat(follow_symlinks=False).st_mode) == 0o755
    for name in ("offset/3", "offset/3.json", "segments/00000000000000000000.log"):
        assert stat.S_IMODE((point / "t/0" / name).stat().st_mode) == 0o444, name
    as_nobody = "import os, sys; os.setgid(65534); os.setuid(65534); os.unlink(sys.argv[1])"
    path = point / "t/0/offset/3"
    command = [sys.executable, "-c", as_nobody, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "PermissionError: [Errno 13]" in done.stderr
    assert path.read_bytes() == b"value 3"


@promise(
    "What would change or remove a record in the middle of a log, or a file computed from the log,"
    " is EPERM, and the mount's log says why."
)
def test_history_stays(data: Path, mount: Mounting) -> None:
    mounted = mount(data, "writable")
    partition = mounted.point / "t/0"
    for name in (
        "offset/3",
        "values",
        "records.jsonl",
        "status.json",
        "segments/" + f"{0:020}.log",
    ):
        path = partition / name
        before = path.read_bytes()
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            assert errno_of(os.open, path, flags) == errno.EPERM, name
        assert errno_of(os.truncate, path, 0) == errno.EPERM, name
        assert errno_of(os.rename, path, partition / "elsewhere") == errno.EPERM, name
        assert errno_of(os.utime, path, (0, 0)) == errno.EPERM, name
        assert errno_of(os.chmod, path, 0o777) == errno.EPERM, name
        assert name == "status.json" or path.read_bytes() == before
    assert errno_of(os.link, partition / "offset/3", partition / "offset/100") == errno.EPERM
    assert errno_of(os.symlink, "3", partition / "offset/100") == errno.EPERM
    assert errno_of(os.mkdir, partition / "offset/100") == errno.EPERM
    assert errno_of(os.unlink, partition / "values") == errno.EPERM
    refused = [line for line in mounted.lines("INFO") if "refused: " in line]
    assert any("shows records of a log, which cannot be changed" in line for line in refused)
    assert any("values cannot be removed" in line for line in refused)


@promise(
    "What was removed, appended or created through the mount is visible to every process as soon"
    " as the call has returned, also to those that had looked before."
)
def test_at_once(data: Path, mount: Mounting) -> None:
    point = mount(data, "writable").point
    offsets = point / "t/0/offset"
    appending = point / "t/0/append"
    for number in range(100):
        assert (offsets / str(number + 9)).read_bytes() == b"value %d" % (number + 9)
        assert sorted(path.name for path in (point / "t/0/time").iterdir()) is not None
        with appending.open("ab", buffering=0) as file:
            file.write(b"value %d\n" % (number + 10))
        assert (offsets / str(number + 10)).stat().st_size == len(b"value %d" % (number + 10))
        assert os.readlink(offsets / "last") == str(number + 10)
        os.unlink(offsets / str(number))
        assert errno_of(os.stat, offsets / str(number)) == errno.ENOENT
        assert os.readlink(offsets / "first") == str(number + 1)
        assert min(int(name) for name in os.listdir(offsets) if name.isdigit()) == number + 1
    os.mkdir(point / "new")
    assert "new" in os.listdir(point)
    os.rmdir(point / "new")
    assert "new" not in os.listdir(point)
    assert errno_of(os.stat, point / "new" / "0") == errno.ENOENT


@promise(
    "Without the option `maintain`, nothing deletes records or files that nobody has named:"
    " retention and the cleaner do not run by themselves, and what other processes have left, such"
    " as `.deleted` and `.cleaned` files, is kept. `status.json` says so of each task."
)
def test_nothing_is_deleted_by_itself(tmp_path: Path, mount: Mounting) -> None:
    data = old_and_keyed(tmp_path)
    left = [data / "old-0" / f"{n:020}.log.deleted" for n in (7, 8)]
    left.append(data / "keyed-0" / f"{7:020}.log.cleaned")
    left.append(data / f"gone-0.{'a' * 32}-delete" / f"{0:020}.log")
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left")
    point = mount(data, "writable", OFTEN).point
    ask(point, "run flush")

    def runs() -> dict[str, int]:
        return {row["task"]: row["runs"] for row in ask(point, "status")}

    wait_until(lambda: min(runs()["recovery-points"], runs()["start-offsets"]) > 10)
    wait_until(lambda: runs()["deletion"] > 2)
    assert (runs()["retention"], runs()["cleaner"]) == (0, 0)
    why = "the directories were opened without maintain"
    tasks = json.loads((point / ".kafkafs/status.json").read_text())["tasks"]
    assert [row["task"] for row in tasks if row["notScheduled"] == why] == ["retention", "cleaner"]
    assert (point / "old/0/values").read_bytes() == b"0\n1\n2\n"
    assert (point / "keyed/0/values").read_bytes() == b"0\n1\n2\n"
    assert all(path.read_bytes() == b"left" for path in left)


@promise(
    "With the option `maintain` (`--maintain`), retention and the cleaner run as in a broker as"
    " long as the mount exists, and what other processes have left is removed after"
    " `file.delete.delay.ms`; stray partitions are kept. Flushing, checkpoints and the removal of"
    " what was deleted through the mount run on every writable mount."
)
def test_background_tasks(tmp_path: Path, mount: Mounting) -> None:
    data = old_and_keyed(tmp_path)
    stray = data / f"lost-0.{'b' * 32}-stray"
    stray.mkdir()
    left = data / "old-0" / f"{7:020}.log.deleted"
    left.write_bytes(b"left")
    settings = {**OFTEN, "file.delete.delay.ms": "100"}
    point = mount(data, "writable,maintain", settings).point
    wait_until(lambda: (point / "old/0/values").read_bytes() == b"")
    wait_until(lambda: (point / "keyed/0/values").read_bytes() == b"1\n2\n")
    wait_until(lambda: "keyed 0 2" in (data / "cleaner-offset-checkpoint").read_text())
    wait_until(lambda: "old 0 3" in (data / "recovery-point-offset-checkpoint").read_text())
    wait_until(lambda: not left.exists())
    assert stray.exists()


OFTEN = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
}


def old_and_keyed(tmp_path: Path) -> Path:
    """Returns log directories with a topic `old`, which retention deletes, and a compacted one."""
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("old", configs={"retention.ms": "1000"})
        rolled = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0", "cleanup.policy": "compact"}
        engine.create_topic("keyed", configs=rolled)
        for number in range(3):
            columns = RecordColumns.from_values(
                [b"%d" % number], keys=[b"k"], timestamp=number * 10
            )
            engine.writer("keyed", 0).append_records(columns)
            columns = RecordColumns.from_values([b"%d" % number], timestamp=1000 + number)
            engine.writer("old", 0).append_records(columns)
            engine.writer("old", 0).roll()
    return data


@promise("The option `rw` makes nothing writable: mount(8) passes it even if nobody requested it.")
def test_rw_alone(data: Path, mount: Mounting) -> None:
    point = mount(data, "rw").point
    assert errno_of(os.unlink, point / "t/0/offset/3") == errno.EROFS
    with LogManager(str(data)) as engine:
        assert engine.writer("t", 0).end_offset == 10


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka28"])
@promise(
    "By itself, a writable mount without `maintain` changes, in log directories that were closed"
    " cleanly, only `.lock`, `.kafka_cleanshutdown` and the `…-checkpoint` files, and in"
    " partitions `leader-epoch-checkpoint` and snapshots, where a broker left none or one too"
    " many; after a crash also what recovery truncates and rebuilds."
)
def test_opening_changes_little(
    writable_corpus: Callable[[str], Path], mount: Mounting, name: str
) -> None:
    """`tests/cli/test_untouched_dirs.py` tests it further, also after crashes."""
    data = writable_corpus(name)
    before = fingerprint(data)
    assert os.listdir(mount(data, "writable").point)
    after = fingerprint(data)
    directories = {each for each, stamp in {**before, **after}.items() if stat.S_ISDIR(stamp[1])}
    changed = set(differences(before, after)) - directories
    beside = {each for each in changed if "/" not in each}
    others = {each for each in beside if not each.endswith("-checkpoint")}
    assert others <= {".lock", ".kafka_cleanshutdown"}
    inside = {each.rpartition("/")[2] for each in changed - beside}
    assert all(each == "leader-epoch-checkpoint" or each.endswith(".snapshot") for each in inside)
