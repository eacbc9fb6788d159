"""Prepares a test run: archives the classes that Spark loads.

    python -m tests.spark.class_data

With the archive, a JVM maps these classes instead of parsing and verifying them: a session that
reads and writes a table takes 4.3 s of CPU time instead of 7.6. Making it takes 23 s. Java ignores
an archive that does not fit its version or the jars; a Java that cannot make one does without.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
#: Options for a fast JVM start, which matters more here than peak performance. Without its log a
#: JVM says nothing about an archive that it ignores.
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable"


@cache
def spark_home() -> Path:
    """Returns the directory of PySpark, without importing it."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@cache
def archive() -> Path:
    """Returns where the archive for this machine's Java and these jars is, if it exists. Java
    compares the paths, sizes and times of the jars."""
    java = Path(shutil.which("java") or "java").resolve()
    files = [java, *sorted((spark_home() / "jars").glob("*.jar"))]
    stats = [(path, path.stat()) for path in files if path.exists()]
    key = "".join(f"{path} {stat.st_size} {stat.st_mtime_ns}\n" for path, stat in stats)
    return BUILD / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def options() -> str:
    """Returns the options of the JVMs that run Spark, whose scripts split them at spaces."""
    is_usable = archive().exists() and " " not in str(archive())
    return f"{FAST_START} -XX:SharedArchiveFile={archive()}" if is_usable else FAST_START


def make() -> None:
    """Makes the archive if it does not exist: atomically, so that two processes may do so at
    once."""
    if archive().exists():
        return
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        made = Path(scratch) / "made.jsa"
        variables = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(spark_home() / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"{FAST_START} -XX:ArchiveClassesAtExit={made}",
        }
        command = [sys.executable, "-m", "tests.spark.class_data", scratch]
        environment = {**os.environ, **variables}
        subprocess.run(command, check=False, capture_output=True, cwd=ROOT, env=environment)
        if made.exists():
            for old in BUILD.glob("spark-*.jsa"):
                old.unlink(missing_ok=True)
            made.rename(archive())


def use_spark(scratch: Path) -> None:
    """Reads a log directory and writes another one in a session, which ends in good order."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import kafkafs.spark
    from examples.textbook import write_textbook
    from kafkafs.storage.log_manager import LogManager

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.local.dir", str(scratch / "local"))
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    kafkafs.spark.register(spark)
    write_textbook(scratch / "read")
    frame = spark.read.format("kafkafs").load(str(scratch / "read"))
    frame.write.parquet(str(scratch / "table"))
    with LogManager(str(scratch / "written")) as engine:
        engine.create_topic("t", 2)
    rows = spark.read.parquet(str(scratch / "table")).select("value").write.format("kafkafs")
    rows.option("topic", "t").mode("append").save(str(scratch / "written"))
    frame.groupBy("topic").count().toArrow()
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its standard input
    gateway.proc.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        use_spark(Path(sys.argv[1]))
    else:
        make()
