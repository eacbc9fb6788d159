"""The `export` job: writes records to Parquet, Arrow or JSON lines files in a tree
`topic=T/date=D/`.

The driver plans ranges of offsets as for a read; a task writes one range, with a file for each day
(UTC) of its timestamps. Files are written under names that readers of such trees ignore, and
renamed when they are complete. A file counts only when the range's note, in `_kafkafs`, names it.
The plan is noted, too: a restarted export resumes with the same ranges, and a finished one
continues with what has been appended to the logs since.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkafs.storage import (
    TEMPORARY_SUFFIX,
    Columns,
    Damage,
    Isolation,
    Selected,
    StorageError,
    TopicPartition,
    WritableDirFd,
    fresh,
    local_path,
    milliseconds,
)

from ..options import DEFAULT_ISOLATION, ReadOptions
from ..read.planning import DataLoss, OffsetRange, assigned, plan, refuse_within_log_dir
from ..read.reading import Reading
from .export_files import NO_DATE, FileWriter, Format, suffix_of, writer_of
from .export_notes import NOTES, VERSION, ExportPlan, read_plan, unit_name
from .job_log_dirs import JobLogDirs
from .notes import Notes, OtherJob
from .ranges import options_for
from .report import Report, Row
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUCCESS: Final = "_SUCCESS"

_COLUMNS: Final = ("topic", "partition", "startOffset", "endOffset", "records", "files", "bytes")
_DAY_MS: Final = 86_400_000
_PREFERRED: Final = "kafkafs.prefer.dir"
# Files that one task keeps open; unordered timestamps may span many days.
_MOST_OPEN: Final = 64


@dataclass(frozen=True, slots=True)
class Export:
    """What all tasks of an export share."""

    output: str
    reading: Reading
    format: Format
    notes: Notes


def export(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    output: str,
    topics: Sequence[Selected] = (),
    *,
    format: Format = "parquet",
    isolation: str = DEFAULT_ISOLATION,
    permissive: bool = False,
    at: int | str | datetime.date | None = None,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Writes the records of `log_dirs`, or of the selected `topics` (and partitions), to the
    directory `output`; without a selection, Kafka's internal topics are omitted. With `at`, a time
    as in `kafkafs.open`, it exports what there was then.

    Damage is `wrong` in the report, and its range is not exported, or with `permissive` exported
    without the lost records. Raises OtherJob if `output` has an export with other arguments.
    """
    dirs = JobLogDirs.of(log_dirs, configs, None if at is None else milliseconds(at))
    output = os.path.abspath(local_path(output))
    refuse_within_log_dir(output, dirs.log_dirs)
    options = options_for(dirs, topics, isolation)
    planned = _plan(dirs, options)
    job: dict[str, Any] = {
        "job": "export",
        "version": VERSION,
        "log_dirs": list(dirs.log_dirs),
        "topics": [list(choice) for choice in topics],
        "format": format,
        "isolation": isolation,
        "permissive": permissive,
        "plan": planned.as_json(),
    }
    if dirs.at_ms is not None:
        job["at"] = dirs.at_ms
    _refuse_older(output)
    notes, begun = Notes.of_job(os.path.join(output, NOTES), job)
    ranges = _go_on(output, notes, begun, planned)
    _remove_leftovers(output)
    reading = Reading(
        log_dirs=dirs.log_dirs,
        configs=dict(dirs.configs),
        isolation=Isolation(isolation),
        fail_on_data_loss=True,
        permissive=permissive,
        at_ms=dirs.at_ms,
    )
    work = partial(_export, Export(output, reading, format, notes))
    done = run(spark, "export", ranges, work, lambda each: each.size, on_progress)
    report = _report(ranges, done)
    if not any("failed" in result for result in done):
        WritableDirFd(output).write_atomically(SUCCESS, b"")
    return report


# -- in the tasks ----------------------------------------------------------------------------------


def _export(export: Export, each: OffsetRange) -> dict[str, Any]:
    """Writes one range; returns what was written, or why nothing was."""
    name = unit_name(each)
    noted: dict[str, Any] | None = export.notes.get(name)
    if noted is not None and _are_there(export, noted):
        return {**noted, "isOld": True}
    files = _DayFiles(export, each)
    lost: list[dict[str, Any]] = []
    try:
        for part in export.reading.parts(each):
            if isinstance(part, Columns):
                files.write(part)
            elif export.reading.permissive:
                lost.append(_lost(each, part))
            else:
                raise fresh(part.error)
        result = {
            "files": files.finish(),
            "records": files.records,
            "firstOffset": files.first_offset,
            "lastOffset": files.last_offset,
            "lost": lost,
        }
    except (StorageError, DataLoss, OSError) as error:
        files.discard()
        return {"failed": _failed(each, error)}
    except BaseException:
        files.discard()
        raise
    export.notes.put(name, result)
    return result


def _are_there(export: Export, noted: Mapping[str, Any]) -> bool:
    """Returns whether all files named by a note still exist."""
    return all(os.path.exists(os.path.join(export.output, each["path"])) for each in noted["files"])


def by_date(columns: Columns) -> Iterator[tuple[str, Columns]]:
    """Yields the rows of each day (UTC). Most timestamps ascend, so that there are few days."""
    days = columns.timestamps // _DAY_MS
    days[columns.timestamps == -1] = np.iinfo(np.int64).min
    for day in np.unique(days).tolist():
        date = NO_DATE
        if day != np.iinfo(np.int64).min:
            date = str(np.datetime64(day, "D"))
        yield date, columns.where(days == day)


class _DayFiles:
    """The files of one range while they are being written."""

    def __init__(self, export: Export, each: OffsetRange) -> None:
        self.records = 0
        self.first_offset = self.last_offset = -1
        self._export = export
        self._range = each
        self._attempt = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._open: dict[str, FileWriter] = {}
        self._closed: list[tuple[str, str, int]] = []  # directory, name, rows
        self._numbers: dict[str, int] = {}

    def write(self, columns: Columns) -> None:
        """Adds records, which must come in order."""
        for date, rows in by_date(columns):
            self._writer(date).write(rows)
        if len(columns):
            self.records += len(columns)
            if self.first_offset < 0:
                self.first_offset = int(columns.offsets[0])
            self.last_offset = int(columns.offsets[-1])

    def _writer(self, date: str) -> FileWriter:
        writer = self._open.get(date)
        if writer is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            writer = self._open[date] = self._begin(date)
        return writer

    def finish(self) -> list[dict[str, Any]]:
        """Renames the files to their final names, durably; returns paths relative to the output,
        rows and bytes."""
        for date in list(self._open):
            self._close(date)
        found = []
        for directory, name, rows in self._closed:
            writable = WritableDirFd(os.path.join(self._export.output, directory))
            writable.rename(self._temporary(name), name)
            writable.sync()
            size = writable.stat(name).st_size
            found.append({"path": f"{directory}/{name}", "rows": rows, "bytes": size})
        return found

    def discard(self) -> None:
        for writer in self._open.values():
            with suppress(OSError):
                writer.close()
            os.unlink(writer.path)
        for directory, name, _ in self._closed:
            with suppress(FileNotFoundError):
                path = os.path.join(self._export.output, directory)
                WritableDirFd(path).remove(self._temporary(name))

    def _begin(self, date: str) -> FileWriter:
        each = self._range
        directory = WritableDirFd(os.path.join(self._export.output, self._place(date)))
        directory.make_itself()
        number = self._numbers[date] = self._numbers.get(date, -1) + 1
        name = self._name(number)
        path = directory.path_of(self._temporary(name))
        return writer_of(self._export.format, path, each.topic, each.partition)

    def _close(self, date: str) -> None:
        writer = self._open.pop(date)
        writer.close()
        directory = WritableDirFd(os.path.join(self._export.output, self._place(date)))
        name = self._name(self._numbers[date])
        directory.writable(self._temporary(name)).sync()
        self._closed.append((self._place(date), name, writer.rows))

    def _place(self, date: str) -> str:
        return f"topic={self._range.topic}/date={date}"

    def _name(self, number: int) -> str:
        """Returns a name from partition and first offset, so that repeated attempts use the
        same."""
        again = f"-{number}" if number else ""
        each = self._range
        return f"part-{each.partition:05}-{each.start:020}{again}{suffix_of(self._export.format)}"

    def _temporary(self, name: str) -> str:
        return f".{name}.{self._attempt}{TEMPORARY_SUFFIX}"


def _lost(each: OffsetRange, damage: Damage) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "file": damage.error.file,
        "position": damage.error.position,
        "firstOffset": damage.first_offset,
        "nextOffset": damage.next_offset if damage.next_offset >= 0 else None,
        "what": damage.error.what,
    }


def _failed(each: OffsetRange, error: Exception) -> dict[str, Any]:
    about = {"topic": each.topic, "partition": each.partition}
    place = {name: getattr(error, name) for name in ("file", "position") if hasattr(error, name)}
    what = getattr(error, "what", str(error))
    return {
        **about,
        **place,
        "what": f"{what}; offsets {each.start} to {each.end - 1} are not exported",
    }


# -- on the driver ---------------------------------------------------------------------------------


def _plan(dirs: JobLogDirs, options: ReadOptions) -> ExportPlan:
    """Plans the export of all records, of now or of the time that `dirs` shows."""
    engine = dirs.engine()
    keys = assigned(engine.topics(), options)
    ends = {key: engine.log(*key).view().bound(options.isolation) for key in keys}
    ranges = plan(dirs.log_dirs, options)
    read = {(each.topic, each.partition) for each in ranges}
    empty = {key: end for key, end in ends.items() if key not in read}
    configs = {topic: _configs(dirs, topic) for topic in dict.fromkeys(topic for topic, _ in keys)}
    return ExportPlan(ranges, empty, configs)


def _configs(dirs: JobLogDirs, topic: str) -> dict[str, str]:
    """Returns the configs of a topic that differ from the defaults, without those of this run."""
    kept = tuple(each for each in dirs.configs if each[0] == _PREFERRED)
    return replace(dirs, configs=kept).engine().topic_config(topic).changed


def _refuse_older(output: str) -> None:
    """Raises OtherJob for an export started by an earlier version of kafkafs, which notes less."""
    job = Notes(os.path.join(output, NOTES)).job()
    if isinstance(job, dict) and job.get("job") == "export" and "version" not in job:
        why = "it holds an export started by an earlier version of kafkafs"
        raise OtherJob(f"{output}: {why}; export to another directory")


def _go_on(
    output: str, notes: Notes, begun: dict[str, Any], now: ExportPlan
) -> Sequence[OffsetRange]:
    """Returns the ranges of the noted plan; if that export was finished, also those of records
    appended since."""
    known = read_plan(output)
    if not os.path.exists(os.path.join(output, SUCCESS)):
        return known.ranges
    new = added(known.ranges, now.ranges)
    ranges = [*known.ranges, *new]
    read = {(each.topic, each.partition) for each in ranges}
    empty = {key: offset for key, offset in {**known.empty, **now.empty}.items() if key not in read}
    grown = ExportPlan(ranges, empty, {**known.configs, **now.configs})
    if grown != known:
        WritableDirFd(output).remove(SUCCESS)
        notes.describe({**begun, "plan": grown.as_json()})
    return ranges


def added(known: Sequence[OffsetRange], now: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Returns the parts of the ranges planned `now` that lie above the known ones."""
    ends: dict[TopicPartition, int] = {}
    for each in known:
        key = (each.topic, each.partition)
        ends[key] = max(each.end, ends.get(key, 0))
    later = (
        replace(each, start=max(each.start, ends.get((each.topic, each.partition), 0)))
        for each in now
    )
    return [each for each in later if each.start < each.end]


def _remove_leftovers(output: str) -> None:
    """Removes the unfinished files of attempts before this run."""
    for folder, folders, files in os.walk(output):
        folders[:] = [name for name in folders if "=" in name]
        for name in files:
            if name.startswith(".part-") and name.endswith(TEMPORARY_SUFFIX):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))


def _report(ranges: Sequence[OffsetRange], done: Sequence[Mapping[str, Any]]) -> Report:
    rows: dict[TopicPartition, dict[str, Any]] = {}
    wrong: list[Row] = []
    for each, result in zip(ranges, done, strict=True):
        values = (each.topic, each.partition, each.start, each.end, 0, 0, 0)
        row = rows.setdefault(
            (each.topic, each.partition), dict(zip(_COLUMNS, values, strict=True))
        )
        row["endOffset"] = each.end
        files = result.get("files", ())
        row["records"] += result.get("records", 0)
        row["files"] += len(files)
        row["bytes"] += sum(file["bytes"] for file in files)
        wrong += [result["failed"]] if "failed" in result else result["lost"]
    return Report(
        "export",
        _COLUMNS,
        list(rows.values()),
        wrong,
        units=len(ranges),
        skipped=sum("isOld" in result for result in done),
        totals={name: sum(row[name] for row in rows.values()) for name in ("records", "files")},
    )
