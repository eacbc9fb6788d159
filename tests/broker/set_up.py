"""Prepares a test run: downloads Kafka's jars, compiles our programs, and archives class data.

    python -m tests.broker.set_up

With the archive, a JVM maps the classes that Kafka loads instead of parsing and verifying them: a
broker's start takes 0.95 s of CPU time instead of 1.85, a client's 0.6 instead of 1.0. Making it
takes 12 s, so only the version that most tests use has one. Java ignores an archive that does not
fit its version or the jars; a Java that cannot make one does without.

It needs Python alone, so that tests/setup.sh can run it beside the installation of packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.broker.driver import Driver, Message
from tests.broker.jvm import (
    OLDER,
    OLDEST,
    VERSION,
    class_data,
    class_path,
    dump_tool,
    installation,
    programs,
    tools,
)
from tests.broker.kafka import Broker

#: Classes are numbered within one process.
NUMBER = re.compile(r" id: \d+")


def archive_class_data(home: Path) -> None:
    """Makes the archive if it does not exist: atomically, so that two processes may do so at
    once."""
    archive = class_data(home)
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        directory = Path(scratch)
        names, made = directory / "names", directory / "made.jsa"
        names.write_text("".join(f"{line}\n" for line in loaded_classes(directory)))
        options = ["-Xshare:dump", "-XX:+UseSerialGC", "-Xlog:disable"]
        files = [f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={made}"]
        subprocess.run(["java", *options, *files, "-cp", class_path(home)], check=False)
        if made.exists():
            for old in home.glob("classes-*.jsa"):
                old.unlink(missing_ok=True)
            made.rename(archive)


def loaded_classes(directory: Path) -> list[str]:
    """Returns the lines about the classes that a broker, its clients and the tools load."""
    option = f"-XX:DumpLoadedClassList={directory}/%p.classes"
    os.environ["JAVA_TOOL_OPTIONS"] = option
    try:
        use_everything(directory)
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
    lines = [line for path in directory.glob("*.classes") for line in path.read_text().splitlines()]
    # Classes with a source were not loaded from the class path.
    kept = (line for line in lines if not line.startswith("#") and " source: " not in line)
    return list(dict.fromkeys(NUMBER.sub("", line) for line in kept))


def use_everything(directory: Path) -> None:
    """Starts a broker, has its client write and read, and dumps the log."""
    broker = Broker(directory / "broker")
    broker.start()
    driver = Driver(broker.bootstrap, directory / "driver.log")
    driver.create_topic("t")
    sent = [Message(b"k", b"v", 0, (("name", b"value"),))]
    driver.produce("t", sent)
    driver.call("begin", producer="x", transactional=True)
    driver.produce("t", sent, producer="x")
    driver.call("commit", producer="x")
    driver.records("t")
    driver.offsets("t")
    driver.close()
    broker.stop()
    logs = ",".join(map(str, sorted((broker.log_dir / "t-0").glob("*.log"))))
    dumping = tools(installation())
    dumping.run(dump_tool(VERSION), ["--print-data-log", "--files", logs])
    dumping.close()


if __name__ == "__main__":
    for version in (VERSION, OLDER, OLDEST):
        print(installation(version))
    print(programs())
    archive_class_data(installation())
