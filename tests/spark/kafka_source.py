"""Provides the jars of Spark's own Kafka source, downloaded once, for comparing it with ours.

`python -m tests.spark.kafka_source` downloads them ahead of a test run.
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.jvm import cache_dir, copy_dependencies, provide

#: The newest published version. It runs in the PySpark of the tests, where streams of 4.0.0 fail.
VERSION = "4.2.0"


def jars() -> str:
    """Returns the value for `spark.jars`; downloads missing jars."""
    home = cache_dir() / f"spark-kafka-{VERSION}"
    if not home.is_dir():
        provide(home, _download)
    return ",".join(map(str, sorted(home.glob("*.jar"))))


def _download(target: Path) -> None:
    pom = Path(__file__).with_name("pom.xml")
    what = "fetching the jars of Spark's Kafka source with Maven"
    copy_dependencies(pom, target, what, f"-Dsource.version={VERSION}")


if __name__ == "__main__":
    print(jars())
