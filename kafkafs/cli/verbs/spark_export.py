"""`kafkafs spark export`: exports records to Parquet, Arrow or JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..support.params import ISOLATION_LEVELS, as_of_option
from ..support.verb import Verb
from .spark import RunJob, job_options, output_option

if TYPE_CHECKING:
    from kafkafs.spark.jobs.export_files import Format

_FORMATS = ("parquet", "arrow", "jsonl")


@click.command(
    "export",
    cls=Verb,
    short_help="Export records to Parquet, Arrow or JSON files by topic and date.",
    examples=[
        ("kafkafs spark export /data -o /table", "export every topic as a table of Parquet files"),
        (
            "kafkafs spark export --format jsonl --isolation read_committed /data -o /out orders",
            "export one topic, without aborted transactions, as JSON lines",
        ),
        (
            "kafkafs spark export --at 2026-09-03T12:00 /data -o /noon",
            "export what there was at noon",
        ),
    ],
)
@output_option("Write the table to DIR; an unfinished export there is resumed.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(_FORMATS),
    default=_FORMATS[0],
    show_default=True,
    help="Format of the files.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATION_LEVELS),
    default="read_uncommitted",  # as in every read with Spark, its own Kafka source included
    show_default=True,
    help="Whether to omit or export records of open and aborted transactions, which an import "
    "restores as committed.",
)
@click.option("--permissive", is_flag=True, help="Skip only damaged records, and report them.")
@as_of_option
@job_options
def command(
    run: RunJob,
    output: str,
    file_format: Format,
    isolation: str,
    permissive: bool,
    at: int | None,
) -> int:
    """Export the records in LOG_DIRS, or only of the named topics and partitions, to files
    topic=T/date=D/part-…, where D is the UTC date of the timestamp. Records are exported in full:
    offset, timestamp and its type, headers, nulls. `kafkafs spark import` restores logs from them.

    A range of offsets that contains damage is omitted and reported, with exit code 1; with
    --permissive, only the damaged records are omitted. Repeating the command resumes an unfinished
    export as planned, or adds what was written to LOG_DIRS since a finished one. With --at, each
    partition ends before its first record later than TIME, so that nothing is ever added.
    """
    from kafkafs.spark.jobs import export

    return run(
        export, output, format=file_format, isolation=isolation, permissive=permissive, at=at
    )
