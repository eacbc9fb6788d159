"""`kafkafs spark verify`: whether the files are what Kafka's rules say, found out by Spark."""

from __future__ import annotations

import click

from .params import Choice, Setting
from .spark import job_options, run, state_option
from .verb import Verb


@click.command(
    "verify",
    cls=Verb,
    short_help="Check every batch, index and small file.",
    examples=[
        ("kafkafs spark verify /data", "everything, on all processors"),
        (
            "kafkafs spark verify --master spark://host:7077 --state /backup/checked /backup",
            "on a cluster; started again, it goes on with the segments that are left",
        ),
    ],
)
@job_options
@state_option
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    state: str | None,
) -> int:
    """Hold every file in LOG_DIRS, or of what is named, against Kafka's rules, as `kafkafs verify`
    does, and print the same findings, and a table of the partitions. With findings the exit code is
    1. Nothing is changed.
    """
    from kafkafs.spark.jobs import verify

    return run(
        "verify",
        master,
        as_json,
        lambda spark, told: verify(
            spark, log_dirs, chosen, settings=dict(settings), state=state, told=told
        ),
    )
