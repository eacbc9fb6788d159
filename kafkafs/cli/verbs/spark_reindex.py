"""`kafkafs spark reindex`: rebuilds the indexes of segments."""

from __future__ import annotations

import click

from ..support.verb import Verb
from .spark import RunJob, job_options


@click.command(
    "reindex",
    cls=Verb,
    short_help="Rebuild the indexes of all segments, offline.",
    examples=[
        ("kafkafs spark reindex /data", "rebuild every .index, .timeindex and .txnindex"),
        (
            "kafkafs spark reindex -c log.index.interval.bytes=1024 /data orders",
            "build a finer index",
        ),
    ],
)
@job_options
def command(run: RunJob) -> int:
    """Rebuild the indexes of every segment in LOG_DIRS, or only of the named topics and
    partitions, as recovery would. Correct indexes are left alone; each other one is replaced
    atomically. No broker may be running on LOG_DIRS.

    A damaged segment keeps its indexes and is reported, with exit code 1. The job can be killed at
    any time without harm; the same command continues it.
    """
    from kafkafs.spark.jobs import reindex

    return run(reindex)
