"""Converts Kafka log directories to a Parquet table, and charts the table's records per hour.

    spark-submit examples/pipeline.py LOG_DIRS TABLE

LOG_DIRS are read in place, without a broker: one directory, several separated by commas, or
wildcards. TABLE must not exist yet. On a cluster, all workers must see both under the same paths.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafkafs.spark

BARS = " ▁▂▃▄▅▆▇█"
CHARTS = 3  # for the topics with the most records

Hours = dict[str, list[int]]  # date to the records of its hours


def read_records(spark: SparkSession, log_dirs: str) -> DataFrame:
    """Returns the records that a read_committed consumer receives."""
    kafkafs.spark.register(spark)
    reader = spark.read.format("kafkafs").option("includeHeaders", "true")
    records = reader.option("kafka.isolation.level", "read_committed").load(log_dirs)
    return records.withColumn("date", f.to_date("timestamp"))


def records_per_hour(table: DataFrame) -> dict[str, Hours]:
    """Returns the counts of each topic; records without a timestamp are omitted."""
    dated = table.where("date IS NOT NULL")
    counts = dated.groupBy("topic", "date", f.hour("timestamp").alias("hour")).count()
    topics: dict[str, Hours] = defaultdict(lambda: defaultdict(lambda: [0] * 24))
    for row in counts.collect():
        topics[row["topic"]][str(row["date"])][row["hour"]] = row["count"]
    return topics


def chart(topic: str, days: Hours) -> Iterator[str]:
    """Yields a line for each day, with a bar for each of its hours, and the sum."""
    most = max(max(hours) for hours in days.values())
    yield ""
    yield f"{topic}, records per hour (UTC): █ is {most:,}"
    yield " " * 11 + "0     6     12    18"
    for date, hours in sorted(days.items()):
        # rounded up, so that a single record is visible
        bars = "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in hours)
        yield f"{date} {bars} {sum(hours):12,}"


def charts(topics: dict[str, Hours]) -> Iterator[str]:
    """Yields the charts of the largest topics, and a line about all topics."""
    totals = {topic: sum(map(sum, days.values())) for topic, days in topics.items()}
    for topic in sorted(totals, key=lambda topic: -totals[topic])[:CHARTS]:
        yield from chart(topic, topics[topic])
    yield ""
    yield f"{sum(totals.values()):,} records with a timestamp in {len(totals):,} topics"


def convert(spark: SparkSession, log_dirs: str, table: str) -> DataFrame:
    """Writes the table, partitioned by topic and date, and returns it."""
    records = read_records(spark, log_dirs)
    records.write.partitionBy("topic", "date").parquet(table)
    # with the known schema, because an inferred one would make topic `007` a number
    return spark.read.schema(records.schema).parquet(table)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: spark-submit pipeline.py LOG_DIRS TABLE")
    log_dirs, table = sys.argv[1:]
    builder = SparkSession.builder.appName("pipeline")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    print(*charts(records_per_hour(convert(spark, log_dirs, table))), sep="\n")
    spark.stop()


if __name__ == "__main__":
    main()
