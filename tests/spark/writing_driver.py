"""A separate driver whose writing tasks are killed or wait: `writing_driver.py PATH SCRATCH`.

In the first write, a task's Python worker is killed once in the middle; in the second, the second
task waits forever when the first is done.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import kafkafs.spark

ROWS = 20_000


def main() -> None:
    path, scratch = sys.argv[1], Path(sys.argv[2])

    def killed_once(number: int) -> str:
        if number == ROWS * 3 // 4 and not (scratch / "killed").exists():
            (scratch / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return str(number)

    def waiting(number: int) -> str:
        if number == ROWS - 1:
            (scratch / "waiting").touch()
            time.sleep(600)
        return str(number)

    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    kafkafs.spark.register(spark)
    for work in (killed_once, waiting):
        value = udf(work, "string", useArrow=False).asNondeterministic()
        frame = spark.range(0, ROWS, 1, 2).select(value("id").alias("value"))
        frame.write.format("kafkafs").option("topic", "t").mode("append").save(path)
        (scratch / "written").touch()


if __name__ == "__main__":
    main()
