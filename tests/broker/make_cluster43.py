"""Makes the corpus `cluster43`: the directories of a cluster's three brokers, and its account.

    python -m tests.broker.make_cluster43 DIRECTORY

writes `cluster43.tar.gz` and `cluster43/` (the answers) into a new DIRECTORY; it takes about a
minute. The three nodes are broker and controller each, on the loopback interface:

1. All run. Topics with three replicas get their first records, and a group commits.
2. Broker 3 stops. The topic `split` (replicas 2 and 3) gets records that only broker 2 has.
3. Broker 2 is killed, and never comes back. Broker 3 starts, becomes leader of `split` although it
   misses those records (unclean.leader.election.enable), and gets others at the same offsets.
4. All topics get more records; `reborn` is deleted and created again, so that broker 2 has a
   partition of its first life; groups commit, and configs change. Kafka's tools and consumers say
   what there is.
5. Broker 3 stops, and broker 1, the last one, is killed.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.broker.driver import Driver, Message
from tests.broker.jvm import KafkaError, installation, tools
from tests.broker.kafka import CLUSTER_ID, Broker, free_ports
from tests.waiting import wait_until

NAME = "cluster43"
NODES = (1, 2, 3)
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
#: The record times' beginning, in ms: 2026-09-01.
START_MS = 1_788_220_800_000
PROPERTIES = {
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.segment.bytes": "1048576",
    "log.index.size.max.bytes": "65536",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "2000",
}


class Node(Broker):
    """A broker and controller of a cluster of several."""

    def __init__(self, directory: Path, node: int, ports: Mapping[int, Sequence[int]]) -> None:
        super().__init__(directory / f"node-{node}", PROPERTIES, [directory / NAME / str(node)])
        self._node, self._ports = node, ports

    def _prepare(self, home: Path) -> None:
        self._port, controller = self._ports[self._node]
        voters = ",".join(f"{node}@127.0.0.1:{ports[1]}" for node, ports in self._ports.items())
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(self._node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        self._configure(properties)
        if not (self.log_dir / "meta.properties").exists():
            self._format(home)


class Cluster:
    """The three brokers, a client, and Kafka's tools."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2 * len(NODES))
        of_node = {node: ports[2 * n : 2 * n + 2] for n, node in enumerate(NODES)}
        self.nodes = {node: Node(directory, node, of_node) for node in NODES}
        self.bootstrap = ",".join(f"127.0.0.1:{of_node[node][0]}" for node in NODES)
        tools(installation())  # before several threads need it
        for node in self.nodes.values():
            node.log_dir.parent.mkdir(exist_ok=True)
        # All at once, because a quorum needs two. A broker is killed when its thread ends.
        self._starters = ThreadPoolExecutor()
        list(self._starters.map(Node.start, self.nodes.values()))
        self._driver_log = directory / "driver.log"
        self.driver = Driver(self.bootstrap, self._driver_log)

    def reconnect(self) -> None:
        """Starts a new client, which knows nothing of brokers that are gone."""
        self.driver.close()
        self.driver = Driver(self.bootstrap, self._driver_log)

    def run(self, tool: str, *arguments: str) -> str:
        """Returns what one of Kafka's tools prints. Raises KafkaError if it fails."""
        given = ["--bootstrap-server", self.bootstrap, *arguments]
        done = tools(installation()).run(tool, given)
        if done.returncode:
            raise KafkaError(f"{tool} {arguments}: {(done.stdout + done.stderr).decode()}")
        return done.stdout.decode()

    def create(self, topic: str, assignment: str, **configs: str) -> None:
        """Creates a topic; `assignment`: the replicas of each partition, as in `1:2:3,2:3:1`."""
        given = [f"--config={name.replace('_', '.')}={value}" for name, value in configs.items()]
        self.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *given)

    def produce(self, topic: str, partition: int, first: int, count: int, why: str) -> None:
        """Sends records `first` to `first + count - 1`, in batches of ten."""
        messages = [
            Message(f"key-{n % 7}".encode(), f"{why} {n}".encode(), START_MS + n * 60_000)
            for n in range(first, first + count)
        ]
        self.driver.produce(topic, messages, partition, batch=10)

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commits an offset in all partitions of a topic."""
        to = ["--reset-offsets", "--to-offset", str(offset), "--execute"]
        self.run(GROUPS, "--group", group, "--topic", topic, *to)

    def leaders(self, topic: str) -> list[str]:
        """Returns the leader of each partition."""
        lines = self.run(TOPICS, "--describe", "--topic", topic).splitlines()
        return [line.split("Leader: ")[1].split()[0] for line in lines if "Leader: " in line]

    def wait_for_leaders(self, topic: str, allowed: Sequence[str]) -> None:
        """Waits until a topic's partitions are led by these nodes."""
        wait_until(lambda: set(self.leaders(topic)) <= set(allowed))


def fill(cluster: Cluster) -> None:
    """Lets the cluster live until one broker is left behind and another one is gone."""
    cluster.create("orders", "1:2:3,2:3:1", retention_ms="-1")
    cluster.create("settings", "3:1:2", cleanup_policy="compact")
    cluster.create("split", "2:3", unclean_leader_election_enable="true")
    cluster.create("reborn", "1:2:3")
    cluster.create("only-on-2", "2")
    for topic, partition in (("orders", 0), ("orders", 1), ("settings", 0), ("split", 0)):
        cluster.produce(topic, partition, 0, 100, "all brokers")
    cluster.produce("reborn", 0, 0, 50, "first life")
    cluster.produce("only-on-2", 0, 0, 30, "one replica")
    cluster.commit("billing", "orders", 40)
    cluster.commit("early", "split", 60)

    cluster.nodes[3].stop()
    cluster.produce("split", 0, 100, 40, "only broker 2")
    cluster.produce("orders", 0, 100, 50, "without 3")
    cluster.nodes[2].kill()
    cluster.nodes[3].start()
    cluster.wait_for_leaders("split", ["3"])
    for topic in ("orders", "settings", "__consumer_offsets"):
        cluster.wait_for_leaders(topic, ["1", "3"])
    cluster.reconnect()

    cluster.produce("split", 0, 100, 25, "only broker 3")
    cluster.produce("orders", 0, 150, 100, "without 2")
    cluster.produce("orders", 1, 100, 100, "without 2")
    cluster.produce("settings", 0, 100, 50, "without 2")
    cluster.run(TOPICS, "--delete", "--topic", "reborn")
    wait_until(lambda: "reborn" not in cluster.run(TOPICS, "--list").split())
    time.sleep(2)
    cluster.create("reborn", "1:3")
    cluster.produce("reborn", 0, 0, 20, "second life")
    cluster.commit("billing", "orders", 120)
    cluster.commit("late", "settings", 150)
    cluster.run(
        CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", "orders",
        "--add-config", "delete.retention.ms=3600000",
    )  # fmt: skip


def account(cluster: Cluster, directory: Path) -> None:
    """Writes what consumers and Kafka's tools say."""
    (directory / "records").mkdir(parents=True)
    offsets: dict[str, Any] = {}
    for topic, count in (("orders", 2), ("settings", 1), ("split", 1), ("reborn", 1)):
        for partition in range(count):
            where = {"topic": topic, "partition": partition}
            lines = cluster.driver.call("records", **where, isolation="read_committed")
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            path = directory / "records" / f"{topic}-{partition}.jsonl.gz"
            path.write_bytes(gzip.compress(text.encode(), mtime=0))
            found = cluster.driver.offsets(topic, partition)
            offsets[f"{topic}-{partition}"] = {
                "beginning": found.beginning,
                "end": found.end,
                "end_read_committed": found.last_stable,
                "max_timestamp": None,
            }
    write_json(directory / "offsets.json", offsets)
    groups: dict[str, dict[str, Any]] = {}
    for line in cluster.run(GROUPS, "--describe", "--all-groups").splitlines():
        words = line.split()
        if len(words) > 3 and words[2].isdecimal():
            groups.setdefault(words[0], {})[f"{words[1]}-{words[2]}"] = {"offset": int(words[3])}
    write_json(directory / "groups.json", groups)
    (directory / "topics.txt").write_text(cluster.run(TOPICS, "--describe"))


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def make(directory: Path) -> None:
    """Makes the corpus in a new directory."""
    directory.mkdir(parents=True)
    cluster = Cluster(directory / "work")
    try:
        fill(cluster)
        account(cluster, directory / NAME)
        cluster.nodes[3].stop()
        time.sleep(2)
        cluster.nodes[1].kill()
    finally:
        cluster.driver.close()
        for node in cluster.nodes.values():
            node.close()
    print(f"cluster {CLUSTER_ID}")
    pack(directory, NAME)


def pack(directory: Path, name: str) -> None:
    """Packs the log directories of the cluster `name`, which ran in a folder of `directory`, as
    NAME.tar.gz in it."""
    archive = ["--sort=name", "--numeric-owner", "--owner=0", "--group=0", "--sparse"]
    target = directory / f"{name}.tar.gz"
    subprocess.run(
        ["tar", *archive, "-I", "gzip -9", "-cf", target, "-C", directory / "work", name],
        check=True,
    )
    print(f"{target}, {target.stat().st_size} bytes")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
