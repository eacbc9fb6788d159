"""The `export` job: an export whose units of work are Spark's tasks.

What an export is, and that it can be resumed, also by `kafkafs export`: see
`storage.operations.transfer`.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    Export,
    Format,
    Isolation,
    NotExported,
    PartitionExport,
    Period,
    Selected,
    Selection,
    TransferSummary,
    begun_export,
    local_path,
    milliseconds,
    noted_isolation,
)

from ..options import DEFAULT_ISOLATION
from .job_log_dirs import JobLogDirs
from .report import Report
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Time = int | str | datetime.date | None
_COLUMNS: Final = ("topic", "partition", "startOffset", "endOffset", "records", "files", "bytes")


def export(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    output: str,
    topics: Sequence[Selected] = (),
    *,
    format: Format = "parquet",
    by: Period = "date",
    isolation: str | None = None,
    permissive: bool = False,
    decode: bool = False,
    since: _Time = None,
    until: _Time = None,
    at: _Time = None,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Writes the records of `log_dirs`, or of the selected `topics` (and partitions), to the
    directory `output`; without a selection, Kafka's internal topics are omitted. `since`, `until`:
    from the first record at or after a time up to the first at or after another. With `at`, it
    exports what there was then. Times are as in `kafkafs.open`. `isolation` is by default that of
    the export that is continued, else `read_uncommitted`. `decode`: keys and values are decoded by
    their schemas, as by `kafkafs export --decode`.

    Damage is `wrong` in the report, and its range is not exported, or with `permissive` exported
    without the lost records. Raises OtherJob if `output` has an export with other arguments.
    """
    dirs = JobLogDirs.of(log_dirs, configs, _ms(at))
    output = os.path.abspath(local_path(output))
    level = noted_isolation(output) or DEFAULT_ISOLATION
    request = Export(
        output,
        Selection(tuple(topics)),
        format,
        by,
        Isolation(isolation or level),
        _ms(since),
        _ms(until),
        permissive,
        decode,
    )
    engine = dirs.engine()
    request.check(engine)
    with begun_export(engine, request) as begun:
        work = begun.units.write
        results = run(spark, "export", begun.pending, work, lambda each: each.size, on_progress)
        rows = list(begun.finish(results))
    done = [row for row in rows if isinstance(row, PartitionExport)]
    (summary,) = (row for row in rows if isinstance(row, TransferSummary))
    return Report(
        "export",
        _COLUMNS,
        [row.as_json() for row in done],
        [row.as_json() for row in rows if isinstance(row, NotExported)],
        units=summary.units,
        skipped=summary.skipped,
        totals={
            "records": sum(row.records for row in done),
            "files": sum(row.files for row in done),
        },
    )


def _ms(time: _Time) -> int | None:
    return None if time is None else milliseconds(time)
