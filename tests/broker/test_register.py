"""Brokers of Kafka 4.3 and 3.9 have the topics that `topic create --register` and `revive
--in-place` registered in their metadata while they were stopped, and all others as before."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkafs.cli.main import cli
from tests.answers import ExpectedRecord
from tests.broker.driver import Driver, Message
from tests.broker.jvm import OLDER, VERSION, installation, tools
from tests.broker.kafka import CLUSTER_ID, Broker, free_ports
from tests.crash.moments import some
from tests.waiting import wait_until

#: What a broker says about topics and logs that it does not take as they are.
SUSPICIOUS = re.compile(r"stray|[Cc]orrupt|truncat|ERROR|[Ii]nconsistent|[Mm]issing")
#: Snapshots of the metadata are taken often.
PROPERTIES = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
CONFIGS = {"retention.ms": "-1", "max.message.bytes": "900000"}


def kafkafs(*words: object) -> Result:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result


class Node:
    """A broker with its client."""

    def __init__(self, broker: Broker, output: Path) -> None:
        self.broker, self._output = broker, output
        self.driver: Driver | None = None

    def start(self) -> Driver:
        self.broker.start()
        self.driver = Driver(self.broker.bootstrap, self._output)
        return self.driver

    def stop(self, *, kills: bool = False) -> None:
        if self.driver is not None:
            self.driver.close()
            self.driver = None
        if kills:
            self.broker.kill()
        else:
            self.broker.stop()

    def close(self) -> None:
        if self.driver is not None:
            self.driver.close()
        self.broker.close()

    def ask(self, tool: str, *arguments: str) -> str:
        given = ["--bootstrap-server", self.broker.bootstrap, *arguments]
        done = tools(installation()).run(f"org.apache.kafka.tools.{tool}", given)
        return done.stdout.decode()

    def described(self, topic: str) -> tuple[str, dict[str, str], list[tuple[str, ...]]]:
        """Returns what kafka-topics says: the topic's id, its configs, and of each partition the
        leader, the replicas and the ISR."""
        told = self.ask("TopicCommand", "--describe", "--topic", topic)
        head = re.search(r"TopicId: (\S+)\s.*Configs: (\S*)", told)
        assert head is not None, told
        configs = dict(pair.split("=") for pair in head[2].split(",") if pair)
        shape = r"Partition: \d+\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S+)"
        return head[1], configs, re.findall(shape, told)

    def is_led(self, topic: str, partitions: int) -> bool:
        """Returns whether all partitions have a leader."""
        found = self.described(topic)[2]
        return len(found) == partitions and all(leader != "none" for leader, _, _ in found)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """`node(version)` returns one that is not running yet."""
    with ExitStack() as stack:

        def make(version: str, **properties: str) -> Node:
            given = {**PROPERTIES, **properties}
            broker = Broker(tmp_path / f"node-{version}", given, version=version)
            made = Node(broker, tmp_path / "driver.log")
            stack.callback(made.close)
            return made

        yield make


def values(records: list[ExpectedRecord]) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for each in records]


def messages(word: str, count: int = 5) -> list[Message]:
    return [Message(b"key", b"%s %d" % (word.encode(), n)) for n in range(count)]


def producer_ids(driver: Driver, topic: str) -> set[int]:
    return {each["id"] for each in driver.call("producers", topic=topic, partition=0)}


def fill(node: Node, data: Path, aside: Path) -> None:
    """Makes the topics old and lost, and keeps a copy of lost, which is then deleted."""
    driver = node.start()
    driver.create_topic("old", 2, CONFIGS)
    driver.create_topic("lost", 2, CONFIGS)
    driver.produce("old", messages("old"), partition=1)
    driver.call("begin", producer="t", transactional=True)
    driver.produce("lost", messages("lost"), producer="t")
    driver.call("commit", producer="t")
    node.stop()
    for number in (0, 1):
        shutil.copytree(data / f"lost-{number}", aside / f"lost-{number}")
    driver = node.start()
    node.ask("TopicCommand", "--delete", "--topic", "lost")
    wait_until(lambda: not list(data.glob("lost-*")))


@pytest.mark.parametrize(
    ("version", "kills", "is_stray"),
    # Of two, each has another version, and one is killed or has strays.
    some(
        [
            (VERSION, False, True),
            (VERSION, True, False),
            (OLDER, True, False),
            (OLDER, False, True),
        ],
        every=2,
    ),
)
def test_topics_that_a_stopped_node_gets(
    node: Callable[..., Node], tmp_path: Path, version: str, kills: bool, is_stray: bool
) -> None:
    single = node(version)
    (data,) = single.broker.log_dirs
    fill(single, data, tmp_path / "aside")
    assert single.driver is not None
    before = values(single.driver.records("old", 1))
    old = single.described("old")
    single.stop(kills=kills)
    for number in (0, 1):
        shutil.copytree(tmp_path / "aside" / f"lost-{number}", data / f"lost-{number}")
    if is_stray:
        single.broker.start()
        single.stop()
        assert len(list(data.glob("lost-*-stray"))) == 2
    said = single.broker.output.stat().st_size

    configs = [word for pair in CONFIGS.items() for word in ("--config", "=".join(pair))]
    created = kafkafs("topic", "create", "--register", "--json", "-p", 2, *configs, data, "made")
    made_id = json.loads(created.stdout)["topicId"]
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    kafkafs("append", data, "made/1", lines)
    planned = kafkafs("revive", "--in-place", "--dry-run", "--json", data, "lost")
    revived = kafkafs("revive", "--in-place", "--json", data, "lost")
    rows = [json.loads(line) for line in revived.stdout.splitlines()]
    assert [(row["topic"], row["endOffset"]) for row in rows] == [("lost", 6), ("lost", 0)]
    types = [json.loads(line).get("type") for line in planned.stdout.splitlines()]
    assert types[2:] == ["TOPIC_RECORD", *2 * ["PARTITION_RECORD"], *2 * ["CONFIG_RECORD"]]

    lost = [(n, b"lost %d" % n) for n in range(5)]
    for run in range(3):
        driver = single.start()
        for topic, topic_id in (("made", made_id), ("lost", rows[0]["topicId"])):
            wait_until(partial(single.is_led, topic, 2))
            found_id, found_configs, partitions = single.described(topic)
            assert found_id == topic_id
            assert found_configs.items() >= CONFIGS.items()  # those of the broker are listed, too
            assert partitions == 2 * [("1", "1", "1")]
        assert single.described("old") == old
        assert values(driver.records("old", 1)) == before
        news = [(b"new %d" % n) for n in range(run)]
        assert values(driver.records("made", 1)) == list(enumerate([b"a", b"b", *news]))
        assert values(driver.records("lost")) == [*lost, *enumerate(news, 6)]
        there = producer_ids(driver, "lost")
        for topic, number in (("made", 1), ("lost", 0)):
            driver.produce(topic, [Message(b"key", b"new %d" % run)], partition=number)
        new_ids = producer_ids(driver, "lost") - there
        assert min(new_ids) > max(there)
        single.stop(kills=run == 1)
    kafkafs("verify", data)
    told = single.broker.output.read_bytes()[said:].decode()
    assert [line for line in told.splitlines() if SUSPICIOUS.search(line)] == []
    assert not list(data.glob("*-stray"))


class QuorumNode(Broker):
    """A node whose ports stay, of a cluster in which node 1 is the only controller. `is_dynamic`:
    the voters are in the metadata log (kraft.version 1)."""

    def __init__(
        self,
        directory: Path,
        node_id: int,
        controller: int,
        version: str = VERSION,
        *,
        is_dynamic: bool = False,
    ) -> None:
        (port,) = free_ports(1)
        listeners = [f"PLAINTEXT://127.0.0.1:{port}"]
        if node_id == 1:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller}")
        voters = "bootstrap.servers" if is_dynamic else "voters"
        at = f"127.0.0.1:{controller}"
        properties = {
            "process.roles": "broker,controller" if node_id == 1 else "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": "",
            f"controller.quorum.{voters}": at if is_dynamic else f"1@{at}",
            "listeners": ",".join(listeners),
            "advertised.listeners": listeners[0],
        }
        super().__init__(directory, properties, version=version)
        self._port, self._is_dynamic = port, is_dynamic

    def _prepare(self, home: Path) -> None:
        port = self._port
        super()._prepare(home)
        self._port = port

    def _format(self, home: Path) -> None:
        if not self._is_dynamic:
            super()._format(home)
            return
        arguments = ["format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._config)]
        assert tools(home).run("kafka.tools.StorageTool", arguments).returncode == 0


def metadata_log(data: Path) -> bytes:
    return (data / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()


@pytest.mark.parametrize("version", some([VERSION, OLDER], every=2))
def test_voters_in_the_log(tmp_path: Path, version: str) -> None:
    (controller,) = free_ports(1)
    broker = QuorumNode(tmp_path / "node", 1, controller, version, is_dynamic=True)
    single = Node(broker, tmp_path / "driver.log")
    (data,) = broker.log_dirs
    try:
        broker.start()
        broker.stop()
        assert json.loads((data / "__cluster_metadata-0/quorum-state").read_text())["data_version"]
        kafkafs("topic", "create", "--register", data, "made")
        for run in range(2):
            driver = single.start()
            wait_until(lambda: single.described("made")[2] == [("1", "1", "1")])
            assert driver.produce("made", messages("new", 3)) == [3 * run + n for n in range(3)]
            single.stop()
    finally:
        single.close()


def test_a_broker_that_had_more_of_the_metadata_log(tmp_path: Path) -> None:
    """A power cut took the last records from the controller, which another broker had fetched."""
    (controller,) = free_ports(1)
    brokers = [QuorumNode(tmp_path / f"node-{n}", n, controller) for n in (1, 2)]
    single = Node(brokers[0], tmp_path / "driver.log")
    other = Node(brokers[1], tmp_path / "other.log")
    data, its = brokers[0].log_dir, brokers[1].log_dir
    try:
        driver = single.start()
        brokers[1].start()
        driver.create_topic("old")
        kept = len(metadata_log(data))
        driver.create_topic("cut")
        wait_until(lambda: b"\x04cut" in metadata_log(its))
        single.stop(kills=True)
        # While it runs, it does not take back what it has applied.
        other.stop(kills=True)
        log = data / "__cluster_metadata-0" / "00000000000000000000.log"
        log.write_bytes(metadata_log(data)[:kept])
        kafkafs("topic", "create", "--register", data, "made")
        single.start()
        brokers[1].start()
        wait_until(lambda: single.described("made")[2] == [("1", "1", "1")])
        wait_until(lambda: set(other.ask("TopicCommand", "--list").split()) == {"old", "made"})
        assert other.described("made") == single.described("made")
        whole = len(metadata_log(data))
        assert whole > kept
        wait_until(lambda: metadata_log(its)[:whole] == metadata_log(data)[:whole])
    finally:
        single.close()
        other.close()


def test_a_cluster_that_was_never_upgraded(tmp_path: Path) -> None:
    """In metadata.version 3.6, partitions do not name their log directories."""
    broker = OldCluster(tmp_path / "node", PROPERTIES, version=OLDER)
    single = Node(broker, tmp_path / "driver.log")
    try:
        single.broker.start()
        single.stop()
        kafkafs("topic", "create", "--register", broker.log_dir, "made")
        for run in range(2):
            driver = single.start()
            wait_until(partial(single.is_led, "made", 1))
            assert driver.produce("made", messages("new", 1)) == [run]
            single.stop()
    finally:
        single.close()


class OldCluster(Broker):
    """A node of a cluster whose metadata.version is that of Kafka 3.6."""

    def _format(self, home: Path) -> None:
        arguments = ["format", "-r", "3.6", "-t", CLUSTER_ID, "-c", str(self._config)]
        assert tools(home).run("kafka.tools.StorageTool", arguments).returncode == 0
