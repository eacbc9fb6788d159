"""Erases records: those of some keys, of all keys with a prefix, or the one at an offset.

The segments with such records are written again without them, one after the other, and swapped in
as compaction does (see `erasure/rewriting.py`). The active segment becomes a rolled one first. Then
all other files of the partition's directories that hold such records are removed: deleted and
replaced segments, unfinished output of the cleaner, and the partition's deleted directories. What
remains is in no file; blocks that the file system has freed are not overwritten.

A crash leaves each segment as it was or without the records. Repeating the operation erases the
rest, also what only a leftover still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from os.path import abspath, basename, dirname, split
from typing import Any, Final

from ..cleaner.cleaned import discard_after
from ..cleaner.manager import OnProgress
from ..cleaner.split.place import compaction_path
from ..concurrency.interruption import uninterrupted
from ..erasure.finding import FindRows, finder
from ..erasure.rewriting import RewrittenSegment, rewrite_segment
from ..errors import (
    CleaningAborted,
    LogDirOffline,
    NotErased,
    RecordNotFound,
    SegmentGone,
    StorageError,
)
from ..format.files.names import FileKind, FileState, TopicPartition, segment_file
from ..format.records.batch import Int64s
from ..io.disk import DirFd
from ..io.durable import SyncFailed, WritableDirFd
from ..log.append.writer import LogWriter
from ..log.delete.leftovers import LeftoverKind, find_leftovers, set_aside_unfinished
from ..log_dirs.engine import Engine
from ..log_dirs.purging import FoundLeftover
from ..log_manager import LogManager
from ..segment.segment import Segment
from ..segment.stored import FILES
from ..topics.remote_part import remote_remains
from ..wording import printable
from .erase_search import Match, log_dir_paths, search
from .history import set_aside
from .request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    per_partition,
    writable,
)

# An append may grow the active segment while it is written again; it is rolled then.
_TRIES: Final = 2
_UNFINISHED: Final = (LeftoverKind.CLEANED, LeftoverKind.SWAP)


@dataclass(frozen=True, slots=True)
class Erase(PartitionsRequest):
    """Erases the records with one of `keys`, those whose key begins with `prefix`, or the one at
    `offset` of one partition. Of a deleted topic, it erases what its directories still hold."""

    keys: frozenset[bytes] = frozenset()
    prefix: bytes | None = None
    offset: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError unless one of the three is given, and topics are named."""
        if [self.keys or None, self.prefix, self.offset].count(None) != 2:
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

    def units(self, engine: Engine) -> list[TopicPartition]:
        """Returns the partitions, also those that are deleted or set aside. Raises UnknownTopic or
        UnknownPartition."""
        there = {topic: set(numbers) for topic, numbers in engine.topics().items()}
        for each in set_aside(engine):
            there.setdefault(each.topic, set()).add(each.partition)
        return self.selection.partitions({topic: sorted(there[topic]) for topic in there})

    @property
    def not_found(self) -> PartitionFailed:
        """The failure if there is no such record."""
        if self.offset is not None:
            what = f"at offset {self.offset}"
        elif self.prefix is not None:
            what = f"whose key begins with {_shown(self.prefix)}"
        elif len(self.keys) == 1:
            what = f"with key {_shown(min(self.keys))}"
        else:
            what = f"with one of the {len(self.keys)} keys"
        return PartitionFailed.of(
            RecordNotFound(what), str(self.selection).replace("/ ", " ").rstrip("/")
        )

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition. Returns the failure if there is no such record;
        reads no further than to the first one."""
        find = self.finder()
        for key in self.units(engine):
            try:
                if any(True for _ in self.search(engine, key, find)):
                    return ()
            except (StorageError, OSError):
                return ()  # the operation reports it
        return [*_not_searched(engine, self), self.not_found]

    def finder(self) -> FindRows:
        """Returns what finds the records. Many keys take half a second for each million."""
        return finder(self.keys, self.prefix, self.offset)

    def search(
        self,
        engine: Engine,
        key: TopicPartition,
        find: FindRows,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Iterator[Match]:
        """Yields the files of a partition with such records, as `erase_search.search` does."""
        is_by_offset = self.offset is not None
        return search(engine, key, find, is_by_offset=is_by_offset, on_progress=on_progress)


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
    such records may be there. A file that holds records and stays fails with NotErased (see
    `Match.failure`), and so does a topic with segments in remote storage, which are not searched.
    If there is no such record at all, the answer is RecordNotFound.
    """
    find = request.finder()
    not_searched = _not_searched(engine, request)

    def work(key: TopicPartition) -> Iterator[ErasedFile | PartitionFailed]:
        report = partial(progress.report, "{}/{}".format(*key))
        if request.writes:
            yield from _Erasing(writable(engine), key, request, find, report).run()
        else:
            matches = list(request.search(engine, key, find, report))
            yield from _doubts(matches) or (_row(each, key) for each in matches)

    is_found = False
    for row in per_partition(engine, request, "erasing records", work, progress):
        is_found = True
        yield row
    yield from not_searched
    if not is_found:
        yield request.not_found


def _not_searched(engine: Engine, request: Erase) -> list[PartitionFailed]:
    """Returns the selected topics with segments in remote storage."""
    topics = dict.fromkeys(topic for topic, _ in request.units(engine))
    found = ((each, remote_remains(engine, each)) for each in topics if each in engine.topics())
    return [
        PartitionFailed.of(
            NotErased("remote storage", f"{remains}; nothing is searched there", False), topic
        )
        for topic, remains in found
        if remains
    ]


def _doubts(matches: Sequence[Match]) -> list[PartitionFailed]:
    """Returns why files stay if none of them is known to hold such records."""
    return [] if any(each.is_certain for each in matches) else [each.doubt() for each in matches]


def _row(match: Match, key: TopicPartition) -> ErasedFile | PartitionFailed:
    """Returns a file before anything is erased; one that is not of the log is removed."""
    failure = match.failure()
    if failure is not None:
        return failure
    is_removed, size = not match.is_of_log, match.segment.size
    return ErasedFile(*key, match.path, len(match.offsets), is_removed, size, match.sha256())


class _Erasing:
    """Erases records from one partition."""

    def __init__(
        self,
        engine: LogManager,
        key: TopicPartition,
        request: Erase,
        find: FindRows,
        on_progress: OnProgress,
    ) -> None:
        self._engine = engine
        self._key = key
        self._request = request
        self._find = find
        self._on_progress = on_progress
        self._state = engine.cleaner.cleaning_state
        self._done = self._total = 0

    def run(self) -> Iterator[ErasedFile | PartitionFailed]:
        """Yields the files. Raises CleaningAborted if the partition is being cleaned or changed."""
        log_dir = self._engine.dirs.of(self._key)
        if log_dir is None:  # only deleted directories, or stray ones, are left of it
            yield from self._remove([(each, _row(each, self._key)) for each in self._search()])
            return
        writer = self._engine.writer(*self._key)
        with self._state.in_progress(self._key) as is_mine:
            if not is_mine:
                raise CleaningAborted("the partition is already being cleaned or changed")
            with log_dir.guarded():
                yield from self._run(writer)

    def _run(self, writer: LogWriter) -> Iterator[ErasedFile | PartitionFailed]:
        matches = list(self._search())
        doubts = _doubts(matches)
        if doubts or not matches:
            yield from doubts
            return
        own = sorted(
            (each for each in matches if each.is_of_log), key=lambda each: -each.segment.size
        )
        # Before any file is renamed.
        others = [(each, _row(each, self._key)) for each in matches if not each.is_of_log]
        if any(each.kind in _UNFINISHED for each in find_leftovers(writer.directory)):
            set_aside_unfinished(writer.directory)
        writer.flush()  # a power failure must not lose what is copied
        self._done, self._total = 0, sum(each.segment.size for each in own)
        for each in own:
            yield self._erase_from(each, writer)
            self._engine.context.close_removed()  # else the old file would still take up space
        yield from self._remove(others, writer)
        self._remove_unfinished(writer)

    def _search(self) -> Iterator[Match]:
        return self._request.search(self._engine, self._key, self._find, self._on_progress)

    # -- segments --------------------------------------------------------------------------------

    def _erase_from(self, match: Match, writer: LogWriter) -> ErasedFile:
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
        directory, context = writer.directory, self._engine.context
        return rewrite_segment(segment, directory, writer.config, offsets, context, self._note_read)

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
        self,
        matches: Iterable[tuple[Match, ErasedFile | PartitionFailed]],
        writer: LogWriter | None = None,
    ) -> Iterator[ErasedFile | PartitionFailed]:
        """Removes files that are not of the log, unless that failed; yields them."""
        for each, row in matches:
            if isinstance(row, PartitionFailed):
                pass
            elif each.is_of_compaction:
                self._remove_compaction()
            elif each.is_in_use and writer is not None:
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
        """Removes the directory of a deleted partition. Raises NotErased if it is still there."""
        above, name = split(abspath(path))
        for log_dir in self._engine.log_dirs.dirs:
            if abspath(log_dir.path) == above:
                kind = LeftoverKind.DELETED_PARTITION
                self._engine.purge([FoundLeftover(log_dir.path, name, "", kind, 0, *self._key)])
        with suppress(SegmentGone):
            DirFd(path).stat()
            raise NotErased(path, "it could not be removed")

    def _remove_unfinished(self, writer: LogWriter) -> None:
        """Removes unfinished output of the cleaner, which may hold the beginning of a batch."""
        names = {each.name for each in find_leftovers(writer.directory)}
        writer.purge({name for name in names if FileState.CLEANED in name}, own=True)
        self._remove_compaction()

    def _remove_compaction(self) -> None:
        """Removes what unfinished compactions by many processes have made. None is running, because
        it would hold the log directories."""
        for path in log_dir_paths(self._engine):
            above, name = split(compaction_path(path))
            with suppress(SegmentGone, FileNotFoundError):
                WritableDirFd(above).remove_directory(name)
