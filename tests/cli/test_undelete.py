"""Tests of `kafkafs undelete`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.results import Kafkafs, lines_of, stdout_of
from tests.mounted.mounting import mounted
from tests.warm_python import run_kafkafs


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic `t` with three segments of ten records in partition 0, of which the first 15 records
    are deleted; and topic `u`, deleted."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 2, {"retention.ms": "-1"})
        engine.create_topic("u", 3)
        writer = engine.writer("t", 0)
        for base in range(0, 30, 10):
            if base:
                writer.roll()
            values = [b"%d" % offset for offset in range(base, base + 10)]
            writer.append_records(RecordColumns.from_values(values))
        writer.delete_records(15)
        engine.run("retention")
        engine.delete_topic("u")
    return tmp_path / "data"


def start(data: Path) -> int:
    return Engine(str(data)).log("t", 0).view().start_offset


def test_what_another_process_deleted_is_listed(kafkafs: Kafkafs, data: Path) -> None:
    heads, *lines = [line.split() for line in lines_of(kafkafs("undelete", "--list", data))]
    assert heads == ["WHAT", "FIRST", "OFFSET", "LAST", "SIZE", "DELETED", "BY", "UNTIL"]
    assert sorted(line[:3] for line in lines) == [["t/0", "0", "14"], ["u", "-", "-"]]
    only = kafkafs("undelete", "--list", "--json", data, "t/0")
    [row] = [json.loads(line) for line in only.stdout.splitlines()]
    assert (row["topic"], row["partition"]) == ("t", 0)
    assert (row["startOffset"], row["endOffset"], row["segments"]) == (0, 15, [0])
    assert start(data) == 15


def test_records_come_back(kafkafs: Kafkafs, data: Path) -> None:
    assert stdout_of(kafkafs("undelete", "--offset", "12", data, "t/0")).startswith(
        "t/0: offsets 12 to 14 restored (deleted at an unknown time"
    )
    assert start(data) == 12
    assert kafkafs("undelete", data, "t").stdout.startswith("t/0: offsets 0 to 11 restored")
    assert kafkafs("cat", data, "t/0/values").stdout.split() == [str(n) for n in range(30)]
    assert kafkafs("verify", data).exit_code == 0


def test_a_topic_comes_back(kafkafs: Kafkafs, data: Path) -> None:
    result = kafkafs("undelete", data, "u", "nothing", "t/1")
    assert result.exit_code == 1
    assert result.stdout.startswith("u: topic, with 3 partitions, restored (deleted 20")
    nothing, empty = result.stderr.splitlines()
    assert nothing.startswith("kafkafs: nothing: cannot be restored: ")
    assert empty.startswith(f"kafkafs: {data}/t-1: cannot be restored: ")
    assert os.listdir(data).count("u-2") == 1
    assert kafkafs("undelete", data, "u").exit_code == 1


def test_wrong_usage(kafkafs: Kafkafs, data: Path) -> None:
    for words in (
        [],
        ["--offset", "1", "t"],
        ["--offset", "1", "t/0", "t/1"],
        ["-l", "--offset=1"],
    ):
        result = kafkafs("undelete", data, *words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert result.stderr.startswith("kafkafs undelete: ")
    assert start(data) == 15


@pytest.mark.mounted
def test_through_a_mount(data: Path, tmp_path: Path) -> None:
    def kafkafs(*words: str) -> tuple[int, str, str]:
        done = run_kafkafs("undelete", *words)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    with mounted([data], tmp_path, "writable") as mount:
        offsets = mount.point / "t/0/offset"
        (offsets / "21").unlink()
        listed = kafkafs("--list", str(data))
        assert listed[0] == 0
        rows = [line.split()[:3] for line in listed[1].splitlines()[1:]]
        assert rows == [["u", "-", "-"], ["t/0", "15", "21"]]
        code, out, err = kafkafs(str(data), "t/0")
        assert (code, err) == (0, "")
        assert out.startswith("t/0: offsets 15 to 21 restored")
        assert (offsets / "15").read_bytes() == b"15"
        code, out, err = kafkafs(str(data), "t/0")
        assert (code, out) == (1, "")
        assert "t-0: cannot be restored: nothing was deleted recently" in err
        (offsets / "last").unlink()
        code, out, err = kafkafs("--offset=25", "--json", str(data), "t/0")
        assert (code, err) == (0, "")
        assert json.loads(out)["startOffset"] == 25
