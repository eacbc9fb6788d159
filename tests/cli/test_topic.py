"""Tests of `kafkafs topic list`."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kafkafs.storage.log.read.log import Log
from kafkafs.storage.log.read.view import View
from tests import answers
from tests.cli.results import Corpus, Kafkafs, stderr_of, stdout_of
from tests.cli.terminal import Terminal
from tests.logs import write_log_dir


def topics(result: Result) -> dict[str, dict[str, Any]]:
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {line["topic"]: line for line in lines}


@pytest.mark.parametrize("name", ["kafka28", "kafka39", "kafka43-clean"])
def test_json_is_what_the_broker_says(kafkafs: Kafkafs, corpus: Corpus, name: str) -> None:
    found = topics(kafkafs("topic", "list", "--json", corpus(name)))
    for (topic, number), told in answers.offsets(name).items():
        (partition,) = [p for p in found[topic]["partitions"] if p["partition"] == number]
        assert partition["startOffset"] == told.beginning
        assert partition["lastStableOffset"] == told.last_stable
        assert partition["endOffset"] == told.end
        logs = list((corpus(name) / f"{topic}-{number}").glob("*.log"))
        assert partition["segments"] == len(logs)
        assert partition["size"] == sum(path.stat().st_size for path in logs)


def test_topic_ids(kafkafs: Kafkafs, corpus: Corpus) -> None:
    found = topics(kafkafs("topic", "list", "--json", corpus("kafka43-clean")))
    for topic, topic_id in answers.topic_ids("kafka43-clean").items():
        assert found[topic]["topicId"] == topic_id
    # Brokers with ZooKeeper did not write topic ids to the log directory before 3.0.
    old = topics(kafkafs("topic", "list", "--json", corpus("kafka28"), "v2"))
    assert old["v2"]["topicId"] is None


def test_a_table(kafkafs: Kafkafs, corpus: Corpus) -> None:
    text = stdout_of(kafkafs("topic", "list", corpus("kafka43-clean"), "txn-open", "emptied"))
    assert text == (
        "TOPIC     PARTITION  START  STABLE  END  SEGMENTS  SIZE  TOPIC ID\n"
        "emptied           0     40      40   40         1  7077  McmuT-cvQd6en76Hslh03Q\n"
        "txn-open          0      0      29   61         2  2271  J9teFCPGTFWYV-l_EifxdA\n"
    )


def test_sizes_for_people(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("topic", "list", "-h", corpus("kafka43-clean"), "txn-open")
    assert "  2.2K  " in result.stdout


def test_a_topic_that_is_not_there(kafkafs: Kafkafs, corpus: Corpus) -> None:
    problem = stderr_of(kafkafs("topic", "list", corpus("kafka43-clean"), "orders", "ordres"))
    assert problem.startswith("kafkafs: no topic ordres; did you mean orders")


def test_a_partition_that_cannot_be_read(
    kafkafs: Kafkafs, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = Log.view

    def failing(log: Log) -> View:
        if (log.topic, log.partition) == ("orders", 1):
            raise PermissionError(errno.EACCES, "Permission denied", "/data/orders-1")
        return view(log)

    monkeypatch.setattr(Log, "view", failing)
    result = kafkafs("topic", "list", corpus("kafka43-clean"), "orders")
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["PARTITION", "0", "2"]
    assert result.stderr.startswith("kafkafs: orders-1: /data/orders-1: Permission denied; run as")


def test_many_partitions_show_a_bar_on_a_terminal_and_none_in_a_pipe(
    kafkafs: Kafkafs, programs: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    write_log_dir(tmp_path, {})
    for number in range(250):
        (tmp_path / f"many-{number}").mkdir()
        (tmp_path / f"many-{number}" / f"{0:020}.log").touch()
    command = ["kafkafs", "topic", "list", str(tmp_path)]
    surroundings = {
        **environment, "PATH": f"{programs}:{environment['PATH']}", "TERM": "xterm",
    }  # fmt: skip
    with Terminal(command, surroundings) as terminal:
        assert terminal.exit_code() == 0
        assert "reading partitions" in terminal.seen
    assert stdout_of(kafkafs(*command[1:])).count("\n") == 251
