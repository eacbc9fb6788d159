"""Spark's own Kafka source: its jars, fetched once, for the session that compares it with ours.

`python -m tests.spark.kafka_source` fetches them ahead of a test run.
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.kafka import cache, copy_dependencies, provide

#: The newest that is published; it runs in the PySpark of the tests (4.0.0 is no longer able to do
#: streams there).
VERSION = "4.2.0"


def jars() -> str:
    """What `spark.jars` is to be, fetched if it is not there."""
    home = cache() / f"spark-kafka-{VERSION}"
    if not home.is_dir():
        provide(home, _download)
    return ",".join(map(str, sorted(home.glob("*.jar"))))


def _download(target: Path) -> None:
    pom = Path(__file__).with_name("pom.xml")
    what = "fetching the jars of Spark's Kafka source with Maven"
    copy_dependencies(pom, target, what, f"-Dsource.version={VERSION}")


if __name__ == "__main__":
    print(jars())
