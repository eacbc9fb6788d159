"""Exports records to Parquet, Arrow, JSON lines or CSV files in a tree `topic=T/date=D/`.

The plan consists of ranges of offsets. A unit of work writes one range, with a file for each period
(UTC) of its timestamps; threads of this process or Spark's tasks carry it out. A file counts only
when the range's note, in `_kafkafs`, names it. The plan is noted, too: a restarted export resumes
with the same ranges, and then continues with what has been appended to the logs since.

Whatever ends an export, no file is incomplete under its final name, and no record is in two files
when it has been resumed: names follow from the range, and final names that no note mentions are
removed before their range is exported again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ...concurrency.unit_threads import Advance, ignore_advance, run_units
from ...errors import (
    CorruptError,
    DataLoss,
    LogDirError,
    LogDirLocked,
    OtherJob,
    SegmentGone,
    StorageError,
    fresh,
)
from ...format.files.names import TopicPartition
from ...format.primitives import random_uuid_text
from ...format.records.columns import Columns, Damage
from ...io.directory import Directory
from ...io.durable import TEMPORARY_SUFFIX, WritableDirFd
from ...io.lock import DirectoryLock
from ...log_dirs.engine import Engine
from ...schemas.catalog import SchemaCatalog
from ...schemas.typed.sources import SchemaSourceDirs
from ..offset_ranges import OffsetRange
from ..output_dir import refuse_in_log_dir
from ..range_reader import LogRangeReader, Loss, next_offset
from ..request import SILENT, ProgressListener
from ..unit_notes import Notes
from .decoded_form import TYPED_FORMATS, DecodedForms
from .description import NOTES, VERSION, ExportPlan, file_origin, read_plan, topic_dir, unit_name
from .export_plan import absolute_log_dirs, check_version, grown, plan_export
from .record_files import MakeForm, RawForm
from .request import Export, Format, NotExported, PartitionExport, Period, TransferSummary
from .unit_files import UnitFiles

SUCCESS: Final = "_SUCCESS"

# What an output may have that counts as empty: a file system's own entry, and what is left of an
# export that ended before its first note.
_NOTHING: Final = ("lost+found", NOTES)
# How many periods a topic's directory may be nested.
_MOST_DEPTH: Final = 3

#: The result of a range: the content of its note, or {"failed": …}.
UnitResult = dict[str, Any]
ExportRow = PartitionExport | NotExported | TransferSummary


# -- units of work ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportUnits:
    """What all units of an export share. Can be pickled. `form`: what records become in files."""

    output: str
    reader: LogRangeReader
    format: Format
    by: Period
    permissive: bool
    notes: Notes
    form: MakeForm = RawForm

    def write(self, each: OffsetRange, advance: Advance = ignore_advance) -> UnitResult:
        """Writes and notes one range; returns its note, or why there is none."""
        output = WritableDirFd(self.output)
        files = UnitFiles(output, each, self.format, self.by, self.form)
        lost: list[NotExported] = []
        try:
            for part in self._parts(each, lost, advance):
                files.write(part)
            result = {
                "files": files.finish(),
                "records": files.records,
                "firstOffset": files.first_offset,
                "lastOffset": files.last_offset,
                "lost": [each.as_json() for each in lost],
            }
            self.notes.put(unit_name(each), result)
        except (StorageError, OSError) as error:
            files.discard()
            return {"failed": _failed(each, error).as_json()}
        except BaseException:
            files.discard()
            raise
        return result

    def _parts(
        self, each: OffsetRange, lost: list[NotExported], advance: Advance
    ) -> Iterator[Columns]:
        """Yields the records of a range. What cannot be read is raised or, if `permissive`, added
        to `lost`."""

        def lose(what: str, loss: Loss) -> None:
            if not self.permissive:
                raise DataLoss(what)
            lost.append(NotExported(each.topic, each.partition, what))

        reader = LogRangeReader(
            self.reader.log_dirs,
            self.reader.configs,
            self.reader.isolation,
            self.reader.at_ms,
            lose,
        )
        reached = each.start
        for part in reader.parts(each, each.start):
            if isinstance(part, Columns):
                yield part
            elif self.permissive:
                lost.append(_lost(each, part))
            else:
                raise fresh(part.error)
            after = min(max(next_offset(part, reached), reached), each.end)
            advance(each.size * (after - reached) // (each.end - each.start))
            reached = after


def _lost(each: OffsetRange, damage: Damage) -> NotExported:
    error = damage.error
    return NotExported(
        each.topic,
        each.partition,
        error.what,
        error.file,
        error.position,
        damage.first_offset,
        damage.next_offset,
    )


def _failed(each: OffsetRange, error: Exception) -> NotExported:
    consequence = f"offsets {each.start} to {each.end - 1} are not exported"
    return NotExported.of((each.topic, each.partition), error, consequence)


# -- the whole export ------------------------------------------------------------------------------


class ExportRun:
    """An export in progress. `units` carries out the `pending` ranges."""

    def __init__(
        self,
        units: ExportUnits,
        ranges: Sequence[OffsetRange],
        finished: Mapping[OffsetRange, UnitResult],
        refused: Sequence[NotExported],
    ) -> None:
        self.units = units
        self.pending = [each for each in ranges if each not in finished]
        self._ranges = ranges
        self._finished = finished
        self._refused = refused

    def finish(self, results: Sequence[UnitResult]) -> Iterator[ExportRow]:
        """Marks the export as complete unless ranges are missing, given the results of `pending`,
        and yields its rows."""
        done = {**self._finished, **dict(zip(self.pending, results, strict=True))}
        is_complete = not self._refused and not any("failed" in each for each in results)
        output = WritableDirFd(self.units.output)
        if is_complete and not _exists(output, SUCCESS):
            output.write_atomically(SUCCESS, b"")
        return self._rows(done)

    def _rows(self, done: Mapping[OffsetRange, UnitResult]) -> Iterator[ExportRow]:
        of_each: dict[TopicPartition, list[OffsetRange]] = {}
        for each in self._ranges:
            of_each.setdefault((each.topic, each.partition), []).append(each)
        for key, ranges in of_each.items():
            notes = [done[each] for each in ranges]
            files = [file for note in notes for file in note.get("files", ())]
            records = sum(note.get("records", 0) for note in notes)
            size = sum(file["bytes"] for file in files)
            yield PartitionExport(*key, ranges[0].start, ranges[-1].end, records, len(files), size)
        for note in done.values():
            wrong = [note["failed"]] if "failed" in note else note["lost"]
            yield from map(NotExported.of_json, wrong)
        yield from self._refused
        yield TransferSummary(len(self._ranges), len(self._finished))


@contextmanager
def begun_export(engine: Engine, request: Export) -> Iterator[ExportRun]:
    """Starts an export, or resumes the one in its output, for the block; no other process can
    export to the same place meanwhile.

    Raises LogDirError if the output would be in a log directory, or is not empty; OtherJob if
    another export is in it, or is in progress; UnknownTopic or UnknownPartition.
    """
    refuse_in_log_dir(request.output, [each.directory for each in engine.log_dirs.dirs])
    output = WritableDirFd(request.output)
    _refuse_foreign(output)
    planned = plan_export(engine, request)
    notes_dir = output.child(NOTES)
    WritableDirFd(notes_dir.path).make_itself()
    with _locked(notes_dir):
        notes = Notes(notes_dir.path)
        check_version(notes.job(), request.output, VERSION)
        job = _job(engine, request)
        notes, known = Notes.of_job(notes_dir.path, {**job, "plan": planned.plan.as_json()})
        before = read_plan(request.output)
        grew = grown(before, planned)
        if grew.plan != before:
            notes.describe({**known, "plan": grew.plan.as_json()})
        ranges = grew.plan.ranges
        finished = dict(_finished(output, notes, ranges))
        run = ExportRun(_units(engine, request, notes, grew.plan), ranges, finished, grew.refused)
        if run.pending:
            output.remove(SUCCESS, missing_ok=True)
        _remove_leftovers(output, run.pending)
        yield run


def export(
    engine: Engine, request: Export, progress: ProgressListener = SILENT
) -> Iterator[ExportRow]:
    """Carries out an export with all processors. Yields a row for each partition, one for each
    place whose records are missing, and a summary. Raises what `begun_export` raises."""

    def report(done: int, total: int) -> None:
        progress.check()
        progress.report("exporting", done, total)

    with begun_export(engine, request) as run:
        results = run_units(run.pending, run.units.write, lambda each: each.size, report)
        yield from run.finish(results)


def _job(engine: Engine, request: Export) -> dict[str, Any]:
    """Returns the description of the export, without its plan."""
    optional = {"at": engine.at_ms, "from": request.since_ms, "until": request.until_ms}
    return {
        "job": "export",
        "version": VERSION,
        "id": random_uuid_text(),
        "log_dirs": list(absolute_log_dirs(engine)),
        "topics": [list(choice) for choice in request.selection.names],
        "format": request.format,
        "by": request.by,
        "isolation": request.isolation.value,
        **({"decode": True} if request.decode else {}),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _units(engine: Engine, request: Export, notes: Notes, plan: ExportPlan) -> ExportUnits:
    dirs, configs = absolute_log_dirs(engine), dict(engine.configs)
    reader = LogRangeReader(dirs, configs, request.isolation, engine.at_ms)
    form: MakeForm = RawForm
    if request.decode:
        supplied = SchemaCatalog(engine).schemas().supplied
        source = SchemaSourceDirs(dirs, configs, engine.at_ms, supplied)
        form = DecodedForms(source, request.format in TYPED_FORMATS, plan.schemas)
    return ExportUnits(
        request.output, reader, request.format, request.by, request.permissive, notes, form
    )


def _refuse_foreign(output: WritableDirFd) -> None:
    """Raises LogDirError if the output has anything but an export."""
    try:
        names = {entry.name for entry in output.list()} - set(_NOTHING)
    except SegmentGone:
        return
    if names and Notes(output.child(NOTES).path).job() is None:
        why = "has files, but no export; choose a new or an empty directory"
        raise LogDirError(output.path, why)


@contextmanager
def _locked(notes: WritableDirFd) -> Iterator[None]:
    try:
        lock = DirectoryLock(notes)
    except LogDirLocked as error:
        who = f"process {error.pid}" if error.pid > 0 else "another process"
        above = notes.path.removesuffix(f"/{NOTES}")
        raise OtherJob(f"{above}: {who} is exporting to it; wait until it has ended") from None
    with lock:
        yield


def _finished(
    output: Directory, notes: Notes, ranges: Sequence[OffsetRange]
) -> Iterator[tuple[OffsetRange, UnitResult]]:
    """Yields the ranges whose files are all there, with their notes."""
    for each in ranges:
        note = notes.get(unit_name(each))
        try:
            if note is not None and all(_is_file(output, file["path"]) for file in note["files"]):
                yield each, note
        except (KeyError, TypeError, ValueError):
            what = f"the note of {each} is not that of an export"
            raise CorruptError(what, notes.path) from None


def _is_file(output: Directory, path: str) -> bool:
    *folders, name = path.split("/")
    for folder in folders:
        output = output.child(folder)
    return _exists(output, name)


def _exists(directory: Directory, name: str) -> bool:
    try:
        directory.open(name)
    except (SegmentGone, LogDirError, CorruptError):
        return False
    return True


def _remove_leftovers(output: WritableDirFd, pending: Sequence[OffsetRange]) -> None:
    """Removes what earlier attempts have left of ranges that are still to be exported: unfinished
    files, and final names that no note mentions."""
    notes = output.child(NOTES)
    for entry in notes.list():
        if entry.name.startswith(".") and entry.name.endswith(TEMPORARY_SUFFIX):
            notes.remove(entry.name, missing_ok=True)
    origins: dict[str, set[tuple[int, int]]] = {}
    for each in pending:
        origins.setdefault(each.topic, set()).add((each.partition, each.start))
    for topic, of_topic in origins.items():
        with suppress(SegmentGone, LogDirError):
            _remove_below(output.child(topic_dir(topic)), of_topic, _MOST_DEPTH)


def _remove_below(directory: WritableDirFd, origins: set[tuple[int, int]], depth: int) -> None:
    for entry in directory.list():
        name = entry.name
        if entry.is_dir:
            if depth and "=" in name:
                _remove_below(directory.child(name), origins, depth - 1)
        elif _is_leftover(name) or file_origin(name) in origins:
            directory.remove(name, missing_ok=True)


def _is_leftover(name: str) -> bool:
    return name.startswith(".part-") and name.endswith(TEMPORARY_SUFFIX)
