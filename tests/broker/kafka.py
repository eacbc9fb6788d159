"""Brokers of Kafka, each in a separate process."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.broker.jvm import OLDEST, VERSION, KafkaError, installation, java, tools
from tests.waiting import wait_until

CLUSTER_ID = "a2Fma2Fmcy10ZXN0cy0wMQ"
START_SECONDS = 90
# A request of version 0: its size, key and version, a number that the answer repeats after its own
# size, and no name of the client.
_CORRELATION = b"test"
_API_VERSIONS = struct.pack(">ihh4sh", 10, 18, 0, _CORRELATION, -1)
STOP_SECONDS = 60

#: Periodic tasks run within a second or two, and nothing expires by itself: without
#: `log.retention.ms=-1` records with old timestamps vanish.
QUICK = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "500",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}


class Broker:
    """One KRaft node, broker and controller, listening on the loopback interface.

    `log_dirs` stay in place when it is stopped or killed; `start` on them again is a restart. Of
    the usual properties, those that are given as "" are left out.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        log_dirs: Sequence[Path] | None = None,
        version: str = VERSION,
        jvm_options: Sequence[str] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_dirs = list(log_dirs or [directory / "logs"])
        self.output = directory / "broker.log"
        self._version = version
        self._jvm_options = jvm_options
        self._config = directory / "server.properties"
        self._properties = {**QUICK, **(properties or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @classmethod
    def of(cls, version: str, directory: Path) -> Broker:
        """Returns a broker of that version, from before KRaft or since, with its only log directory
        in `directory`."""
        if version == OLDEST:
            return ZooKeeperBroker(directory, version)
        return cls(directory, version=version)

    @property
    def bootstrap(self) -> str:
        """The address for clients, HOST:PORT; it changes with every start."""
        return f"127.0.0.1:{self._port}"

    @property
    def log_dir(self) -> Path:
        """The only, or first, log directory."""
        return self.log_dirs[0]

    @property
    def pid(self) -> int:
        """The process ID of the running JVM. Raises KafkaError if there is none."""
        if self._process is None:
            raise KafkaError("the broker is not running")
        return self._process.pid

    def start(self) -> None:
        """Starts on the log directories, formatting new ones, and returns once it serves
        clients."""
        home = installation(self._version)
        self._prepare(home)
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                java(home, *self._jvm_options, "kafka.Kafka", *self._arguments(), heap="768m"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_it_answers(self._process)

    def stop(self) -> None:
        """Shuts down cleanly with SIGTERM, which leaves `.kafka_cleanshutdown`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Crashes with SIGKILL, so that nothing is closed, trimmed or marked."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Ends the process if it is running."""
        if self._process is not None:
            self.kill()

    def _end(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        assert self._process is not None
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise KafkaError(f"not stopped within {STOP_SECONDS} s: {self._tail()}") from error
        finally:
            self._process = None

    def _arguments(self) -> list[str]:
        """Returns the arguments of the broker's program."""
        return [str(self._config)]

    def _prepare(self, home: Path) -> None:
        """Selects ports, and formats new log directories for a cluster of one node."""
        self._port, controller = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        self._configure(properties)
        if not (self.log_dir / "meta.properties").exists():
            self._format(home)

    def _configure(self, properties: Mapping[str, str]) -> None:
        properties = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            **properties,
            **self._properties,
        }
        given = (f"{name}={value}\n" for name, value in properties.items() if value)
        self._config.write_text("".join(given))

    def _format(self, home: Path) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self._config)]
        done = tools(home).run("kafka.tools.StorageTool", arguments)
        with self.output.open("ab") as output:
            output.write(done.stdout + done.stderr)
        if done.returncode:
            raise KafkaError(f"formatting failed: {self._tail()}")

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up:
            if process.poll() is not None:
                self._process = None
                raise KafkaError(f"the broker ended with {process.returncode}: {self._tail()}")
            if self._answers():
                return
            time.sleep(0.05)
        self.kill()
        raise KafkaError(f"the broker did not answer within {START_SECONDS} s: {self._tail()}")

    def _answers(self) -> bool:
        """Returns whether it is the broker that listens, and serves requests: one that is stopped
        before leaves no mark that it was clean."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1) as client:
            client.sendall(_API_VERSIONS)
            return client.recv(8)[4:] == _CORRELATION
        return False

    def _tail(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.output}:", *lines[-20:]])


class RevivedBroker(Broker):
    """A broker on a directory that `kafkafs revive` created, with its server.properties; the
    `properties` given to it override those."""

    def __init__(
        self,
        directory: Path,
        port: int,
        version: str,
        properties: Mapping[str, str],
        jvm_options: Sequence[str] = (),
    ) -> None:
        beside, log_dirs = directory.with_name(f"{directory.name}-broker"), [directory / "data"]
        super().__init__(beside, {}, log_dirs, version, jvm_options)
        self._config = directory / "server.properties"
        self._overrides = dict(properties)
        self._port = port

    def start(self) -> None:
        """Starts, and returns once all partitions have leaders and all groups are loaded."""
        super().start()
        give_up = time.monotonic() + START_SECONDS
        while not self.ask("TopicCommand", "--list") or self.ask(
            "TopicCommand", "--describe", "--unavailable-partitions"
        ):
            if time.monotonic() > give_up:
                raise KafkaError(f"not served within {START_SECONDS} s: {self._tail()}")
        self.ask("GroupsCommand", "--list")  # waits for the coordinator

    def ask(self, tool: str, *arguments: str) -> bytes:
        """Returns what one of Kafka's tools prints about the broker."""
        given = ["--bootstrap-server", self.bootstrap, *arguments]
        return tools(installation()).run(f"org.apache.kafka.tools.{tool}", given).stdout

    def _arguments(self) -> list[str]:
        overrides = (("--override", f"{name}={text}") for name, text in self._overrides.items())
        return [str(self._config), *(each for pair in overrides for each in pair)]

    def _prepare(self, home: Path) -> None:
        """Does nothing: the directory has all that a broker needs."""


class ZooKeeperBroker(Broker):
    """A broker from before KRaft, with a ZooKeeper that runs from the first start until `close`."""

    #: ZooKeeper considers a killed broker alive for this long, and accepts no other in its place. A
    #: broker on a busy machine must not lose its session: it gives up after two thirds of it.
    SESSION_MS = 6000

    def __init__(self, directory: Path, version: str) -> None:
        super().__init__(directory, version=version)
        self._directory = directory
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._zookeeper_port = 0

    def kill(self) -> None:
        """Crashes, and waits until ZooKeeper has ended its session."""
        super().kill()
        wait_until(lambda: self._sessions() == 0)

    def _sessions(self) -> int:
        """Returns the number of ZooKeeper's sessions."""
        with socket.create_connection(("127.0.0.1", self._zookeeper_port)) as client:
            client.sendall(b"dump")
            answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
        found = re.search(rb"Session Sets \(\d+\)/\((\d+)\)", answer)
        assert found is not None, answer
        return int(found[1])

    def close(self) -> None:
        if self._process is not None:
            super().kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait()

    def _prepare(self, home: Path) -> None:
        if self._zookeeper is None:
            self._start_zookeeper(home)
        (self._port,) = free_ports(1)
        properties = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "zookeeper.connection.timeout.ms": str(START_SECONDS * 1000),
            "zookeeper.session.timeout.ms": str(self.SESSION_MS),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
        }
        self._configure(properties)

    def _start_zookeeper(self, home: Path) -> None:
        (self._zookeeper_port,) = free_ports(1)
        config = self._directory / "zookeeper.properties"
        config.write_text(
            f"dataDir={self._directory / 'zookeeper'}\n"
            f"clientPort={self._zookeeper_port}\n"
            f"tickTime={self.SESSION_MS // 4}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=dump\n"
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with (self._directory / "zookeeper.log").open("ab") as output:
            self._zookeeper = subprocess.Popen(
                java(home, main, str(config)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


def free_listener() -> int:
    """Returns a port of the loopback interface that was free a moment ago, as was the next one."""
    while True:
        (port,) = free_ports(1)
        try:
            socket.create_server(("127.0.0.1", port + 1)).close()
        except (OSError, OverflowError):
            continue
        return port


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback interface that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports
