"""Tests that importing an export restores topics, partitions, offsets, configs and records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.spark import jobs
from kafkafs.spark.read.planning import UNASKED_TOPICS
from kafkafs.storage.errors import (
    CorruptError,
    InvalidRecord,
    LogDirError,
    OtherJob,
    Refused,
    TopicExists,
)
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.transfer.request import FORMATS
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import write_log_dir, write_partition
from tests.profiles import percent
from tests.spark.in_process import NO_SESSION, in_process
from tests.spark.test_spark_jobs_import import records
from tests.spark.test_spark_jobs_salvage import findings

__all__ = ["in_process"]

pytestmark = pytest.mark.usefixtures("in_process")

Corpus = Callable[[str], Path]
Key = tuple[str, int]

CORPORA = sorted(path.name.split(".")[0] for path in (answers.DATA / "corpora").glob("*.tar.gz"))
#: Corpora with a lost sector: an export skips damage.
TORN = ("kafka43-torn", "kafka43-torn-recovered")
#: Corpora that are also exported with open and aborted transactions: one of each kind.
UNCOMMITTED = ("compact-before", "kafka28", "kafka43-clean", "kafka43-torn", "kafka43-two-dirs")
EXPORTS = [(name, Isolation.READ_COMMITTED) for name in CORPORA]
EXPORTS += [(name, Isolation.READ_UNCOMMITTED) for name in UNCOMMITTED]


def log_dirs(root: Path) -> str:
    several = sorted(root.glob("dir*"))
    return ",".join(map(str, several)) if several else str(root)


def bounds(where: str, isolation: Isolation = Isolation.READ_COMMITTED) -> dict[Key, Any]:
    """Returns log start and end offsets of each partition that an export contains."""
    engine = Engine(where)
    views = {
        (topic, number): engine.log(topic, number).view()
        for topic, numbers in engine.topics().items()
        for number in (numbers if topic not in UNASKED_TOPICS else ())
    }
    return {key: (view.start_offset, view.bound(isolation)) for key, view in views.items()}


def configs(where: str) -> dict[str, Any]:
    engine = Engine(where)
    topics = (topic for topic in engine.topics() if topic not in UNASKED_TOPICS)
    return {topic: engine.topic_config(topic).config for topic in topics}


@pytest.mark.parametrize(("name", "isolation"), EXPORTS)
def test_every_corpus_comes_back(
    corpus: Corpus, tmp_path: Path, name: str, isolation: Isolation
) -> None:
    source, target = log_dirs(corpus(name)), str(tmp_path / "in")
    format: Any = FORMATS[CORPORA.index(name) % len(FORMATS)]
    jobs.export(
        NO_SESSION,
        source,
        str(tmp_path / "out"),
        format=format,
        isolation=isolation.value,
        permissive=name in TORN,
    )
    report = jobs.import_(NO_SESSION, target, str(tmp_path / "out"))
    assert bounds(target, isolation) == bounds(source, isolation)
    assert configs(target) == configs(source)
    expected = records(source, isolation)
    assert records(target, isolation) == expected
    assert report.totals["records"] == sum(map(len, expected.values()))
    assert findings(tmp_path / "in") == []


# -- logs of any shape -----------------------------------------------------------------------------


@st.composite
def partitions(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    """Draws a log start offset, and batches as (gap before, records, gap after)."""
    start = draw(st.integers(0, 5000) | st.sampled_from([2218, 1 << 31, 1 << 40]))
    gaps = st.integers(0, 3) | st.sampled_from([0, 300, (1 << 31) - 100])
    batches = st.tuples(gaps, st.integers(0, 50), st.integers(0, 3))
    return start, draw(st.lists(batches, max_size=6))


def write(directory: Path, start: int, batches: list[tuple[int, int, int]]) -> int:
    """Writes the partition; returns its end offset."""
    made, offset = [], start
    for gap, count, behind in batches:
        values = [SimpleRecord(1000 + n, b"k%d" % n, b"v") for n in range(count)]
        last = offset + gap + count + behind
        shifted = BatchFields(base_offset=offset + gap, last_offset=last)
        made.append(build_batch(values, shifted))
        offset = last + 1
    write_partition(directory, made, base_offset=start)
    return offset


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=percent(30))
@given(
    logs=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 4)), partitions(), min_size=1, max_size=4
    )
)
def test_logs_of_any_shape_come_back(
    tmp_path: Path, logs: dict[Key, tuple[int, list[tuple[int, int, int]]]]
) -> None:
    shutil.rmtree(tmp_path)
    root = tmp_path / "a"
    ends = {key: write(root / f"{key[0]}-{key[1]}", *log) for key, log in logs.items()}
    write_log_dir(root, ends, start_offsets={key: start for key, (start, _) in logs.items()})
    jobs.export(NO_SESSION, str(root), str(tmp_path / "out"))
    jobs.import_(NO_SESSION, str(tmp_path / "in"), str(tmp_path / "out"))
    expected = {key: (start, ends[key]) for key, (start, _) in logs.items()}
    assert bounds(str(tmp_path / "in")) == expected
    assert records(tmp_path / "in") == records(root)
    assert findings(tmp_path / "in") == []


def test_settings_and_empty_topics_come_back(tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "a")) as engine:
        engine.create_topic("kept", 2, {"retention.ms": "-1", "cleanup.policy": "compact"})
        engine.create_topic("plain", [3, 5])
    jobs.export(NO_SESSION, str(tmp_path / "a"), str(tmp_path / "out"))
    report = jobs.import_(NO_SESSION, str(tmp_path / "in"), str(tmp_path / "out"))
    assert [(row["topic"], row["partition"], row["endOffset"]) for row in report.rows] == [
        ("kept", 0, 0),
        ("kept", 1, 0),
        ("plain", 3, 0),
        ("plain", 5, 0),
    ]
    there = Engine(str(tmp_path / "in"))
    assert there.topics() == {"kept": [0, 1], "plain": [3, 5]}
    changed = {"retention.ms": "-1", "cleanup.policy": "compact"}
    assert there.topic_config("kept").changed == changed
    assert findings(tmp_path / "in") == []


def made(root: Path, start: int = 2218, count: int = 10) -> Path:
    """Writes a topic `t` with one log that begins at offset `start`."""
    end = write(root / "t-0", start, [(0, count, 0)])
    write_log_dir(root, {("t", 0): end}, start_offsets={("t", 0): start})
    return root


def exported(tmp_path: Path, **about: Any) -> Path:
    jobs.export(NO_SESSION, str(made(tmp_path / "a", **about)), str(tmp_path / "out"))
    return tmp_path / "out"


def test_an_export_grows_with_topics_that_are_empty(tmp_path: Path) -> None:
    output = exported(tmp_path)
    with LogManager(str(tmp_path / "a")) as engine:
        engine.create_topic("new", 1, {"retention.ms": "-1"})
    jobs.export(NO_SESSION, str(tmp_path / "a"), str(output))
    jobs.import_(NO_SESSION, str(tmp_path / "in"), str(output))
    assert bounds(str(tmp_path / "in")) == {("t", 0): (2218, 2229), ("new", 0): (0, 0)}
    assert configs(str(tmp_path / "in")) == configs(str(tmp_path / "a"))


def test_into_a_partition_that_is_empty(tmp_path: Path) -> None:
    output = exported(tmp_path)
    with LogManager(str(tmp_path / "in")) as engine:
        engine.create_topic("t", 1, {"retention.ms": "-1"})
    jobs.import_(NO_SESSION, str(tmp_path / "in"), str(output))
    assert bounds(str(tmp_path / "in")) == {("t", 0): (2218, 2229)}
    assert Engine(str(tmp_path / "in")).topic_config("t").changed == {"retention.ms": "-1"}


def test_a_log_that_would_have_a_hole_is_refused(tmp_path: Path) -> None:
    output = exported(tmp_path)
    other = made(tmp_path / "in", start=0)
    before = bounds(str(other))
    with pytest.raises(Refused, match="t-0 ends at 11, and the export begins at 2218: the offs"):
        jobs.import_(NO_SESSION, str(other), str(output))
    assert bounds(str(other)) == before


def test_a_log_that_goes_on_with_the_export(tmp_path: Path) -> None:
    output = exported(tmp_path, start=5, count=20)
    file = next(output.glob("_kafkafs/unit-*"))
    first = json.loads(file.read_text())["firstOffset"]
    other = made(tmp_path / "in", start=0, count=first - 1)
    assert bounds(str(other)) == {("t", 0): (0, first)}
    jobs.import_(NO_SESSION, str(other), str(output))
    assert bounds(str(other)) == {("t", 0): (0, 26)}
    assert findings(other) == []


def test_a_topic_that_cannot_be_made_leaves_none(tmp_path: Path) -> None:
    for name in ("a.b", "z"):
        end = write(tmp_path / f"a/{name}-0", 7, [(0, 3, 0)])
    write_log_dir(tmp_path / "a", {("a.b", 0): end, ("z", 0): end})
    jobs.export(NO_SESSION, str(tmp_path / "a"), str(tmp_path / "out"))
    with LogManager(str(tmp_path / "in")) as engine:
        engine.create_topic("a_b")
    with pytest.raises(TopicExists):
        jobs.import_(NO_SESSION, str(tmp_path / "in"), str(tmp_path / "out"))
    assert Engine(str(tmp_path / "in")).topics() == {"a_b": [0]}


def test_topics_made_for_an_import_that_fails_go_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise InvalidRecord("no")

    output = exported(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("kafkafs.storage.operations.transfer.import_.ingest_parts", refuse)
        with pytest.raises(InvalidRecord):
            jobs.import_(NO_SESSION, str(tmp_path / "in"), str(output))
    assert Engine(str(tmp_path / "in")).topics() == {}
    jobs.import_(NO_SESSION, str(tmp_path / "in"), str(output))
    assert bounds(str(tmp_path / "in")) == {("t", 0): (2218, 2229)}


def test_a_url_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = str(made(tmp_path / "a"))
    reasons = {"s3a://bucket/x": "of the scheme s3a", "hdfs://nn/x": "can only be read"}
    for url, refused in reasons.items():
        for job in (jobs.export, jobs.salvage, jobs.import_):
            with pytest.raises(LogDirError, match=refused):
                job(NO_SESSION, source, url)
        with pytest.raises(LogDirError, match=refused):
            jobs.stats(NO_SESSION, source, output=url)
        with pytest.raises(LogDirError, match=refused):
            jobs.verify(NO_SESSION, source, state=url)
        with pytest.raises(LogDirError, match=refused):
            jobs.compact(NO_SESSION, source, staging=url)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    jobs.export(NO_SESSION, source, "./s3a:")
    assert (tmp_path / "s3a:/_SUCCESS").exists()
    jobs.export(NO_SESSION, f"file://{source}", f"file://{tmp_path}/out")
    assert (tmp_path / "out/_SUCCESS").exists()


# -- other versions --------------------------------------------------------------------------------


def as_version_1(output: Path) -> None:
    """Rewrites the notes as they were before versions were introduced."""
    job = json.loads((output / "_kafkafs/job.json").read_text())
    del job["version"]
    job["plan"] = job["plan"]["ranges"]
    (output / "_kafkafs/job.json").write_text(json.dumps(job))


def test_an_older_export_still_imports(tmp_path: Path) -> None:
    output = exported(tmp_path)
    as_version_1(output)
    jobs.import_(NO_SESSION, str(tmp_path / "in"), str(output))
    assert bounds(str(tmp_path / "in")) == {("t", 0): (2218, 2229)}
    assert records(tmp_path / "in") == records(tmp_path / "a")
    with pytest.raises(OtherJob, match="holds an export started by another version of kafkafs"):
        jobs.export(NO_SESSION, str(tmp_path / "a"), str(output))


def test_a_newer_export_is_refused(tmp_path: Path) -> None:
    output = exported(tmp_path)
    job = json.loads((output / "_kafkafs/job.json").read_text())
    (output / "_kafkafs/job.json").write_text(json.dumps({**job, "version": 4}))
    with pytest.raises(CorruptError, match="field version: 4 was written by a newer kafkafs"):
        jobs.import_(NO_SESSION, str(tmp_path / "in"), str(output))
    assert not (tmp_path / "in").exists()
