"""`kafkafs dump` prints what kafka-dump-log prints, for every file in the corpora."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkafs.cli.main import cli
from tests.broker.handover import run_dump_tool

Corpus = Callable[[str], Path]

#: Corpora without damage. The tool is always 4.3's, which also reads what older brokers wrote.
CORPORA = ["kafka43-clean", "kafka43-crash", "kafka39", "kafka28", "compact-after2"]
MODES: list[Sequence[str]] = [
    (),
    ("--print-data-log",),
    ("--deep-iteration", "--max-bytes", "5000"),
    ("--print-data-log", "--skip-record-metadata", "--verify-index-only"),
]
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
# Java and Python insert different numbers of these for invalid UTF-8.
REPLACED = re.compile("\ufffd+")
# 4.3's tool compares the first record of a file with -1.
FROM_NOTHING = re.compile(r"  -1 is followed by \d+\n")


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES)


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
@pytest.mark.parametrize("name", CORPORA)
def test_the_same_lines(corpus: Corpus, name: str, mode: Sequence[str]) -> None:
    files = files_of(corpus(name))
    theirs = run_dump_tool(files, *mode)
    ours = CliRunner().invoke(cli, ["dump", *mode, *map(str, files)])
    assert theirs.returncode == 0
    printed = REPLACED.sub("?", theirs.stdout).splitlines()
    assert len(printed) > 1000
    assert REPLACED.sub("?", ours.stdout).splitlines() == printed
    assert told(ours.stderr) == told(FROM_NOTHING.sub("", theirs.stderr))


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka39", "kafka28", "groups43"])
@pytest.mark.parametrize(
    ("topic", "decoder"),
    [
        ("__consumer_offsets", "--offsets-decoder"),
        ("__transaction_state", "--transaction-log-decoder"),
        ("__cluster_metadata", "--cluster-metadata-decoder"),
    ],
)
def test_kafka_s_own_topics(corpus: Corpus, name: str, topic: str, decoder: str) -> None:
    files = sorted(corpus(name).rglob(f"{topic}-*/*.log"))
    if topic == "__cluster_metadata":
        files += sorted(corpus(name).rglob("*.checkpoint"))
    if name == "kafka28" and topic == "__cluster_metadata":
        assert not files  # ZooKeeper had it
        return
    for mode in ((), ("--skip-record-metadata",)):
        theirs = run_dump_tool(files, decoder, *mode)
        ours = CliRunner().invoke(cli, ["dump", decoder, *mode, *map(str, files)])
        assert (theirs.returncode, ours.exit_code) == (0, 0)
        assert ours.stdout.splitlines() == theirs.stdout.splitlines()
        assert ours.stdout.count('payload: {"') >= 10


def test_metadata_of_remote_storage(corpus: Corpus) -> None:
    files = sorted(corpus("tier43").rglob("__remote_log_metadata-*/*.log"))
    for mode in ((), ("--skip-record-metadata",)):
        theirs = run_dump_tool(files, "--remote-log-metadata-decoder", *mode)
        ours = CliRunner().invoke(
            cli, ["dump", "--remote-log-metadata-decoder", *mode, *map(str, files)]
        )
        assert (theirs.returncode, ours.exit_code) == (0, 0)
        assert ours.stdout.splitlines() == theirs.stdout.splitlines()
        assert ours.stdout.count("payload: RemoteLogSegmentMetadata{") > 90


def told(text: str) -> dict[str, list[str]]:
    """Returns the output lines by heading, without empty headings."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith(("  ", "Indexed offset: ")):
            lines = found.setdefault(line, [])
        else:
            lines.append(line)
    return {heading: lines for heading, lines in found.items() if lines}


def test_indexes_that_a_broker_would_make_anew(corpus: Corpus) -> None:
    """Kafka's tool stops at the first invalid index; ours reports all."""
    for name, are_sound in (("kafka39", True), ("kafka43-crash", False)):
        files = [path for path in files_of(corpus(name)) if path.suffix.endswith("index")]
        theirs = run_dump_tool(files, "--index-sanity-check")
        ours = CliRunner().invoke(cli, ["dump", "--index-sanity-check", *map(str, files)])
        assert (theirs.returncode, ours.exit_code) == ((0, 0) if are_sound else (1, 1))
        if are_sound:
            assert ours.stdout == theirs.stdout
        else:
            assert ours.stdout.startswith(theirs.stdout)
            wrong = re.search(r"time index file \((.*?)\)", theirs.stderr)
            assert wrong is not None
            assert ours.stderr.startswith(f"{wrong[1]}: the last timestamp is 0, less than")
