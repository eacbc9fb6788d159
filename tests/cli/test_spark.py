"""Tests of `kafkafs spark`: refusals, completion, and one job run from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkafs.cli.verbs import spark as group
from kafkafs.spark.jobs import Report
from tests.cli.results import Corpus, Kafkafs
from tests.cli.test_completion import completed


def test_without_java_it_says_so(
    kafkafs: Kafkafs, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    result = kafkafs("spark", "verify", corpus("kafka43-torn"))
    assert result.exit_code == 1
    assert result.stderr == (
        "kafkafs: Spark needs Java, but there is no java in JAVA_HOME, /nowhere\n"
    )


def test_without_pyspark_it_says_so(
    kafkafs: Kafkafs, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = kafkafs("spark", "verify", corpus("kafka43-torn"))
    assert result.exit_code == 1
    assert result.stderr == (
        "kafkafs: spark verify needs pyspark and py4j, which are not installed: "
        "pip install 'kafkafs[spark]'\n"
    )


def test_jobs_are_listed_and_completed(corpus: Corpus) -> None:
    assert [name for _, name in completed("kafkafs spark ")] == list(group.JOBS)
    assert [name for _, name in completed("kafkafs spark stats --by")] == ["--by"]
    topics = [name for _, name in completed(f"kafkafs spark stats {corpus('kafka43-clean')} or")]
    assert topics == ["orders/"]


def test_no_job_needs_spark_before_it_runs(environment: Mapping[str, str]) -> None:
    """Help and completion import every verb, even if PySpark is not installed."""
    script = (
        "import sys, click; from kafkafs.cli.main import cli\n"
        "spark = cli.get_command(click.Context(cli), 'spark')\n"
        "for name in spark.list_commands(None):\n"
        "    assert spark.get_command(None, name) is not None\n"
        "assert 'pyspark' not in sys.modules and 'numpy' not in sys.modules\n"
        "import kafkafs.spark.jobs\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_a_report_for_people(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    wrong = [
        {"file": "/data/t-0/0.log", "position": 7, "what": "crc"},
        {"topic": "t", "partition": 1, "what": "gone"},
    ]
    rows = [{"topic": "t", "records": 12, "end": None}, {"topic": "other", "records": 3, "end": 4}]
    report = Report("stats", ("topic", "records", "end"), rows, wrong, 9, 2, {"records": 15})
    lines = b"".join(group._lines(report)).decode().splitlines()
    assert lines == [
        "/data/t-0/0.log: position 7: crc",
        "t-1: gone",
        "topic  records  end",
        "t           12    -",
        "other        3    4",
        "stats: records 15, 2 of 9 parts were already finished, 2 findings",
    ]
    assert report.exit_code == 1


def test_the_cause_of_a_failed_task() -> None:
    text = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
kafkafs.storage.errors.CorruptError: /data/t-0/0.log: position 7: crc

\tat org.apache.spark.api.python.BasePythonRunner
"""
    reported = "kafkafs.storage.errors.CorruptError: /data/t-0/0.log: position 7: crc"
    assert group.cause(text) == reported
    assert group.cause("\nthe master went away\n\tat x") == "the master went away"


@pytest.mark.spark
def test_a_job_as_a_process(corpus: Corpus, environment: Mapping[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kafkafs", "spark", "verify", "--json", "--master", "local[2]"]
    quiet = {name: value for name, value in environment.items() if name != "PYTHONWARNINGS"}
    ended = subprocess.run(
        [*command, str(corpus("kafka43-torn")), "crash-txn"],
        env={**quiet, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(tmp_path)},
        capture_output=True,
        check=False,
        timeout=200,
    )
    reported = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 1
    assert [row.get("findings") for row in reported] == [1, None]
    assert reported[1]["position"] == 10401
    assert b"Traceback" not in ended.stderr
