"""`kafkafs spark verify`: checks all files against Kafka's rules with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..support.verb import Verb
from ..support.words import Config
from .spark import job_options, run, state_option

if TYPE_CHECKING:
    from kafkafs.storage import Selection


@click.command(
    "verify",
    cls=Verb,
    short_help="Check every batch, index and metadata file.",
    examples=[
        ("kafkafs spark verify /data", "check everything, on all processors"),
        (
            "kafkafs spark verify --master spark://host:7077 --state /backup/checked /backup",
            "check on a cluster; the same command resumes with the remaining segments",
        ),
    ],
)
@job_options
@state_option
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    configs: tuple[Config, ...],
    master: str | None,
    as_json: bool,
    state: str | None,
) -> int:
    """Check every file in LOG_DIRS, or only of the named topics and partitions, against Kafka's
    rules. Print the same findings as `kafkafs verify`, and a table of the partitions. The exit code
    is 1 if there are findings. Nothing is changed.
    """
    from kafkafs.spark.jobs import verify

    return run(
        "verify",
        master,
        as_json,
        lambda spark, report: verify(
            spark, log_dirs, selection.names, configs=dict(configs), state=state, on_progress=report
        ),
    )
