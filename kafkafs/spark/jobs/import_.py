"""The `import` job: an import whose units of work are Spark's tasks.

What an import is, and that it can be resumed, also by `kafkafs import`: see
`storage.operations.transfer`. The driver holds the directories.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    Engine,
    Import,
    ImportRun,
    LogManager,
    PartitionImport,
    Selected,
    Selection,
    TransferSummary,
    local_path,
)

from .job_log_dirs import JobLogDirs
from .report import Report
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = ("topic", "partition", "records", "bytes", "startOffset", "endOffset")


def import_(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    source: str,
    topics: Sequence[Selected] = (),
    *,
    unregistered: bool = False,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Writes the export in the directory `source`, or the selected `topics` (and partitions) of it,
    to `log_dirs`, which are created if missing. Missing topics and partitions are created with the
    exported configs, log start offsets and end offsets. Either everything is committed, or nothing.

    Raises Unregistered, unless `unregistered` is set, if topics or partitions would be created in
    the directories of a KRaft cluster that does not know them; LogDirLocked if a broker or another
    writer holds one of the directories; Refused if a partition has records at or above those
    offsets, or ends below the start of the export; LogDirError if `source` is missing; CorruptError
    for notes or files that are not those of an export; UnknownTopic or UnknownPartition if the
    export lacks a selected one.
    """
    source = os.path.abspath(local_path(source))
    request = Import.of(source, Selection(tuple(topics)), unregistered=unregistered)
    dirs = JobLogDirs.new(_absolute(log_dirs), configs)
    there = tuple(path for path in dirs.log_dirs if os.path.isdir(path) and os.listdir(path))
    if there:  # before anything is locked or staged
        with closing(Engine(there, dict(dirs.configs))) as engine:
            request.check(engine)
    with LogManager(list(dirs.log_dirs), dict(dirs.configs), unregistered=unregistered) as manager:
        begun = ImportRun(manager, request)
        work = begun.staging.stage
        results = run(spark, "import", begun.units, work, lambda unit: unit.size, on_progress)
        rows = list(begun.finish(results))
    (summary,) = (row for row in rows if isinstance(row, TransferSummary))
    done = [row for row in rows if isinstance(row, PartitionImport)]
    return Report(
        "import",
        _COLUMNS,
        [row.as_json() for row in done],
        units=summary.units,
        skipped=summary.skipped,
        totals={"records": sum(row.records for row in done)},
    )


def _absolute(log_dirs: str | Sequence[str]) -> tuple[str, ...]:
    """Returns absolute paths; without wildcards, as the directories need not exist."""
    listed = log_dirs.split(",") if isinstance(log_dirs, str) else log_dirs
    return tuple(os.path.abspath(local_path(path)) for path in listed)
