"""Brokers of Kafka 4.3 and 3.9 on directories that `kafkafs revive` made of every corpus: they say
what the broker that left the corpus said. See test_dead_cluster.py for groups and settings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.recover import plan_for
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.revive.request import Revive, RevivedTransaction
from kafkafs.storage.operations.revive.revive import revive
from tests import answers
from tests.broker.driver import Driver, Message
from tests.broker.jvm import OLDER, VERSION, installation, java, tools
from tests.broker.kafka import RevivedBroker, free_listener
from tests.conftest import Corpora
from tests.crash.moments import some
from tests.share_groups import GROUP, TOPIC, ahead_of_the_log
from tests.waiting import wait_until

#: The version of a broker by its release.
VERSIONS = {"3.9": OLDER, "4.3": VERSION}
STILL = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    "log.cleaner.enable": "false",
}
MISSING = "partition 0 of only-on-2: in none of the directories, and starts empty"
#: What is to be aborted is aborted at once.
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
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

Start = Callable[..., tuple[RevivedBroker, Driver]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start(sources, release, directory)` revives them, and starts a broker and a client."""
    with ExitStack() as stack:

        def run(
            sources: Sequence[Path],
            release: str,
            directory: Path,
            properties: Mapping[str, str] = STILL,
            at_ms: int | None = None,
            expected: tuple[str, ...] = ("truncated by recovery: ",),
            **options: Any,
        ) -> tuple[RevivedBroker, Driver]:
            engine = Engine(list(map(str, sources)), at_ms=at_ms)
            listener = ("127.0.0.1", free_listener())
            request = Revive(str(directory), listener=listener, kafka_version=release, **options)
            rows = list(revive(engine, request))
            failed = [row.error for row in rows if isinstance(row, PartitionFailed)]
            assert all(error.startswith(expected) for error in failed)
            broker = RevivedBroker(directory, listener[1], VERSIONS[release], properties)
            stack.callback(broker.close)
            broker.start()
            driver = Driver(broker.bootstrap, tmp_path / "driver.log")
            stack.callback(driver.close)
            return broker, driver

        yield run


def paths(source: Path) -> list[Path]:
    """Returns the log directories of a corpus."""
    return [source] if (source / "meta.properties").exists() else sorted(source.iterdir())


@pytest.mark.parametrize(("corpus", "release"), some(CASES, every=3))
def test_every_record_at_its_offset(
    corpora: Corpora, start: Start, tmp_path: Path, corpus: str, release: str
) -> None:
    broker, driver = start(paths(corpora.path(corpus)), release, tmp_path / "new")
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


@pytest.mark.parametrize(
    ("corpus", "release"), some([("kafka28", "3.9"), ("kafka39", "4.3")], every=2)
)
def test_life_goes_on(
    corpora: Corpora, start: Start, tmp_path: Path, corpus: str, release: str
) -> None:
    """New producers get new ids, records the next offsets in a later epoch, also after a restart;
    the broker's own start changes nothing in the sources, of whose segments some are links."""
    source = tmp_path / "source"
    subprocess.run(["cp", "-a", "--sparse=always", corpora.path(corpus), source], check=True)
    before = contents(source)
    topic = "v2" if corpus == "kafka28" else "orders"
    engine = Engine(str(source), {"producer.id.expiration.ms": str(2**31 - 1)})
    known = {
        state.producer_id
        for key in engine.log_dirs.partitions()
        for state in plan_for(engine, *key).producers.states()
    }
    assert known
    broker, driver = start([source], release, tmp_path / "new", link=True)
    old = driver.records(topic)
    end = driver.offsets(topic).end
    there = producer_ids(driver, topic)
    assert driver.produce(topic, [Message(b"k", b"v")]) == [end]
    driver.call("begin", producer="new", transactional=True)
    driver.produce(topic, [Message(b"k", b"w")], producer="new")
    driver.call("commit", producer="new")
    new = producer_ids(driver, topic) - there
    assert len(new) == 2
    assert min(new) > max(known)
    broker.stop()
    broker.start()
    again = Driver(broker.bootstrap, tmp_path / "again.log")
    records = again.records(topic)
    again.close()
    assert records[: len(old)] == old
    assert [(record.offset, record.value) for record in records[len(old) :]] == [
        (end, b"v"),
        (end + 1, b"w"),
    ]
    epochs = [record.leader_epoch or 0 for record in records]
    assert min(epochs[len(old) :]) > max(epochs[: len(old)])
    assert contents(source) == before


def producer_ids(driver: Driver, topic: str) -> set[int]:
    return {each["id"] for each in driver.call("producers", topic=topic, partition=0)}


def contents(directory: Path) -> dict[str, bytes]:
    """Returns the bytes of all logs."""
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*.log"))}


def test_replicas_of_several_brokers(corpora: Corpora, start: Start, tmp_path: Path) -> None:
    """Broker 1 crashed, and broker 3 was stopped before; broker 2 died long ago."""
    source = corpora.path("cluster43")
    broker, driver = start(
        [source / "1", source / "3"], "4.3", tmp_path / "new", expected=(MISSING,)
    )
    for topic, number in answers.partitions_with_records("cluster43"):
        records = list(answers.records("cluster43", topic, number))
        assert driver.records(topic, number) == records, topic
    assert driver.offsets("only-on-2").end == 0
    broker.stop()
    said = broker.output.read_text().splitlines()
    assert [line for line in said if SUSPICIOUS.search(line)] == []


@pytest.mark.parametrize(
    ("corpus", "aborts"), [("groups43", True), ("groups43", False), ("kafka43-crash", True)]
)
def test_open_transactions(
    corpora: Corpora, start: Start, tmp_path: Path, corpus: str, aborts: bool
) -> None:
    """They are aborted by kafkafs, or by Kafka after their timeout. Then their ids can be used."""
    source = corpora.path(corpus)
    request = Revive(str(tmp_path / "planned"), dry_run=True)
    planned = [
        row for row in revive(Engine(str(source)), request) if isinstance(row, RevivedTransaction)
    ]
    assert planned
    properties = STILL if aborts else SOON
    broker, driver = start([source], "4.3", tmp_path / "new", properties, abort_open=aborts)

    def is_ended() -> bool:
        offsets = [driver.offsets(each.topic, each.partition) for each in planned]
        return all(each.last_stable == each.end for each in offsets)

    if aborts:
        assert is_ended()
    else:
        wait_until(is_ended)
    listed = broker.ask("TransactionsCommand", "list").decode()
    for each in planned:
        assert each.transactional_id is not None
        found = re.search(rf"{each.transactional_id}\s+\d+\s+(\d+)\s+(\w+)", listed)
        assert found is not None
        assert (int(found[1]), found[2]) == (each.transaction.producer_id, "CompleteAbort")
        driver.call("begin", producer=each.transactional_id, transactional=True)
        driver.call("commit", producer=each.transactional_id)


def test_until_a_time(corpora: Corpora, start: Start, tmp_path: Path) -> None:
    """A broker takes the logs as they were cut, and the groups have their offsets of that time."""
    rows = [
        json.loads(line)
        for line in (answers.directory("groups43") / "groups-at.jsonl").read_text().splitlines()
    ]
    at_ms = sorted({row["at"] for row in rows})[1]
    source = corpora.path("groups43")
    # Topics that were deleted later start empty.
    deleted = ("partition 0 of reborn: ", "partitions 0 to 1 of doomed: ")
    broker, _ = start([source], "4.3", tmp_path / "new", at_ms=at_ms, expected=deleted)
    expected = {
        (row["group"], row["topic"], str(row["partition"]), str(row["offset"]))
        for row in rows
        if row["at"] == at_ms and row["type"] != "Share" and row["topic"] is not None
    }
    tool = "consumer.group.ConsumerGroupCommand"
    told = broker.ask(tool, "--describe", "--all-groups").decode()
    found = set(re.findall(r"^(.+?) +(\S+) +(\d+) +(\d+) +[\d-]+ ", told, re.MULTILINE))
    differing = {row[:3] for row in found ^ expected}
    assert differing <= {("billing-beyond", "main", "0")}
    broker.stop()
    said = broker.output.read_text().splitlines()
    assert [line for line in said if SUSPICIOUS.search(line)] == []


def test_share_groups_until_a_time(corpora: Corpora, start: Start, tmp_path: Path) -> None:
    """One that was ahead of its log gets the next record."""
    source = tmp_path / "source"
    shutil.copytree(corpora.path("groups43"), source)
    at_ms, end = ahead_of_the_log(source)
    broker, driver = start([source], "4.3", tmp_path / "new", at_ms=at_ms)
    told = broker.ask("consumer.group.ShareGroupCommand", "--describe", "--group", GROUP).decode()
    assert re.search(rf"^{GROUP} +{TOPIC} +0 +{end} +0 *$", told, re.MULTILINE), told
    driver.produce(TOPIC, [Message(None, b"next")])
    consumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--group", GROUP]
    command = java(installation(), consumer, *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert b"next\n" in iter(process.stdout.readline, b"")
        finally:
            process.kill()


def described_ids(broker: RevivedBroker) -> dict[str, str]:
    """Returns the topic ids that the broker says."""
    arguments = ["--bootstrap-server", broker.bootstrap, "--describe"]
    done = tools(installation()).run("org.apache.kafka.tools.TopicCommand", arguments)
    return dict(re.findall(r"^Topic: (\S+)\s+TopicId: (\S+)", done.stdout.decode(), re.MULTILINE))
