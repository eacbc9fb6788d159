"""`kafkafs spark compact`: compacts logs on all processors or a cluster."""

from __future__ import annotations

import click

from ..params.paths import LocalPath
from ..support.verb import Verb
from .spark import RunJob, job_options


@click.command(
    "compact",
    cls=Verb,
    short_help="Compact the logs that are due for cleaning.",
    examples=[
        (
            "kafkafs spark compact /data",
            "compact all topics on all processors; no broker may be running",
        ),
        (
            "kafkafs spark compact --force --master spark://host:7077 /data orders/0",
            "compact one partition, due or not, on a cluster whose workers see /data",
        ),
        (
            "kafkafs spark compact -c log.cleaner.dedupe.buffer.size=1073741824 /data",
            "give each task more memory for keys",
        ),
    ],
)
@job_options
@click.option("-f", "--force", is_flag=True, help="Include logs that are not due.")
@click.option(
    "--split-bytes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Split the cleaning of partitions with more than N bytes to clean over several tasks "
    "(default: those of at least 512 MiB that would leave processors idle).",
)
@click.option(
    "--staging",
    type=LocalPath(file_okay=False),
    metavar="DIR",
    help="Build new segments in DIR, on the filesystem of LOG_DIRS (default: beside each).",
)
def command(
    run: RunJob,
    force: bool,
    split_bytes: int | None,
    staging: str | None,
) -> int:
    """Compact the logs in LOG_DIRS, or only the named topics and partitions, with the same result
    as `kafkafs compact`. One task cleans a partition, or several if other processors would be idle.

    The job locks LOG_DIRS and fails if a broker, a mount or another job holds them. It swaps in the
    new segments of a partition when all of them are complete. After the job is killed, each
    partition is still valid for a broker, and the same command resumes the job.
    """
    from kafkafs.spark.jobs import compact

    return run(compact, force=force, split_bytes=split_bytes, staging=staging)
