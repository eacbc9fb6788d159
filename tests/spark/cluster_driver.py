"""The driver that cluster tests submit: `cluster_driver.py JOBS`, a JSON file with a list of jobs.

A read has `path` and `options` of the source, and writes the `columns` to the Arrow file `target`.
A write has `path` and `options` of the sink, and writes the numbers below `below` in two tasks,
half of them each: number N as a value of 10,000 bytes, to partition N % 2. A copy exports the log
directory `path` to the directory `exported`, and imports that to `imported`.

With `hold`, a directory, each task stops at its value number `stop`: it writes its parent's process
id to the file TASK.ATTEMPT there, and continues when `go` or `go.TASK.ATTEMPT` appears.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import kafkafs.spark
from kafkafs.spark import jobs

HELD_SECONDS = 300


def held(directory: str, stop: int) -> Callable[[bytes], bool]:
    """Returns a filter that accepts every value, but waits at number `stop`; needs no pandas."""
    passed = iter(range(stop + 1))

    def take(value: bytes) -> bool:
        if next(passed, None) == stop:
            wait()
        return True

    def wait() -> None:
        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId()}.{context.attemptNumber()}"
        part = Path(directory, f".{name}")
        part.write_text(str(os.getppid()))
        part.rename(Path(directory, name))
        give_up = time.monotonic() + HELD_SECONDS
        while not any(Path(directory, go).exists() for go in ("go", f"go.{name}")):
            if time.monotonic() > give_up:
                raise TimeoutError(f"no file go* appeared in {directory}")
            time.sleep(0.05)

    return take


def holding(frame: DataFrame, job: dict[str, Any]) -> DataFrame:
    if "hold" not in job:
        return frame
    take = udf(held(job["hold"], job["stop"]), "boolean", useArrow=False).asNondeterministic()
    return frame.where(take("value"))


def read(spark: SparkSession, job: dict[str, Any]) -> None:
    frame = spark.read.format("kafkafs").options(**job["options"]).load(job["path"])
    table = holding(frame, job).selectExpr(*job["columns"]).toArrow()
    with pa.OSFile(job["target"], "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def write(spark: SparkSession, job: dict[str, Any]) -> None:
    numbers = spark.range(0, job["below"], 1, 2)
    frame = numbers.selectExpr(
        "rpad(cast(id AS string), 10000, '.') AS value", "cast(id % 2 AS int) AS partition"
    )
    writer = holding(frame, job).write.format("kafkafs").mode("append")
    writer.options(**job["options"]).save(job["path"])


def copy(spark: SparkSession, job: dict[str, Any]) -> None:
    export = jobs.export(spark, job["path"], job["exported"])
    assert export.exit_code == 0, export
    imported = jobs.import_(spark, job["imported"], job["exported"])
    assert imported.exit_code == 0, imported


def main() -> None:
    spark = SparkSession.builder.appName("tests").getOrCreate()
    kafkafs.spark.register(spark)
    for job in json.loads(Path(sys.argv[1]).read_text()):
        work = copy if "exported" in job else write if "below" in job else read
        work(spark, job)
    spark.stop()


if __name__ == "__main__":
    main()
