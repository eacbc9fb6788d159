"""Tests a compaction on YARN whose containers are killed, with KAFKAFS_SPARK=all. Reads and writes
are in test_spark_cluster.py."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests.readme import ROOT
from tests.spark.cluster import JOB_SECONDS
from tests.spark.yarn import Yarn
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("KAFKAFS_SPARK") != "all", reason="not KAFKAFS_SPARK=all"),
]


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    made = Yarn(tmp_path / "yarn")
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A partition of 220 MB, in which 7,919 keys or fewer repeat."""
    directory = tmp_path / "log"
    configs = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
    with LogManager([str(directory)]) as engine:
        engine.create_topic("t", 1, configs)
        writer = engine.writer("t", 0)
        for low in range(0, 200_000, 1000):
            numbers = range(low, low + 1000)
            made = [SimpleRecord(n, b"%d" % (n * n % 7919), b"%d" % n * 200, []) for n in numbers]
            writer.append_records(RecordColumns.from_records(made))
        writer.roll()
    return directory


def files(log_dir: Path) -> dict[str, bytes]:
    found = (
        path for ending in ("log", "index", "timeindex") for path in log_dir.glob(f"*/*.{ending}")
    )
    return {path.name: path.read_bytes() for path in found}


def kill_executor(yarn: Yarn, when: Callable[[], bool], killed: list[int]) -> None:
    """Kills an executor that was not killed before, as soon as `when()` is true."""

    def found() -> list[int]:
        return [pid for pid in yarn.executors() if pid not in killed] if when() else []

    killed += wait_until(found, "no executor to kill", JOB_SECONDS)[:1]
    os.kill(killed[-1], signal.SIGKILL)


def test_compaction_whose_containers_are_killed(yarn: Yarn, keyed: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone" / "log"
    shutil.copytree(keyed, alone)
    command = [sys.executable, "-m", "kafkafs", "compact", "--force", str(alone)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)

    words = ("spark", "compact", str(keyed), "--force", "--split-bytes", str(1 << 20))
    path = ("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}")
    driver = yarn.submit(ROOT / "kafkafs" / "__main__.py", *words, options=path)
    staged = tmp_path / ".log.kafkafs-compact"
    killed: list[int] = []
    kill_executor(yarn, lambda: any(staged.rglob("*")), killed)
    kill_executor(yarn, lambda: len(list(staged.rglob("*.keys"))) > 1, killed)
    driver.finish()
    assert len(set(killed)) == 2
    assert files(keyed) == files(alone)
    assert not staged.exists()
