"""`kafkafs spark import`: logs of an export again."""

from __future__ import annotations

import click

from .params import Choice, LocalPath, Setting
from .spark import job_options, run
from .verb import Verb


@click.command(
    "import",
    cls=Verb,
    short_help="Make logs of an export again.",
    examples=[
        ("kafkafs spark import --from /table /data", "every topic of an export"),
        ("kafkafs spark import --from /table /data orders payments/0", "some of it"),
    ],
)
@click.option(
    "--from",
    "source",
    metavar="DIR",
    required=True,
    type=LocalPath(exists=True, file_okay=False),
    help="The directory that `kafkafs spark export` wrote.",
)
@click.option(
    "--unregistered",
    is_flag=True,
    help="Also make topics that a KRaft broker would rename to -stray.",
)
@job_options
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    source: str,
    unregistered: bool,
) -> int:
    """Write the records of an export to LOG_DIRS, which are made where there are none, with the
    offsets, timestamps and headers that they had. Topics and partitions that are not there are
    made, with the settings and the log start and end offsets that they had. A partition that has
    records must end where the export begins, or between there and its first record. No broker may
    be running on LOG_DIRS.

    All of it is put in place, or nothing. Started again, the job goes on with what is not staged.
    """
    from kafkafs.spark.jobs import import_

    return run(
        "import",
        master,
        as_json,
        lambda spark, told: import_(
            spark,
            log_dirs,
            source,
            chosen,
            unregistered=unregistered,
            settings=dict(settings),
            told=told,
        ),
    )
