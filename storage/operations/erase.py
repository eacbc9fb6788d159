"""Erases records: those of a key, of all keys with a prefix, or the one at an offset.

The segments with such records are written again without them, one after the other, and swapped in
as compaction does (see `erasure/rewriting.py`). The active segment becomes a rolled one first. Then
all other files of the partition's directories that hold such records are removed: deleted and
replaced segments, unfinished output of the cleaner, and the partition's deleted directories. What
remains is in no file; blocks that the file system has freed are not overwritten.

A crash leaves each segment as it was or without the records. Repeating the operation erases the
rest, also what only a leftover still holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os.path import basename, dirname
from typing import Any, Final

import numpy as np

from ..cleaner.cleaned import discard_after
from ..cleaner.manager import OnProgress
from ..concurrency.interruption import uninterrupted
from ..erasure.rewriting import RewrittenSegment, rewrite_segment
from ..errors import (
    CleaningAborted,
    LogDirOffline,
    NotErased,
    RecordNotFound,
    SegmentGone,
    StorageError,
    UnknownPartition,
    fresh,
)
from ..format.files.names import (
    FileKind,
    FileState,
    PartitionState,
    TopicPartition,
    parse_partition_dir,
    segment_file,
)
from ..format.kernels import keys as kernel
from ..format.layout import CONTROL_MASK
from ..format.records.batch import Int64s
from ..format.records.columns import KEY_SIZE, KEY_START, Columns, Damage
from ..io.disk import DirFd
from ..io.durable import SyncFailed
from ..log.append.writer import LogWriter
from ..log.delete.leftovers import LeftoverKind, find_leftovers, set_aside_unfinished
from ..log.read.on_disk import LogOnDisk, PartitionOnDisk
from ..log_dirs.engine import Engine
from ..log_dirs.purging import FoundLeftover
from ..log_manager import LogManager
from ..segment.segment import Segment
from ..segment.stored import FILES
from ..wording import printable
from .history import Life, lives
from .request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    per_partition,
    writable,
)

_HASHED_BYTES: Final = 1 << 20
# An append may grow the active segment while it is written again; it is rolled then.
_TRIES: Final = 2
_UNFINISHED: Final = (LeftoverKind.CLEANED, LeftoverKind.SWAP)


@dataclass(frozen=True, slots=True)
class Erase(PartitionsRequest):
    """Erases the records with a key, those whose key begins with `prefix`, or the one at `offset`
    of one partition."""

    key: bytes | None = None
    prefix: bytes | None = None
    offset: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError unless one of the three is given, and topics are named."""
        if [self.key, self.prefix, self.offset].count(None) != 2:
            raise ValueError("needs exactly one of a key, a prefix and an offset")
        if self.prefix == b"":
            raise ValueError("the prefix must not be empty")
        names = self.selection.names
        if not names:
            raise ValueError("needs TOPIC or TOPIC/PARTITION")
        if self.offset is not None and (len(names) != 1 or names[0][1] is None):
            raise ValueError("an offset needs exactly one TOPIC/PARTITION")

    @property
    def writes(self) -> bool:
        return not self.dry_run

    def rows(self, columns: Columns) -> Int64s:
        """Returns the rows of the records to erase, ascending; never control records."""
        rows = self._matching(columns)
        if not len(rows):
            return rows
        batches = columns.first_row.searchsorted(rows, side="right") - 1
        return rows[~columns.batches.flagged(CONTROL_MASK)[batches]]

    def _matching(self, columns: Columns) -> Int64s:
        if self.offset is not None:
            low, high = columns.offsets.searchsorted((self.offset, self.offset + 1)).tolist()
            return np.arange(low, high, dtype=np.int64)
        if self.key is not None:
            return _rows_of(columns, self.key)
        return _rows_with_prefix(columns, self.prefix or b"")

    @property
    def not_found(self) -> PartitionFailed:
        """The failure if there is no such record."""
        if self.offset is not None:
            what = f"at offset {self.offset}"
        elif self.key is not None:
            what = f"with key {_shown(self.key)}"
        else:
            what = f"whose key begins with {_shown(self.prefix or b'')}"
        return PartitionFailed.of(
            RecordNotFound(what), str(self.selection).replace("/ ", " ").rstrip("/")
        )

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition. Returns the failure if there is no such record;
        reads no further than to the first one."""
        for key in self.units(engine):
            try:
                if any(True for _ in _search(engine, key, self)):
                    return ()
            except (StorageError, OSError):
                return ()  # the operation reports it
        return [self.not_found]


def _rows_of(columns: Columns, key: bytes) -> Int64s:
    rows: list[int] = []
    row = kernel.last_row(columns.data, columns.spans, key)
    while row >= 0:
        rows.append(row)
        row = kernel.last_row(columns.data, columns.spans[:row], key)
    return np.array(rows[::-1], dtype=np.int64)


def _rows_with_prefix(columns: Columns, prefix: bytes) -> Int64s:
    rows = np.flatnonzero(columns.spans[:, KEY_SIZE] >= len(prefix)).astype(np.int64)
    if not len(rows):
        return rows
    data = np.frombuffer(columns.data, dtype=np.uint8)
    # The last byte first: it is the one in which keys differ most.
    for at in reversed(range(len(prefix))):
        starts = columns.spans[rows, KEY_START].astype(np.int64)
        rows = rows[data[starts + at] == prefix[at]]
    return rows


def _shown(key: bytes) -> str:
    return printable(key.decode("utf-8", "backslashreplace"))


@dataclass(frozen=True, slots=True)
class ErasedFile:
    """A `.log` that held `records` to be erased. `size`, `sha256`: of the file before, in bytes and
    hexadecimal digits. `new_size`, `new_sha256`: of the segment that replaced it; None if the file
    was a leftover, which is removed as a whole (`is_removed`), or in a dry run."""

    topic: str
    partition: int
    file: str
    records: int
    is_removed: bool
    size: int
    sha256: str
    new_size: int | None = None
    new_sha256: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "file": self.file,
            "records": self.records,
            "removed": self.is_removed,
            "bytes": {"before": self.size, "after": self.new_size},
            "sha256": {"before": self.sha256, "after": self.new_sha256},
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> ErasedFile:
        """Restores an object from the result of `as_json`."""
        sizes, sums = row["bytes"], row["sha256"]
        return cls(
            row["topic"],
            row["partition"],
            row["file"],
            row["records"],
            row["removed"],
            sizes["before"],
            sums["before"],
            sizes["after"],
            sums["after"],
        )


def erase(
    engine: Engine, request: Erase, progress: ProgressListener = SILENT
) -> Iterator[ErasedFile | PartitionFailed]:
    """Yields each file after the records are erased from it or, in a dry run, that holds them. The
    largest segment of a partition is the first one: if there is space for its successor, there is
    space for all.

    A partition in which anything cannot be read fails with CorruptError, and is left as it was:
    such records may be there. A file of a replica that is not served, or of a stray partition,
    fails with NotErased. If there is no such record at all, the answer is RecordNotFound.
    """

    def work(key: TopicPartition) -> Iterator[ErasedFile | PartitionFailed]:
        report = partial(progress.report, "{}/{}".format(*key))
        if request.writes:
            yield from _Erasing(writable(engine), key, request, report).run()
        else:
            for each in _search(engine, key, request, report):
                yield each.failure() or each.row(key)

    is_found = False
    for row in per_partition(engine, request, "erasing records", work, progress):
        is_found = True
        yield row
    if not is_found:
        yield request.not_found


@dataclass(frozen=True, slots=True)
class _Match:
    """A file with selected records, and the life of the partition to which it belongs. `offsets`:
    those of the records, ascending."""

    file: LogOnDisk
    life: Life
    offsets: Int64s

    @property
    def segment(self) -> Segment:
        return self.file.segment

    @property
    def path(self) -> str:
        return self.segment.path

    @property
    def is_in_use(self) -> bool:
        """Whether it is in the partition's own directory."""
        return self.life.state is None and not self.file.is_of_replica

    @property
    def is_of_log(self) -> bool:
        """Whether it is a segment of the log, and neither a leftover nor in another directory."""
        return self.is_in_use and self.file.is_served

    def failure(self) -> PartitionFailed | None:
        """Returns why the records cannot be erased from this file, if so."""
        parsed = parse_partition_dir(basename(dirname(self.path)))
        state = None if parsed is None else parsed.state
        if self.is_in_use or state is PartitionState.DELETE:
            return None
        if state is PartitionState.STRAY:
            why = "it belongs to a stray partition, which `purge --stray` removes"
        else:
            why = "it belongs to a replica that is not served"
        return PartitionFailed.of(NotErased(self.path, why))

    def row(self, key: TopicPartition) -> ErasedFile:
        """Returns the file before anything is erased; one that is not of the log is removed."""
        sha256 = _sha256(self.segment)
        size = self.segment.size
        return ErasedFile(*key, self.path, len(self.offsets), not self.is_of_log, size, sha256)


def _search(
    engine: Engine,
    key: TopicPartition,
    request: Erase,
    on_progress: OnProgress = lambda done, total: None,
) -> Iterator[_Match]:
    """Yields the `.log` files in all directories of a partition that hold selected records. Raises
    CorruptError if one cannot be read, except for the cleaner's unfinished output."""
    for life in lives(engine, key):
        if request.offset is not None and life.state is not None:
            continue  # in another life of the topic, it is the offset of another record
        replicas = [*life.replicas, *(_futures(engine, key) if life.state is None else ())]
        try:
            disk = PartitionOnDisk(life.log, replicas, deleted=life.aside)
        except (UnknownPartition, SegmentGone):
            if life.state is None:
                raise
            continue  # its files are being removed
        total, done = sum(file.segment.size for file in disk.files), 0
        for file in disk.files:
            on_progress(done, total)
            found = [np.empty(0, dtype=np.int64)]
            for part in disk.scan(file):
                if not isinstance(part, Damage):
                    found.append(part.offsets[request.rows(part)])
                elif not file.is_unfinished:
                    raise fresh(part.error)
            done += file.segment.size
            offsets = np.concatenate(found)
            if len(offsets):
                yield _Match(file, life, offsets)


def _futures(engine: Engine, key: TopicPartition) -> Iterator[DirFd]:
    """Yields the directories into which a broker was moving the partition."""
    for log_dir in engine.log_dirs.dirs:
        for each in log_dir.partitions():
            is_future = each.state is PartitionState.FUTURE
            if is_future and (each.topic, each.partition) == key:
                yield each.directory


def _sha256(segment: Segment) -> str:
    file, found = segment.files.log(), hashlib.sha256()
    for position in range(0, segment.size, _HASHED_BYTES):
        found.update(file.read(position, min(_HASHED_BYTES, segment.size - position)))
    return found.hexdigest()


class _Erasing:
    """Erases records from one partition."""

    def __init__(
        self,
        engine: LogManager,
        key: TopicPartition,
        request: Erase,
        on_progress: OnProgress,
    ) -> None:
        self._engine = engine
        self._key = key
        self._request = request
        self._on_progress = on_progress
        self._state = engine.cleaner.cleaning_state
        self._done = self._total = 0

    def run(self) -> Iterator[ErasedFile | PartitionFailed]:
        """Yields the files. Raises CleaningAborted if the partition is being cleaned or changed."""
        writer = self._engine.writer(*self._key)
        log_dir = self._engine.dirs.of(self._key)
        assert log_dir is not None
        with self._state.in_progress(self._key) as is_mine:
            if not is_mine:
                raise CleaningAborted("the partition is already being cleaned or changed")
            with log_dir.guarded():
                yield from self._run(writer)

    def _run(self, writer: LogWriter) -> Iterator[ErasedFile | PartitionFailed]:
        matches = list(self._search())
        if not matches:
            return
        if any(each.kind in _UNFINISHED for each in find_leftovers(writer.directory)):
            set_aside_unfinished(writer.directory)
            matches = list(self._search())
        writer.flush()  # a power failure must not lose what is copied
        own = sorted(
            (each for each in matches if each.is_of_log), key=lambda each: -each.segment.size
        )
        # Before any of them is renamed, because a replaced segment needs its name.
        others = [
            (each, each.failure() or each.row(self._key)) for each in matches if not each.is_of_log
        ]
        self._done, self._total = 0, sum(each.segment.size for each in own)
        for each in own:
            yield self._erase_from(each, writer)
            self._engine.context.close_removed()  # else the old file would still take up space
        yield from self._remove(others, writer)
        self._remove_unfinished(writer)

    def _search(self) -> Iterator[_Match]:
        return _search(self._engine, self._key, self._request, self._on_progress)

    # -- segments --------------------------------------------------------------------------------

    def _erase_from(self, match: _Match, writer: LogWriter) -> ErasedFile:
        base = match.segment.base_offset
        for _ in range(_TRIES):
            view = self._engine.log(*self._key).view()
            segment = view.segments[view.segments.floor_index(base)]
            if segment.base_offset != base:
                break
            made = self._rewritten(segment, match.offsets, writer)
            if self._swap_in(made, segment, writer):
                names = {segment_file(base, kind, FileState.DELETED) for kind in FILES}
                writer.purge(names, own=True)
                return ErasedFile(
                    *self._key,
                    segment.path,
                    made.records,
                    False,
                    segment.size,
                    made.sha256_before,
                    made.cleaned.size,
                    made.sha256_after,
                )
            made.cleaned.discard()
            writer.roll()
        raise CleaningAborted(f"the log changed: segment {base}")

    def _rewritten(self, segment: Segment, offsets: Int64s, writer: LogWriter) -> RewrittenSegment:
        context = self._engine.context
        with context.decoder() as decoder:
            return rewrite_segment(
                segment,
                writer.directory,
                writer.config,
                offsets,
                decoder,
                context.limits.max_batch_bytes,
                self._note_read,
            )

    def _note_read(self, count: int) -> None:
        self._state.check_aborted(self._key)
        self._done += count
        self._on_progress(self._done, self._total)

    def _swap_in(self, made: RewrittenSegment, old: Segment, writer: LogWriter) -> bool:
        try:
            self._state.check_aborted(self._key)
            with uninterrupted:
                return writer.replace_segment(made.cleaned, old.size)
        except (LogDirOffline, SyncFailed):
            raise  # the next loading needs the files to complete or undo the swap
        except BaseException as error:
            discard_after(error, made.cleaned.discard)
            raise

    # -- other files -----------------------------------------------------------------------------

    def _remove(
        self, matches: Iterable[tuple[_Match, ErasedFile | PartitionFailed]], writer: LogWriter
    ) -> Iterator[ErasedFile | PartitionFailed]:
        """Removes files that are not of the log, unless that failed; yields them."""
        for each, row in matches:
            if isinstance(row, PartitionFailed):
                pass
            elif each.is_in_use:
                name = self._name_of(each.segment, writer)
                writer.purge({name.replace(FileKind.LOG, kind, 1) for kind in FILES}, own=True)
            else:
                self._remove_directory(dirname(each.path))
            yield row

    @staticmethod
    def _name_of(segment: Segment, writer: LogWriter) -> str:
        """Returns the present name of a leftover: a segment that was replaced may have needed its
        former name."""
        for each in find_leftovers(writer.directory):
            with suppress(SegmentGone):
                status = writer.directory.stat(each.name)
                if (status.st_dev, status.st_ino) == segment.files.identity:
                    return each.name
        return basename(segment.path)

    def _remove_directory(self, path: str) -> None:
        """Removes the directory of a deleted partition."""
        log_dir, name = dirname(path), basename(path)
        found = FoundLeftover(log_dir, name, "", LeftoverKind.DELETED_PARTITION, 0, *self._key)
        self._engine.purge([found])

    def _remove_unfinished(self, writer: LogWriter) -> None:
        """Removes unfinished output of the cleaner, which may hold the beginning of a batch."""
        names = {each.name for each in find_leftovers(writer.directory)}
        writer.purge({name for name in names if FileState.CLEANED in name}, own=True)
