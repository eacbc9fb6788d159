"""A client of Spark Connect: `connect_client.py URL DIRECTORY`. It registers nothing.

It reads the log directory `data` in DIRECTORY, copies it to the log directories `written` and
`streamed`, by a batch and by a stream, and prints what it read, and the error of a job, as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafkafs.spark
import kafkafs.spark.jobs

COUNTS = "SELECT partition, count(*), min(offset), max(offset) FROM {} GROUP BY ALL ORDER BY ALL"


def main(url: str, directory: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.sql(f"CREATE TEMPORARY VIEW data USING kafkafs OPTIONS (path '{directory}/data')")
    counts = [list(row) for row in spark.sql(COUNTS.format("data")).collect()]
    scanned = kafkafs.spark.scan(spark, f"{directory}/data", ["value"], "partition = 1").count()

    batch = spark.read.format("kafkafs").load(f"{directory}/data").select("key", "value")
    writer = batch.write.format("kafkafs").option("topic", "copy").option("createTopics", "1")
    writer.mode("append").save(f"{directory}/written")

    stream = spark.readStream.format("kafkafs").option("startingOffsets", "earliest")
    sink = stream.load(f"{directory}/data").select("key", "value").writeStream.format("kafkafs")
    sink = sink.option("topic", "copy").option("createTopics", "1")
    sink = sink.option("checkpointLocation", f"{directory}/checkpoint")
    query = sink.trigger(availableNow=True).start(f"{directory}/streamed")
    query.awaitTermination()

    refusal = ""
    try:
        kafkafs.spark.jobs.stats(spark, [f"{directory}/data"])
    except PySparkException as error:
        refusal = str(error)
    spark.stop()
    print(json.dumps({"counts": counts, "scanned": scanned, "job": refusal}))


if __name__ == "__main__":
    main(*sys.argv[1:])
