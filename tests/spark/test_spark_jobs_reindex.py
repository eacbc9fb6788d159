"""Tests of reindexing: it writes the same indexes as recovery and changes nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.storage.errors import LogDirLocked
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.io.lock import DirectoryLock
from kafkafs.storage.log.load.recovery_actions import WriteFile
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.recover import plan_for
from tests.conftest import fingerprint
from tests.logs import walk

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]
INDEXES = (".index", ".timeindex", ".txnindex")


def indexes(root: Path) -> dict[str, bytes]:
    found = (path for path in root.glob("*-[0-9]/*") if path.suffix in INDEXES)
    every = {str(path.relative_to(root)): path.read_bytes() for path in found}
    return {name: data for name, data in every.items() if not name.startswith("__cluster")}


def as_recovered(root: Path) -> dict[str, bytes]:
    """Returns the indexes that recovery of all partitions writes."""
    engine = Engine(str(root))
    found = {}
    for topic, numbers in engine.topics().items():
        for number in numbers if topic != "__cluster_metadata" else ():
            for action in plan_for(engine, topic, number, is_clean=False).actions:
                if isinstance(action, WriteFile) and Path(action.name).suffix in INDEXES:
                    found[f"{topic}-{number}/{action.name}"] = action.data
    return found


@pytest.mark.parametrize("damage", ["lost", "random"])
def test_they_are_those_of_recovery(
    spark: SparkSession, writable_corpus: Corpus, tmp_path: Path, damage: str
) -> None:
    root = writable_corpus("kafka43-clean")
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for path in root.glob("*-[0-9]/*"):
        if path.suffix in INDEXES:
            if damage == "random":
                path.write_bytes(b"\xa5" * 1234)
            else:
                path.unlink()
    subprocess.run(["cp", "-a", root, tmp_path / "copy"], check=True)
    # Otherwise the recovery points would say that everything is flushed.
    (tmp_path / "copy" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    expected = as_recovered(tmp_path / "copy")
    others = {name: stat for name, stat in fingerprint(root).items() if "index" not in name}
    report = jobs.reindex(spark, str(root))
    assert (report.exit_code, report.wrong) == (0, [])
    assert indexes(root) == expected
    assert report.totals["written"] == len(expected)
    after = {name: stat for name, stat in fingerprint(root).items() if "index" not in name}
    directories = {name for name in after if (root / name).is_dir()} | {"."}
    assert {n: s for n, s in after.items() if n not in directories} == {
        n: s for n, s in others.items() if n not in directories
    }
    again = jobs.reindex(spark, str(root))
    assert (again.totals["written"], again.exit_code) == (0, 0)


def test_a_damaged_segment_keeps_its_own(spark: SparkSession, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-clean")
    log = sorted(root.glob("txn-0/*.log"))[0]
    data = bytearray(log.read_bytes())
    header = list(walk(bytes(data)))[1]
    data[header.position + 80 if header.size > 80 else header.position + 70] ^= 1
    log.write_bytes(data)
    for path in root.glob("txn-0/*index"):
        path.write_bytes(b"\xa5" * 24)
    report = jobs.reindex(spark, str(root), [("txn", None)])
    (wrong,) = report.wrong
    assert report.exit_code == 1
    assert (wrong["file"], wrong["position"]) == (str(log), header.position)
    assert log.with_suffix(".index").read_bytes() == b"\xa5" * 24


def test_a_held_directory_is_refused(spark: SparkSession, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-torn")
    with DirectoryLock(WritableDirFd(str(root))), pytest.raises(LogDirLocked):
        jobs.reindex(spark, str(root))
    before = fingerprint(root)
    assert not (root / ".lock").exists()
    assert before == fingerprint(root)
