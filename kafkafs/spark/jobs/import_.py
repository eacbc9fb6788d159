"""The `import` job: recreates the logs of an export with their offsets, timestamps and headers.

A task writes sealed segments of one range of the export to the staging directory next to the log
directory; the driver, which holds the directories, then commits them all at once (see
`storage.ingest`). Staged ranges are noted, so that a restarted import resumes. An import that is
done is not repeated as long as its records are there.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafkafs.storage import (
    CorruptError,
    Engine,
    IngestWrite,
    LogManager,
    LogWriter,
    Refused,
    SealedSegment,
    Selected,
    StagedPart,
    StagedWriter,
    StagingPlace,
    StorageError,
    TopicConfig,
    TopicPartition,
    batches_of,
    ingest_parts,
    local_path,
    refuse_in_engine,
    refuse_unregistered,
    staging_path,
)

from .export_files import SCHEMA, read_file
from .export_notes import (
    ExportedLogs,
    ExportedPartition,
    ExportedRange,
    check_file,
    read_export,
    unit_name,
)
from .job_log_dirs import JobLogDirs
from .notes import Notes
from .report import Report
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = ("topic", "partition", "records", "bytes", "startOffset", "endOffset")
_STAGED: Final = "notes"


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


@dataclass(frozen=True, slots=True)
class ImportStaging:
    """Where the tasks stage their segments."""

    path: str
    job: str
    notes: Notes


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
    exported = read_export(source, topics)
    dirs = JobLogDirs.new(_absolute(log_dirs), configs)
    if not unregistered:
        _refuse_unregistered(dirs, exported)
    with LogManager(list(dirs.log_dirs), dict(dirs.configs), unregistered=unregistered) as engine:
        job = _job_name(source, exported)
        write = IngestWrite(job, 0)
        if engine.commits.is_done(write):
            if _are_there(engine, exported):
                return _report(exported, [], is_old=True)
            write = IngestWrite(f"{job}-{time.time_ns()}")
        topic_configs = {topic: _config(engine, exported, topic) for topic in exported.topics}
        units = [
            unit
            for each in exported.partitions
            for unit in _units(engine, each, source, topic_configs[each.topic])
        ]
        staging = _staging(dirs, source, job)
        done = run(spark, "import", units, partial(_stage, staging), _size, on_progress)
        parts = [_part(result) for result in done]
        with _made(engine, exported, write):
            ingest_parts(
                engine, write, [part for part in parts if part is not None and part.segments]
            )
        StagingPlace(staging.path).remove(job)
    return _report(exported, done)


def _absolute(log_dirs: str | Sequence[str]) -> tuple[str, ...]:
    """Returns absolute paths; without wildcards, as the directories need not exist."""
    listed = log_dirs.split(",") if isinstance(log_dirs, str) else log_dirs
    return tuple(os.path.abspath(local_path(path)) for path in listed)


def _size(unit: ImportUnit) -> int:
    return unit.exported.size


def _job_name(source: str, exported: ExportedLogs) -> str:
    """Returns a name that is the same for every run of the same import."""
    what = [source]
    for each in exported.partitions:
        what.append(f"{each.topic}-{each.partition} {each.start_offset}-{each.end_offset}")
        what += [f"{unit_name(part.range)} {part.records}" for part in each.ranges]
    digest = hashlib.sha256("\n".join(what).encode()).hexdigest()
    return f"import-{digest[:32]}"


def _are_there(engine: LogManager, exported: ExportedLogs) -> bool:
    """Returns whether all partitions reach the end of the export."""
    topics = engine.topics()
    return all(
        each.partition in topics.get(each.topic, ())
        and engine.writer(each.topic, each.partition).end_offset >= each.end_offset
        for each in exported.partitions
    )


def _config(engine: LogManager, exported: ExportedLogs, topic: str) -> TopicConfig:
    """Returns the config of an existing topic, or of the one that will be created."""
    if topic in engine.topics():
        return engine.topic_config(topic).config
    return engine.new_topic_config(exported.configs.get(topic, {})).config


def _units(
    engine: LogManager, each: ExportedPartition, source: str, config: TopicConfig
) -> Iterator[ImportUnit]:
    """Yields the ranges of a partition, which together cover all offsets from the log's end to the
    export's."""
    if not each.ranges:
        return
    begin = _next_offset(engine, each)
    ends = [*(part.range.start for part in each.ranges[1:]), each.end_offset]
    for part, end in zip(each.ranges, ends, strict=True):
        if part.records or begin < end:
            yield ImportUnit(part, source, begin, end, config)
        begin = max(begin, end)


def _next_offset(engine: LogManager, each: ExportedPartition) -> int:
    """Returns the log end offset, or that of the log to be created. Raises Refused if the export
    cannot be appended there."""
    if each.partition not in engine.topics().get(each.topic, ()):
        return each.start_offset
    writer = engine.writer(each.topic, each.partition)
    end = writer.end_offset
    about = f"{each.topic}-{each.partition}"
    if end > each.first_record and each.records:
        raise Refused(
            f"{about} has offsets up to {end - 1}; the import begins at {each.first_record}"
        )
    if end >= each.start_offset:
        return end
    if writer.start_offset < end:
        why = f"the offsets {end} to {each.start_offset - 1} would be missing"
        raise Refused(f"{about} ends at {end}, and the export begins at {each.start_offset}: {why}")
    return each.start_offset


def _starts(exported: ExportedLogs) -> dict[str, dict[int, int]]:
    """Returns the log start offsets by topic and partition."""
    starts: dict[str, dict[int, int]] = {}
    for each in exported.partitions:
        starts.setdefault(each.topic, {})[each.partition] = each.start_offset
    return starts


def _refuse_unregistered(dirs: JobLogDirs, exported: ExportedLogs) -> None:
    """Raises Unregistered, before anything is locked or staged, for topics and partitions that a
    KRaft broker would not know."""
    there = tuple(path for path in dirs.log_dirs if os.path.isdir(path) and os.listdir(path))
    if not there:
        return
    with closing(Engine(there, dict(dirs.configs))) as engine:
        for topic, starts in _starts(exported).items():
            if topic not in engine.topics():
                refuse_in_engine(engine, topic, sorted(starts))
            elif missing := sorted(starts.keys() - set(engine.topics()[topic])):
                refuse_unregistered(engine, topic, missing, engine.topic_id(topic))


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


def _staging(dirs: JobLogDirs, source: str, job: str) -> ImportStaging:
    path = staging_path(dirs.log_dirs[0])
    notes, _ = Notes.of_job(os.path.join(path, job, _STAGED), {"job": "import", "source": source})
    return ImportStaging(path, job, notes)


# -- in the tasks ----------------------------------------------------------------------------------


def _stage(staging: ImportStaging, unit: ImportUnit) -> dict[str, Any]:
    """Stages one range; returns the content of its note."""
    name = unit.name
    noted: dict[str, Any] | None = staging.notes.get(name)
    if noted is not None and (noted["part"] is None or os.path.isdir(noted["part"]["path"])):
        return {**noted, "isOld": True}
    attempt = StagingPlace(staging.path).attempt(
        staging.job, f"{os.getpid()}-{os.urandom(6).hex()}"
    )
    each = unit.exported.range
    writer = StagedWriter(attempt, each.topic, each.partition, unit.config, keeps_offsets=True)
    try:
        now_ms = time.time_ns() // 1_000_000
        for batches in batches_of(_read(unit), unit.config, unit.begin, unit.end):
            writer.append_batches(bytearray(batches), now_ms)
        part = writer.finish()
    except BaseException:
        writer.discard()
        raise
    result = {"part": asdict(part) if part.segments else None}
    staging.notes.put(name, result)
    return result


def _read(unit: ImportUnit) -> pa.Table:
    """Returns the records of a range, ordered by offset. Raises CorruptError if they are not the
    exported ones."""
    exported = unit.exported
    for path in exported.files:
        check_file(unit.source, path)
    paths = [os.path.join(unit.source, path) for path in exported.files]
    table = pa.Table.from_batches([batch for path in paths for batch in read_file(path)], SCHEMA)
    if len(paths) > 1:
        table = table.sort_by("offset")
    offsets = table.column("offset").to_numpy()
    is_right = len(offsets) == exported.records and bool((np.diff(offsets) > 0).all())
    if is_right and exported.records:
        is_right = (offsets[0], offsets[-1]) == (exported.first_offset, exported.last_offset)
    if not is_right:
        what = f"not the {exported.records} records that were exported from {exported.range}"
        raise CorruptError(what, paths[0] if paths else unit.source)
    return table.combine_chunks()


# -- on the driver ---------------------------------------------------------------------------------


def _part(result: Mapping[str, Any]) -> StagedPart | None:
    noted = result["part"]
    if noted is None:
        return None
    segments = tuple(SealedSegment(**segment) for segment in noted["segments"])
    return StagedPart(**{**noted, "segments": segments})


def _report(
    exported: ExportedLogs, done: Sequence[Mapping[str, Any]], is_old: bool = False
) -> Report:
    rows: dict[TopicPartition, dict[str, Any]] = {}
    for each in exported.partitions:
        key = (each.topic, each.partition)
        values = (*key, each.records, 0, each.start_offset, each.end_offset)
        rows[key] = dict(zip(_COLUMNS, values, strict=True))
    for part in map(_part, done):
        if part is not None:
            rows[part.topic, part.partition]["bytes"] += part.size
    units = sum(len(each.ranges) for each in exported.partitions)
    return Report(
        "import",
        _COLUMNS,
        list(rows.values()),
        units=units,
        skipped=units if is_old else sum("isOld" in result for result in done),
        totals={"records": sum(each.records for each in exported.partitions)},
    )
