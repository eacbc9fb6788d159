"""`kafkafs spark salvage`: copies intact batches out of damaged log directories."""

from __future__ import annotations

import click

from ..support.verb import Verb
from .spark import RunJob, job_options, output_option


@click.command(
    "salvage",
    cls=Verb,
    short_help="Copy intact batches of damaged logs to a new log directory.",
    examples=[
        (
            "kafkafs spark salvage /damaged -o /saved",
            "salvage every intact batch of every partition",
        ),
        (
            "kafkafs spark salvage --json /damaged -o /saved orders > lost",
            "salvage one topic, and list what was lost",
        ),
    ],
)
@output_option("Create the log directory DIR, which must not exist yet.")
@job_options
def command(
    run: RunJob,
    output: str,
) -> int:
    """Copy every intact batch in LOG_DIRS unchanged, with offsets, producers and transactions, to a
    new log directory. Lost data is reported by file, position and offsets, with exit code 1.
    LOG_DIRS are only read.

    Intact batches after damage, which recovery would truncate, are kept. If the job is killed, the
    same command resumes it with the remaining segments.
    """
    from kafkafs.spark.jobs import salvage

    return run(salvage, output)
