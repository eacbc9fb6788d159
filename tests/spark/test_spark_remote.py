"""Tests that Spark's workers open a URL themselves: a log directory and a backup in a bucket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests import answers, s3
from tests.backups import back_up
from tests.spark import cluster_driver
from tests.spark.conftest import CONFIGURATION
from tests.spark.expected import COLUMNS, rows_of_kafka

pytestmark = pytest.mark.spark

Corpus = Callable[[str], Path]

_NAME = "kafka43-clean"
_SECONDS = 120


def test_a_log_directory_and_a_backup_in_a_bucket(corpus: Corpus, tmp_path: Path) -> None:
    """In a process of its own: workers have the environment that their JVM was started with."""
    with s3.serving() as server:
        urls = {"log": server.upload(corpus(_NAME), "log"), "backup": f"s3://{s3.BUCKET}/backup"}
        back_up(corpus(_NAME), urls["backup"])
        jobs = [
            {
                "path": url,
                "target": str(tmp_path / name),
                "columns": COLUMNS,
                "options": {"includeHeaders": "true", "maxBytesPerPartition": "1000000"},
            }
            for name, url in urls.items()
        ]
        _run(jobs, tmp_path / "jobs")
    expected = list(rows_of_kafka(_NAME, answers.READ_UNCOMMITTED))
    for name in urls:
        with pa.memory_map(str(tmp_path / name)) as file:
            assert pa.ipc.open_file(file).read_all().to_pylist() == expected


def _run(jobs: Sequence[Mapping[str, object]], file: Path) -> None:
    file.write_text(json.dumps(jobs))
    settings = {**CONFIGURATION, "spark.master": "local[2]", "spark.local.dir": str(file.parent)}
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, cluster_driver.__file__, str(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert s3.SECRET not in done.stdout + done.stderr
