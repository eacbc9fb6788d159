"""JVMs that run Kafka's classes: its jars, downloaded once, and our programs that use them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
VERSION = "4.3.0"
#: The last releases before 4.0 and 3.0, whose brokers must accept what kafkafs writes, too. Kafka's
#: client is always that of VERSION.
OLDER = "3.9.2"
OLDEST = "2.8.2"

#: Options for a fast JVM start, which matters more here than peak performance. Without its log a
#: JVM says nothing about a class data archive that it ignores.
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:disable")
#: The same for Maven, which otherwise takes half as much processor time again.
MAVEN_JVM = JVM[:2]


class KafkaError(Exception):
    """Kafka could not be downloaded or started, or rejected a request."""


def cache_dir() -> Path:
    """Returns the directory in which downloads are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafkafs-tests"


def installation(version: str = VERSION) -> Path:
    """Returns the directory with Kafka's jars, creating it if it does not exist.

    It is created atomically, so an interrupted download does not count as one.
    """
    home = cache_dir() / f"kafka-{version}"
    if not (home / "jars").is_dir():
        provide(home / "jars", lambda target: _download(version, target))
    return home


@cache
def programs() -> Path:
    """Returns the directory with our compiled programs, compiling them against the jars of VERSION
    if they have changed."""
    home = installation()
    source = b"".join(path.read_bytes() for path in sorted(HERE.glob("*.java")))
    compiled = home / f"driver-{hashlib.sha256(source).hexdigest()[:16]}"
    if not compiled.is_dir():
        for old in home.glob("driver-*"):
            shutil.rmtree(old)
        provide(compiled, lambda target: _compile(home / "jars", target))
    return compiled


@cache
def class_path(home: Path) -> str:
    """Returns all jars: slf4j-simple first, because the first of several bindings is used, and the
    others in the order of their names, because the class data archive is for this order."""
    jars = sorted((home / "jars").glob("*.jar"))
    jars.sort(key=lambda jar: not jar.name.startswith("slf4j-simple-"))
    return ":".join(map(str, jars))


@cache
def class_data(home: Path) -> Path:
    """Returns where the class data archive of this version and this machine's Java is, if it
    exists (see tests.broker.set_up)."""
    java = Path(shutil.which("java") or "java").resolve()
    stat = java.stat()
    key = f"{java} {stat.st_size} {stat.st_mtime_ns} {class_path(home)}"
    return home / f"classes-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def java(home: Path, *arguments: str, heap: str = "256m", log_level: str = "warn") -> list[str]:
    """Returns the command that runs a class of Kafka's, or of ours. The process is killed when its
    parent exits."""
    archive = class_data(home)
    return [
        *("setpriv", "--pdeathsig", "KILL"),
        *("java", f"-Xmx{heap}", *JVM),
        *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []),
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        # An archive covers jars only, and these must come first.
        *("-cp", f"{class_path(home)}:{programs()}", *arguments),
    ]


class Tools:
    """A JVM that runs Kafka's command-line tools one after another (see Tools.java). Another one
    replaces it after a tool that leaves a client running."""

    def __init__(self, home: Path) -> None:
        self._lock = threading.Lock()
        self._home = home
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            java(self._home, "Tools"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, name: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Runs the main method of class `name`."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().rstrip("\n").split(" ")
            if len(answer) != 4:
                raise KafkaError(f"{name}: the JVM exited with {self._process.wait()}")
            status, out, err, then = answer
            if then == "last":
                self._process.communicate()
                self._process = self._start()
        found = (base64.b64decode(text) for text in (out, err))
        return subprocess.CompletedProcess([name, *arguments], int(status), *found)

    def close(self) -> None:
        """Ends the JVM."""
        self._process.communicate()


def dump_tool(version: str) -> str:
    """Returns the class of the tool that prints the files of a log."""
    package = "org.apache.kafka.tools" if version == VERSION else "kafka.tools"
    return f"{package}.DumpLogSegments"


@cache
def tools(home: Path) -> Tools:
    """Returns the JVM for the tools of an installation; one runs until this process exits."""
    return Tools(home)


def provide(target: Path, make: Callable[[Path], None]) -> None:
    """Creates the directory `target` atomically, with `make`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        make(made)
        made.rename(target)


def _download(version: str, target: Path) -> None:
    arguments = [f"-Dkafka.version={version}"]
    if version == OLDEST:  # its tools are in the same jar as its broker
        arguments.append("-Dwithout.tools")
    what = "fetching the jars of Kafka with Maven"
    copy_dependencies(HERE / "pom.xml", target, what, *arguments)


def copy_dependencies(pom: Path, target: Path, what: str, *arguments: str) -> None:
    """Copies the jars that a pom names, with their dependencies, into `target`. Raises
    KafkaError."""
    maven = ["mvn", "-B", "-q", "-f", str(pom), *arguments]
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    options = f"{os.environ.get('MAVEN_OPTS', '')} {' '.join(MAVEN_JVM)}"
    _run([*maven, *goal], what, MAVEN_OPTS=options)


def _compile(jars: Path, target: Path) -> None:
    sources = map(str, HERE.glob("*.java"))
    _run(["javac", "-cp", f"{jars}/*", "-d", str(target), *sources], "compiling tests/broker")


def _run(command: list[str], what: str, **variables: str) -> None:
    env = {**os.environ, **variables}
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    except FileNotFoundError as error:
        raise KafkaError(f"{what}: {command[0]} is not installed; run tests/setup.sh") from error
    if done.returncode:
        raise KafkaError(f"{what} failed: {(done.stdout + done.stderr)[-4000:]}")
