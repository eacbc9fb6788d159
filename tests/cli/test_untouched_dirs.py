"""Tests that commands which must not write leave everything `stat` reports of a log directory.

Commands run in this process, one after another, on directories written by real brokers and on one
with an unclean shutdown, expired records and leftovers of every kind. The tests fail if a command
is missing from the tables of `command_lines.py`, or if no line uses one of its read-only options.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
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
from tests.cli.results import Kafkafs
from tests.conftest import Corpora, differences, fingerprint
from tests.crash.moments import some
from tests.mounted.mounting import mounted

#: The other directories of a broker; those of several brokers cannot be opened for writing.
OTHERS = tuple(
    sorted(
        name
        for path in (answers.DATA / "others").iterdir()
        if (name := path.name.removesuffix(".tar.gz")) != "cluster43"
    )
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
    """Creates a directory with an unclean shutdown, records far beyond retention and leftovers of
    every kind."""
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
    # As after a crash: no clean shutdown marker, no recovery points, the last write torn.
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    with max((data / "t-0").glob("*.log")).open("ab") as file:
        file.write(b"torn")
    return data


def log_dirs(root: Path) -> tuple[Path, ...]:
    """Returns the log directories of a broker's data: `root` itself, or those in it."""
    return tuple(sorted(path.parent for path in root.rglob("meta.properties")))


def made(name: str, corpora: Corpora, place: Path) -> Scene:
    """Returns a copy of a directory, with the other paths that lines need."""
    root = place / name
    if name == DAMAGED:
        damaged(root)
    else:
        subprocess.run(["cp", "-a", "--sparse=always", corpora.path(name), root], check=True)
    return Scene.of(log_dirs(root), place / f"{name}.beside")


def looks(scene: Scene) -> dict[str, tuple[int, ...]]:
    """Returns what `stat` reports of every file in the directories and in `place`."""
    return {
        f"{path}/{name}": stamp
        for path in (*scene.log_dirs, scene.place)
        for name, stamp in fingerprint(path).items()
    }


def stamps(scene: Scene) -> dict[str, tuple[int, ...]]:
    """Returns what `stat` reports of the files in the log directories."""
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
    """Runs every line: no line may change anything, and lines in FAILING must fail."""
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


@pytest.mark.parametrize(
    "name", [DAMAGED, "kafka28", *some(["kafka43-two-dirs", *OTHERS], every=3)]
)
def test_it_leaves_the_directory_as_it_was(name: str, corpora: Corpora, tmp_path: Path) -> None:
    scene = made(name, corpora, tmp_path)
    threads = set(threading.enumerate())
    run_all(scene)
    left = [each.name for each in set(threading.enumerate()) - threads]
    assert [each for each in left if each.startswith("kafkafs-")] == []  # nothing writes later


def offsets(scene: Scene) -> dict[tuple[str, int], list[int]]:
    """Returns the offsets of all readable records by partition."""
    engine = Engine([str(path) for path in scene.log_dirs])
    found: dict[tuple[str, int], list[int]] = {}
    for key in engine.log_dirs.partitions():
        parts = engine.log(*key).view().scan(isolation=Isolation.READ_UNCOMMITTED)
        columns = [part for part in parts if isinstance(part, Columns)]
        found[key] = [offset for part in columns for offset in part.offsets.tolist()]
    return found


#: Files that opening for writing may create, change or remove after a clean shutdown: the lock,
#: the marker and the checkpoints, which are written periodically; in partitions, leader epochs,
#: which 2.8 did not write, and a snapshot that belongs to no segment.
BY_OPENING = re.compile(
    r"\.lock|\.kafka_cleanshutdown|(recovery-point|log-start|replication)(-offset)+-checkpoint"
    r"|leader-epoch-checkpoint|\d{20}\.snapshot"
)
#: The same after a crash, including what recovery changes in partitions. A `.log` loses only
#: unreadable bytes and whatever follows damage, as in a broker's recovery.
BY_RECOVERY = re.compile(BY_OPENING.pattern + r"|\d{20}\.(log|index|timeindex|txnindex)")
CRASHED = (DAMAGED, "kafka43-crash", "kafka43-torn")
#: These directories are really mounted; the others are opened in this process.
MOUNTED = (DAMAGED, "kafka28")


def opened(name: str, scene: Scene, options: str, until: ExitStack) -> None:
    """Opens directories until `until` is closed, as a mount with these options does."""
    paths = [str(path) for path in scene.log_dirs]
    if name in MOUNTED:
        place = scene.place.with_suffix(".mount")
        place.mkdir()
        mount = until.enter_context(mounted(scene.log_dirs, place, options))
        mount.expects_warnings = mount.expects_errors = True
        list(mount.point.glob("*/0/status.json"))
    elif options:
        until.enter_context(LogManager(paths, finds_deleted=True)).start()


@pytest.mark.slow
@pytest.mark.mounted
@pytest.mark.timeout(1200)
def test_90_seconds_later_everything_is_as_it_was(corpora: Corpora, tmp_path: Path) -> None:
    """Runs every line in every second directory while it is mounted, and a copy of it with `--rw`.
    The copy, opened without `--maintain`, keeps every record and every leftover."""
    names = [DAMAGED, *some([*answers.CORPORA, *OTHERS], every=2)]
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
    """A dry run prints what the real run removes; stray partitions are kept without `--stray`."""
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


# -- this file alone -------------------------------------------------------------------------------


def test_hypothesis_is_imported_before_anything_is_frozen() -> None:
    """Its plugin for pytest imports it at the end otherwise, after verbs that ran here have hidden
    all objects from the garbage collector (`gc.freeze`), and a warning ends the run: it looks as if
    nothing referred to trio's random numbers."""
    assert "hypothesis" in sys.modules
