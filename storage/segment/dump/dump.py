"""Prints the files of a segment as kafka-dump-log does.

The lines and their order are those of Kafka's `DumpLogSegments`. That stops at the first damage;
this reports the damage and prints what follows. What `DumpLogSegments` reports about its files at
the end is in `complaints` here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final

import numpy as np

from ...concurrency.read_ahead import parallel_map
from ...errors import CorruptError, SegmentGone
from ...format.files.names import (
    BOOTSTRAP_FILE,
    FileKind,
    SegmentFileName,
    parse_metadata_snapshot,
    parse_segment_file,
    segment_file,
)
from ...format.files.snapshot import MAX_SNAPSHOT_BYTES, parse_producer_snapshot
from ...format.layout import RECORD_BATCH_OVERHEAD
from ...format.messages.internal_topics import RecordDecoder, TextDecoder
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable, Int64s, parse_header
from ...format.records.columns import Columns
from ...format.records.decoder import BadBatch, Decoder, checksum_is_right
from ...io.directory import Directory, ReadableFile
from .. import offset_index, time_index
from ..extent import Extent, Fault
from ..offset_index import OffsetIndex
from ..time_index import TimeIndex
from ..txn_index import TransactionIndex
from ..walk import BatchRun, read_runs
from .dump_lines import batch_text, line_text, producer_line, record_text, txn_line

_NO_TIMESTAMP: Final = -1
# Findings of one kind listed per file: a compacted log may have millions of gaps.
_MOST_FINDINGS: Final = 10_000


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The options of kafka-dump-log. `deep`: print records, too; `contents`: with their keys and
    values; `metadata`: with everything else. `max_bytes`: read at most this much of a `.log`.
    `prints_entries`: print the entries of indexes, which are checked in any case;
    `is_sanity_check`: only run the sanity check. `decoder`: converts keys and values to text; by
    default they are assumed to be text."""

    deep: bool = False
    contents: bool = False
    metadata: bool = True
    max_bytes: int | None = None
    prints_entries: bool = True
    is_sanity_check: bool = False
    max_batch_bytes: int = 128 << 20
    decoder: RecordDecoder = field(default_factory=TextDecoder)


def is_known(name: str) -> bool:
    """Returns whether a file of this name can be dumped."""
    return (
        parse_segment_file(name) is not None
        or parse_metadata_snapshot(name) is not None
        or name == BOOTSTRAP_FILE
    )


@dataclass(slots=True)
class Dump:
    """Dumps files one after the other. `complaints`: the problems found in them, by heading.
    `gaps`: likewise, non-consecutive offsets, which a cleaner leaves, too."""

    options: DumpOptions = field(default_factory=DumpOptions)
    complaints: dict[str, list[str]] = field(default_factory=dict)
    gaps: dict[str, list[str]] = field(default_factory=dict)

    def text(self, directory: Directory, name: str, shown: str) -> Generator[memoryview | bytes]:
        """Yields the lines of a file, which call it `shown`, in pieces of whole lines. Raises
        SegmentGone if there is no such file."""
        try:
            yield from self._text(directory, name, shown)
        except CorruptError as error:  # ends the dump; other damage does not
            told = error if error.file else error.at(directory.path_of(name))
            self._complain(str(told))

    def _text(self, directory: Directory, name: str, shown: str) -> Iterator[memoryview | bytes]:
        if (snapshot := parse_metadata_snapshot(name)) is not None:
            end = f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"
            return self._log(directory.open(name), name, 0, end)
        if name == BOOTSTRAP_FILE:
            return self._log(directory.open(name), name, 0, "KRaft bootstrap snapshot")
        parsed = parse_segment_file(name)
        if parsed is None:
            raise CorruptError("not the name of a segment file", directory.path_of(name))
        file = directory.open(name)
        match parsed.kind:
            case FileKind.LOG:
                begin = f"Log starting offset: {parsed.base_offset}"
                return self._log(file, name, parsed.base_offset, begin)
            case FileKind.INDEX:
                return line_text(self._offset_index(file, shown, _Beside(directory, parsed)))
            case FileKind.TIMEINDEX:
                return line_text(self._time_index(file, shown, _Beside(directory, parsed)))
            case FileKind.TXNINDEX:
                return line_text(map(txn_line, TransactionIndex(file).entries()))
            case FileKind.SNAPSHOT:
                data = directory.read_small(name, MAX_SNAPSHOT_BYTES)
                return line_text(map(producer_line, parse_producer_snapshot(data)))

    def _complain(self, heading: str, *lines: str) -> None:
        self.complaints.setdefault(heading, []).extend(lines)

    # -- logs -----------------------------------------------------------------------------------

    def _log(
        self, file: ReadableFile, name: str, base: int, begin: str
    ) -> Iterator[memoryview | bytes]:
        yield from line_text([begin])
        extent = Extent(file, base, 0, file.size(), self.options.max_batch_bytes)
        most = extent.end if self.options.max_bytes is None else self.options.max_bytes
        walk, last = _Walk(extent, most), _Last()
        printer = RunPrinter(self.options, extent)
        for found in parallel_map(walk.runs(), [printer.text_of]):
            if isinstance(found, Fault):
                yield from self._fault(extent, name, found)
                continue
            yield from found.pieces
            for damage in found.damage:
                self._complain(damage)
            for offsets in found.offsets:
                last.note(offsets)
        if walk.reached < min(extent.end, most):
            self._complain(
                str(extent.error("the file was truncated while it was read", walk.reached))
            )
        if last.gaps:
            self.gaps[f"Non-consecutive offsets in {file.path}"] = last.gaps.report()

    def _fault(self, extent: Extent, name: str, fault: Fault) -> Iterator[memoryview | bytes]:
        position, batch = fault.error.position, fault.batch
        if batch is not None and batch.size <= min(extent.end - position, extent.max_batch_bytes):
            data = memoryview(extent.file.read(position, batch.size))
            is_whole = len(data) == batch.size
            is_valid = is_whole and checksum_is_right(data, batch, position)
            yield from batch_text(BatchTable.of(batch), is_valid)
            position = batch.next_position
        if fault.resume >= extent.end > position and self.options.max_bytes is None:
            yield from line_text(
                [f"Found {extent.end - position} invalid bytes at the end of {name}"]
            )
        self._complain(str(fault.error.at(extent.file.path)))

    # -- indexes --------------------------------------------------------------------------------

    def _offset_index(self, file: ReadableFile, shown: str, beside: _Beside) -> Iterator[str]:
        index = OffsetIndex(file, beside.base_offset)
        is_empty = file.size() < offset_index.ENTRY.size
        if is_empty or not (len(index) or self.options.is_sanity_check):
            yield f"{shown} is empty."
            return
        if self.options.is_sanity_check:
            yield from self._sane(file, shown, offset_index.ENTRY, beside.base_offset)
            return
        log = self._log_beside(file, beside)
        wrong = _Findings()
        for entry in index.entries():
            found = _header_at(log, entry.position) if log is not None else None
            if log is not None and (found is None or found.last_offset != entry.offset):
                there = found.last_offset if found is not None else "none"
                wrong.add(f"  Index offset: {entry.offset}, log offset: {there}")
            if self.options.prints_entries:
                yield f"offset: {entry.offset} position: {entry.position}"
        if wrong:
            self._complain(f"Mismatches in :{file.path}", *wrong.report(reverse=True))

    def _time_index(self, file: ReadableFile, shown: str, beside: _Beside) -> Iterator[str]:
        if self.options.is_sanity_check:
            yield from self._sane(file, shown, time_index.ENTRY, beside.base_offset)
            return
        log = self._log_beside(file, beside)
        check = _TimeCheck(self.options, log, beside.offset_index())
        for entry in TimeIndex(file, beside.base_offset).entries():
            if log is not None:
                check.look(entry.timestamp, entry.offset)
            if self.options.prints_entries:
                yield f"timestamp: {entry.timestamp} offset: {entry.offset}"
        for heading, found in check.complaints(file.path):
            if found:
                self._complain(heading, *found.report())

    def _sane(self, file: ReadableFile, shown: str, entry: Struct, base: int) -> Iterator[str]:
        """Runs Kafka's `OffsetIndex.sanityCheck` or `TimeIndex.sanityCheck`; a broker rebuilds an
        index that fails it."""
        why = _insanity(file, entry, base)
        if why:
            self._complain(f"{file.path}: {why}")
        else:
            yield f"{shown} passed sanity check."

    def _log_beside(self, file: ReadableFile, beside: _Beside) -> ReadableFile | None:
        log = beside.log()
        if log is None:
            self._complain(f"{file.path}: not checked, because its .log is not in the directory")
        return log


class _Walk:
    """Reads a log up to the file position `most`. `reached`: the end of what was read."""

    def __init__(self, extent: Extent, most: int) -> None:
        self.reached = 0
        self._extent = extent
        self._most = most

    def runs(self) -> Generator[BatchRun | Fault]:
        """Yields runs of the batches that end at or before `most`, and the damage that begins
        before it. A batch that crosses the limit is omitted."""
        for run in read_runs(self._extent, stay_valid=True):
            if isinstance(run, Fault):
                if run.error.position < self._most:
                    yield run
                self.reached = run.resume
            else:
                ends = run.table.column(b.POSITION) + run.table.column(b.SIZE)
                self.reached = int(ends[-1])
                yield replace(run, table=run.table.select(ends <= self._most))
            if self.reached > self._most:
                break


@dataclass(slots=True)
class RunText:
    """The lines of a run in pieces, the offsets of its records, and what is wrong with its
    batches."""

    pieces: list[memoryview] = field(default_factory=list)
    offsets: list[Int64s] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


class RunPrinter:
    """Makes the lines of one run at a time, in one thread: a second one has no processor left that
    the writer and the reader of the lines do not need."""

    def __init__(self, options: DumpOptions, extent: Extent) -> None:
        self._options = options
        self._path = extent.file.path
        self._decoder = Decoder(extent.max_batch_bytes)

    def text_of(self, run: BatchRun | Fault) -> RunText | Fault:
        """Returns the lines of a run; damage as it is."""
        if isinstance(run, Fault):
            return run
        options, text, printed = self._options, RunText(), 0
        positions = run.table.column(b.POSITION)
        for part in self._parts(run):
            batches = BatchTable.of(part.batch) if isinstance(part, BadBatch) else part.batches
            first = int(positions.searchsorted(batches.rows[0, b.POSITION]))
            text.pieces += batch_text(run.table.select(slice(printed, first)))
            printed = first + len(batches)
            if isinstance(part, BadBatch):
                text.pieces += batch_text(batches)
                text.damage.append(str(part.error.at(self._path)))
            else:
                text.offsets.append(part.offsets.copy())  # the decoder uses the memory again
                text.pieces += record_text(
                    part, options.decoder, options.metadata, options.contents
                )
        text.pieces += batch_text(run.table.select(slice(printed, len(run.table))))
        return text

    def _parts(self, run: BatchRun) -> Iterable[Columns | BadBatch]:
        if not self._options.deep:
            return ()
        return self._decoder.decode(run.data, run.base, run.table, self._path)


@dataclass(frozen=True, slots=True)
class _Beside:
    """The other files of a segment."""

    directory: Directory
    name: SegmentFileName

    @property
    def base_offset(self) -> int:
        return self.name.base_offset

    def log(self) -> ReadableFile | None:
        return self._file(FileKind.LOG)

    def offset_index(self) -> OffsetIndex | None:
        file = self._file(FileKind.INDEX)
        return None if file is None else OffsetIndex(file, self.base_offset)

    def _file(self, kind: FileKind) -> ReadableFile | None:
        try:
            return self.directory.open(segment_file(self.base_offset, kind, self.name.state))
        except SegmentGone:
            return None


class _Findings:
    """Lines of one kind; those after the first `_MOST_FINDINGS` are only counted."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, line: str) -> None:
        self._count += 1
        if self._count <= _MOST_FINDINGS:
            self._lines.append(line)

    def report(self, *, reverse: bool = False) -> list[str]:
        lines = self._lines[::-1] if reverse else self._lines
        more = self._count - len(lines)
        return [*lines, f"  and {more} more"] if more else lines


class _Last:
    """The last offset seen, and the gaps between consecutive ones."""

    def __init__(self) -> None:
        self.gaps = _Findings()
        self._offset = -1

    def note(self, offsets: Int64s) -> None:
        before = np.concatenate(([self._offset], offsets[:-1]))
        for row in np.flatnonzero((offsets != before + 1) & (before != -1)).tolist():
            self.gaps.add(f"  {before[row]} is followed by {offsets[row]}")
        self._offset = int(offsets[-1])


class _TimeCheck:
    """Checks the entries of a time index against the log."""

    def __init__(
        self, options: DumpOptions, log: ReadableFile | None, index: OffsetIndex | None
    ) -> None:
        self._limit = options.max_batch_bytes
        self._decoder = Decoder(self._limit)
        self._log = log
        self._index = index
        self._before = _NO_TIMESTAMP
        self._mismatches = _Findings()
        self._disorder = _Findings()
        self._missing = _Findings()

    def look(self, timestamp: int, offset: int) -> None:
        found, largest = self._batch_of(offset)
        if found != offset:
            self._missing.add(f"Indexed offset: {offset}, found log offset: {found}")
        else:
            if largest != timestamp:
                self._mismatches.add(f"  Index timestamp: {timestamp}, log timestamp: {largest}")
            if self._before >= timestamp:
                self._disorder.add(
                    f"  Index timestamp: {timestamp}, Previously indexed timestamp: {self._before}"
                )
        self._before = timestamp

    def _batch_of(self, offset: int) -> tuple[int, int]:
        """Returns the last offset of the first batch that ends at or after `offset`, -1 if none,
        and the greatest timestamp of its records."""
        assert self._log is not None
        start = self._index.lookup(offset).position if self._index is not None else 0
        extent = Extent(self._log, 0, start, self._log.size(), self._limit)
        for run in read_runs(extent, 64 << 10):
            if isinstance(run, Fault):
                continue
            at = int(run.table.column(b.LAST_OFFSET).searchsorted(offset))
            if at < len(run.table):
                chosen = run.table.select(slice(at, at + 1))
                parts = self._decoder.decode(run.data, run.base, chosen, self._log.path)
                times = [part.timestamps.max() for part in parts if isinstance(part, Columns)]
                return chosen[0].last_offset, int(max(times, default=_NO_TIMESTAMP))
        return -1, _NO_TIMESTAMP

    def complaints(self, path: str) -> Iterator[tuple[str, _Findings]]:
        yield f"Found timestamp mismatch in :{path}", self._mismatches
        yield f"Found out of order timestamp in :{path}", self._disorder
        yield "The following indexed offsets are not found in the log.", self._missing


def _insanity(file: ReadableFile, entry: Struct, base: int) -> str:
    """Returns why an index fails a broker's sanity check, "" if it passes."""
    size = file.size()
    if size % entry.size:
        return f"{size} bytes is not a multiple of {entry.size}"
    if not size:
        return ""
    first = entry.unpack(file.read(0, entry.size))
    last = entry.unpack(file.read(size - entry.size, entry.size))
    relative = last[0] if entry is offset_index.ENTRY else last[1]
    if entry is time_index.ENTRY and last[0] < first[0]:
        return f"the last timestamp is {last[0]}, less than the first, {first[0]}"
    if relative < 0:
        return f"the last offset is {base + relative}, less than its base offset, {base}"
    return ""


def _header_at(log: ReadableFile, position: int) -> BatchHeader | None:
    if position < 0:
        return None
    try:
        return parse_header(log.read(position, RECORD_BATCH_OVERHEAD), position)
    except CorruptError:
        return None
