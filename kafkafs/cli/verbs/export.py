"""`kafkafs export`: exports records to Parquet, Arrow, JSON lines or CSV files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import ISOLATION_LEVELS, configs_option, schema_option, tier_options
from ..params.flags import json_option
from ..params.function import Function
from ..params.paths import LocalPath
from ..params.times import as_of_option, from_until_options
from ..support import failures
from ..support import output as out
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Format, NotExported, Period, Selection, TransferSummary

_COLUMNS: Final = ("topic", "partition", "startOffset", "endOffset", "records", "files", "bytes")
_FORMATS: Final = ("parquet", "arrow", "jsonl", "csv")
_PERIODS: Final = ("date", "hour")


def export_options(default: str) -> Callable[[Function], Function]:
    """Adds `file_format`, `by`, `since_ms`, `until_ms`, `isolation`, `permissive` and `decode`.
    `default`: the isolation level of a new export; `isolation` is None if the option is not
    given."""

    def add_all(function: Function) -> Function:
        for add in _export_options(default):
            function = add(function)
        return function

    return add_all


def _export_options(default: str) -> Sequence[Callable[[Function], Function]]:
    return (
        click.option(
            "--decode",
            is_flag=True,
            help="Decode keys and values by their schemas. `import` cannot restore such an export.",
        ),
        click.option(
            "--permissive", is_flag=True, help="Skip only damaged records, and report them."
        ),
        click.option(
            "--isolation",
            type=click.Choice(ISOLATION_LEVELS),
            help="Whether to omit or export records of open and aborted transactions, which an"
            " import restores as committed.  [default: as the export in DIR was begun, else"
            f" {default}]",
        ),
        from_until_options,
        click.option(
            "--by",
            type=click.Choice(_PERIODS),
            default=_PERIODS[0],
            show_default=True,
            help="The part of the timestamp (UTC) that has a directory of its own.",
        ),
        click.option(
            "--format",
            "file_format",
            type=click.Choice(_FORMATS),
            default=_FORMATS[0],
            show_default=True,
            help="Format of the files.",
        ),
    )


class TransferRows:
    """Shows the rows of a transfer: those of partitions as a table, or all as JSON lines. What is
    missing is reported on stderr, or as JSON, and makes `code` 1."""

    def __init__(self, verb: str, columns: Sequence[str], *, as_json: bool) -> None:
        self.code = 0
        self._verb = verb
        self._columns = columns
        self._as_json = as_json
        self._partitions: list[dict[str, Any]] = []
        self._summary: TransferSummary | None = None

    def put(self, row: Any) -> None:
        from kafkafs.storage import NotExported, TransferSummary

        if isinstance(row, TransferSummary):
            self._summary = row
        elif isinstance(row, NotExported):
            self.code = 1
            self._put_missing(row)
        elif self._as_json:
            out.json_rows([row])
        else:
            self._partitions.append(row.as_json())

    def _put_missing(self, row: NotExported) -> None:
        if self._as_json:
            out.json_rows([row])
            return
        place = row.file or f"{row.topic}-{row.partition}"
        position = f": position {row.position}" if row.position >= 0 else ""
        failures.warn(f"{place}{position}: {row.what}")

    def finish(self) -> None:
        """Prints the table and the summary."""
        if self._as_json or self._summary is None:
            return
        cells = [[str(row[name]) for name in self._columns] for row in self._partitions]
        if cells:
            out.table([self._columns, *cells], right=range(1, len(self._columns)))
        records = sum(row["records"] for row in self._partitions)
        parts = [f"{self._verb}: {records} records"]
        if self._summary.skipped:
            of_all = f"{self._summary.skipped} of {self._summary.units} parts"
            parts.append(f"{of_all} were already finished")
        out.binary().write(out.line(", ".join(parts)))


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
@export_options(ISOLATION_LEVELS[0])
@as_of_option
@configs_option
@tier_options
@schema_option
@json_option("one JSON object per partition, and per place whose records are missing (`what`)")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    output: str,
    file_format: Format,
    by: Period,
    since_ms: int | None,
    until_ms: int | None,
    isolation: str | None,
    permissive: bool,
    decode: bool,
    at: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Export the records in LOG_DIRS, or only of the named topics and partitions, to files
    topic=T/date=D/part-…, where D is the UTC date of the timestamp, or topic=T/date=D/hour=H/part-…
    with --by hour. Records are exported in full: offset, timestamp and its type, headers, nulls.
    `kafkafs import` restores logs from them. Parquet files have statistics, by which a query on
    offset or timestamp reads only what it needs.

    With --decode, Parquet and Arrow files have a column `decoded` of the newest schema of the topic
    when it was first exported, and `decodeError`; `value` and `key` then only have what could not
    be decoded.

    All processors are used. LOG_DIRS are only read; a broker may be running on them. A range of
    offsets that contains damage is omitted and reported, with exit code 1; with --permissive, only
    the damaged records are omitted.

    Stopped at any moment, DIR has no incomplete file. Repeating the command, also as `kafkafs spark
    export`, resumes an unfinished export and adds what was written to LOG_DIRS since. With --at,
    each partition ends before its first record later than TIME, so that nothing is ever added.
    """
    from kafkafs.storage import Export, Isolation, export, noted_isolation

    from ..support.driver import perform

    path = os.path.abspath(output)
    level = noted_isolation(path) or Isolation.READ_COMMITTED
    request = Export(
        path,
        selection,
        file_format,
        by,
        level if isolation is None else Isolation(isolation),
        since_ms,
        until_ms,
        permissive,
        decode,
    )
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--until must be later than --from")
    rows = TransferRows("export", _COLUMNS, as_json=as_json)
    code = perform(log_dirs, configs, request, export, rows.put, at=at)
    rows.finish()
    return code or rows.code
