"""Runs jobs without a Spark session: their units run one after another in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kafkafs.spark.jobs import export, import_

#: Passed to jobs instead of a session.
NO_SESSION = cast("SparkSession", None)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `jobs.export` and `jobs.import_` be called with NO_SESSION."""
    for job in (export, import_):
        monkeypatch.setitem(job.__globals__, "run", _run)


def _run(
    spark: SparkSession, what: str, units: Sequence[Any], work: Callable[[Any], Any], *rest: object
) -> list[Any]:
    """Replaces `tasks.run`; work and units are pickled as for a worker."""
    work = pickle.loads(pickle.dumps(work))
    return [work(unit) for unit in pickle.loads(pickle.dumps(units))]
