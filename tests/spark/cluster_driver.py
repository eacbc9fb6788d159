"""What the tests of a cluster submit: `cluster_driver.py READS`, a JSON file with a list of reads.

A read has the `path` and `options` of the source and the Arrow file `target` for the `columns`
that are to be seen of it. With `hold`, a directory, each task stops at its first value: it leaves a
file there that says which processes it runs in, and goes on when the file `go` appears.
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
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import kafkafs.spark

HELD_SECONDS = 120


def held(directory: str) -> Callable[[bytes], bool]:
    """Takes every value, the first of a task when it may. Such a function needs no pandas."""
    state = {"is_waiting": True}

    def take(value: bytes) -> bool:
        if state.pop("is_waiting", False):
            wait()
        return True

    def wait() -> None:
        context = TaskContext.get()
        assert context is not None
        name = f"{context.partitionId()}.{context.attemptNumber()}"
        part = Path(directory, f".{name}")
        part.write_text(json.dumps({"daemon": os.getppid()}))
        part.rename(Path(directory, name))
        give_up = time.monotonic() + HELD_SECONDS
        while not Path(directory, "go").exists():
            if time.monotonic() > give_up:
                raise TimeoutError(f"nobody said go in {directory}")
            time.sleep(0.05)

    return take


def read(spark: SparkSession, what: dict[str, Any]) -> pa.Table:
    frame = spark.read.format("kafkafs").options(**what["options"]).load(what["path"])
    if "hold" in what:
        take = udf(held(what["hold"]), "boolean", useArrow=False).asNondeterministic()
        frame = frame.where(take("value"))
    return frame.selectExpr(*what["columns"]).toArrow()


def main() -> None:
    spark = SparkSession.builder.appName("tests").getOrCreate()
    kafkafs.spark.register(spark)
    for what in json.loads(Path(sys.argv[1]).read_text()):
        table = read(spark, what)
        with pa.OSFile(what["target"], "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main()
