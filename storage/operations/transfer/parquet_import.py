"""Appends the records of Parquet files that no export has written to a topic.

A file has at least one of the columns key and value; headers, timestamp and partition may be there.
The import of each file is one write, so it is applied completely or not at all, and once: the
commit record of the write has the digest of the file's name and content.
"""

from __future__ import annotations

import hashlib
import posixpath
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...concurrency.unit_threads import Advance, run_units
from ...config.kafka import TopicConfig
from ...errors import (
    CorruptError,
    InvalidRecord,
    LogDirError,
    Refused,
    SegmentGone,
    UnknownPartition,
)
from ...format.files.names import TopicPartition
from ...format.primitives import random_uuid_text
from ...format.records.batch import Int64s
from ...format.records.encoder import BatchPlan
from ...format.records.from_arrow import to_record_columns
from ...format.records.record_columns import RecordColumns, partitions_of
from ...ingest.commit_file import IngestWrite, StagedPart
from ...ingest.staging import StagedWriter, StagingPlace, finish_all, staging_path
from ...ingest.two_phase import ingest_parts
from ...io.directory import Directory, ReadableFile
from ...io.disk import DirFd
from ...io.durable import WritableDirFd
from ...log_dirs.engine import Engine
from ...log_dirs.selection import Selection
from ...log_manager import LogManager
from ..request import SILENT, PartitionFailed, ProgressListener, writable
from ..unit_notes import Notes
from .import_ import ImportRow, is_staged, staged_part
from .record_reading import FileSource, malformed_as_corrupt
from .request import PartitionImport, TransferSummary

_WRITTEN: Final = ("key", "value", "headers", "timestamp", "partition")
# What an export writes, which means nothing for a record to be appended.
_IGNORED: Final = ("topic", "offset", "timestampType")
_SUFFIX: Final = ".parquet"
_NOT_PARQUET: Final = "not a Parquet file"
_MOST_DEPTH: Final = 32
_ROWS_READ: Final = 65536
_DIGESTED: Final = 1 << 20
# Bytes of a file in a unit of work, in whole row groups.
_UNIT_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A Parquet file: `name` is its path below the directory that was named, or its own name."""

    directory: str
    name: str

    @property
    def path(self) -> str:
        return posixpath.join(self.directory, self.name)

    def open(self) -> ReadableFile:
        """Raises CorruptError unless it is a regular file, reached without a symbolic link."""
        *folders, name = self.name.split("/")
        directory = DirFd(self.directory)
        for folder in folders:
            directory = directory.child(folder)
        try:
            return directory.open(name)
        except SegmentGone:
            raise CorruptError("the file does not exist", self.path) from None


@dataclass(frozen=True, slots=True)
class ImportParquet:
    """Appends the records of files to the topic, or the partition, that `selection` names."""

    files: tuple[ForeignFile, ...]
    selection: Selection

    @classmethod
    def of(cls, source: str, selection: Selection) -> ImportParquet:
        """Names a Parquet file, or all in a directory, whose names begin neither with a dot nor
        with an underscore; `source` is an absolute path. Raises ValueError unless one topic, or
        partition, is selected; LogDirError if there is no file."""
        files = tuple(_files(source))
        if len(selection.names) != 1:
            raise ValueError("name the one topic, or partition, that the records are appended to")
        return cls(files, selection)

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition, CorruptError for a file that is not Parquet, or
        InvalidRecord if its columns are not those of records."""
        self.selection.partitions(engine.topics())
        for each in self.files:
            with _parquet(each) as parquet:
                _check_columns(parquet.schema_arrow, each.path)
        return ()


def _files(source: str) -> Iterator[ForeignFile]:
    directory = DirFd(source)
    try:
        directory.hold()
    except SegmentGone:
        raise LogDirError(source, "no such file or directory") from None
    except LogDirError:
        yield ForeignFile(*posixpath.split(source))
        return
    names = sorted(_parquet_files(directory, "", _MOST_DEPTH))
    if not names:
        raise LogDirError(source, f"neither an export nor a directory with *{_SUFFIX} files")
    yield from (ForeignFile(source, name) for name in names)


def _parquet_files(directory: Directory, above: str, depth: int) -> Iterator[str]:
    for entry in directory.list():
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir and depth:
            yield from _parquet_files(
                directory.child(entry.name), f"{above}{entry.name}/", depth - 1
            )
        elif entry.is_file and entry.name.endswith(_SUFFIX):
            yield above + entry.name


def _parquet(each: ForeignFile) -> Any:
    """Opens a file with pyarrow. Raises CorruptError."""
    import pyarrow.parquet as pq  # large

    file = each.open()
    with malformed_as_corrupt(_NOT_PARQUET, each.path):
        return pq.ParquetFile(FileSource(file))


def _check_columns(schema: pa.Schema, path: str) -> None:
    others = [name for name in schema.names if name not in (*_WRITTEN, *_IGNORED)]
    if others:
        fields = ", ".join(_WRITTEN)
        what = f"column {others[0]} is not a field of a record; the fields are {fields}"
        raise InvalidRecord(f"{path}: {what}")
    if len(set(schema.names)) < len(schema.names):
        raise InvalidRecord(f"{path}: several columns have the same name")
    if "key" not in schema.names and "value" not in schema.names:
        raise InvalidRecord(f"{path}: there is neither a column key nor a column value")
    try:
        to_record_columns(schema.empty_table())
    except TypeError as error:
        raise InvalidRecord(f"{path}: {error}") from None
    if "partition" in schema.names and not pa.types.is_integer(schema.field("partition").type):
        raise InvalidRecord(f"{path}: partition is {schema.field('partition').type}, not a number")


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Where records go: partition `only` of a topic, or if that is -1 all of its `partitions`, by
    number."""

    topic: str
    only: int
    partitions: tuple[int, ...]
    config: TopicConfig

    @classmethod
    def of(cls, engine: Engine, selection: Selection) -> ParquetTarget:
        ((topic, only),) = selection.names
        numbers = tuple(engine.topics()[topic])
        config = engine.topic_config(topic).config
        return cls(topic, -1 if only is None else only, numbers, config)

    def of_rows(self, table: pa.Table, records: RecordColumns, turn: int) -> Int64s:
        """Returns the partition of each record: from the column, otherwise from the key. Raises
        UnknownPartition."""
        if self.only >= 0:
            return np.full(len(records), self.only, dtype=np.int64)
        found = partitions_of(records.keys, len(records), self.partitions[-1] + 1, turn)
        if "partition" in table.schema.names:
            column = table.column("partition")
            given = column.cast(pa.int64()).fill_null(0).to_numpy()
            found = np.where(column.is_valid().to_numpy(), given, found)
        for number in np.unique(found).tolist():
            if number not in self.partitions:
                raise UnknownPartition(self.topic, number, self.partitions)
        return found


@dataclass(frozen=True, slots=True)
class ParquetUnit:
    """Row groups [`begin`, `end`) of a file, of about `size` bytes; `write` is that of the file."""

    file: ForeignFile
    write: str
    begin: int
    end: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.write} {self.begin}-{self.end}"


class _ParquetRun:
    """An import of files in progress."""

    def __init__(self, engine: LogManager, request: ImportParquet) -> None:
        self._engine = engine
        self._target = ParquetTarget.of(engine, request.selection)
        self._of_file: dict[str, list[int]] = {}  # the units of each write
        self.units: list[ParquetUnit] = []
        self.skipped = 0
        writes = [_write_name(each, str(request.selection)) for each in request.files]
        for each, write in zip(request.files, writes, strict=True):
            if engine.commits.is_done(IngestWrite(write, 0)):
                self.skipped += 1
            elif write not in self._of_file:
                first = len(self.units)
                self.units += _units(each, write)
                self._of_file[write] = list(range(first, len(self.units)))
        self._place = StagingPlace(staging_path(posixpath.abspath(engine.log_dirs.dirs[0].path)))
        key = "\n".join((str(request.selection), *writes))
        self._job = f"import-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        noted = posixpath.join(self._place.path, self._job, "notes")
        self._notes, _ = Notes.of_job(noted, {"job": "import", "topic": str(request.selection)})

    def stage(self, unit: ParquetUnit, advance: Advance) -> list[StagedPart]:
        """Stages the records of a unit."""
        noted = self._notes.get(unit.name)
        if noted is not None and all(is_staged(part) for part in noted["parts"]):
            advance(unit.size)
            return [staged_part(part) for part in noted["parts"]]
        attempt = self._place.attempt(self._job, random_uuid_text())
        writers: dict[int, StagedWriter] = {}
        try:
            for first_row, table in _tables(unit):
                self._append(unit.file.path, first_row, table, writers, attempt)
                advance(0)
            parts = finish_all(writers.values())
        except BaseException:
            for writer in writers.values():
                with suppress(OSError):
                    writer.discard()
            raise
        self._notes.put(unit.name, {"parts": [asdict(part) for part in parts]})
        advance(unit.size)
        return parts

    def _append(
        self,
        path: str,
        first_row: int,
        table: pa.Table,
        writers: dict[int, StagedWriter],
        attempt: WritableDirFd,
    ) -> None:
        try:
            records = to_record_columns(table)
            partitions = self._target.of_rows(table, records, 0)
        except (TypeError, ValueError, UnknownPartition) as error:  # ValueError: Arrow's, too
            raise InvalidRecord(f"{path}: {error}") from None
        now_ms = time.time_ns() // 1_000_000
        for number in np.unique(partitions).tolist():
            writer = writers.get(number)
            if writer is None:
                writer = writers[number] = StagedWriter(
                    attempt, self._target.topic, number, self._target.config
                )
            rows = np.flatnonzero(partitions == number)
            chosen = records if len(rows) == len(records) else records.take(rows)
            try:
                writer.append_records(chosen, BatchPlan(), now_ms)
            except Refused as error:
                row = f" row {first_row + rows[error.index]}:" if error.index >= 0 else ""
                raise type(error)(f"{path}:{row} {error.why}") from None

    def discard(self) -> None:
        """Removes what is staged."""
        self._place.remove(self._job)

    def finish(self, staged: Sequence[Sequence[StagedPart]]) -> Iterator[PartitionImport]:
        """Commits the files one after the other; yields what was appended to each partition."""
        rows: dict[TopicPartition, PartitionImport] = {}
        for write, numbers in self._of_file.items():
            parts = [part for number in numbers for part in staged[number]]
            found = ingest_parts(self._engine, IngestWrite(write, 0), parts)
            for key, offsets in found.offsets.items():
                size = sum(part.size for part in parts if (part.topic, part.partition) == key)
                before = rows.get(key)
                rows[key] = PartitionImport(
                    *key,
                    len(offsets) + (before.records if before else 0),
                    size + (before.size if before else 0),
                    before.start_offset if before else offsets.start,
                    offsets.stop,
                )
        self._place.remove(self._job)
        yield from rows.values()


def import_parquet(
    engine: Engine, request: ImportParquet, progress: ProgressListener = SILENT
) -> Iterator[ImportRow]:
    """Carries out an import of files with all processors. Yields a row for each partition with new
    records, and a summary. Raises what `ImportParquet.check` raises, and Refused."""

    def report(done: int, total: int) -> None:
        progress.report("importing", done, total)

    request.check(engine)
    run = _ParquetRun(writable(engine), request)
    try:
        staged = run_units(run.units, run.stage, lambda unit: unit.size, report)
    except (Refused, CorruptError):  # of these files, as they are, nothing will be imported
        run.discard()
        raise
    yield from run.finish(staged)
    yield TransferSummary(len(request.files), run.skipped)


def _write_name(each: ForeignFile, selection: str) -> str:
    """Returns a name that is the same for every import of a file with this name and content."""
    digest = hashlib.sha256(f"{each.name}\n{selection}\n".encode("utf-8", "surrogateescape"))
    file, position = each.open(), 0
    while data := file.read(position, _DIGESTED):
        digest.update(data)
        position += len(data)
    return f"import-{digest.hexdigest()}"


def _units(each: ForeignFile, write: str) -> list[ParquetUnit]:
    found: list[ParquetUnit] = []
    begin = size = 0
    with _parquet(each) as parquet:
        count = parquet.num_row_groups
        for number in range(count):
            size += parquet.metadata.row_group(number).total_byte_size
            if size >= _UNIT_BYTES or number == count - 1:
                found.append(ParquetUnit(each, write, begin, number + 1, size))
                begin, size = number + 1, 0
    return found


def _tables(unit: ParquetUnit) -> Iterator[tuple[int, pa.Table]]:
    """Yields the records of a unit, with the number of the first row. Raises CorruptError."""
    with _parquet(unit.file) as parquet, malformed_as_corrupt(_NOT_PARQUET, unit.file.path):
        names = [name for name in _WRITTEN if name in parquet.schema_arrow.names]
        groups = list(range(unit.begin, unit.end))
        row = sum(parquet.metadata.row_group(each).num_rows for each in range(unit.begin))
        for batch in parquet.iter_batches(_ROWS_READ, row_groups=groups, columns=names):
            yield row, pa.Table.from_batches([batch])
            row += len(batch)
