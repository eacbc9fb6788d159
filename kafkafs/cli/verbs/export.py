"""`kafkafs export`: exports records to Parquet, Arrow, JSON lines or CSV files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click

from ..support.params import (
    LocalPath,
    as_of_option,
    configs_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.transfers import TransferRows, export_options
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Format, Period, Selection

_COLUMNS: Final = ("topic", "partition", "startOffset", "endOffset", "records", "files", "bytes")


@click.command(
    cls=Verb,
    short_help="Export records to Parquet, Arrow, JSON or CSV files by topic and date.",
    examples=[
        ("kafkafs export /data -o /table", "export every topic as a table of Parquet files"),
        (
            "kafkafs export --format csv --by hour --from 2026-09-01 --until 2026-09-02 /data"
            " -o /day orders",
            "export one day of one topic as CSV, with a directory for each hour",
        ),
        (
            "kafkafs export /data -o /table",
            "resume it if it was interrupted; add what is new if not",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    required=True,
    type=LocalPath(file_okay=False),
    help="Write the table to DIR, which is new, empty, or has an export to continue.",
)
@export_options
@as_of_option
@configs_option
@json_option("one JSON object per partition, and per place whose records are missing (`what`)")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    output: str,
    file_format: Format,
    by: Period,
    since_ms: int | None,
    until_ms: int | None,
    isolation: str,
    permissive: bool,
    at: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Export the records in LOG_DIRS, or only of the named topics and partitions, to files
    topic=T/date=D/part-…, where D is the UTC date of the timestamp, or topic=T/date=D/hour=H/part-…
    with --by hour. Records are exported in full: offset, timestamp and its type, headers, nulls.
    `kafkafs import` restores logs from them. Parquet files have statistics, by which a query on
    offset or timestamp reads only what it needs.

    All processors are used. LOG_DIRS are only read; a broker may be running on them. A range of
    offsets that contains damage is omitted and reported, with exit code 1; with --permissive, only
    the damaged records are omitted.

    Stopped at any moment, DIR has no incomplete file. Repeating the command, also as `kafkafs spark
    export`, resumes an unfinished export and adds what was written to LOG_DIRS since. With --at,
    each partition ends before its first record later than TIME, so that nothing is ever added.
    """
    from kafkafs.storage import Export, Isolation, export

    from ..support.driver import perform

    request = Export(
        os.path.abspath(output),
        selection,
        file_format,
        by,
        Isolation(isolation),
        since_ms,
        until_ms,
        permissive,
    )
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--until must be later than --from")
    rows = TransferRows("export", _COLUMNS, as_json=as_json)
    code = perform(log_dirs, configs, request, export, rows.put, at=at)
    rows.finish()
    return code or rows.code
