"""`kafkafs spark export`: exports records to Parquet, Arrow, JSON lines or CSV files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..params.configs import ISOLATION_LEVELS
from ..params.times import as_of_option
from ..support.verb import Verb
from .export import export_options
from .spark import RunJob, job_options, output_option

if TYPE_CHECKING:
    from kafkafs.storage import Format, Period


@click.command(
    "export",
    cls=Verb,
    short_help="Export records to Parquet, Arrow, JSON or CSV files by topic and date.",
    examples=[
        ("kafkafs spark export /data -o /table", "export every topic as a table of Parquet files"),
        (
            "kafkafs spark export --format jsonl /data -o /out orders",
            "export one topic as JSON lines",
        ),
        (
            "kafkafs spark export --at 2026-09-03T12:00 /data -o /noon",
            "export what there was at noon",
        ),
    ],
)
@output_option("Write the table to DIR; an unfinished export there is resumed.")
@export_options(ISOLATION_LEVELS[1])  # as in every read with Spark
@as_of_option
@job_options
def command(
    run: RunJob,
    output: str,
    file_format: Format,
    by: Period,
    since_ms: int | None,
    until_ms: int | None,
    isolation: str | None,
    permissive: bool,
    decode: bool,
    at: int | None,
) -> int:
    """Export the records in LOG_DIRS, or only of the named topics and partitions, to files
    topic=T/date=D/part-…, where D is the UTC date of the timestamp, or topic=T/date=D/hour=H/part-…
    with --by hour. Records are exported in full: offset, timestamp and its type, headers, nulls.
    `kafkafs import` and `kafkafs spark import` restore logs from them, but not with --decode, which
    does what it does for `kafkafs export`.

    A range of offsets that contains damage is omitted and reported, with exit code 1; with
    --permissive, only the damaged records are omitted. Repeating the command, also as `kafkafs
    export`, resumes an unfinished export and adds what was written to LOG_DIRS since. With --at,
    each partition ends before its first record later than TIME, so that nothing is ever added.
    """
    from kafkafs.spark.jobs import export

    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--until must be later than --from")
    return run(
        export,
        output,
        format=file_format,
        by=by,
        isolation=isolation,
        permissive=permissive,
        decode=decode,
        since=since_ms,
        until=until_ms,
        at=at,
    )
