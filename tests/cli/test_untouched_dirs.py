"""What a command leaves untouched: names, sizes, mtimes and inodes of a log directory.

Commands run in this process, one after the other; it has no thread left over that could act later,
which `test_nothing_acts_later` checks. A command that is not in the table fails the first test.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from kafkafs.cli.main import cli
from kafkafs.storage.format.encoder import RecordColumns
from kafkafs.storage.writable_engine import WritableEngine

Kafkafs = Callable[..., Result]
Stamp = tuple[int, int, int]

# Command lines that must change nothing, by command; DIR is the log directory, NEW no topic.
UNTOUCHING: dict[str, list[str]] = {
    "ls": ["ls DIR", "ls DIR t/0", "ls DIR NEW"],
    "cat": ["cat DIR t/0/values", "cat DIR NEW/0/values"],
    "stat": ["stat DIR t/0"],
    "explain": ["explain DIR t/0/offset/0"],
    "why": ["why DIR t/0"],
    "verify": ["verify DIR"],
    "topic list": ["topic list DIR"],
    "topic create": [
        "topic create DIR t",
        "topic create -p 0 DIR NEW",
        "topic create --config retention.ms=soon DIR NEW",
    ],
    "topic delete": ["topic delete DIR NEW"],
    "topic config": [
        "topic config DIR t",
        "topic config --set retention.ms=soon DIR t",
        "topic config --set retention.ms=1 DIR NEW",
    ],
    "append": ["append DIR NEW/0", "append DIR t/9"],
    "expire": ["expire --dry-run DIR", "expire DIR NEW", "expire -c retention.ms=soon DIR"],
    "compact": ["compact --dry-run DIR", "compact DIR NEW"],
    "purge": ["purge --dry-run DIR", "purge --dry-run --stray DIR", "purge DIR NEW"],
    "undelete": ["undelete --list DIR", "undelete DIR"],
    "recover": ["recover --dry-run DIR", "recover DIR t"],
    "mount": [
        "mount --check DIR POINT",
        "mount --rw --check DIR POINT",
        "mount --maintain DIR POINT",
    ],
    "transactions": ["transactions DIR"],
    "dump": ["dump DIR/t-0/00000000000000000000.log"],
}
# Commands that are given no log directory, or are checked where Spark runs.
ELSEWHERE = {"umount", "spark", "completion"}


def commands(group: click.Group, above: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group) and name not in ELSEWHERE and above + name != "spark":
            yield from commands(found, f"{above}{name} ")
        else:
            yield above + name


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with old records, and leftovers of every kind."""
    with WritableEngine(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 2)
        writer = engine.writer("t", 0)
        for _ in range(3):
            writer.append_records(RecordColumns.from_values([b"old"], timestamp=1000))
            writer.roll()
        writer.delete_records(1)
        writer.delete_below_start()
        engine.create_topic("gone")
        engine.delete_topic("gone")
    for name in (f"{9:020}.log.cleaned", f"{9:020}.log.swap", f"{7:020}.log.deleted"):
        (tmp_path / "data" / "t-0" / name).write_bytes(b"left")
    stray = tmp_path / "data" / f"lost-0.{'a' * 32}-stray"
    stray.mkdir()
    (stray / f"{0:020}.log").write_bytes(b"")
    return tmp_path / "data"


def tree(data: Path) -> dict[str, Stamp]:
    found = {str(data): data.stat()}
    for path in data.rglob("*"):
        found[str(path)] = os.lstat(path)
    return {name: (each.st_size, each.st_mtime_ns, each.st_ino) for name, each in found.items()}


def test_every_command_is_in_the_table() -> None:
    assert isinstance(cli, click.Group)
    assert set(commands(cli)) - ELSEWHERE == set(UNTOUCHING)


@pytest.mark.parametrize("command", UNTOUCHING)
def test_it_leaves_the_directory_as_it_was(
    kafkafs: Kafkafs, data: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "point").mkdir()
    before = tree(data)
    for line in UNTOUCHING[command]:
        words = line.replace("DIR", str(data)).replace("POINT", str(tmp_path / "point"))
        result = kafkafs(*words.replace("NEW", "nowhere").split())
        assert not isinstance(result.exception, AssertionError), line
        assert tree(data) == before, (line, result.output)


def test_nothing_acts_later(kafkafs: Kafkafs, data: Path) -> None:
    before = set(threading.enumerate())
    for lines in UNTOUCHING.values():
        for line in lines:
            if "POINT" not in line:
                kafkafs(*line.replace("DIR", str(data)).replace("NEW", "nowhere").split())
    left = [each.name for each in set(threading.enumerate()) - before if each.name != "MainThread"]
    assert [name for name in left if name.startswith("kafkafs-")] == []


def test_purge(kafkafs: Kafkafs, data: Path) -> None:
    """A dry run prints what the real run removes; stray partitions stay unless asked for."""
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
    assert kafkafs("cat", data, "t/0/values").stdout == "old\nold\n"
    assert kafkafs("purge", "--stray", data).exit_code == 0
    assert not list(data.glob("*-stray"))
    assert kafkafs("purge", data).output == ""
