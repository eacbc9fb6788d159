"""`kafkafs spark merge`: merges two damaged replicas into a new log directory."""

from __future__ import annotations

import click

from ..params.arguments import split_log_dirs
from ..support.verb import Verb
from .spark import RunJob, job_options, output_option


@click.command(
    "merge",
    cls=Verb,
    short_help="Merge two replicas into a new log directory.",
    examples=[
        (
            "kafkafs spark merge /broker1 --with /broker2 -o /merged",
            "merge every partition of both",
        ),
        ("kafkafs spark merge --json /a --with /b -o /c orders", "merge one topic"),
    ],
)
@output_option("Create the log directory DIR, which must not exist yet.")
@click.option(
    "--with",
    "other",
    metavar="LOG_DIRS",
    required=True,
    callback=split_log_dirs,
    help="Log directories of the other replica.",
)
@job_options
def command(
    run: RunJob,
    output: str,
    other: tuple[str, ...],
) -> int:
    """Merge the partitions in LOG_DIRS with their replicas in the other LOG_DIRS into a new log
    directory. Data that one replica has lost is taken from the other. Where the replicas diverge,
    the one with the higher leader epoch wins, as in a Kafka follower. Neither is changed.

    Data that both have lost, or that was left out of one, is reported, with exit code 1.
    """
    from kafkafs.spark.jobs import merge

    return run(merge, other, output)
