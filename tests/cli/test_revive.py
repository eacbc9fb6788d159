"""Tests of `kafkafs revive`; those of what it writes are in tests/storage and tests/broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from tests.cli.results import Corpus, Kafkafs, rows_of, stderr_of, stdout_of
from tests.conftest import differences, fingerprint


def test_what_it_prints(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    source, new = corpus("groups43"), tmp_path / "a new node"
    before = fingerprint(source)
    planned = stdout_of(kafkafs("revive", "--dry-run", source, "-o", new))
    assert list(tmp_path.iterdir()) == []
    printed = stdout_of(kafkafs("revive", source, "-o", new))
    assert printed.startswith(planned)
    assert printed[len(planned) :] == (
        f"Start it with:\n  kafka-server-start.sh '{new}/server.properties'\n"
    )
    assert f"main                         1      0  297  50633  {source}/main-1\n" in printed
    assert re.search(r"\nmain +1 +2 +296  tx-open-amber +open until its timeout\n", printed)
    assert (
        "\nnode 1 of cluster MkU3OEVBNTcwNTJENDM2Qg, for Kafka 4.3: 11 topics, 23 partitions\n"
        in printed
    )
    assert differences(before, fingerprint(source)) == []


def test_json(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    words = ("revive", "--json", corpus("groups43"), "-o", tmp_path / "new", "--node-id", "7")
    rows = rows_of(kafkafs(*words, "--listener", "[::1]:19092", "--kafka-version", "4.3.0", "main"))
    assert len(rows) == 7 + 3 + 2 + 1
    assert rows[-1] == {
        "properties": f"{tmp_path}/new/server.properties",
        "clusterId": "MkU3OEVBNTcwNTJENDM2Qg",
        "nodeId": 7,
        "kafkaVersion": "4.3",
        "topics": 4,
        "partitions": 10,
        "bytes": sum(row.get("bytes", 0) for row in rows[:-1]),
    }
    properties = (tmp_path / "new" / "server.properties").read_text()
    assert "\nlisteners=PLAINTEXT://[::1]:19092,CONTROLLER://[::1]:19093\n" in properties
    assert "\ncontroller.quorum.voters=7@[::1]:19093\n" in properties


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (
            ["nosuch"],
            1,
            "kafkafs: no topic nosuch; `kafkafs topic list` lists the existing topics\n",
        ),
        (["main/9"], 1, "kafkafs: main has no partition 9 (it has 0 to 2)\n"),
        (["--kafka-version", "3.9"], 1, "choose --kafka-version 4.3\n"),
        (["--kafka-version", "2.8"], 2, "kafkafs: kafka-version: must be 3.9 or 4.3 (got '2.8')\n"),
        (["--listener", "9092"], 2, "'9092' is not HOST:PORT"),
        (["--listener", "a:0"], 2, "'a:0' is not HOST:PORT"),
        (["--listener", "0.0.0.0:9092"], 2, "0.0.0.0 is no address that clients can connect to"),
        (["--node-id", "-1"], 2, "--node-id"),
        (["--until", "soon"], 2, "--until"),
    ],
)
def test_wrong_arguments(
    kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path, words: list[str], code: int, text: str
) -> None:
    """Each is refused in one line before anything is written."""
    result = kafkafs("revive", corpus("groups43"), "-o", tmp_path / "new", *words)
    message = stderr_of(result, code)
    assert text in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_made(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    source = corpus("groups43")
    (tmp_path / "file").touch()
    for place, text in (
        (tmp_path / "a,b", "has a comma"),
        (source / "new", f"would be in the log directory {source}"),
        (tmp_path, "already exists and is not empty"),
        (tmp_path / "file", "a regular file, not a directory"),
        (tmp_path / "file" / "new", "ot a directory"),
    ):
        assert text in stderr_of(kafkafs("revive", source, "-o", place))


def test_losses_end_with_code_1(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    result = kafkafs("revive", corpus("kafka43-torn"), "-o", tmp_path / "new")
    assert result.exit_code == 1
    assert result.stderr.count("truncated by recovery") == 4
    assert "Start it with:" in result.stdout
    result = kafkafs("revive", corpus("kafka28"), "-o", tmp_path / "old", "--kafka-version", "3.9")
    assert result.exit_code == 0
    assert "have no log of the cluster's metadata" in result.stderr
    assert "topic v1-compacted-gzip: cleanup.policy=compact, because" in result.stderr


def test_kills(corpus: Corpus, tmp_path: Path, environment: Mapping[str, str]) -> None:
    """However far the command came, the same command completes it."""
    source, new = corpus("groups43"), tmp_path / "new"
    before = fingerprint(source)
    words = [sys.executable, "-m", "kafkafs", "revive", str(source), "-o", str(new)]
    for count in (0, 1, 9, 20):
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(list(new.glob("data/*"))) <= count:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        assert not (new / "server.properties").exists()
    else:
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
    assert sorted(os.listdir(new)) == ["data", "server.properties"]
    assert Engine(str(new / "data")).log("main", 2).view().end_offset == 322
    assert differences(before, fingerprint(source)) == []
