"""Tests that jobs with wrong arguments leave log directories unchanged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafkafs.spark import jobs
from kafkafs.spark.write.writing import Target, TaskWriter
from kafkafs.storage.errors import StorageError, Unregistered
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.io.lock import LOCK_FILE
from tests.conftest import fingerprint
from tests.spark.in_process import NO_SESSION, in_process

__all__ = ["in_process"]

pytestmark = pytest.mark.usefixtures("in_process")

#: Topics and partitions that do not exist, for each job.
WRONG: list[tuple[str, list[tuple[str, int | None]]]] = [
    (job, [choice])
    for job in ("verify", "stats", "compact", "reindex", "export", "salvage", "merge", "import_")
    for choice in (("nowhere", None), ("nowhere", 0), ("__cluster_metadata", 0))
]


@pytest.fixture
def data(writable_corpus: Callable[[str], Path]) -> Path:
    """A directory after a crash, which opening for writing would change."""
    return writable_corpus("kafka43-crash")


def run(job: str, data: Path, place: Path, chosen: list[tuple[str, int | None]]) -> Any:
    session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    work: Any = getattr(jobs, job)
    given = {
        "export": [str(data), str(place / "out")],
        "salvage": [str(data), str(place / "out")],
        "merge": [str(data), str(data), str(place / "out")],
        "import_": [str(data), str(place / "exported")],
    }
    return work(session, *given.get(job, [str(data)]), chosen)


@pytest.mark.parametrize(("job", "chosen"), WRONG)
def test_a_job_for_what_is_not_there(
    data: Path, tmp_path: Path, job: str, chosen: list[tuple[str, int | None]]
) -> None:
    if job == "import_":
        jobs.export(NO_SESSION, str(data), str(tmp_path / "exported"), [("crash-plain", None)])
    before = fingerprint(tmp_path)
    with pytest.raises(StorageError):
        run(job, data, tmp_path, chosen)
    assert fingerprint(tmp_path) == before


def test_a_topic_that_is_not_compacted(data: Path, tmp_path: Path) -> None:
    before = fingerprint(tmp_path)
    report = run("compact", data, tmp_path, [("crash-plain", None)])
    assert report.exit_code == 1
    assert {row["what"] for row in report.wrong} == {'cleanup.policy does not include "compact"'}
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("name", ["kafka39", "kafka43-two-dirs/dir2"])
def test_an_import_that_a_broker_would_set_aside(
    writable_corpus: Callable[[str], Path], corpus: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    jobs.export(NO_SESSION, str(corpus("kafka28")), str(tmp_path / "exported"), [("v2", None)])
    data = writable_corpus(name.split("/")[0]).parent / name
    before = fingerprint(tmp_path)
    with pytest.raises(Unregistered):
        jobs.import_(NO_SESSION, str(data), str(tmp_path / "exported"))
    assert fingerprint(tmp_path) == before
    report = jobs.import_(NO_SESSION, str(data), str(tmp_path / "exported"), unregistered=True)
    assert report.rows
    assert (data / "v2-0").is_dir()
    assert not (data / LOCK_FILE).exists()


@pytest.mark.parametrize("name", ["kafka39", "kafka43-two-dirs/dir2"])
def test_nothing_is_staged_for_a_topic_that_a_broker_would_set_aside(
    writable_corpus: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    data = writable_corpus(name.split("/")[0]).parent / name
    before = fingerprint(tmp_path)
    rows = pa.RecordBatch.from_pydict({"value": [b"v"]})
    with pytest.raises(Unregistered):
        TaskWriter(target(data, unregistered=False), 0, "0").write([rows])
    assert fingerprint(tmp_path) == before
    (part,) = TaskWriter(target(data, unregistered=True), 0, "0").write([rows])
    assert part.topic == "made"


def target(data: Path, *, unregistered: bool) -> Target:
    return Target(
        log_dirs=(str(data),),
        configs={},
        staging_dir=None,
        job="a" * 32,
        topic="made",
        create_topics=2,
        unregistered=unregistered,
        plan=BatchPlan(),
        ignore_keys=False,
    )
