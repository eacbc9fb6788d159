"""`kafkafs spark reindex`: the indexes of segments made anew."""

from __future__ import annotations

import click

from .params import Choice, Setting
from .spark import job_options, run
from .verb import Verb


@click.command(
    "reindex",
    cls=Verb,
    short_help="Make the indexes of all segments anew, offline.",
    examples=[
        ("kafkafs spark reindex /data", "every .index, .timeindex and .txnindex"),
        ("kafkafs spark reindex -c log.index.interval.bytes=1024 /data orders", "a finer index"),
    ],
)
@job_options
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
) -> int:
    """Read every segment in LOG_DIRS, or of what is named, and make its indexes what recovery would
    make them. An index that is right is left alone; others are replaced in one step each. No broker
    may be running on LOG_DIRS.

    A segment with damage keeps the indexes that it has, is told, and the exit code is 1. Killed at
    any time, the job has done no harm, and can be started again.
    """
    from kafkafs.spark.jobs import reindex

    return run(
        "reindex",
        master,
        as_json,
        lambda spark, told: reindex(spark, log_dirs, chosen, settings=dict(settings), told=told),
    )
