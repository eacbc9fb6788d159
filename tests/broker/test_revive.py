"""Brokers of Kafka 4.3 and 3.9 on directories that `kafkafs revive` made of every corpus: they say
what the broker that left the corpus said. See test_dead_cluster.py for groups and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from tests import answers
from tests.broker.driver import Driver
from tests.broker.jvm import OLDER, VERSION, installation, tools
from tests.broker.kafka import RevivedBroker, free_listener
from tests.conftest import Corpora

#: The version of a broker by its release.
VERSIONS = {"3.9": OLDER, "4.3": VERSION}
STILL = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "log.cleaner.enable": "false",
}
CASES = [
    ("groups43", "4.3"),
    ("kafka43-clean", "4.3"),
    ("kafka43-two-dirs", "4.3"),
    ("kafka43-crash", "4.3"),
    ("kafka43-torn", "4.3"),
    ("kafka39", "3.9"),
    ("kafka39", "4.3"),
    ("kafka28", "3.9"),
    ("kafka28", "4.3"),
]
#: What a crashed broker's log is once a broker has recovered it.
RECOVERED = {"kafka43-crash": "kafka43-crash-recovered", "kafka43-torn": "kafka43-torn-recovered"}
#: What a broker says about a log that it does not take as it is.
SUSPICIOUS = re.compile(r"[Rr]ecover|stray|[Cc]orrupt|truncat|ERROR")

Start = Callable[[Path, str, Path], tuple[RevivedBroker, Driver]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(sources, release, directory)` revives them, and starts a broker and a client."""
    with ExitStack() as stack:

        def run(source: Path, release: str, directory: Path) -> tuple[RevivedBroker, Driver]:
            engine = Engine(paths(source))
            listener = ("127.0.0.1", free_listener())
            request = Revive(str(directory), listener=listener, kafka_version=release)
            rows = list(revive(engine, request))
            failed = [row.error for row in rows if isinstance(row, PartitionFailed)]
            assert all(error.startswith("truncated by recovery: ") for error in failed)
            broker = RevivedBroker(directory, listener[1], VERSIONS[release], STILL)
            stack.callback(broker.close)
            broker.start()
            driver = Driver(broker.bootstrap, tmp_path / "driver.log")
            stack.callback(driver.close)
            return broker, driver

        yield run


def paths(source: Path) -> list[str]:
    """Returns the log directories of a corpus."""
    is_one = (source / "meta.properties").exists()
    return [str(source)] if is_one else [str(each) for each in sorted(source.iterdir())]


@pytest.mark.parametrize(("corpus", "release"), CASES)
def test_every_record_at_its_offset(
    corpora: Corpora, start: Start, tmp_path: Path, corpus: str, release: str
) -> None:
    broker, driver = start(corpora.path(corpus), release, tmp_path / "new")
    left = RECOVERED.get(corpus, corpus)
    found, expected = {}, {}
    for (topic, number), offsets in answers.offsets(left).items():
        # Kafka looks up the largest timestamp in another way in each version.
        expected[topic, number] = replace(offsets, max_timestamp=None)
        found[topic, number] = replace(driver.offsets(topic, number), max_timestamp=None)
    assert found == expected
    for topic, number in answers.partitions_with_records(left):
        for isolation in answers.isolations(left, topic, number):
            records = driver.records(topic, number, isolation)
            assert records == list(answers.records(left, topic, number, isolation)), topic
    if corpus != "kafka28":  # its ids are in ZooKeeper
        assert described_ids(broker) == answers.topic_ids(left)
    broker.stop()
    assert [
        line for line in broker.output.read_text().splitlines() if SUSPICIOUS.search(line)
    ] == []


def described_ids(broker: RevivedBroker) -> dict[str, str]:
    """Returns the topic ids that the broker says."""
    arguments = ["--bootstrap-server", broker.bootstrap, "--describe"]
    done = tools(installation()).run("org.apache.kafka.tools.TopicCommand", arguments)
    return dict(re.findall(r"^Topic: (\S+)\s+TopicId: (\S+)", done.stdout.decode(), re.MULTILINE))
