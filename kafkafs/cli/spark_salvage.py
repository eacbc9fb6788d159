"""`kafkafs spark salvage`: what is sound out of damaged log directories."""

from __future__ import annotations

import click

from .params import Choice, Setting
from .spark import job_options, output_option, run
from .verb import Verb


@click.command(
    "salvage",
    cls=Verb,
    short_help="Make a new log directory of what is sound in damaged ones.",
    examples=[
        ("kafkafs spark salvage /damaged -o /saved", "every sound batch of every partition"),
        ("kafkafs spark salvage --json /damaged -o /saved orders > lost", "and what was lost"),
    ],
)
@output_option("The log directory to be made; there must be nothing yet.")
@job_options
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    output: str,
) -> int:
    """Make a new log directory of every batch in LOG_DIRS whose bytes are sound, as it is: offsets,
    producers, transactions. Print file, position and offsets of what is lost; then the exit code
    is 1. LOG_DIRS is only read.

    What recovery would cut, because it lies behind damage, is kept. Started again after it was
    killed, the job goes on with the segments that are left.
    """
    from kafkafs.spark.jobs import salvage

    return run(
        "salvage",
        master,
        as_json,
        lambda spark, told: salvage(
            spark, log_dirs, output, chosen, settings=dict(settings), told=told
        ),
    )
