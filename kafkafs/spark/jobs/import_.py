"""`import`: logs of an export again, with the offsets, timestamps and headers that they had.

A task makes sealed segments of one range of the export in the staging place beside the log
directory; the driver, which holds the directories, puts all of them in place at once (see
`storage.placing`). What is staged is noted there: started again, the import goes on. One that is
done is not done again as long as the records are there.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafkafs.storage.choice import choose
from kafkafs.storage.config import TopicConfig
from kafkafs.storage.errors import CorruptError, Refused
from kafkafs.storage.format.batch import Int64s
from kafkafs.storage.format.builder import BatchFields, SimpleRecord, build_batch
from kafkafs.storage.format.encoder import BatchPlan, RecordColumns, encode
from kafkafs.storage.format.layout import Codec, TimestampType
from kafkafs.storage.placements import StagedPart, Write
from kafkafs.storage.placing import place
from kafkafs.storage.segment_series import SealedSegment
from kafkafs.storage.staging import StagedWriter, StagingPlace, staging_path
from kafkafs.storage.writable_engine import WritableEngine

from ..planning import OffsetRange
from .export import NOTES, unit_name
from .export_files import read_file
from .notes import Notes
from .places import Choice, Place
from .report import Report
from .tasks import Told, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = ("topic", "partition", "records", "bytes", "startOffset", "endOffset")
_STAGED: Final = "notes"
# Records that follow each other without a gap in their offsets are encoded together; of fewer than
# these, as compaction leaves them, many go into one batch.
_RUN: Final = 32
_BATCH_RECORDS: Final = 200


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of an export: its files, `records` in all, and the settings of its topic here."""

    range: OffsetRange
    files: tuple[str, ...]
    records: int
    size: int
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class Staging:
    """Where the tasks stage what they make."""

    path: str
    job: str
    notes: Notes


def import_(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    source: str,
    topics: Sequence[Choice] = (),
    *,
    settings: Mapping[str, str] | None = None,
    told: Told = silent,
) -> Report:
    """Writes what an export in the directory `source` has, or of it the `topics` (and partitions)
    chosen, to `log_dirs`, which are made where there are none. Topics that are not there are made.
    All of it is put in place, or nothing.

    LogDirLocked when a broker or another writer has one of the directories; OffsetOutOfRange when a
    partition has records at those offsets or above; CorruptError for files that are not those of
    the export, UnknownTopic, UnknownPartition for what it has not.
    """
    source = os.path.abspath(source)
    exported = _read_export(source, topics)
    place_ = Place(_absolute(log_dirs), tuple(sorted((settings or {}).items())))
    with WritableEngine(list(place_.log_dirs), dict(place_.settings)) as engine:
        job = _job_name(source, exported)
        write = Write(job, 0)
        if engine.placements.is_done(write):
            if _are_there(engine, exported):
                return _report(exported, [None] * len(exported), is_old=True)
            write = Write(f"{job}-{time.time_ns()}")
        _make_topics(engine, exported)
        _check_room(engine, exported)
        units = [_unit(engine, source, each, note) for each, note in exported]
        staging = _staging(place_, source, job)
        done = run(spark, "import", units, partial(_stage, staging), lambda unit: unit.size, told)
        parts = [_part(result) for result in done]
        place(engine, write, [part for part in parts if part is not None and part.segments])
        StagingPlace(staging.path).remove(job)
    return _report(exported, done)


def _absolute(log_dirs: str | Sequence[str]) -> tuple[str, ...]:
    """They need not be there, so no wildcards."""
    listed = log_dirs.split(",") if isinstance(log_dirs, str) else log_dirs
    return tuple(os.path.abspath(path) for path in listed)


Exported = tuple[OffsetRange, Mapping[str, Any]]


def _read_export(source: str, topics: Sequence[Choice]) -> list[Exported]:
    """The ranges of an export that is finished, with their notes."""
    notes = Notes(os.path.join(source, NOTES))
    job = notes.job()
    if job is None or job.get("job") != "export":
        raise CorruptError("no export: it has no plan", notes.path)
    ranges = [OffsetRange(**each) for each in job["plan"]]
    there: dict[str, list[int]] = {}
    for each in ranges:
        numbers = there.setdefault(each.topic, [])
        if each.partition not in numbers:
            numbers.append(each.partition)
    chosen = set(choose(there, topics))
    found = []
    for each in ranges:
        if (each.topic, each.partition) in chosen:
            note = notes.get(unit_name(each))
            if note is None:
                raise CorruptError(f"the export is not finished: {each} are missing", source)
            found.append((each, note))
    return found


def _job_name(source: str, exported: Sequence[Exported]) -> str:
    """The same for the same import."""
    what = "\n".join([source, *(f"{unit_name(each)} {note['records']}" for each, note in exported)])
    return f"import-{hashlib.sha256(what.encode()).hexdigest()[:32]}"


def _are_there(engine: WritableEngine, exported: Sequence[Exported]) -> bool:
    """Whether all partitions reach as far as the export."""
    topics = engine.topics()
    for each, note in exported:
        if not note["records"]:
            continue
        if each.partition not in topics.get(each.topic, ()):
            return False
        if engine.log(each.topic, each.partition).view().end_offset <= note["lastOffset"]:
            return False
    return True


def _make_topics(engine: WritableEngine, exported: Sequence[Exported]) -> None:
    wanted: dict[str, int] = {}
    for each, _ in exported:
        wanted[each.topic] = max(wanted.get(each.topic, 0), each.partition + 1)
    for topic, partitions in wanted.items():
        there = engine.topics().get(topic)
        if there is None:
            engine.create_topic(topic, partitions)
        elif len(there) < partitions:
            engine.create_partitions(topic, partitions)


def _check_room(engine: WritableEngine, exported: Sequence[Exported]) -> None:
    """Before anything is read: whether the offsets are free."""
    for each, note in exported:
        if note["records"]:
            end = engine.log(each.topic, each.partition).view().end_offset
            if note["firstOffset"] < end:
                about = f"{each.topic}-{each.partition} has offsets up to {end - 1}"
                raise Refused(f"{about}; the import begins at {note['firstOffset']}")


def _unit(engine: WritableEngine, source: str, each: OffsetRange, note: Mapping[str, Any]) -> Unit:
    files = tuple(os.path.join(source, file["path"]) for file in note["files"])
    size = sum(file["bytes"] for file in note["files"])
    config = engine.topic_config(each.topic).config
    return Unit(each, files, note["records"], size, config)


def _staging(place_: Place, source: str, job: str) -> Staging:
    path = staging_path(place_.log_dirs[0])
    notes, _ = Notes.of_job(os.path.join(path, job, _STAGED), {"job": "import", "source": source})
    return Staging(path, job, notes)


# -- in the tasks ----------------------------------------------------------------------------------


def _stage(staging: Staging, unit: Unit) -> dict[str, Any]:
    """Stages one range; what was made, as a note has it."""
    name = unit_name(unit.range)
    noted: dict[str, Any] | None = staging.notes.get(name)
    if noted is not None and (noted["part"] is None or os.path.isdir(noted["part"]["path"])):
        return {**noted, "isOld": True}
    attempt = StagingPlace(staging.path).attempt(
        staging.job, f"{os.getpid()}-{os.urandom(6).hex()}"
    )
    each = unit.range
    writer = StagedWriter(attempt, each.topic, each.partition, unit.config, keeps_offsets=True)
    try:
        now_ms = time.time_ns() // 1_000_000
        for batches in _batches(_read(unit), _codec(unit.config)):
            writer.append_batches(bytearray(batches), now_ms)
        part = writer.finish()
    except BaseException:
        writer.discard()
        raise
    result = {"part": asdict(part) if part.segments else None}
    staging.notes.put(name, result)
    return result


def _codec(config: TopicConfig) -> Codec:
    """As a producer's that compresses nothing, unless the topic says otherwise."""
    names = {codec.kafka_name: codec for codec in Codec}
    return names.get(config.compression_type, Codec.NONE)


def _read(unit: Unit) -> pa.Table:
    """The records of a range, in order of offsets. CorruptError when they are not those that were
    exported."""
    batches = [batch for path in unit.files for batch in read_file(path)]
    if not batches:
        return pa.table({})
    table = pa.Table.from_batches(batches)
    if len(unit.files) > 1:
        table = table.sort_by("offset")
    offsets = table.column("offset").to_numpy()
    each = unit.range
    is_right = len(offsets) == unit.records and bool((np.diff(offsets) > 0).all())
    if not is_right or offsets[0] < each.start or (offsets[-1] >= each.end and not each.is_last):
        what = f"not the {unit.records} records that were exported of {each}"
        raise CorruptError(what, unit.files[0])
    return table.combine_chunks()


def _batches(table: pa.Table, codec: Codec) -> Iterator[memoryview | bytes]:
    """Batches of the records, with their offsets and the types of their timestamps."""
    if not table.num_rows:
        return
    offsets = table.column("offset").to_numpy()
    kinds = table.column("timestampType").to_numpy()
    records = RecordColumns.from_arrow(table.select(["key", "value", "timestamp", "headers"]))
    edges = _edges(offsets, kinds, records.timestamps)
    short: list[tuple[int, int]] = []  # runs that wait to be one batch
    for low, high in pairwise(edges):
        if high - low < _RUN:
            is_other = bool(short) and not _go_together(short[0][0], low, kinds, records.timestamps)
            if is_other or (short and high - short[0][0] > _BATCH_RECORDS):
                yield _with_gaps(table, short[0][0], short[-1][1], codec)
                short = []
            short.append((low, high))
            continue
        if short:
            yield _with_gaps(table, short[0][0], short[-1][1], codec)
            short = []
        plan = BatchPlan(base_offset=int(offsets[low]), codec=codec)
        if kinds[low] == TimestampType.LOG_APPEND_TIME:
            plan = BatchPlan(
                base_offset=int(offsets[low]),
                codec=codec,
                timestamp_type=TimestampType.LOG_APPEND_TIME,
                append_time=int(records.timestamps[low]),
            )
        yield encode(records.slice(low, high), plan).data
    if short:
        yield _with_gaps(table, short[0][0], short[-1][1], codec)


def _edges(offsets: Int64s, kinds: Any, timestamps: Int64s) -> list[int]:
    """Where runs begin that the same batches may hold: a gap, another type of timestamp or, where
    the log gave it, another timestamp. And the end."""
    begins = np.diff(offsets) != 1
    begins |= np.diff(kinds) != 0
    is_appended = kinds[1:] == TimestampType.LOG_APPEND_TIME
    begins |= is_appended & (np.diff(timestamps) != 0)
    return [0, *(np.flatnonzero(begins) + 1).tolist(), len(offsets)]


def _go_together(one: int, other: int, kinds: Any, timestamps: Int64s) -> bool:
    """Whether two records may be in one batch."""
    if kinds[one] != kinds[other]:
        return False
    return bool(kinds[one] != TimestampType.LOG_APPEND_TIME or timestamps[one] == timestamps[other])


def _with_gaps(table: pa.Table, low: int, high: int, codec: Codec) -> bytes:
    """One batch of some records, whatever their offsets."""
    rows = table.slice(low, high - low)
    times = rows.column("timestamp").cast(pa.int64()).fill_null(-1).to_pylist()
    kind = rows.column("timestampType")[0].as_py()
    made = [
        SimpleRecord(time_, key, value, [(h["key"], h["value"]) for h in headers or ()], offset)
        for time_, key, value, headers, offset in zip(
            times,
            *(rows.column(name).to_pylist() for name in ("key", "value", "headers", "offset")),
            strict=True,
        )
    ]
    fields = BatchFields(base_offset=made[0].offset, codec=codec)
    if kind == TimestampType.LOG_APPEND_TIME:
        fields = BatchFields(
            base_offset=made[0].offset,
            codec=codec,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=times[0],
        )
    return build_batch(made, fields)


# -- on the driver ---------------------------------------------------------------------------------


def _part(result: Mapping[str, Any]) -> StagedPart | None:
    noted = result["part"]
    if noted is None:
        return None
    segments = tuple(SealedSegment(**segment) for segment in noted["segments"])
    return StagedPart(**{**noted, "segments": segments})


def _report(
    exported: Sequence[Exported], done: Sequence[Mapping[str, Any] | None], is_old: bool = False
) -> Report:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for (each, note), result in zip(exported, done, strict=True):
        key = (each.topic, each.partition)
        row = rows.setdefault(key, dict(zip(_COLUMNS, (*key, 0, 0, None, None), strict=True)))
        if note["records"]:
            row["records"] += note["records"]
            part = None if result is None else _part(result)
            row["bytes"] += 0 if part is None else part.size
            if row["startOffset"] is None:
                row["startOffset"] = note["firstOffset"]
            row["endOffset"] = note["lastOffset"] + 1
    skipped = len(exported) if is_old else sum("isOld" in (result or {}) for result in done)
    return Report(
        "import",
        _COLUMNS,
        list(rows.values()),
        units=len(exported),
        skipped=skipped,
        totals={"records": sum(row["records"] for row in rows.values())},
    )
