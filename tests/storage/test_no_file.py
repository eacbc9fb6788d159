"""Tests links, FIFOs and directories in place of a `.log`: damage, never an empty log."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkafs.cli.main import cli
from kafkafs.storage.errors import CorruptError, OffsetNotFound, PartitionNotOpened
from kafkafs.storage.format.records.columns import Columns, Damage
from kafkafs.storage.log.read.log import Log
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mounted.live import NO_FILE, TIMESTAMP, LiveLog
from tests.reading import open_log


@pytest.fixture(params=NO_FILE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    return LiveLog(tmp_path / "logs")


def replaced(live: LiveLog, base_offset: int, kind: str) -> Log:
    NO_FILE[kind](live.log(base_offset))
    return open_log(live.partition)


def served(log: Log) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Returns the offsets that a scan yields, and the damage: its offsets and its message."""
    offsets: list[int] = []
    damage: list[tuple[int, int, str]] = []
    for part in log.view().scan():
        if isinstance(part, Damage):
            damage.append((part.first_offset, part.next_offset, str(part.error)))
        elif isinstance(part, Columns):
            offsets += part.offsets.tolist()
    return offsets, damage


@pytest.mark.parametrize(("base", "others"), [(0, [2, 3, 4, 5]), (2, [0, 1, 4, 5])])
def test_the_offsets_of_its_segment_are_damaged(
    live: LiveLog, kind: str, base: int, others: list[int]
) -> None:
    log = replaced(live, base, kind)
    what = f"{live.log(base)}: a {kind}, not a regular file"
    assert served(log) == (others, [(base, base + 2, what)])
    for offset in (base, base + 1):
        with pytest.raises(CorruptError, match="not a regular file"):
            log.view().find(offset)
    assert [log.view().find(offset).offset for offset in others] == others
    assert next(iter(log.damage))[0] == str(live.log(base))


def test_the_end_of_the_log_is_damaged(live: LiveLog, kind: str) -> None:
    log = replaced(live, 4, kind)
    for path in (live.partition, live.log(4)):
        os.utime(path, (0, 0), follow_symlinks=False)  # long ago: not being written
    offsets, [(first, following, what)] = served(log)
    assert (offsets, first, following) == ([0, 1, 2, 3], 4, -1)
    assert what == f"{live.log(4)}: a {kind}, not a regular file"
    with pytest.raises(CorruptError, match="not a regular file"):
        log.view().find(4)


def test_the_only_segment(live: LiveLog, kind: str) -> None:
    for base in (0, 2):
        live.log(base).unlink()
    log = replaced(live, 4, kind)
    os.utime(live.log(4), (0, 0), follow_symlinks=False)
    offsets, [(first, _, what)] = served(log)
    assert (offsets, first) == ([], 4)
    assert kind in what


@pytest.mark.parametrize("base", [2, 4])
def test_a_key_may_have_a_later_record_in_it(live: LiveLog, kind: str, base: int) -> None:
    NO_FILE[kind](live.log(base))
    with closing(Engine(str(live.directory))) as engine:
        log = engine.log("t", 0)
        for key in (b"key 0", b"key 1", b"unknown"):
            with pytest.raises(CorruptError, match="not a regular file"):
                engine.latest.find(log, key)
        if base == 2:
            columns, row = engine.latest.find(log, b"key 5") or pytest.fail("not found")
            assert columns.offsets[row] == 5
    for path in ("t/0/key/key%201", "t/0/compacted/latest/key%201"):
        result = CliRunner().invoke(cli, ["cat", str(live.directory), path])
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"{live.log(base)}: a {kind}, not a regular file" in result.stderr


def test_a_file_that_takes_its_place_is_read(live: LiveLog) -> None:
    log = replaced(live, 2, "symbolic link")
    assert served(log)[0] == [0, 1, 4, 5]
    live.log(2).unlink()
    shutil.copy(live.directory / live.log(2).name, live.log(2))
    assert served(log) == ([0, 1, 2, 3, 4, 5], [])
    assert log.view().offset_for_time(TIMESTAMP + 3000) == 3
    with pytest.raises(OffsetNotFound):
        log.view().find(6)


def test_verify_reports_it(live: LiveLog, kind: str) -> None:
    NO_FILE[kind](live.log(2))
    result = CliRunner().invoke(cli, ["verify", str(live.directory)])
    assert result.exit_code == 1
    assert f"{live.log(2)}: a {kind}, not a regular file" in result.stdout


def test_verbs_that_read_fail(live: LiveLog, kind: str) -> None:
    NO_FILE[kind](live.log(2))
    for words in (["cat", "t/0/values"], ["cat", "t/0/offset/2"], ["cat", "t/0/records.jsonl"]):
        result = CliRunner().invoke(cli, [words[0], str(live.directory), *words[1:]])
        assert (result.exit_code, "not a regular file" in result.output) == (1, True), words


def test_it_is_not_opened_for_writing(live: LiveLog, kind: str) -> None:
    NO_FILE[kind](live.log(4))
    before = sorted(path.name for path in live.partition.iterdir())
    with LogManager(str(live.directory)) as engine:
        what = f"t-0 could not be opened for writing: .*{live.log(4).name}: a {kind}"
        with pytest.raises(PartitionNotOpened, match=what):
            engine.writer("t", 0)
        assert [f"a {kind}, not a regular file" in line for line in engine.failures] == [True]
    assert sorted(path.name for path in live.partition.iterdir()) == before


def test_verbs_that_write_report_why_it_is_not_open(live: LiveLog, kind: str) -> None:
    NO_FILE[kind](live.log(4))
    what = (
        f"t-0 could not be opened for writing: {live.log(4)}: a {kind}, not a regular file;"
        " `kafkafs verify` lists all damage"
    )
    for words in (["append", "t/0"], ["expire", "t"], ["expire"]):
        arguments = [words[0], str(live.directory), *words[1:]]
        result = CliRunner().invoke(cli, arguments, input="x\n")
        assert (result.exit_code, result.stderr.splitlines()[-1].endswith(what)) == (1, True), words


def test_a_topic_that_was_not_opened_can_be_deleted(live: LiveLog) -> None:
    NO_FILE["FIFO"](live.log(4))
    with LogManager(str(live.directory)) as engine:
        engine.delete_topic("t")
        engine.create_topic("t")
        assert engine.failures == []
        assert engine.writer("t", 0).end_offset == 0


@pytest.mark.parametrize("base", [2, 4])
def test_verbs_that_describe_a_log_report_it(live: LiveLog, kind: str, base: int) -> None:
    NO_FILE[kind](live.log(base))
    what = f"kafkafs: t-0: {live.log(base)}: a {kind}, not a regular file;"
    for words in (["why", "t/0"], ["topic", "list"], ["expire", "--dry-run"]):
        at = 2 if words[0] == "topic" else 1
        result = CliRunner().invoke(cli, [*words[:at], str(live.directory), *words[at:]])
        assert result.exit_code == 1, words
        (line,) = result.stderr.splitlines()
        assert line.startswith(what)
        assert result.stdout.splitlines()[1:] != []
