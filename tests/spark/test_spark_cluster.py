"""Tests of the format on a standalone cluster: correct records whatever process is killed. With
KAFKAFS_SPARK=all, each runs on YARN, too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkafs
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests import answers
from tests.building import BatchFields, build_batch
from tests.conftest import fingerprint
from tests.logs import TopicSettings, write_log_dir, write_partition
from tests.readme import ROOT
from tests.spark.cluster import JOB_SECONDS, Cluster, Driver, Standalone, has_open, parent
from tests.spark.expected import COLUMNS, rows_of_kafka
from tests.spark.yarn import Yarn
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Corpus = Callable[[str], Path]

PROGRAM = Path(__file__).with_name("cluster_driver.py")
#: As if kafkafs were installed on the workers: it is on their path.
INSTALLED = ("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}")
CLUSTERS: list[type[Cluster]] = [Standalone]
if os.environ.get("KAFKAFS_SPARK") == "all":
    CLUSTERS.append(Yarn)
CHECKSUMS = ["partition", "offset", "crc32(value) AS checksum"]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A cluster of two workers."""
    made = request.param(tmp_path_factory.mktemp(request.param.__name__.lower()) / "cluster")
    try:
        made.start()
        yield made
    finally:
        made.close()


Job = dict[str, Any]


def read_job(path: Path, target: Path, columns: list[str], **options: str) -> Job:
    given = {"path": str(path), "target": str(target), "columns": columns}
    return {**given, "options": options}


def write_job(path: Path, below: int) -> Job:
    return {"path": str(path), "below": below, "options": {"topic": "t"}}


def copy_job(path: Path, exported: Path, imported: Path) -> Job:
    return {"path": str(path), "exported": str(exported), "imported": str(imported)}


def holding(job: Job, directory: Path, stop: int = 0) -> Job:
    directory.mkdir()
    return {**job, "hold": str(directory), "stop": stop}


def submit(
    cluster: Cluster, file: Path, jobs: list[Job], options: Sequence[str], **environment: str
) -> Driver:
    file.write_text(json.dumps(jobs))
    return cluster.submit(PROGRAM, str(file), options=options, environment=environment)


def rows(target: Path) -> list[dict[str, Any]]:
    with pa.memory_map(str(target)) as file:
        found: list[dict[str, Any]] = pa.ipc.open_file(file).read_all().to_pylist()
    return found


# -- kills ----------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Two partitions of 20 MB, more than the buffers between a task's processes hold."""
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
    """Returns the expected rows of `large`."""
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
    """A task attempt that is waiting. `daemon` is the Python process that forks its workers."""

    daemon: int

    @property
    def executor(self) -> int:
        return parent(self.daemon)

    def has_open(self, suffix: str) -> list[int]:
        """Returns its Python processes with an open file whose name ends with `suffix`."""
        processes = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return [pid for pid in processes if parent(pid) == self.daemon and has_open(pid, suffix)]


def held(directory: Path, *names: str) -> list[Held]:
    """Returns the attempts `TASK.ATTEMPT` once they all wait."""
    files = [directory / name for name in names]
    wait_until(
        lambda: all(file.exists() for file in files),
        f"not all of {names} in {directory}",
        JOB_SECONDS,
    )
    return [Held(int(file.read_text())) for file in files]


def kill_both(directory: Path, suffix: str) -> None:
    """Kills a Python process of one task and the executor of the other while both have such a file
    open; their second attempts continue."""
    one, other = held(directory, "0.0", "1.0")
    assert one.executor != other.executor
    for attempt in (one, other):
        wait_until(partial(attempt.has_open, suffix), f"no {suffix} is open", JOB_SECONDS)
    os.kill(one.has_open(suffix)[0], signal.SIGKILL)
    os.kill(other.executor, signal.SIGKILL)
    (directory / "go").touch()
    held(directory, "0.1", "1.1")


def kill_driver(cluster: Cluster, driver: Driver) -> None:
    """Kills the driver; its executors exit, too."""
    assert driver.is_running
    driver.kill()
    wait_until(lambda: not cluster.executors(), "executors outlive their driver", JOB_SECONDS)


NUMBERS = 6000  # 30 MB for each of two tasks, half of it staged when they wait
MIDDLE = 2500


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A log directory with an empty topic of two partitions."""
    directory = tmp_path / "log" / "dir"
    directory.mkdir(parents=True)
    with LogManager([str(directory)]) as engine:
        engine.create_topic("t", 2)
    return directory


def numbers_in(log_dir: Path, partition: int) -> list[int]:
    """Returns the numbers that a write has put into a partition, in order."""
    with kafkafs.open(str(log_dir)) as opened:
        values = opened["t", partition].scan(columns=["value"]).read_all()["value"]
    return [int(value.as_py().rstrip(b".")) for value in values]


def test_processes_that_are_killed(
    cluster: Cluster, large: Path, written: Path, tmp_path: Path
) -> None:
    """Their tasks are retried: every record is read once, and every record is written once. A
    driver that is killed while it writes leaves nothing in the log directory."""
    reading, first, second = (tmp_path / name for name in ("reading", "first", "second"))
    target = tmp_path / "target"
    job = write_job(written, NUMBERS)
    jobs = [
        holding(read_job(large, target, CHECKSUMS), reading),
        holding(job, first, MIDDLE),
        holding(job, second, MIDDLE),
    ]
    driver = submit(cluster, tmp_path / "jobs", jobs, INSTALLED)
    kill_both(reading, ".log")
    kill_both(first, ".log.cleaned")
    held(second, "0.0", "1.0")
    assert rows(target) == checksums()
    halves = [list(range(partition, NUMBERS, 2)) for partition in range(2)]
    assert [numbers_in(written, partition) for partition in range(2)] == halves

    before = fingerprint(written)
    staged = f"{written.parent}/**/*.log.cleaned"
    wait_until(
        lambda: len(glob(staged, recursive=True, include_hidden=True)) == 4,
        "nothing staged",
        JOB_SECONDS,
    )
    kill_driver(cluster, driver)
    assert fingerprint(written) == before


SPECULATING = (
    *("--conf", "spark.speculation=true", "--conf", "spark.speculation.interval=100ms"),
    *("--conf", "spark.speculation.quantile=0.5", "--conf", "spark.speculation.multiplier=1"),
    *("--conf", "spark.speculation.minTaskRuntime=0ms"),
)


def test_a_second_attempt_beside_one_that_stands_still(
    cluster: Cluster, large: Path, written: Path, tmp_path: Path
) -> None:
    """The attempt that finishes is committed, and nothing is left of the other. The driver is
    killed while it reads, and leaves neither processes nor changes in the directory."""
    before = fingerprint(large)
    jobs = [
        holding(write_job(written, NUMBERS), tmp_path / "held", MIDDLE),
        holding(read_job(large, tmp_path / "never", CHECKSUMS), tmp_path / "reading"),
    ]
    for name in ("go.0.0", "go.1.1"):
        (tmp_path / "held" / name).touch()
    driver = submit(cluster, tmp_path / "jobs", jobs, INSTALLED + SPECULATING)
    held(tmp_path / "reading", "0.0", "1.0")
    assert (tmp_path / "held" / "1.0").exists()
    for partition in range(2):
        assert numbers_in(written, partition) == list(range(partition, NUMBERS, 2))
    verify = [sys.executable, "-m", "kafkafs", "verify", str(written)]
    assert subprocess.run(verify, check=False, cwd=ROOT).returncode == 0
    assert [path.name for path in written.parent.iterdir()] == [written.name]
    kill_driver(cluster, driver)
    assert not (tmp_path / "never").exists()
    assert fingerprint(large) == before


# -- jobs -----------------------------------------------------------------------------------------


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A partition of 48 MB, which is cut into pieces, and one that is not cut."""
    directory = tmp_path / "keyed" / "log"
    directory.mkdir(parents=True)
    settings = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
    with LogManager([str(directory)]) as engine:
        engine.create_topic("t", 2, settings)
        for partition, count in ((0, 48_000), (1, 1000)):
            for low in range(0, count, 1000):
                made = [
                    SimpleRecord(1_000_000 + n, b"%d" % (n * n % 7919), b"%d" % n * 200, [])
                    for n in range(low, low + 1000)
                ]
                engine.writer("t", partition).append_records(RecordColumns.from_records(made))
            engine.writer("t", partition).roll()
    return directory


def do_job(cluster: Cluster, *arguments: object) -> list[dict[str, Any]]:
    """Runs a job as in the README; returns its report."""
    words = ["spark", *map(str, arguments), "--json"]
    printed = cluster.submit(ROOT / "kafkafs" / "__main__.py", *words, options=INSTALLED).finish()
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def logs(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.glob("t-*/*"))
        if path.suffix in (".log", ".index", ".timeindex")
    }


def records_in(directory: Path) -> list[dict[str, Any]]:
    with kafkafs.open(str(directory)) as opened:
        return [row for each in opened for row in each.scan().read_all().to_pylist()]


def test_a_job(cluster: Cluster, keyed: Path, tmp_path: Path) -> None:
    """Compaction produces the same bytes as the cleaner."""
    alone = tmp_path / "alone" / "log"
    shutil.copytree(keyed, alone)
    compact = [sys.executable, "-m", "kafkafs", "compact", "--force", str(alone)]
    subprocess.run(compact, check=True, capture_output=True, cwd=ROOT)
    report = do_job(cluster, "compact", keyed, "--force", "--split-bytes", 1 << 20)
    assert {row["partition"]: row["tasks"] > 2 for row in report} == {0: True, 1: False}
    assert logs(keyed) == logs(alone)
    assert len(records_in(keyed)) < 5000


# -- shipping -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with all dependencies of kafkafs, but without kafkafs."""
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
    """An archive of kafkafs as `pip install --target` installs it, without dependencies."""
    target = tmp_path_factory.mktemp("archive") / "kafkafs-packages.tar.gz"
    pack = ["tar", "--dereference", "--exclude=__pycache__", "-czf"]
    subprocess.run([*pack, target, "-C", ROOT, "kafkafs"], check=True)
    return target


def test_every_record_as_kafka_gave_it(
    cluster: Cluster,
    corpus: Corpus,
    written: Path,
    bare_python: str,
    archive: Path,
    tmp_path: Path,
) -> None:
    """The workers get the package in an archive, as the README describes. What is written can be
    exported and imported."""
    levels = (answers.READ_COMMITTED, answers.READ_UNCOMMITTED)
    reading = {"includeHeaders": "true", "maxBytesPerPartition": "1000000"}
    jobs = [
        read_job(
            corpus("kafka43-clean"),
            tmp_path / level,
            COLUMNS,
            **reading,
            **{"kafka.isolation.level": level},
        )
        for level in levels
    ]
    imported = tmp_path / "imported"
    jobs += [write_job(written, 100), copy_job(written, tmp_path / "exported", imported)]
    options, environment = cluster.shipping(archive, bare_python)
    submit(cluster, tmp_path / "jobs", jobs, options, **environment).finish()
    for level in levels:
        assert rows(tmp_path / level) == list(rows_of_kafka("kafka43-clean", level))
    assert len(records_in(written)) == 100
    assert records_in(imported) == records_in(written)
