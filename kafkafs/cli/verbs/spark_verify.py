"""`kafkafs spark verify`: checks all files against Kafka's rules with Spark."""

from __future__ import annotations

import click

from ..params.times import no_as_of_option
from ..support.verb import Verb
from .spark import RunJob, job_options, state_option


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
@no_as_of_option("verify checks files as they are on the disk now")
def command(
    run: RunJob,
    state: str | None,
) -> int:
    """Check every file in LOG_DIRS, or only of the named topics and partitions, against Kafka's
    rules. Print the same findings as `kafkafs verify`, and a table of the partitions. The exit code
    is 1 if there are findings. Nothing is changed.
    """
    from kafkafs.spark.jobs import verify

    return run(verify, state=state)
