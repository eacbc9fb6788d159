"""Runs clusters for Spark on the loopback interface: their daemons, each a separate process, and
drivers that `spark-submit` starts, as users start them. `Standalone` is Spark's own cluster; that
of YARN is in `yarn.py`.

No process outlives the one that started it. The kernel kills daemons and drivers with it; an
executor exits after its worker or driver, and its Python processes exit after the executor.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pyspark

from tests.readme import ROOT
from tests.spark import class_data
from tests.waiting import wait_until

T = TypeVar("T")

SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS = 180
STOP_SECONDS = 60
#: Far longer than any job takes, or a part of one.
JOB_SECONDS = 240
LOOPBACK = "127.0.0.1"
#: The directory into which an executor unpacks the archive with kafkafs.
PACKAGES = "kafkafs-packages"

JVM = class_data.options()
CONFIGURATION = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.defaultJavaOptions": JVM,
    "spark.executor.memory": "512m",
    "spark.log.level": "WARN",
    # Small buffers between processes, so that reader and writer work at the same time.
    "spark.buffer.size": "256",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class ClusterError(Exception):
    """A process did not start, or a driver failed; the message ends with the tail of its log."""


class Driver:
    """A running driver: the JVM of `spark-submit` and its Python program, one process group."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self.output = output

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def finish(self, seconds: float = JOB_SECONDS) -> str:
        """Waits for the driver; returns its output. Raises ClusterError on failure or timeout."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ClusterError(f"still running after {seconds} s: {_tail(self.output)}") from None
        if status:
            raise ClusterError(f"the driver ended with {status}: {_tail(self.output)}")
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        """Sends SIGKILL to the whole group, if it still runs, as if its machine lost power."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS)


class Cluster(ABC):
    """A cluster that gives a driver two executors of one core, with logs and scratch files in
    `directory`."""

    #: Configs of a driver in addition to CONFIGURATION.
    configuration: Mapping[str, str] = {}
    #: Whether executors exit when the daemon that started them is killed.
    executors_exit = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._drivers: list[Driver] = []
        self.master = ""

    @abstractmethod
    def start(self) -> None:
        """Starts all daemons; returns when they can run a driver's executors."""

    def shipping(self, archive: Path, python: str) -> tuple[Sequence[str], Mapping[str, str]]:
        """Returns options and environment of a driver whose workers run a `python` that has no
        kafkafs, and import it from an archive, as the page describes."""
        options = ("--archives", f"{archive}#{PACKAGES}")
        path = ("--conf", f"spark.executorEnv.PYTHONPATH={PACKAGES}")
        return (*options, *path), {"PYSPARK_PYTHON": python}

    def close(self) -> None:
        """Kills all running processes and waits until they have exited."""
        running = [pid for daemon in self._daemons for pid in descendants(daemon.pid)]
        for driver in self._drivers:
            driver.kill()
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait(STOP_SECONDS)
        if not self.executors_exit:
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, running)), "executors outlive their worker")

    def submit(
        self,
        program: Path,
        *arguments: str,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Driver:
        """Runs `spark-submit OPTIONS PROGRAM ARGUMENTS`; the driver imports from this tree."""
        configs = {**CONFIGURATION, **self.configuration}
        settings = [part for pair in configs.items() for part in ("--conf", "=".join(pair))]
        output = self._directory / f"driver-{len(self._drivers)}.log"
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.master, *settings]
        process = self._popen(
            output,
            [*command, *options, str(program), *arguments],
            {
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
                **(environment or {}),
            },
            start_new_session=True,
        )
        self._drivers.append(Driver(process, output))
        return self._drivers[-1]

    def executors(self) -> list[int]:
        """Returns the process ids of the executor JVMs."""
        return [
            pid
            for daemon in self._daemons
            for pid in descendants(daemon.pid)
            if b"CoarseGrainedExecutorBackend" in _read(pid, "cmdline")
        ]

    def _start_daemon(self, name: str, command: Sequence[str], address: str = LOOPBACK) -> Path:
        """Starts a daemon whose processes use this address; returns the path of its log."""
        log = self._directory / f"{name}.log"
        self._daemons.append(self._popen(log, command, {"SPARK_LOCAL_IP": address}))
        return log

    def _popen(
        self,
        output: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        start_new_session: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Starts a command. Spark's scripts end in `exec`, so the killed process is the JVM."""
        spark = {
            # Where PySpark looks anyway: other class paths do not fit the class data archive.
            "SPARK_CONF_DIR": str(SPARK_HOME / "conf"),
            "SPARK_DAEMON_JAVA_OPTS": f"{JVM} -Dspark.master.rest.enabled=false",
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "SPARK_LOCAL_IP": LOOPBACK,  # also the address of web UIs
        }
        with output.open("wb") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                cwd=self._directory,
                env={**os.environ, **spark, **environment},
                start_new_session=start_new_session,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


class Standalone(Cluster):
    """A master and two workers. Each worker has its own address: to Spark it is a separate machine,
    and a speculative attempt runs on another worker."""

    def start(self) -> None:
        self._directory.mkdir()
        log = self._start_node("master", "--host", LOOPBACK, "--port", "0")
        address = r"Starting Spark master at (spark://\S+)"
        self.master = started(lambda: re.findall(address, log.read_text()), log)[0]
        for number in range(2):
            scratch = str(self._directory / f"work-{number}")
            limits = ("--cores", "1", "--memory", "640m")
            where = ("--host", f"127.0.0.{2 + number}", "--work-dir", scratch)
            self._start_node(f"worker-{number}", *where, *limits, self.master)
        started(lambda: log.read_text().count("Registering worker") == 2, log)

    def _start_node(self, name: str, *arguments: str) -> Path:
        """Starts a master or a worker; returns the path of its log."""
        kind = name.split("-")[0]
        main = f"org.apache.spark.deploy.{kind}.{kind.title()}"
        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        return self._start_daemon(name, [spark_class, main, "--webui-port", "0", *arguments])


def descendants(pid: int) -> Iterator[int]:
    """Yields all descendants of a process."""
    parents = {int(path.name): parent(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for each in found:
        found += [child for child, its_parent in parents.items() if its_parent == each]
    yield from found[1:]


def parent(pid: int) -> int:
    """Returns the parent's process id, 0 if the process has exited."""
    state, *numbers = _state(pid)
    return int(numbers[0]) if state != b"Z" else 0


def is_alive(pid: int) -> bool:
    """Returns whether a process is running; a zombie is not."""
    return _state(pid)[0] != b"Z"


def _state(pid: int) -> list[bytes]:
    """Returns state, parent and more of `/proc/PID/stat`; an exited process counts as a zombie."""
    return _read(pid, "stat").rpartition(b")")[2].split() or [b"Z"]


def has_open(pid: int, suffix: str) -> bool:
    """Returns whether the process has a file open whose name ends with `suffix`."""
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            if os.readlink(descriptor).endswith(suffix):
                return True
    return False


def started(find: Callable[[], T], log: Path) -> T:
    """Returns the result of `find` once it is true. Raises ClusterError on timeout."""
    try:
        return wait_until(find, seconds=START_SECONDS)
    except AssertionError:
        raise ClusterError(f"not started after {START_SECONDS} s: {_tail(log)}") from None


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([f"{log}:", *lines[-40:]])
