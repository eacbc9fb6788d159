"""`kafkafs spark import`: restores logs from an export."""

from __future__ import annotations

import click

from ..params.paths import LocalPath
from ..support.verb import Verb
from .import_ import source_option, unregistered_option
from .spark import RunJob, job_options


@click.command(
    "import",
    cls=Verb,
    short_help="Restore logs from an export.",
    examples=[
        ("kafkafs spark import --from /table /data", "import every topic of an export"),
        (
            "kafkafs spark import --from /table /data orders payments/0",
            "import one topic and one partition",
        ),
    ],
)
@source_option("Read the export in DIR.", LocalPath(exists=True, file_okay=False))
@unregistered_option
@job_options
def command(
    run: RunJob,
    source: str,
    unregistered: bool,
) -> int:
    """Import the records of an export into LOG_DIRS with their original offsets, timestamps and
    headers. Missing directories, topics and partitions are created, with their original configs
    and log start and end offsets. A partition that has records must end where the export begins, or
    between there and the first exported record. No broker may be running on LOG_DIRS.

    The import is atomic. If it is interrupted, the same command resumes it.
    """
    from kafkafs.spark.jobs import import_

    return run(import_, source, unregistered=unregistered)
