"""What a command leaves untouched: everything that `stat` says of a log directory.

Commands run in this process, one after the other, on what real brokers wrote and on a directory
that was not closed in good order and has old records and leftovers of every kind. A command that is
not in the tables of `command_lines.py`, or an option to look only that no line tries, fails.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from stat import S_ISDIR

import pytest
from click.testing import CliRunner, Result

from kafkafs.cli.main import cli
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests import answers
from tests.cli import command_lines
from tests.cli.command_lines import FAILING, FAILING_IN_KRAFT, LOOKING, READING, Scene
from tests.conftest import Corpora, differences, fingerprint
from tests.mounted.mounting import mounted

Kafkafs = Callable[..., Result]

#: Directories that brokers wrote, of which no broker was asked what is in them.
OTHERS = tuple(
    sorted(path.name.removesuffix(".tar.gz") for path in (answers.DATA / "others").iterdir())
)
DAMAGED = "damaged"
QUIET_SECONDS = 90


# -- the tables ------------------------------------------------------------------------------------


def test_every_command_has_lines() -> None:
    found = dict(command_lines.commands())
    assert found.keys() == READING.keys() | FAILING.keys()
    writing = {command for command in found if command_lines.writes(command)}
    assert FAILING.keys() == writing
    assert READING.keys() >= found.keys() - writing


def test_every_option_to_look_only_has_a_line() -> None:
    for command, options in command_lines.commands():
        tried = {word for line in READING.get(command, ()) for word in line.split()}
        assert options & LOOKING <= tried, command


# -- the directories -------------------------------------------------------------------------------


def damaged(data: Path) -> Path:
    """Makes a directory that was not closed in good order, with records far beyond retention and
    leftovers of every kind."""
    with LogManager(str(data)) as engine:
        for topic in ("old", "t", "gone"):
            engine.create_topic(topic)
            for _ in range(3):
                records = RecordColumns.from_values([b"old"], timestamp=1000)
                engine.writer(topic, 0).append_records(records)
                engine.writer(topic, 0).roll()
        engine.writer("t", 0).delete_records(1)
        engine.writer("t", 0).delete_below_start()
        engine.delete_topic("gone")
    for name in ("9.log.cleaned", "9.log.swap", "7.log.deleted", "7.timeindex.deleted"):
        number, _, suffix = name.partition(".")
        (data / "t-0" / f"{int(number):020}.{suffix}").write_bytes(b"left")
    for name in (f"lost-0.{'a' * 32}-stray", f"old-1.{'b' * 32}-future"):
        shutil.copytree(data / "old-0", data / name)
    # As after a crash: no marker, nothing known to be on the disk, the last write torn.
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    with max((data / "t-0").glob("*.log")).open("ab") as file:
        file.write(b"torn")
    return data


def log_dirs(root: Path) -> tuple[Path, ...]:
    """The log directories in what a broker has left: itself, or those inside."""
    return tuple(sorted(path.parent for path in root.rglob("meta.properties")))


def made(name: str, corpora: Corpora, place: Path) -> Scene:
    """A copy of a directory, with what lines need beside it."""
    root = place / name
    if name == DAMAGED:
        damaged(root)
    else:
        subprocess.run(["cp", "-a", "--sparse=always", corpora.path(name), root], check=True)
    return Scene.of(log_dirs(root), place / f"{name}.beside")


def looks(scene: Scene) -> dict[str, tuple[int, ...]]:
    """What `stat` says of everything in the directories, and beside them."""
    return {
        f"{path}/{name}": stamp
        for path in (*scene.log_dirs, scene.place)
        for name, stamp in fingerprint(path).items()
    }


def stamps(scene: Scene) -> dict[str, tuple[int, ...]]:
    """What `stat` says of the files in the directories."""
    return {
        f"{path}/{name}": stamp
        for path in scene.log_dirs
        for name, stamp in fingerprint(path).items()
        if not S_ISDIR(stamp[1])
    }


def run(scene: Scene, line: str) -> Result:
    """Runs a command in this process."""
    words = scene.words(line)
    result = CliRunner().invoke(cli, words)
    if words[0] == "mount" and "--check" not in words and result.exit_code == 0:
        subprocess.run(["fusermount3", "-u", "-z", words[-1]], check=True)
    assert not isinstance(result.exception, AssertionError), line
    return result


def run_all(scene: Scene) -> None:
    """Runs every line; none may change anything, and those that fail must fail."""
    before = looks(scene)
    for line in (line for lines in READING.values() for line in lines):
        result = run(scene, line)
        assert differences(before, looks(scene)) == [], (line, result.output)
    failing = [line for lines in FAILING.values() for line in lines]
    for line in [*failing, *(FAILING_IN_KRAFT if scene.is_kraft else ())]:
        result = run(scene, line)
        assert result.exit_code != 0, (line, result.output)
        assert "internal error" not in result.output, (line, result.output)
        assert differences(before, looks(scene)) == [], (line, result.output)


# -- what runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [DAMAGED, "kafka28", "kafka43-two-dirs", *OTHERS])
def test_it_leaves_the_directory_as_it_was(name: str, corpora: Corpora, tmp_path: Path) -> None:
    scene = made(name, corpora, tmp_path)
    threads = set(threading.enumerate())
    run_all(scene)
    left = [each.name for each in set(threading.enumerate()) - threads]
    assert [each for each in left if each.startswith("kafkafs-")] == []  # nothing acts later


def offsets(scene: Scene) -> dict[tuple[str, int], list[int]]:
    """The offsets of all records that can be read."""
    engine = Engine([str(path) for path in scene.log_dirs])
    found: dict[tuple[str, int], list[int]] = {}
    for key in engine.log_dirs.partitions():
        parts = engine.log(*key).view().scan(isolation=Isolation.READ_UNCOMMITTED)
        columns = [part for part in parts if isinstance(part, Columns)]
        found[key] = [offset for part in columns for offset in part.offsets.tolist()]
    return found


#: What opening for writing may make, change or remove in a directory that was closed in good
#: order: the lock, the marker, and the checkpoints, which are written from time to time; in
#: partitions, the leader epochs that 2.8 did not write, and a snapshot that belongs to no segment.
BY_OPENING = re.compile(
    r"\.lock|\.kafka_cleanshutdown|(recovery-point|log-start|replication)(-offset)+-checkpoint"
    r"|leader-epoch-checkpoint|\d{20}\.snapshot"
)
#: The same after a crash, with recovery's work in partitions. A `.log` only loses what no reader
#: could read, or what lies behind damage, as in a broker's recovery.
BY_RECOVERY = re.compile(BY_OPENING.pattern + r"|\d{20}\.(log|index|timeindex|txnindex)")
CRASHED = (DAMAGED, "kafka43-crash", "kafka43-torn")
#: Of these a real mount is made; the others are opened in this process.
MOUNTED = (DAMAGED, "kafka28")


def opened(name: str, scene: Scene, options: str, until: ExitStack) -> None:
    """Opens directories until the end of `until`, as a mount with these options does."""
    paths = [str(path) for path in scene.log_dirs]
    if name in MOUNTED:
        place = scene.place.with_suffix(".mount")
        place.mkdir()
        mount = until.enter_context(mounted(scene.log_dirs, place, options))
        mount.expects_warnings = mount.expects_errors = True
        list(mount.point.rglob("*/0/status.json"))
    elif options:
        until.enter_context(LogManager(paths, finds_deleted=True)).start()


@pytest.mark.slow
@pytest.mark.mounted
@pytest.mark.timeout(1200)
def test_90_seconds_later_everything_is_as_it_was(corpora: Corpora, tmp_path: Path) -> None:
    """Every line in every directory; meanwhile mounts, with and without `--rw`. What is opened for
    writing without `--maintain` keeps every record and every leftover."""
    names = [DAMAGED, *answers.CORPORA, *OTHERS]
    (tmp_path / "read").mkdir()
    (tmp_path / "written").mkdir()
    read = {name: made(name, corpora, tmp_path / "read") for name in names}
    written = {name: made(name, corpora, tmp_path / "written") for name in names}
    before = {name: stamps(scene) for name, scene in written.items()}
    records = {name: offsets(scene) for name, scene in written.items()}
    with ExitStack() as until:
        for name in names:
            opened(name, read[name], "", until)
            opened(name, written[name], "writable", until)
            run_all(read[name])
        settled = {name: looks(scene) for name, scene in read.items()}
        time.sleep(QUIET_SECONDS)
        for name, scene in read.items():
            assert differences(settled[name], looks(scene)) == [], name
        for name, scene in written.items():
            allowed = BY_RECOVERY if name in CRASHED else BY_OPENING
            changed = differences(before[name], stamps(scene))
            more = [path for path in changed if not allowed.fullmatch(path.rpartition("/")[2])]
            assert more == [], name
            assert (offsets(scene) == records[name]) or name == "kafka43-torn", name


# -- removing leftovers ----------------------------------------------------------------------------


def test_purge(kafkafs: Kafkafs, tmp_path: Path) -> None:
    """A dry run prints what the real run removes; stray partitions stay unless asked for."""
    data = damaged(tmp_path / "data")
    foretold = kafkafs("purge", "--dry-run", "--json", data)
    done = kafkafs("purge", "--json", data)
    assert (done.exit_code, sorted(done.stdout.splitlines())) == (
        0,
        sorted(foretold.stdout.splitlines()),
    )
    assert len(done.stdout.splitlines()) > 4
    left = [path.name for path in data.rglob("*") if "delete" in path.name or "clean" in path.name]
    assert set(left) == {".kafka_cleanshutdown", "cleaner-offset-checkpoint"}
    assert not list(data.rglob("*.swap"))
    assert list(data.glob("*-stray"))
    assert list(data.glob("*-future"))
    assert kafkafs("cat", data, "t/0/values").stdout == "old\nold\n"
    assert kafkafs("purge", "--stray", data).exit_code == 0
    assert not list(data.glob("*-stray"))
    assert kafkafs("purge", data).output == ""
