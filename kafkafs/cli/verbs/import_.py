"""`kafkafs import`: restores logs from an export, or appends records of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.function import Function
from ..params.paths import LocalPath
from ..support.verb import Verb
from ..support.words import Config
from .export import TransferRows

if TYPE_CHECKING:
    from kafkafs.storage import Selection

_COLUMNS: Final = ("topic", "partition", "records", "bytes", "startOffset", "endOffset")


def source_option(what: str, kind: LocalPath) -> Callable[[Function], Function]:
    """Adds `source`: what to import from."""
    return click.option("--from", "source", metavar="DIR", required=True, type=kind, help=what)


def unregistered_option(function: Function) -> Function:
    return click.option(
        "--unregistered",
        is_flag=True,
        help="Also create topics that a KRaft broker would rename to -stray.",
    )(function)


@click.command(
    "import",
    cls=Verb,
    short_help="Restore logs from an export, or append records of Parquet files.",
    examples=[
        ("kafkafs import --from /table /data", "import every topic of an export"),
        (
            "kafkafs import --from /table /data orders payments/0",
            "import one topic and one partition",
        ),
        (
            "kafkafs import --from customers.parquet /data customers",
            "append the records of a file with the columns key and value",
        ),
    ],
)
@source_option(
    "Read the export in DIR; or a Parquet file, or all of them in a directory.", LocalPath()
)
@log_dirs_argument
@selection_argument
@unregistered_option
@configs_option
@json_option("one JSON object per partition")
def command(
    source: str,
    log_dirs: tuple[str, ...],
    selection: Selection,
    unregistered: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Import the records of an export into LOG_DIRS with their original offsets, timestamps and
    headers. Missing directories, topics and partitions are created, with their original configs
    and log start and end offsets. A partition that has records must end where the export begins, or
    between there and the first exported record. If the export has grown since it was imported, what
    is new is appended. No broker may be running on LOG_DIRS.

    Other Parquet files may have the columns key and value (text or bytes), headers, timestamp and
    partition. Their records are appended to the one TOPIC, which exists, or to one partition of it.
    Without the column, the key decides on the partition, as in Kafka's producer.

    The import of an export, and of each other file, is atomic. If it is interrupted, the same
    command resumes it; a file that was imported is not imported again.
    """
    from kafkafs.storage import Import, ImportParquet, import_logs, import_parquet, is_export

    from ..support.driver import perform

    path = os.path.abspath(source)
    rows = TransferRows("import", _COLUMNS, as_json=as_json)
    if os.path.isdir(path) and is_export(path):
        request = Import.of(path, selection, unregistered=unregistered)
        code = perform(
            log_dirs,
            configs,
            request,
            import_logs,
            rows.put,
            creates=True,
            unregistered=unregistered,
        )
    else:
        try:
            files = ImportParquet.of(path, selection)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        code = perform(log_dirs, configs, files, import_parquet, rows.put)
    rows.finish()
    return code or rows.code
