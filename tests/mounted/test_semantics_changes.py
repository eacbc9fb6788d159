"""The promises of SEMANTICS.md about writing, changing logs and mounting, one by one."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from kafkafs.mount.options import parse_options
from kafkafs.mount.session.mount_table import mounted_at
from kafkafs.mount.session.mountpoint import MountError, unmount
from kafkafs.storage.errors import ConfigError
from tests import warm_python
from tests.mounted.conftest import Mounting
from tests.mounted.live import LiveLog, value
from tests.mounted.mounting import ROOT, Mount, clear, errno_of, is_mounted, sh, start
from tests.mounted.promises import promise
from tests.waiting import PATIENCE_SECONDS, wait_until

#: The directories in which each name belongs to a record.
RECORD_NAMES = ("offset", "key", "latest")

# -- 10 Writing ---------------------------------------------------------------------------------


@promise("Every attempt to create, change or remove anything is EROFS.")
def test_nothing_can_be_changed(clean: Path) -> None:
    record, directory = clean / "orders" / "0" / "offset" / "0", clean / "orders" / "0"
    attempts: list[Callable[[], object]] = [
        lambda: record.open("wb"),
        lambda: record.open("ab"),
        lambda: record.open("r+b"),
        lambda: os.truncate(record, 0),
        lambda: os.utime(record),
        lambda: record.chmod(0o777),
        lambda: os.chown(record, 0, 0),
        lambda: os.setxattr(record, "user.kafka.key", b"x"),
        lambda: os.removexattr(record, "user.kafka.key"),
        record.unlink,
        lambda: record.rename(record.parent / "x"),
        lambda: os.link(record, record.parent / "x"),
        lambda: os.symlink("x", directory / "x"),
        lambda: (directory / "x").open("xb"),
        lambda: (directory / "values").open("wb"),
        lambda: os.mkfifo(directory / "x"),
        (clean / "x").mkdir,
        (directory / "offset").rmdir,
        (directory / "segments" / f"{0:020}.log").unlink,
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="Read-only") as caught:
            attempt()
        assert caught.value.errno == errno.EROFS


@promise(
    "Nothing in the log directory changes through a mount: no byte, no name, no time, no lock."
)
def test_reading_leaves_no_trace(writable_corpus: Callable[[str], Path], mount: Mounting) -> None:
    corpus = writable_corpus("kafka43-crash")
    everything = [corpus, *corpus.rglob("*")]
    for path in everything:
        os.utime(path, ns=(10**18, path.stat().st_mtime_ns))
    before = {path: all_times(path) for path in everything}
    mounted = mount(corpus)
    # About every hundredth record by each of its names, and all of everything else.
    few = " ".join(f"! -path '*/{name}/*[!0]' ! -path '*/{name}/*[!0]0'" for name in RECORD_NAMES)
    files = f"find . -type f {few} -print0"
    attributes = "getfattr -d */*/offset/first */*/offset/last > /dev/null"
    names = "ls -R > /dev/null; ls -l */* */*/segments crash-txn/0/{offset,time} > /dev/null"
    sh(f"{files} | xargs -0 cat > /dev/null; {names}; {attributes}", mounted.point)
    assert {path: all_times(path) for path in everything} == before
    locks = Path("/proc/locks").read_text(encoding="utf-8")
    assert f" {mounted.daemon.pid} " not in locks
    assert mounted.end() == 0
    assert {path: all_times(path) for path in everything} == before
    assert {corpus, *corpus.rglob("*")} == set(everything)


def all_times(path: Path) -> tuple[int | float, ...]:
    """Returns everything that `stat` reports, the three times to the nanosecond."""
    status = path.lstat()
    return *status, status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns


# -- 11 A log that changes ----------------------------------------------------------------------


@promise(
    "Records that a broker appends can be read as soon as it has written them, and appear in"
    " listings, in streams opened afterwards, and in `status.json`."
)
def test_appended_records(live: LiveLog, mount: Mounting) -> None:
    where = mount(live.directory).point / "t" / "0"
    for turn in range(10):
        if turn == 5:
            live.roll()
        for offset in live.append(2):
            assert (where / "offset" / str(offset)).read_bytes() == value(offset)
        assert os.listdir(where / "offset")[-1] == str(live.end - 1)
        assert os.readlink(where / "offset" / "last") == str(live.end - 1)
        assert (where / "values").read_bytes().endswith(value(live.end - 1) + b"\n")
        assert json.loads((where / "status.json").read_text())["logEndOffset"] == live.end


@promise(
    "What retention or compaction removed disappears within a second, even if it had been looked"
    " at before."
)
@pytest.mark.parametrize("how", ["segments", "start", "cleaner"])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_removed_records(
    live: LiveLog, mount: Mounting, how: str, is_open: bool, inside: bool
) -> None:
    offsets = mount(live.directory).point / "t" / "0" / "offset"
    shell = subprocess.Popen(["sleep", "60"], cwd=offsets) if inside else None
    names = ["0", "0.json", "0.key", "000"]
    for name in [*names, "1", "2", "5"]:
        assert (offsets / name).read_bytes()
    assert len(list(os.scandir(offsets))) == 8
    held = [(offsets / name).open("rb") for name in names if is_open]
    # Names below a process's working directory must disappear, too.
    directory = os.open(offsets, os.O_RDONLY)
    try:
        {"segments": lambda: live.delete_before(2), "start": lambda: live.start_at(1)}.get(
            how, lambda: live.replace(0, [1])
        )()
        wait_until(lambda: not any((offsets / name).exists() for name in names))
        for name in names:
            with pytest.raises(FileNotFoundError):
                os.stat(name, dir_fd=directory)
        assert "0" not in os.listdir(offsets)
        assert (offsets / "2").read_bytes() == value(2)
        assert (offsets / "1").exists() == (how != "segments")
    finally:
        os.close(directory)
        for file in held:
            file.close()
        if shell is not None:
            shell.kill()
            shell.wait()


@promise(
    "A file that was open when its record, segment or topic was removed can be read to its end."
)
def test_open_files_stay(live: LiveLog, mount: Mounting) -> None:
    where = mount(live.directory).point / "t" / "0"
    log = live.log(0).read_bytes()
    paths = [where / "offset" / "0", where / "segments" / live.log(0).name, where / "values"]
    files = [path.open("rb", buffering=0) for path in paths]
    live.delete_before(4)
    live.delete()
    for path in (live.directory / f"t-0.{'0' * 32}-delete").iterdir():
        path.unlink()
    wait_until(lambda: not where.exists())
    expected = [value(0), log, b"".join(value(at) + b"\n" for at in range(6))]
    for file, data in zip(files, expected, strict=True):
        assert file.read() == data
        file.seek(0)
        assert file.read() == data
        file.close()


@promise(
    "A topic that is deleted and created again is new: nothing of the old one is shown under its"
    " names."
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_topic_made_anew(live: LiveLog, mount: Mounting, inside: bool) -> None:
    where = mount(live.directory).point / "t" / "0"
    shell = subprocess.Popen(["sleep", "60"], cwd=where / "offset") if inside else None
    names = os.listdir(where / "offset")
    numbers = {(where / "offset" / name).lstat().st_ino for name in names}
    assert (where / "offset" / "3").read_bytes() == value(3)
    assert (where / "values").read_bytes()
    try:
        live.delete()
        live.create([b"new 0", b"new 1"])
        wait_until(lambda: not (where / "offset" / "3").exists())
        for offset in (0, 1):
            assert (where / "offset" / str(offset)).read_bytes() == b"new %d" % offset
        assert os.listdir(where / "offset") == ["first", "last", "0", "1"]
        assert (where / "values").read_bytes() == b"new 0\nnew 1\n"
        new = {(where / "offset" / name).lstat().st_ino for name in ("0", "1", "first", "last")}
        assert not new & numbers
    finally:
        if shell is not None:
            shell.kill()
            shell.wait()


@promise("A segment that the cleaner replaced is shown with its new bytes within a second.")
def test_a_replaced_segment(live: LiveLog, mount: Mounting) -> None:
    where = mount(live.directory).point / "t" / "0"
    shown = where / "segments" / live.log(2).name
    before = shown.read_bytes()
    batch = json.loads((where / "offset" / "3.json").read_text())["batch"]
    assert batch["position"] > 0
    with shown.open("rb"):
        live.replace(2, [3])
        wait_until(lambda: shown.read_bytes() == live.log(2).read_bytes() != before)
        assert shown.stat().st_size == live.log(2).stat().st_size
    wait_until(
        lambda: json.loads((where / "offset" / "3.json").read_text())["batch"]["position"] == 0
    )


# -- 12 Mounting and unmounting -----------------------------------------------------------------

_MOUNT = """
import sys
from kafkafs.mount.options import parse_options
from kafkafs.mount.session.session import MountError, mount
try:
    mount([sys.argv[1]], sys.argv[2], parse_options(sys.argv[3]))
except MountError as error:
    print(error)
    sys.exit(1)
"""


def mount_in_background(directory: Path, point: Path, options: str) -> tuple[int, str]:
    """Returns the exit status and output of the command that mounts."""
    with TemporaryFile() as output:
        command = warm_python.start(_MOUNT, [str(directory), str(point), options], output)
        status = command.wait(PATIENCE_SECONDS)
        output.seek(0)
        return status, output.read().decode()


@promise(
    "The command that mounts returns when the mount is ready, or says in one line why it cannot"
    " mount."
)
def test_mounting_in_the_background(live: LiveLog, tmp_path: Path) -> None:
    point, log = tmp_path / "mnt", tmp_path / "daemon.log"
    point.mkdir()
    try:
        assert mount_in_background(live.directory, point, f"log={log}") == (0, "")
        assert (point / "t" / "0" / "offset" / "3").read_bytes() == value(3)
        status, said = mount_in_background(live.directory, point, "")
        assert status == 1
        assert (
            said
            == f"{point}: {live.directory} is mounted there; `kafkafs umount {point}` ends that\n"
        )
    finally:
        unmount(str(point))
    assert not is_mounted(point)
    wait_until(lambda: "ERROR" not in log.read_text(encoding="utf-8"))
    for bad, why in (
        (tmp_path / "nothing", "no such directory"),
        (live.log(0), "not a directory"),
    ):
        status, said = mount_in_background(live.directory, bad, "")
        assert (status, said.count("\n")) == (1, 1)
        assert why in said


@promise(
    "`umount`, SIGINT, SIGTERM, and SIGHUP unless it was ignored at the start, end a mount: the"
    " daemon exits with status 0, and the mount point is an empty directory again."
)
@pytest.mark.parametrize("how", ["umount", "fusermount3", "SIGINT", "SIGTERM", "SIGHUP"])
def test_ending(live: LiveLog, mount: Mounting, how: str) -> None:
    mounted = mount(live.directory)
    (mounted.point / "t" / "0" / "values").read_bytes()
    if how == "umount":
        subprocess.run(["umount", mounted.point], check=True)
    elif how == "fusermount3":
        subprocess.run(["fusermount3", "-u", mounted.point], check=True)
    else:
        mounted.daemon.send_signal(signal.Signals[how])
    assert mounted.daemon.wait(PATIENCE_SECONDS) == 0
    assert not is_mounted(mounted.point)
    assert os.listdir(mounted.point) == []


@promise("A mount that is ended while files are open in it is nevertheless unmounted.")
def test_ending_while_in_use(live: LiveLog, mount: Mounting) -> None:
    mounted = mount(live.directory)
    where = mounted.point / "t" / "0"
    reader = subprocess.Popen(
        ["cat", where / "follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    assert reader.stdout.readline()
    file = os.open(where / "values", os.O_RDONLY)
    assert os.read(file, 1)
    mounted.daemon.send_signal(signal.SIGTERM)
    assert mounted.daemon.wait(PATIENCE_SECONDS) == 0
    assert not is_mounted(mounted.point)
    with pytest.raises(OSError, match="not connected"):  # there is no daemon to close it
        os.close(file)
    reader.communicate(timeout=PATIENCE_SECONDS)


@promise(
    "A mount point that a dead daemon of the same user left behind is cleared by the next mount on"
    " it, and by `kafkafs umount`; for other users, the error names that command."
)
def test_a_mount_point_left_behind(live: LiveLog, tmp_path: Path) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    mounted = start([live.directory], point, "", tmp_path / "log")
    try:
        wait_until(lambda: os.path.ismount(point))
        mounted.daemon.kill()
        mounted.daemon.wait()
        script = (
            "import os, sys\n"
            "from kafkafs.mount.session.mountpoint import check\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "check([], sys.argv[1])"
        )
        command = [sys.executable, "-c", script, str(point)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.stderr.endswith(f"; `kafkafs umount {point}` ends that\n")
        again = start([live.directory], point, "", tmp_path / "log")
        try:
            wait_until(lambda: errno_of(os.stat, point / "t/0/offset/5") == 0)
        finally:
            again.daemon.kill()
            again.daemon.wait()
        assert is_mounted(point)
        unmount(str(point))
        assert not is_mounted(point)
        with pytest.raises(MountError, match="no kafkafs is mounted there"):
            unmount(str(point))
    finally:
        clear(mounted)


@promise("A mount point inside one of its own log directories is rejected.")
def test_mounting_inside_the_log_directory(live: LiveLog, tmp_path: Path) -> None:
    (live.directory / "mnt").mkdir()
    (tmp_path / "link").symlink_to(live.directory / "mnt")
    for point in (live.directory, live.directory / "mnt", tmp_path / "link", live.partition):
        status, said = mount_in_background(live.directory, point, "")
        assert status == 1
        assert "inside the log directory" in said
        assert not is_mounted(point)


@promise("An unknown option is rejected by name.")
def test_unknown_options(live: LiveLog, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="isolated: no such mount option"):
        parse_options("isolated=read_committed")


@promise(
    "`df` and `/proc/mounts` show the filesystem with the type `fuse.kafkafs` and the first log"
    " directory as its source."
)
def test_the_table_of_mounts(writable_corpus: Callable[[str], Path], mount: Mounting) -> None:
    corpus = writable_corpus("kafka43-two-dirs")
    comma = corpus / "a,b c\\d"
    (corpus / "dir1").rename(comma)
    mounted: Mount = mount([corpus / "dir2"])
    found = mounted_at(str(mounted.point))
    assert found is not None
    assert (found.kind, found.source) == ("fuse.kafkafs", str(corpus / "dir2"))
    shown = sh(f"df --output=source,fstype {mounted.point} | tail -1", corpus).split()
    assert shown == [str(corpus / "dir2"), "fuse.kafkafs"]
