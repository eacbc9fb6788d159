"""Tests of `kafkafs recover` and `kafkafs verify`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kafkafs.storage.format.files.names import METADATA_TOPIC
from kafkafs.storage.log.load.log_loader import RecoveryPlan
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations import recover
from tests.cli.results import Corpus, Kafkafs, stderr_of, stdout_of
from tests.conftest import differences, fingerprint
from tests.reading import scan


def test_what_would_be_done_is_done(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-torn")
    before = fingerprint(root)
    foretold = kafkafs("recover", "--dry-run", root)
    assert foretold.exit_code == 0
    assert differences(before, fingerprint(root)) == []
    assert "crash-plain-0: offsets 0 to 5549\n" in foretold.stdout
    assert "  cut 00000000000000005170.log from 18664 to 18388 bytes: " in foretold.stdout
    assert foretold.stderr.count(": would be truncated: ") == 4
    done = kafkafs("recover", root)
    assert done.exit_code == 0
    assert done.stdout == foretold.stdout
    assert done.stderr == foretold.stderr.replace("would be truncated", "truncated by recovery")
    assert (root / ".kafka_cleanshutdown").exists()
    assert " cut " not in stdout_of(kafkafs("recover", root))


def test_json(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("recover", "-n", "--json", corpus("kafka43-torn"), "crash-plain/1")
    [plan] = map(json.loads, result.stdout.splitlines())
    assert (plan["topic"], plan["partition"], plan["endOffset"]) == ("crash-plain", 1, 5515)
    [fault] = plan["faults"]
    assert fault["position"] == 17398
    assert fault["file"].endswith("crash-plain-1/00000000000000005156.log")
    assert any(action.startswith("write") for action in plan["actions"])


def test_nothing_to_do(kafkafs: Kafkafs, tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("a")
    result = kafkafs("recover", "-n", tmp_path / "data", "--json")
    assert json.loads(result.stdout)["faults"] == []
    assert "cut" not in kafkafs("recover", tmp_path / "data").stdout


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["crash-plain"], 2, "partitions can only be named with --dry-run"),
        (["-n", "nothing"], 1, "no topic nothing"),
        (["-n", f"{METADATA_TOPIC}/0"], 1, "no topic __cluster_metadata"),
    ],
)
def test_wrong_usage(
    kafkafs: Kafkafs, corpus: Corpus, words: list[str], code: int, line: str
) -> None:
    assert line in stderr_of(kafkafs("recover", corpus("kafka43-torn"), *words), code)


def test_a_directory_in_use_is_judged_too(kafkafs: Kafkafs, tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("a")
        result = kafkafs("recover", "-n", tmp_path / "data")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"process {os.getpid()} is writing to it" in result.stderr


def test_a_topic_that_is_deleted_meanwhile(
    kafkafs: Kafkafs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is skipped, unless the command line names it."""

    def plan_for(engine: Engine, topic: str, number: int) -> RecoveryPlan:
        shutil.rmtree(root / f"{topic}-{number}")
        return planned(engine, topic, number)

    root, planned = tmp_path / "data", recover.plan_for
    with LogManager(str(root)) as engine:
        engine.create_topic("a")
        engine.create_topic("b")
    monkeypatch.setattr(recover, "plan_for", plan_for)
    assert "no topic a" in stderr_of(kafkafs("recover", "-n", root, "a"))
    result = kafkafs("recover", "-n", root)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_partition_that_cannot_be_opened(kafkafs: Kafkafs, tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("a", 2)
    log = tmp_path / "data" / "a-1" / f"{0:020}.log"
    log.unlink()
    log.symlink_to("/etc/passwd")
    for words in ([], ["--dry-run"]):
        result = kafkafs("recover", *words, tmp_path / "data")
        assert result.exit_code == 1
        assert "a-1" in result.stderr
    assert log.is_symlink()


def test_verify_finds_nothing_where_a_broker_stopped(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("verify", corpus("kafka43-clean"), "orders", "txn/0")
    assert (result.exit_code, result.output) == (0, "4 partitions: nothing is wrong\n")
    assert kafkafs("verify", corpus("kafka43-clean"), "orders/1", "--json").output == ""


def test_verify_names_file_and_position(kafkafs: Kafkafs, corpus: Corpus) -> None:
    root = corpus("kafka43-torn")
    before = fingerprint(root)
    result = kafkafs("verify", root)
    assert (result.exit_code, result.stderr) == (1, "")
    *findings, summary = result.stdout.splitlines()
    log = root / "crash-plain-0" / "00000000000000005170.log"
    assert f"{log}: position 18388: batch of 489 bytes is cut off: 276 are left" in findings
    assert summary.endswith(f" partitions: {len(findings)} findings")
    assert differences(before, fingerprint(root)) == []
    [finding] = map(
        json.loads, kafkafs("verify", "--json", root, "crash-plain/0").stdout.splitlines()
    )
    assert (finding["file"], finding["position"]) == (str(log), 18388)


def test_what_was_recovered_is_in_order(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-torn")
    records = {
        number: scan(Engine(str(root)).log("crash-plain", number).view())[0] for number in (0, 1)
    }
    assert kafkafs("recover", root).exit_code == 0
    topics = [topic for topic in Engine(str(root)).topics() if topic != METADATA_TOPIC]
    result = kafkafs("verify", root, *topics)
    assert (result.exit_code, result.stdout) == (0, "7 partitions: nothing is wrong\n")
    for number, before in records.items():
        assert scan(Engine(str(root)).log("crash-plain", number).view()) == (before, [])
