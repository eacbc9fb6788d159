"""`kafkafs spark export`: records to files that other programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .params import ISOLATION_LEVELS, Choice, Setting
from .spark import job_options, output_option, run
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.spark.jobs.export_files import Format

_FORMATS = ("parquet", "arrow", "jsonl")


@click.command(
    "export",
    cls=Verb,
    short_help="Write records to Parquet, Arrow or JSON lines, by topic and date.",
    examples=[
        ("kafkafs spark export /data -o /table", "every topic, as a table of Parquet files"),
        (
            "kafkafs spark export --format jsonl --isolation read_uncommitted /data -o /out orders",
            "one topic with what was rolled back, as JSON lines",
        ),
    ],
)
@output_option("The directory of the table; an export that was not finished there goes on.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(_FORMATS),
    default=_FORMATS[0],
    show_default=True,
    help="Of the files.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION_LEVELS),
    default=ISOLATION_LEVELS[0],
    show_default=True,
    help="Whether the records of open and aborted transactions are written.",
)
@click.option("--permissive", is_flag=True, help="Pass over what is damaged, and tell it.")
@job_options
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    master: str | None,
    as_json: bool,
    output: str,
    file_format: Format,
    isolation: str,
    permissive: bool,
) -> int:
    """Write the records in LOG_DIRS, or of what is named, to files topic=T/date=D/part-…, D being
    the day of a record's timestamp, UTC. Nothing of a record is lost: offset, timestamp and its
    type, headers, null. `kafkafs spark import` makes logs of them again.

    A range of offsets with damage in it is left out and told, and the exit code is 1; with
    --permissive only what is damaged is. Started again, a job that was not finished goes on with
    what it planned at first, and one that was, with what was written to LOG_DIRS since.
    """
    from kafkafs.spark.jobs import export

    return run(
        "export",
        master,
        as_json,
        lambda spark, told: export(
            spark,
            log_dirs,
            output,
            chosen,
            format=file_format,
            isolation=isolation,
            permissive=permissive,
            settings=dict(settings),
            told=told,
        ),
    )
