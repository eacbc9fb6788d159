"""`kafkafs spark merge`: two damaged replicas made one log directory."""

from __future__ import annotations

import click

from .params import Choice, Setting, split_log_dirs
from .spark import job_options, output_option, run
from .verb import Verb


@click.command(
    "merge",
    cls=Verb,
    short_help="Make one new log directory of two replicas.",
    examples=[
        ("kafkafs spark merge /broker1 --with /broker2 -o /merged", "every partition of both"),
        ("kafkafs spark merge --json /a --with /b -o /c orders", "one topic"),
    ],
)
@output_option("The log directory to be made; there must be nothing yet.")
@click.option(
    "--with",
    "other",
    metavar="LOG_DIRS",
    required=True,
    callback=split_log_dirs,
    help="The other replica's log directories.",
)
@job_options
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    output: str,
    other: tuple[str, ...],
) -> int:
    """Make a new log directory of the partitions in LOG_DIRS and their replicas in the other
    LOG_DIRS. What one has lost comes from the other. From where they differ on, the one with the
    higher leader epoch is right, as a follower of Kafka's would find. Nothing is changed in either.

    What both have lost, and what was left out of one, is printed; then the exit code is 1.
    """
    from kafkafs.spark.jobs import merge

    return run(
        "merge",
        master,
        as_json,
        lambda spark, told: merge(
            spark, log_dirs, other, output, chosen, settings=dict(settings), told=told
        ),
    )
