"""Row 49: Spark reads very many segments of a partition in a bucket, on two cores, and how many
requests that takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from tests.bench import bucket
from tests.bench.data import BATCH_RECORDS, TOPIC, batches, kept
from tests.bench.plan import Plan
from tests.bench.race import Figure, Outcome, Outcomes
from tests.bench.scanning import aggregate
from tests.bench.sessions import spark_session
from tests.logs import PartitionWriter, TopicSettings, parse_header, write_log_dir

_RECORDS = BATCH_RECORDS[Codec.NONE]  # of a segment
_KEYS_OF_A_LIST = 1000
_WORKERS = 2


def segments(plan: Plan) -> Outcomes:
    """Each segment is one request. Each process lists the bucket: the driver, and the workers."""
    count = plan.small
    log = _log(count)
    records = count * _RECORDS
    # Spark's workers have the environment that its JVM was started with.
    command = [sys.executable, "-m", "tests.bench.remote_scanning", f"s3://{log.name}"]
    with bucket.serving(log.parent) as url:
        done = subprocess.run([*command, str(records)], check=True, stdout=subprocess.PIPE)
        seconds = float(done.stdout)
        lists, objects = bucket.counted(url)
    pages = -(-sum(1 for path in log.rglob("*") if path.is_file()) // _KEYS_OF_A_LIST)
    work = f"Spark, {count:,} segments in a bucket"
    yield Outcome(49, work, Figure(records / 1e6 / seconds, "M rec/s"))
    unit = "requests"
    most = Figure(1.1 * count + 10, unit)
    yield Outcome(49, f"{work}: parts of objects", Figure(objects, unit), limit=most)
    most = Figure((_WORKERS + 1) * (pages + 1), unit)
    yield Outcome(49, f"{work}: lists", Figure(lists, unit), limit=most)


def _log(count: int) -> Path:
    def make(directory: Path) -> None:
        writer = PartitionWriter(directory / f"{TOPIC}-0", TopicSettings())
        for batch in batches(count * _RECORDS):
            if writer.end_offset - writer.bases[-1] >= _RECORDS:
                writer.roll(parse_header(batch).base_offset)
            writer.append(batch)
        writer.close()
        write_log_dir(directory, {(TOPIC, 0): writer.end_offset})

    return kept(f"segments-{count}x{_RECORDS}", make)


def main() -> None:
    url, records = sys.argv[1:]
    with spark_session() as spark:
        print(aggregate(spark.read.format("kafkafs").load(url), int(records)))


if __name__ == "__main__":
    main()
