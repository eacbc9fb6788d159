"""Tests of units of work: their distribution to tasks, their errors, notes of finished ones."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkafs.spark.jobs.tasks import evenly, grouped, run
from kafkafs.storage.errors import OtherJob
from kafkafs.storage.operations.unit_notes import Notes
from tests.waiting import wait_until


def test_units_that_have_so_much_together() -> None:
    units = [5, 5, 90, 200, 1, 1]
    assert list(grouped(units, lambda unit: unit, 100)) == [[5, 5, 90], [200], [1, 1]]
    assert list(grouped([], lambda unit: unit, 100)) == []
    assert list(grouped([0] * 1000, lambda unit: unit, 100)) == [[0] * 1000]


@given(st.lists(st.integers(0, 100)), st.integers(1, 12))
def test_tasks_have_about_as_much_each(units: list[int], groups: int) -> None:
    found = evenly(units, lambda unit: unit, groups)
    assert [unit for group in found for unit in group] == units
    assert len(found) <= groups
    assert all(sum(g) <= sum(units) / groups + max(units) for g in found)


def test_tasks_of_units_alike() -> None:
    assert evenly([], len, 3) == []
    assert evenly([0, 0], int, 3) == [[0, 0]]
    assert sorted(len(group) for group in evenly([7] * 78, int, 8)) == [9] * 2 + [10] * 6
    assert evenly([7, 7, 7], int, 4) == [[7]] * 3


def test_notes(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "notes")
    notes, job = Notes.of_job(path, {"job": "x", "dirs": ["/d"], "plan": [1]})
    assert job["plan"] == [1]
    assert notes.get("unit /1") is None
    notes.put("unit /1", {"done": [1, None, "ü"]})
    again, job = Notes.of_job(path, {"job": "x", "dirs": ["/d"], "plan": [1, 2]})
    assert job["plan"] == [1]  # the plan of the first run
    assert again.get("unit /1") == {"done": [1, None, "ü"]}
    with pytest.raises(OtherJob, match="different dirs"):
        Notes.of_job(path, {"job": "x", "dirs": ["/e"], "plan": [1]})
    again.remove()
    assert Notes(path).job() is None


def _work(unit: int, reported: str) -> int:
    """Waits until all units but two before this one are reported as done."""
    if unit < 0:
        raise ValueError(f"no unit: {unit}")
    wait_until(lambda: unit < 2 or os.path.exists(os.path.join(reported, str(unit - 1))))
    return unit * unit


@pytest.mark.spark
def test_results_progress_and_errors(spark: SparkSession, tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []

    def on_progress(done: int, total: int) -> None:
        reported.append((done, total))
        for number in range(done + 1):
            (tmp_path / str(number)).touch()

    units, work = list(range(6)), partial(_work, reported=str(tmp_path))
    found = run(spark, "test", units, work, on_progress=on_progress)
    assert found == [unit * unit for unit in units]
    assert max(reported) >= (4, 6)
    assert reported == sorted(reported)
    with pytest.raises(PySparkException, match="no unit: -1"):
        run(spark, "test", [1, -1], work)


def _spared(unit: int) -> int:
    return gc.get_freeze_count()


@pytest.mark.spark
def test_collections_pass_over_what_workers_have_imported(spark: SparkSession) -> None:
    assert min(run(spark, "test", [1, 2], _spared)) > 10_000
