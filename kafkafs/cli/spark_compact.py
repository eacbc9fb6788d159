"""`kafkafs spark compact`: logs compacted by all processors, or a cluster."""

from __future__ import annotations

import click

from .params import Choice, LocalPath, Setting
from .spark import job_options, run
from .verb import Verb


@click.command(
    "compact",
    cls=Verb,
    short_help="Compact the logs that Kafka's cleaner would clean now.",
    examples=[
        ("kafkafs spark compact /data", "all topics, by all processors; no broker may be running"),
        (
            "kafkafs spark compact --force --master spark://host:7077 /data orders/0",
            "one partition, due or not, by a cluster whose workers see /data",
        ),
        (
            "kafkafs spark compact -c log.cleaner.dedupe.buffer.size=1073741824 /data",
            "with more memory for the keys in each task",
        ),
    ],
)
@job_options
@click.option("-f", "--force", is_flag=True, help="Also logs that are not due.")
@click.option(
    "--split-bytes",
    type=click.IntRange(min=0),
    metavar="N",
    help="Partitions with more bytes to clean are cleaned by many tasks each (those of at least "
    "512 MiB that would keep processors waiting).",
)
@click.option(
    "--staging",
    type=LocalPath(file_okay=False),
    metavar="DIR",
    help="Where new segments are made, on the file system of LOG_DIRS (beside each).",
)
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    force: bool,
    split_bytes: int | None,
    staging: str | None,
) -> int:
    """Compact the logs in LOG_DIRS, or of what is named, as `kafkafs compact` does: what is left is
    the same. A task cleans a partition; where that would keep other processors waiting, many do.

    LOG_DIRS are held all the while; a broker, mount or another job that has them is an error. New
    segments take the place of old ones when all of a partition is done. A job that was killed can
    be started again, and leaves each partition good for a broker in the meantime.
    """
    from kafkafs.spark.jobs import compact

    return run(
        "compact",
        master,
        as_json,
        lambda spark, told: compact(
            spark,
            log_dirs,
            chosen,
            force=force,
            split_bytes=split_bytes,
            staging=staging,
            settings=dict(settings),
            told=told,
        ),
    )
