"""Makes the corpus `streams43`: streams groups (KIP-1071) of real applications, and its answers.

    python -m tests.broker.make_streams43 DIRECTORY

writes `streams43.tar.gz` and `streams43/groups.json` (the answers) into a new DIRECTORY; it takes
about half a minute. The applications are in streams/Streams.java; the jar of Kafka Streams is
downloaded for each run. They run on a broker on the loopback interface, which stops cleanly while
their members are still in their groups.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.broker.jvm import HERE, VERSION, KafkaError, class_path, installation
from tests.broker.kafka import Broker
from tests.broker.make_cluster43 import pack, write_json

NAME = "streams43"
PROPERTIES = {
    "log.index.size.max.bytes": "65536",
    "offsets.topic.segment.bytes": "1048576",
    # Not to be exceeded between the last answers and the broker's stop.
    "group.streams.session.timeout.ms": "60000",
}


def make(directory: Path) -> None:
    """Makes the corpus in a new directory. Raises KafkaError."""
    directory.mkdir(parents=True)
    work, answers = directory / "work", directory / NAME / "groups.json"
    answers.parent.mkdir()
    jars = f"{download(directory / 'jars')}/*:{class_path(installation())}"
    broker = Broker(work, PROPERTIES, [work / NAME])
    broker.start()
    try:
        program = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", jars]
        program += [str(HERE / "streams" / "Streams.java"), broker.bootstrap, str(answers)]
        with (directory / "streams.log").open("wb") as log:
            done = subprocess.run([*program, str(work / "state")], check=False, stderr=log)
        if done.returncode:
            raise KafkaError(f"the applications failed; see {log.name}")
        broker.stop()
    finally:
        broker.close()
    write_json(answers, json.loads(answers.read_text()))
    pack(directory, NAME)


def download(directory: Path) -> Path:
    """Downloads Kafka Streams, whose dependencies are those of the broker; RocksDB is not needed,
    because no store is persistent. Returns `directory`."""
    artifact = f"org.apache.kafka:kafka-streams:{VERSION}"
    maven = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}"]
    subprocess.run([*maven, f"-DoutputDirectory={directory}"], check=True)
    return directory


if __name__ == "__main__":
    make(Path(sys.argv[1]))
