"""Tests that writes and jobs put no output in a log directory: no broker would open it then."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.spark.read.planning import refuse_within_log_dir
from kafkafs.storage.errors import LogDirError

Corpus = Callable[[str], Path]

NO_BROKER = "would be in the log directory .*, which no broker opens then"


def test_places_in_log_directories(corpus: Corpus, tmp_path: Path) -> None:
    """Output in any log directory, however it is named, is rejected; next to it, accepted."""
    log_dir = corpus("kafka43-clean")
    plain = tmp_path / "without-meta"
    plain.mkdir()
    link = tmp_path / "link"
    link.symlink_to(log_dir)
    for place in (log_dir, log_dir / "new", log_dir / "orders-0" / "new", link / "new"):
        with pytest.raises(LogDirError, match=NO_BROKER):
            refuse_within_log_dir(str(place), [])
    with pytest.raises(LogDirError, match=NO_BROKER):
        refuse_within_log_dir(f"{plain}/../{plain.name}/a/b", [str(plain)])
    for place in (tmp_path, tmp_path / "new", log_dir.with_name(f"{log_dir.name}.new")):
        refuse_within_log_dir(str(place), [str(log_dir), str(plain)])


class _Driver:
    """Enough of a session for a job that must fail before it runs a task."""

    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815


SESSION = cast("SparkSession", _Driver())
#: Each job, called with the path to read and the path of its output.
JOBS: dict[str, Callable[[str, str], object]] = {
    "verify": lambda path, out: jobs.verify(SESSION, path),
    "stats": lambda path, out: jobs.stats(SESSION, path),
    "compact": lambda path, out: jobs.compact(SESSION, path),
    "reindex": lambda path, out: jobs.reindex(SESSION, path),
    "export": lambda path, out: jobs.export(SESSION, path, out),
    "salvage": lambda path, out: jobs.salvage(SESSION, path, out),
    "merge": lambda path, out: jobs.merge(SESSION, path, path, out),
    "import": lambda path, out: jobs.import_(SESSION, out, path),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_jobs_name_a_path_that_is_missing_or_a_url(
    job: Callable[[str, str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs create nothing, neither there nor at the output path."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LogDirError, match=f"{tmp_path}/missing: no such directory"):
        job(f"{tmp_path}/missing", f"{tmp_path}/out")
    with pytest.raises(LogDirError, match="s3a://bucket/x: a URL of the scheme s3a"):
        job("s3a://bucket/x", f"{tmp_path}/out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_spark_refuses_urls(
    spark: SparkSession, writable_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """URLs to read, write and stage are rejected, in batches and streams, alone and among paths."""
    log_dir = writable_corpus("kafka43-clean")
    monkeypatch.chdir(log_dir.parent)
    before = sorted(log_dir.parent.rglob("*"))
    rows = spark.range(1).selectExpr("'v' AS value")
    rate = spark.readStream.format("rate").load().selectExpr("'v' AS value")
    url = "s3a://bucket/x"

    def written(path: str, **options: str) -> None:
        writer = rows.write.format("kafkafs").options(topic="orders", **options)
        writer.mode("append").save(path)

    def streamed(path: str, **options: str) -> None:
        options = {"topic": "orders", "checkpointLocation": f"{log_dir.parent}/c", **options}
        rate.writeStream.format("kafkafs").options(**options).start(path).awaitTermination()

    uses: list[Callable[[], object]] = [
        lambda: spark.read.format("kafkafs").load(url).count(),
        lambda: spark.read.format("kafkafs").load([str(log_dir), url]).count(),
        lambda: spark.read.format("kafkafs").load(f"{log_dir},{url}").count(),
        lambda: spark.readStream.format("kafkafs").load(url),
        lambda: written(url),
        lambda: written(str(log_dir), stagingDir=url),
        lambda: streamed(url),
        lambda: streamed(str(log_dir), stagingDir=url),
    ]
    for use in uses:
        with pytest.raises(PySparkException, match="a URL of the scheme s3a"):
            use()
    shutil.rmtree(log_dir.parent / "c", ignore_errors=True)
    assert sorted(log_dir.parent.rglob("*")) == before


@pytest.mark.spark
def test_everything_that_makes_something_is_refused_there(
    spark: SparkSession, writable_corpus: Corpus
) -> None:
    log_dir = writable_corpus("kafka43-clean")
    names = sorted(path.name for path in log_dir.iterdir())
    one, place = str(log_dir), str(log_dir / "new")
    makers: list[Callable[[], object]] = [
        lambda: jobs.verify(spark, one, state=place),
        lambda: jobs.compact(spark, one, staging=place),
        lambda: jobs.export(spark, one, place),
        lambda: jobs.salvage(spark, one, place),
        lambda: jobs.merge(spark, one, one, place),
    ]
    for make in makers:
        with pytest.raises(LogDirError, match=NO_BROKER):
            make()
    writer = spark.range(1).selectExpr("'v' AS value").write.format("kafkafs").mode("append")
    with pytest.raises(PySparkException, match=re.compile(NO_BROKER)):
        writer.options(topic="orders", stagingDir=place).save(one)
    assert sorted(path.name for path in log_dir.iterdir()) == names
