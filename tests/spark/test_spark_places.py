"""What a write or a job makes is never made in a log directory: no broker would open it then."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkafs.spark import jobs
from kafkafs.spark.planning import refuse_within_log_dir
from kafkafs.storage.errors import LogDirError

Corpus = Callable[[str], Path]

NO_BROKER = "would be in the log directory .*, which no broker opens then"


def test_places_in_log_directories(corpus: Corpus, tmp_path: Path) -> None:
    """In one of those at hand or in another, however it is named; beside them all is well."""
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
