"""The command line with remote storage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkafs.cli.main import cli
from tests.cli.results import Shell

Corpus = Callable[[str], Path]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


@pytest.fixture(name="logs")
def _logs(corpus: Corpus) -> Path:
    return corpus("tier43") / "logs"


@pytest.fixture(name="tier")
def _tier(corpus: Corpus) -> Path:
    return corpus("tier43") / "tier"


def test_records_of_both_parts(logs: Path, tier: Path) -> None:
    done = run("cat", "--tier", tier, logs, "t-lz4/0/records.jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [json.loads(line)["offset"] for line in done.stdout.splitlines()] == [*range(371)]


def test_what_is_not_read_is_said(logs: Path, shell: Shell) -> None:
    done = run("cat", logs, "t-gzip/0/records.jsonl")
    assert done.stdout == ""
    unread = "offsets 0 to 350 are in remote storage, and were not read; see --tier"
    assert done.stderr == f"kafkafs: t-gzip/0: {unread}\n"
    query = shell(f"kafkafs sql {logs} 'SELECT count(*) AS n FROM \"t-gzip\"'")
    assert (query.stdout, query.stderr) == ('"n"\n0\n', f"kafkafs: t-gzip/0: {unread}\n")


def test_where_segments_are(logs: Path, tier: Path) -> None:
    status = json.loads(run("cat", "--tier", tier, logs, "t-lz4/0/status.json").stdout)
    assert (status["logStartOffset"], status["localLogStartOffset"]) == (0, 201)
    assert (status["remote"]["segments"], status["remote"]["latestOffset"]) == (2, 304)
    head, row = run("topic", "list", "--tier", tier, logs, "t-lz4").stdout.splitlines()
    assert head.split()[2:5] == ["START", "LOCAL", "REMOTE"]
    assert row.split()[2:5] == ["0", "201", "304"]
    why = run("why", "--tier", tier, logs, "t-lz4/0").stdout.splitlines()[2:]
    assert [line.split()[3] for line in why] == ["remote", "remote", "local", "local"]
    for offset, place in ((50, "Segment 0 in remote storage:"), (250, "Segment 201:")):
        explained = run("explain", "--tier", tier, logs, f"t-lz4/0/offset/{offset}").stdout
        assert f"1. {place}" in explained
    assert (
        "/kafka-tiered-storage/t-lz4-0-"
        in run("explain", "--tier", tier, logs, "t-lz4/0/offset/50").stdout
    )


def test_remote_storage_alone(tier: Path) -> None:
    done = run("verify", tier)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "nothing is wrong" in done.stdout
    assert "t-gzip" in run("ls", tier).stdout


def test_a_place_without_remote_storage(logs: Path, tmp_path: Path) -> None:
    done = run("cat", "--tier", tmp_path, logs, "t-gzip/0/records.jsonl")
    assert done.exit_code
    assert f"{tmp_path}: not remote storage" in done.stderr
