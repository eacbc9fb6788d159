"""Recreates the logs of an export with their offsets, timestamps and headers.

A unit of work writes sealed segments of one range of the export to the staging directory next to
the log directory; whoever holds the directories then commits them all at once (see
`storage.ingest`). Staged ranges are noted, so that a restarted import resumes. An import that is
done is not repeated as long as its records are there; if the export has grown since, what is new is
appended.
"""

from __future__ import annotations

import hashlib
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...concurrency.unit_threads import Advance, ignore_advance, run_units
from ...config.kafka import TopicConfig
from ...errors import CorruptError, Refused, StorageError
from ...format.files.names import TopicPartition
from ...format.primitives import random_uuid_text
from ...ingest.commit_file import IngestWrite, StagedPart, read_commit_records
from ...ingest.segment_series import SealedSegment
from ...ingest.staging import StagedWriter, StagingPlace, staging_path
from ...ingest.two_phase import ingest_parts
from ...io.disk import DirFd
from ...log.append.writer import LogWriter
from ...log_dirs.engine import Engine
from ...log_dirs.selection import EVERYTHING, Selection
from ...log_manager import LogManager
from ...topics.topics import refuse_in_engine, refuse_unregistered
from ..import_batches import batches_of
from ..request import SILENT, PartitionFailed, ProgressListener, writable
from ..unit_notes import Notes
from .description import (
    ExportedLogs,
    ExportedPartition,
    ExportedRange,
    open_file,
    read_export,
    unit_name,
)
from .record_files import SCHEMA
from .record_reading import read_ordered, refuse_changed
from .request import PartitionImport, TransferSummary

_STAGED: Final = "notes"

ImportRow = PartitionImport | TransferSummary
# Log start and log end offset.
_Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Import:
    """Recreates the logs that an export in the directory `source`, an absolute path, has of the
    selected partitions. Missing topics and partitions are created with the exported configs, log
    start offsets and end offsets. `unregistered`: also those that a KRaft cluster does not know."""

    source: str
    exported: ExportedLogs
    selection: Selection = EVERYTHING
    unregistered: bool = False

    @classmethod
    def of(
        cls, source: str, selection: Selection = EVERYTHING, *, unregistered: bool = False
    ) -> Import:
        """Reads the description of the export. Raises what `read_export` raises."""
        return cls(source, read_export(source, selection), selection, unregistered)

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises Unregistered for topics and partitions that a KRaft broker would not know, or
        Refused if the export cannot be appended to a partition."""
        for topic, starts in _starts(self.exported).items() if not self.unregistered else ():
            if topic not in engine.topics():
                refuse_in_engine(engine, topic, sorted(starts))
            elif missing := sorted(starts.keys() - set(engine.topics()[topic])):
                refuse_unregistered(engine, topic, missing, engine.topic_id(topic))
        records = [read_commit_records(each.directory) for each in engine.log_dirs.dirs]
        done = max((each.latest.get(self.writer, -1) for each in records), default=-1)
        for each in self.exported.partitions:
            there = _bounds(engine, each)
            rest = _missing(each, there, done)
            if rest is not None and rest.ranges:
                _next_offset(rest, there)
        return ()

    @property
    def origin(self) -> str:
        """Which export it is, wherever that is now."""
        return self.exported.identity or self.source

    @property
    def writer(self) -> str:
        """A name that is the same for every run of the same import, also when the export has
        grown."""
        what = [self.origin, str(self.selection)]
        if not self.exported.identity:
            for each in self.exported.partitions:
                what.append(f"{each.topic}-{each.partition} {each.start_offset}-{each.end_offset}")
                what += [f"{unit_name(part.range)} {part.records}" for part in each.ranges]
        digest = hashlib.sha256("\n".join(what).encode()).hexdigest()
        return f"import-{digest[:32]}"


@dataclass(frozen=True, slots=True)
class ImportUnit:
    """A range of an export and the config of its topic in the target. The batches made of it cover
    the offsets [`begin`, `end`)."""

    exported: ExportedRange
    source: str
    begin: int
    end: int
    config: TopicConfig

    @property
    def name(self) -> str:
        return f"{unit_name(self.exported.range)} as {self.begin}-{self.end}"

    @property
    def size(self) -> int:
        return self.exported.size


# -- units of work ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImportStaging:
    """Where the units stage their segments. Can be pickled."""

    path: str
    job: str
    notes: Notes

    @classmethod
    def beside(cls, log_dir: str, origin: str, job: str) -> ImportStaging:
        """Returns the staging place of a job beside a log directory, begun or resumed."""
        path = staging_path(posixpath.abspath(log_dir))
        noted = {"job": "import", "export": origin}
        notes, _ = Notes.of_job(posixpath.join(path, job, _STAGED), noted)
        return cls(path, job, notes)

    def remove(self) -> None:
        StagingPlace(self.path).remove(self.job)

    def stage(self, unit: ImportUnit, advance: Advance = ignore_advance) -> dict[str, Any]:
        """Stages one range; returns the content of its note."""
        noted: dict[str, Any] | None = self.notes.get(unit.name)
        if noted is not None and (noted["part"] is None or is_staged(noted["part"])):
            advance(unit.size)
            return {**noted, "isOld": True}
        attempt = StagingPlace(self.path).attempt(self.job, random_uuid_text())
        each = unit.exported.range
        writer = StagedWriter(attempt, each.topic, each.partition, unit.config, keeps_offsets=True)
        try:
            _write(writer, unit, advance)
            part = writer.finish()
        except BaseException:
            writer.discard()
            raise
        result = {"part": asdict(part) if part.segments else None}
        self.notes.put(unit.name, result)
        return result


def is_staged(noted: Mapping[str, Any]) -> bool:
    """Returns whether the files of a noted part are still there."""
    try:
        DirFd(noted["path"]).list()
    except StorageError:
        return False
    return True


def _write(writer: StagedWriter, unit: ImportUnit, advance: Advance) -> None:
    """Writes the batches of a range. Raises CorruptError if its files have other records than were
    exported."""
    now_ms = time.time_ns() // 1_000_000
    exported = unit.exported
    begin, count, last = unit.begin, 0, -1
    for table in _tables(unit):
        offsets = table.column("offset").to_numpy()
        is_first = count == 0 and len(offsets)
        if not (np.diff(offsets) > 0).all() or (len(offsets) and offsets[0] <= last):
            raise _wrong(unit)
        if is_first and offsets[0] != exported.first_offset:
            raise _wrong(unit)
        last, count = int(offsets[-1]) if len(offsets) else last, count + len(offsets)
        if count > exported.records or last > exported.last_offset:
            raise _wrong(unit)
        end = max(begin, last + 1)
        for batches in batches_of(table, unit.config, begin, end):
            writer.append_batches(bytearray(batches), now_ms)
        begin = end
        advance(unit.size * len(offsets) // max(exported.records, 1))
    if (count, last) != (exported.records, exported.last_offset):
        raise _wrong(unit)
    for batches in batches_of(SCHEMA.empty_table(), unit.config, begin, unit.end):
        writer.append_batches(bytearray(batches), now_ms)


def _tables(unit: ImportUnit) -> Iterator[pa.Table]:
    exported = unit.exported
    files = [open_file(unit.source, path) for path in exported.files]
    for file, checksum in zip(files, exported.checksums, strict=True):
        if checksum >= 0:
            refuse_changed(file, checksum)
    return read_ordered(files)


def _wrong(unit: ImportUnit) -> CorruptError:
    exported = unit.exported
    what = f"not the {exported.records} records that were exported from {exported.range}"
    return CorruptError(what, posixpath.join(unit.source, *exported.files[:1]))


# -- the whole import ------------------------------------------------------------------------------


class ImportRun:
    """An import in progress. `staging` carries out the `units`."""

    def __init__(self, engine: LogManager, request: Import) -> None:
        """Raises Refused if the export cannot be appended to a partition."""
        self._engine = engine
        self._request = request
        exported = request.exported
        done = engine.commits.last_epoch(request.writer)
        if done < exported.planned:
            self._write = IngestWrite(request.writer, exported.planned)
        else:  # something is missing that was there
            self._write = IngestWrite(f"{request.writer}-{time.time_ns()}")
        configs = {topic: _config(engine, exported, topic) for topic in exported.topics}
        bounds = [_written_bounds(engine, each) for each in exported.partitions]
        pairs = list(zip(exported.partitions, bounds, strict=True))
        self._missing = [_missing(each, there, done) for each, there in pairs]
        self._is_old = done >= exported.planned and not any(map(_is_needed, self._missing))
        self._skipped = sum(
            len(each.ranges) - (0 if missing is None else len(missing.ranges))
            for each, missing in zip(exported.partitions, self._missing, strict=True)
        )
        self.units = [
            unit
            for each, there in zip(self._missing, bounds, strict=True)
            if each is not None
            for unit in _units(each, there, request.source, configs[each.topic])
        ]
        first = engine.log_dirs.dirs[0].path
        self.staging = ImportStaging.beside(first, request.origin, request.writer)

    def finish(self, results: Sequence[Mapping[str, Any]]) -> Iterator[ImportRow]:
        """Commits what the units have staged, given their results, and yields the import's rows."""
        parts = [part for part in map(_part, results) if part is not None]
        if not self._is_old:
            with _made(self._engine, self._request.exported, self._write):
                ingest_parts(self._engine, self._write, [part for part in parts if part.segments])
        self.staging.remove()
        return self._rows(parts, sum("isOld" in each for each in results))

    def _rows(self, parts: Sequence[StagedPart], staged_before: int) -> Iterator[ImportRow]:
        sizes: dict[TopicPartition, int] = {}
        for part in parts:
            key = (part.topic, part.partition)
            sizes[key] = sizes.get(key, 0) + part.size
        units = 0
        for each in self._request.exported.partitions:
            units += len(each.ranges)
            size = sizes.get((each.topic, each.partition), 0)
            yield PartitionImport(
                each.topic,
                each.partition,
                each.records,
                size,
                each.start_offset,
                each.end_offset,
            )
        yield TransferSummary(units, self._skipped + staged_before)


def import_logs(
    engine: Engine, request: Import, progress: ProgressListener = SILENT
) -> Iterator[ImportRow]:
    """Carries out an import with all processors. Yields a row for each partition, and a summary.
    Either everything is committed, or nothing.

    Raises Refused if a partition has records at or above the exported offsets, or ends below the
    start of the export; CorruptError for files that are not those of the export.
    """

    def report(done: int, total: int) -> None:
        progress.report("importing", done, total)

    request.check(engine)
    run = ImportRun(writable(engine), request)
    results = run_units(run.units, run.staging.stage, lambda unit: unit.size, report)
    yield from run.finish(results)


def _bounds(engine: Engine, each: ExportedPartition) -> _Bounds | None:
    """Returns log start and log end offset of a partition, None if it does not exist."""
    if each.partition not in engine.topics().get(each.topic, ()):
        return None
    view = engine.log(each.topic, each.partition).view()
    return view.start_offset, view.end_offset


def _written_bounds(engine: LogManager, each: ExportedPartition) -> _Bounds | None:
    """Returns the same of a partition that is open for writing."""
    if each.partition not in engine.topics().get(each.topic, ()):
        return None
    writer = engine.writer(each.topic, each.partition)
    return writer.start_offset, writer.end_offset


def _missing(each: ExportedPartition, there: _Bounds | None, done: int) -> ExportedPartition | None:
    """Returns what is missing of a partition, where the first `done` ranges of the export have been
    imported before; None if there is nothing."""
    old = [part for part in each.ranges if part.number < done]
    if there is None or not old or there[1] < old[-1].range.end:
        return each
    new = each.ranges[len(old) :]
    return replace(each, start_offset=old[-1].range.end, ranges=new) if new else None


def _is_needed(missing: ExportedPartition | None) -> bool:
    return missing is not None


def _config(engine: LogManager, exported: ExportedLogs, topic: str) -> TopicConfig:
    """Returns the config of an existing topic, or of the one that will be created."""
    if topic in engine.topics():
        return engine.topic_config(topic).config
    return engine.new_topic_config(exported.configs.get(topic, {})).config


def _units(
    each: ExportedPartition, there: _Bounds | None, source: str, config: TopicConfig
) -> Iterator[ImportUnit]:
    """Yields the ranges of a partition, which together cover all offsets from the log's end to the
    export's."""
    if not each.ranges:
        return
    begin = _next_offset(each, there)
    ends = [*(part.range.start for part in each.ranges[1:]), each.end_offset]
    for part, end in zip(each.ranges, ends, strict=True):
        if part.records or begin < end:
            yield ImportUnit(part, source, begin, end, config)
        begin = max(begin, end)


def _next_offset(each: ExportedPartition, there: _Bounds | None) -> int:
    """Returns the log end offset, or that of the log to be created. Raises Refused if the export
    cannot be appended there."""
    if there is None:
        return each.start_offset
    start, end = there
    about = f"{each.topic}-{each.partition}"
    if end > each.first_record and each.records:
        raise Refused(
            f"{about} has offsets up to {end - 1}; the import begins at {each.first_record}"
        )
    if end >= each.start_offset:
        return end
    if start < end:
        why = f"the offsets {end} to {each.start_offset - 1} would be missing"
        raise Refused(f"{about} ends at {end}, and the export begins at {each.start_offset}: {why}")
    return each.start_offset


def _starts(exported: ExportedLogs) -> dict[str, dict[int, int]]:
    """Returns the log start offsets by topic and partition."""
    starts: dict[str, dict[int, int]] = {}
    for each in exported.partitions:
        starts.setdefault(each.topic, {})[each.partition] = each.start_offset
    return starts


@contextmanager
def _made(engine: LogManager, exported: ExportedLogs, write: IngestWrite) -> Iterator[None]:
    """Creates the missing topics and partitions for the commit in the block. If it fails, new
    topics are deleted again, unless the write is already committed."""
    requested = _starts(exported)
    there = engine.topics()
    new = [topic for topic in requested if topic not in there]
    try:
        for topic, starts in requested.items():
            if topic in new:
                configs = exported.configs.get(topic, {})
                engine.create_topic(topic, sorted(starts), configs, carried_over=True)
            elif missing := sorted(starts.keys() - set(there[topic])):
                engine.add_partitions(topic, missing)
            for number, start in starts.items():
                _begin_at(engine.writer(topic, number), start)
        yield
    except BaseException:
        with suppress(StorageError, OSError):  # the first error is the one to report
            if not engine.commits.is_pending(write):
                for topic in new:
                    if topic in engine.topics():
                        engine.delete_unchanged_topic(topic, requested[topic])
        raise


def _begin_at(writer: LogWriter, start: int) -> None:
    """Moves the start of a log without records up to `start`."""
    if writer.start_offset == writer.end_offset < start:
        writer.truncate_fully_and_start_at(start)


def _part(result: Mapping[str, Any]) -> StagedPart | None:
    noted = result["part"]
    return None if noted is None else staged_part(noted)


def staged_part(noted: Mapping[str, Any]) -> StagedPart:
    """Returns the part of a note."""
    segments = tuple(SealedSegment(**segment) for segment in noted["segments"])
    return StagedPart(**{**noted, "segments": segments})
