"""Reads the metadata log and its snapshots, record by record.

A snapshot (`<end offset>-<epoch>.checkpoint`, laid out as a segment) is the sum of the records
below its end offset. Its first record, the header, has the timestamp of the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ..errors import CorruptError, OffsetNotFound, SegmentGone
from ..format.files.names import (
    QUORUM_STATE_FILE,
    MetadataSnapshotName,
    parse_metadata_snapshot,
)
from ..format.files.quorum_state import QuorumState, parse_quorum_state
from ..format.layout import CONTROL_MASK, MAX_OFFSET, ControlType
from ..format.messages.control import parse_quorum_message
from ..format.messages.message import Message
from ..format.messages.metadata import MetadataRecord, parse_metadata_record
from ..format.records import batch as b
from ..format.records.columns import VALUE_SIZE, VALUE_START, Columns
from ..format.records.decoder import BadBatch
from ..io.directory import Directory
from ..io.small_file import read_value
from ..log.read.context import ReadContext
from ..log.read.lookup import extent_from, position_for
from ..log.read.view import View
from ..segment.extent import Extent, Fault
from ..segment.walk import read_runs, walk_headers

# Lines of each kind that are kept; a log that is all garbage would produce them without end.
_MAX_PROBLEMS: Final = 100
# Of `quorum-state`: enough for tens of thousands of voters.
_MAX_QUORUM_STATE_BYTES: Final = 1 << 20


class QuorumRecord(NamedTuple):
    """A control record of the quorum; `number` is its ControlType."""

    number: int
    message: Message


class MetadataEntry(NamedTuple):
    """A record with its place. All records of a batch, `batch` by its base offset, were written
    together; it is at `position` in `file`. `leader_epoch`: that of the quorum's leader;
    `timestamp`: ms since 1970."""

    offset: int
    timestamp: int
    batch: int
    leader_epoch: int
    record: MetadataRecord | QuorumRecord
    file: str = ""
    position: int = -1

    @property
    def snapshot_timestamp(self) -> int | None:
        """The timestamp of the last record in the snapshot that this is the header of; None if it
        is none."""
        record = self.record
        if isinstance(record, QuorumRecord) and record.number == ControlType.SNAPSHOT_HEADER:
            return int(record.message["lastContainedLogTimestamp"])
        return None

    @property
    def is_footer(self) -> bool:
        """Whether this is the last record of a snapshot."""
        record = self.record
        return isinstance(record, QuorumRecord) and record.number == ControlType.SNAPSHOT_FOOTER


@dataclass(slots=True)
class Problems:
    """What could not be read, a line each: `damage`, and what is `unknown` to this version, or
    refers to what no record created. `more`: how many others there are."""

    damage: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    more: int = 0

    def note_damage(self, error: CorruptError) -> None:
        self._note(self.damage, error)

    def note_unknown(self, error: CorruptError) -> None:
        self._note(self.unknown, error)

    def _note(self, lines: list[str], error: CorruptError) -> None:
        if len(lines) < _MAX_PROBLEMS:
            lines.append(str(error))
        else:
            self.more += 1

    def note_complaints(self, entry: MetadataEntry, complaints: list[str]) -> None:
        """Takes what a replay could not apply of a record. Where something could not be read, later
        records are bound to refer to what it created, which is not noted."""
        for complaint in complaints if not self.damage else ():
            what = f"offset {entry.offset}: {complaint}"
            self.note_unknown(CorruptError(what, entry.file, entry.position))
        complaints.clear()

    @property
    def all(self) -> tuple[str, ...]:
        rest = [f"{self.more} more problems are not listed"] if self.more else []
        return *self.damage, *self.unknown, *rest


def log_entries(
    view: View, start: int, problems: Problems, end: int = MAX_OFFSET
) -> Iterator[MetadataEntry]:
    """Yields the records of a view with offsets in [`start`, `end`). The log is never compacted, so
    offsets that it leaves out are damage."""
    limit = view.context.limits.max_batch_bytes
    end = min(end, view.end_offset)
    expected = max(start, view.start_offset)
    for segment in view.segments.from_offset(start):
        if segment.base_offset >= end:
            return
        position = position_for(segment, start, limit) if start > segment.base_offset else 0
        extent = extent_from(segment, position, limit)
        for part in _parts(extent, view.context, problems):
            if part is None:
                expected = MAX_OFFSET
                continue
            _note_gaps(part, expected, end, problems)
            yield from _parsed(part, start, end, problems)
            expected = int(part.batches.column(b.LAST_OFFSET)[-1]) + 1
            if expected >= end:
                break
    if view.tail is not None and end == view.end_offset:
        problems.note_damage(view.tail.error)


def _note_gaps(columns: Columns, expected: int, end: int, problems: Problems) -> None:
    """Notes the offsets below `end` that are missing before a batch; `expected`: the first one's
    base offset if none are."""
    bases = columns.batches.column(b.BASE_OFFSET)
    ends = np.append(expected, columns.batches.column(b.LAST_OFFSET)[:-1] + 1)
    for row in np.flatnonzero((bases > ends) & (ends < end)).tolist():
        what = f"offsets {ends[row]} to {bases[row] - 1} are missing"
        position = columns.batches[row].position
        problems.note_damage(CorruptError(what, columns.file, position))


def control_entries(view: View, end: int) -> Iterator[MetadataEntry]:
    """Yields the control records of a view below the offset `end`; only headers of other batches
    are read."""
    limit = view.context.limits.max_batch_bytes
    for segment in view.segments:
        if segment.base_offset >= end:
            break
        for table in walk_headers(extent_from(segment, 0, limit)):
            if isinstance(table, Fault):
                continue
            for header in table.select(table.flagged(CONTROL_MASK)):
                with suppress(CorruptError, OffsetNotFound):
                    yield from _parsed(view.batch(segment, header), 0, end, Problems())


def read_quorum_state(directory: Directory) -> QuorumState | None:
    """Returns what `quorum-state` beside the metadata log says, None if there is no such file.
    Raises CorruptError."""
    try:
        return read_value(directory, QUORUM_STATE_FILE, _MAX_QUORUM_STATE_BYTES, parse_quorum_state)
    except SegmentGone:
        return None


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """A snapshot in the directory of the metadata log."""

    directory: Directory
    file: str
    end_offset: int
    epoch: int

    @property
    def path(self) -> str:
        return self.directory.path_of(self.file)

    def entries(self, context: ReadContext, problems: Problems) -> Iterator[MetadataEntry]:
        """Yields its records. One without a footer is damaged: records may be missing at its end.
        Raises SegmentGone, or CorruptError if it is not a file."""
        file = self.directory.open(self.file)
        limit = context.limits.max_batch_bytes
        extent = Extent(file, base_offset=0, start=0, end=file.size(), max_batch_bytes=limit)
        is_whole = False
        for part in _parts(extent, context, problems):
            for entry in _parsed(part, 0, MAX_OFFSET, problems) if part is not None else ():
                is_whole = entry.is_footer
                yield entry
        if not is_whole:
            what = "the snapshot has no footer, its end may be missing"
            problems.note_damage(CorruptError(what, self.path, extent.end))

    def last_timestamp(self, context: ReadContext) -> int | None:
        """Returns the timestamp of the last record that it contains, None if unknown."""
        try:
            for entry in self.entries(context, Problems()):
                return entry.snapshot_timestamp
        except (SegmentGone, CorruptError):
            pass
        return None


def list_snapshots(directory: Directory) -> list[MetadataSnapshot]:
    """Returns the snapshots beside the metadata log, the newest first."""
    found: list[tuple[MetadataSnapshotName, str]] = []
    for entry in directory.list():
        name = parse_metadata_snapshot(entry.name)
        if name is not None:
            found.append((name, entry.name))
    return [
        MetadataSnapshot(directory, file, name.end_offset, name.epoch)
        for name, file in sorted(found, reverse=True)
    ]


def _parts(extent: Extent, context: ReadContext, problems: Problems) -> Iterator[Columns | None]:
    """Yields the batches, decoded, and None in place of damage."""
    path = extent.file.path
    with context.decoder() as decoder:
        for run in read_runs(extent, together=True):
            if isinstance(run, Fault):
                problems.note_damage(run.error)
                yield None
                continue
            for part in decoder.decode(run.data, run.base, run.table, path):
                if isinstance(part, BadBatch):
                    problems.note_damage(part.error.at(path))
                    yield None
                else:
                    yield part


def _parsed(columns: Columns, start: int, end: int, problems: Problems) -> Iterator[MetadataEntry]:
    """Yields the records of columns with offsets in [`start`, `end`)."""
    rows = np.diff(columns.first_row)
    fields = zip(
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        np.repeat(columns.batches.column(b.BASE_OFFSET), rows).tolist(),
        np.repeat(columns.batches.column(b.LEADER_EPOCH), rows).tolist(),
        np.repeat(columns.batches.column(b.POSITION), rows).tolist(),
        np.repeat(columns.batches.flagged(CONTROL_MASK), rows).tolist(),
        columns.spans[:, VALUE_START].tolist(),
        columns.spans[:, VALUE_SIZE].tolist(),
        strict=True,
    )
    data, file = columns.data, columns.file
    for row, (offset, timestamp, batch, epoch, position, is_control, at, size) in enumerate(fields):
        if not start <= offset < end:
            continue
        value = bytes(data[at : at + size]) if size > 0 else b""
        record: MetadataRecord | QuorumRecord
        try:
            if is_control:
                number = int.from_bytes((columns.key(row) or b"")[2:4], "big", signed=True)
                message = parse_quorum_message(number, value)
                if message is None:
                    continue
                record = QuorumRecord(number, message)
            else:
                record = parse_metadata_record(value)
                if record.unknown:
                    what = f"offset {offset}: {record.unknown}"
                    problems.note_unknown(CorruptError(what, file, position))
        except CorruptError as error:
            what = f"offset {offset}: {error.what}"
            problems.note_damage(CorruptError(what, file, position))
            continue
        yield MetadataEntry(offset, timestamp, batch, epoch, record, file, position)
