"""What `export` and `import` share with the Spark jobs of the same name: options and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from . import failures, output
from .params import ISOLATION_LEVELS, Function, LocalPath, from_until_options

if TYPE_CHECKING:
    from kafkafs.storage import NotExported, TransferSummary

_FORMATS: Final = ("parquet", "arrow", "jsonl", "csv")
_PERIODS: Final = ("date", "hour")


def export_options(function: Function) -> Function:
    """Adds `file_format`, `by`, `since_ms`, `until_ms`, `isolation` and `permissive`."""
    for add in (
        click.option(
            "--permissive", is_flag=True, help="Skip only damaged records, and report them."
        ),
        click.option(
            "--isolation",
            type=click.Choice(ISOLATION_LEVELS),
            default=ISOLATION_LEVELS[0],
            show_default=True,
            help="Whether to omit or export records of open and aborted transactions, which an"
            " import restores as committed.",
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
    ):
        function = add(function)
    return function


def source_option(what: str) -> Callable[[Function], Function]:
    """Adds `source`: what to import from, which exists."""
    return click.option(
        "--from", "source", metavar="DIR", required=True, type=LocalPath(exists=True), help=what
    )


def unregistered_option(function: Function) -> Function:
    return click.option(
        "--unregistered",
        is_flag=True,
        help="Also create topics that a KRaft broker would rename to -stray.",
    )(function)


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
            output.json_rows([row])
        else:
            self._partitions.append(row.as_json())

    def _put_missing(self, row: NotExported) -> None:
        if self._as_json:
            output.json_rows([row])
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
            output.table([self._columns, *cells], right=range(1, len(self._columns)))
        records = sum(row["records"] for row in self._partitions)
        parts = [f"{self._verb}: {records} records"]
        if self._summary.skipped:
            of_all = f"{self._summary.skipped} of {self._summary.units} parts"
            parts.append(f"{of_all} were already finished")
        output.binary().write(output.line(", ".join(parts)))
