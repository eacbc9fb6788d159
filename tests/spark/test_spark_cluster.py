"""The format on a standalone cluster: records as Kafka gave them, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkafs.storage.format.builder import BatchFields, SimpleRecord, build_batch
from tests import answers
from tests.conftest import fingerprint
from tests.logs import TopicSettings, write_log_dir, write_partition
from tests.readme import ROOT
from tests.spark.cluster import Cluster, Driver, has_open, parent, wait_until
from tests.spark.told import told_by_kafka

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]

PROGRAM = Path(__file__).with_name("cluster_driver.py")
#: kafkafs is installed on the workers: where they look for packages, it is.
INSTALLED = ("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}")
MICROSECONDS = [
    *("key", "value", "topic", "partition", "offset"),
    *("unix_micros(timestamp) AS timestamp", "timestampType", "headers"),
]
CHECKSUMS = ["partition", "offset", "crc32(value) AS checksum"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers."""
    made = Cluster(tmp_path_factory.mktemp("standalone") / "cluster")
    try:
        made.start()
        yield made
    finally:
        made.close()


@dataclass(frozen=True)
class Read:
    """A read for `cluster_driver.py`."""

    path: Path
    target: Path
    columns: list[str]
    hold: Path | None = None
    options: dict[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        told = {"path": str(self.path), "target": str(self.target), "columns": self.columns}
        held = {} if self.hold is None else {"hold": str(self.hold)}
        return {**told, **held, "options": self.options or {}}

    def rows(self) -> list[dict[str, Any]]:
        with pa.memory_map(str(self.target)) as file:
            found: list[dict[str, Any]] = pa.ipc.open_file(file).read_all().to_pylist()
        return found


def submit(
    cluster: Cluster, reads: list[Read], options: tuple[str, ...], **environment: str
) -> Driver:
    work = reads[0].target.with_suffix(".json")
    work.write_text(json.dumps([read.as_json() for read in reads]))
    return cluster.submit(PROGRAM, str(work), options=options, environment=environment)


# -- kills ----------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Two partitions of 20 MB: more than is on the way between a task's processes."""
    directory = tmp_path / "large"
    for partition in range(2):
        batches = []
        for base in range(0, 20_000, 50):
            values = [f"{partition}-{base + i}".encode().ljust(1000, b".") for i in range(50)]
            made = [SimpleRecord(1_000_000 + base, None, value, []) for value in values]
            batches.append(build_batch(made, BatchFields(base_offset=base)))
        write_partition(directory / f"t-{partition}", batches, TopicSettings(segment_bytes=6 << 20))
    write_log_dir(directory, {("t", partition): 20_000 for partition in range(2)})
    return directory


def checksums() -> list[dict[str, int]]:
    """What is to be seen of `large`."""
    return [
        {
            "partition": partition,
            "offset": offset,
            "checksum": zlib.crc32(f"{partition}-{offset}".encode().ljust(1000, b".")),
        }
        for partition in range(2)
        for offset in range(20_000)
    ]


@dataclass(frozen=True)
class Held:
    """An attempt at a task that has read something and stands still."""

    file: Path

    @property
    def daemon(self) -> int:
        """The Python process that forks those that read, and hold, in this executor."""
        return int(json.loads(self.file.read_text())["daemon"])

    @property
    def executor(self) -> int:
        return parent(self.daemon)

    def readers(self) -> list[int]:
        """The Python processes that have a segment open."""
        processes = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return [pid for pid in processes if parent(pid) == self.daemon and has_open(pid, ".log")]


def held(directory: Path, *names: str) -> list[Held]:
    """The attempts `TASK.ATTEMPT`, once they stand still."""
    files = [directory / name for name in names]
    wait_until(lambda: all(file.exists() for file in files), f"not all of {names} in {directory}")
    return [Held(file) for file in files]


def test_processes_that_are_killed_while_they_read(
    cluster: Cluster, large: Path, tmp_path: Path
) -> None:
    """A Python worker, an executor: their tasks are done once more. Then the driver: nothing is
    left of it, neither a process nor a change in the directory."""
    before = fingerprint(large)
    first, second = (
        Read(large, tmp_path / f"{name}.arrow", CHECKSUMS, tmp_path / name)
        for name in ("first", "second")
    )
    for read in (first, second):
        assert read.hold
        read.hold.mkdir()
    assert first.hold
    assert second.hold
    driver = submit(cluster, [first, second], INSTALLED)

    one, other = held(first.hold, "0.0", "1.0")
    assert one.executor != other.executor
    for attempt in (one, other):
        assert attempt.readers()
    os.kill(one.readers()[0], signal.SIGKILL)
    os.kill(other.executor, signal.SIGKILL)
    (first.hold / "go").touch()
    held(first.hold, "0.1", "1.1")
    wait_until(first.target.exists, "the read did not end")

    one, other = held(second.hold, "0.0", "1.0")
    assert first.rows() == checksums()
    assert driver.is_running
    driver.kill()
    wait_until(lambda: not cluster.executors(), "executors outlive their driver")
    assert not second.target.exists()
    assert fingerprint(large) == before


# -- shipping -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has everything that kafkafs needs, but not kafkafs."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    python = str(home / "bin" / "python")
    for module, status in (("pyarrow", 0), ("kafkafs", 1)):
        done = subprocess.run(
            [python, "-P", "-c", f"import {module}"], check=False, capture_output=True, cwd="/"
        )
        assert done.returncode == status, (module, done.stderr)
    return python


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install --target` leaves of kafkafs itself, packed."""
    target = tmp_path_factory.mktemp("archive") / "kafkafs-packages.tar.gz"
    pack = ["tar", "--dereference", "--exclude=__pycache__", "-czf"]
    subprocess.run([*pack, target, "-C", ROOT, "kafkafs"], check=True)
    return target


def test_every_record_as_kafka_gave_it(
    cluster: Cluster, corpus: Corpus, bare_python: str, archive: Path, tmp_path: Path
) -> None:
    """The package goes to the workers in an archive, as the README says."""
    levels = (answers.READ_COMMITTED, answers.READ_UNCOMMITTED)
    reads = [
        Read(
            corpus("kafka43-clean"),
            tmp_path / f"{level}.arrow",
            MICROSECONDS,
            options={
                "includeHeaders": "true",
                "kafka.isolation.level": level,
                "maxBytesPerPartition": "1000000",
            },
        )
        for level in levels
    ]
    shipped = (
        *("--archives", f"{archive}#kafkafs-packages"),
        *("--conf", "spark.executorEnv.PYTHONPATH=kafkafs-packages"),
    )
    submit(cluster, reads, shipped, PYSPARK_PYTHON=bare_python).finish()
    for level, read in zip(levels, reads, strict=True):
        assert read.rows() == list(told_by_kafka("kafka43-clean", level))
