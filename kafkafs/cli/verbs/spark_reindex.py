"""`kafkafs spark reindex`: rebuilds the indexes of segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..support.verb import Verb
from ..support.words import Config
from .spark import job_options, run

if TYPE_CHECKING:
    from kafkafs.storage import Selection


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
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    configs: tuple[Config, ...],
    master: str | None,
    as_json: bool,
) -> int:
    """Rebuild the indexes of every segment in LOG_DIRS, or only of the named topics and
    partitions, as recovery would. Correct indexes are left alone; each other one is replaced
    atomically. No broker may be running on LOG_DIRS.

    A damaged segment keeps its indexes and is reported, with exit code 1. The job can be killed at
    any time without harm; the same command continues it.
    """
    from kafkafs.spark.jobs import reindex

    return run(
        "reindex",
        master,
        as_json,
        lambda spark, report: reindex(
            spark, log_dirs, selection.names, configs=dict(configs), on_progress=report
        ),
    )
