"""Looks at many partitions once each, to plan how other processes read them.

An engine opens each partition by its path, and keeps it, because it will be used again. For a
hundred thousand partitions that are only looked at, this would take several times as long, and
some kilobytes of memory for each.

A planned view is passed to another process by the names of its files, so that nothing is listed
there. That process verifies what it opens: a file is used only if it still is the one of the view.
So a log that was compacted, truncated, or deleted and created again meanwhile is never read in its
place; the caller then opens the log as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import stat_result
from typing import Final, NamedTuple

from ..config.kafka import reader_config, run_configs
from ..errors import CorruptError, LogDirError, SegmentGone, UnknownPartition
from ..format.files.names import FileKind, segment_file
from ..format.records.columns import Columns, Damage
from ..io.directory import Directory, HeldDirectory, ReadableFile
from ..io.opening import open_directory
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..log.read.segments import LogFile, Segments
from ..log.read.small_log import SmallLogs
from ..log.read.transactions import Isolation
from ..log.read.view import View
from ..log_dirs.engine import Engine, read_limits
from ..log_dirs.log_dir import read_topic_id
from ..segment.segment import Segment, SegmentFiles

# With more segments than this, a listing costs less than naming and verifying each.
_MOST_SEGMENTS: Final = 256
# Each file is read once.
_OPEN_FILES: Final = 64


class SurveyedPartition(NamedTuple):
    """A partition's ``view``, and the ``topic_id`` in the same directory: "" if there is none, or
    if it cannot be read; ``problem`` says why then."""

    view: View
    topic_id: str = ""
    problem: CorruptError | None = None


class Survey:
    """A pass over the partitions that exist now. It holds the log directories open."""

    def __init__(self, engine: Engine) -> None:
        """Raises LogDirError if a log directory no longer exists."""
        self._engine = engine
        self._partitions = engine.log_dirs.partitions()
        self._held = {each.path: each.directory.hold() for each in engine.log_dirs.dirs}
        self._starts = {each.path: each.log_start_offsets for each in engine.log_dirs.dirs}
        self._small = SmallLogs(engine.context)

    def look(self, topic: str, partition: int) -> SurveyedPartition:
        """Returns the present state of a partition. Raises UnknownTopic or UnknownPartition."""
        key = (topic, partition)
        found = self._partitions.get(key) or self._engine.partition_dir(topic, partition)
        path, directory, engine = found.log_dir.path, found.directory, self._engine
        try:
            held = directory.hold(self._held[path])
        except SegmentGone:
            raise UnknownPartition(topic, partition) from None
        start = self._starts[path].get(key, 0)
        view = None if engine.at_ms is not None else self._small.view(key, directory, held, start)
        if view is None:
            engine.context.files.get(directory, lambda: held)  # the log uses it, too
            log = Log(directory, topic, partition, lambda: start, engine.context, engine.at_ms)
            view = log.view()
        try:
            return SurveyedPartition(view, found.topic_id(held))
        except CorruptError as error:
            return SurveyedPartition(view, problem=error)


class ViewReference(NamedTuple):
    """The part of a view that is needed to read a range of its offsets.

    ``directory`` is the partition's in ``log_dir``, and had ``topic_id`` ("" for none). ``files``
    are consecutive segments, each with the size in bytes that the view shows; ``next_base`` is the
    base offset of the segment after them, -1 if there is none. ``bound``: the offset where reading
    stops.
    """

    log_dir: str
    directory: str
    topic: str
    partition: int
    topic_id: str
    start_offset: int
    end_offset: int
    bound: int
    files: tuple[LogFile, ...]
    next_base: int


def reference_to(
    view: View, topic_id: str, start: int, end: int, isolation: Isolation
) -> ViewReference | None:
    """Returns a reference for reading offsets [``start``, ``end``) of a view; None if the log must
    be opened as a whole: it has too many segments, some in remote storage, or had bytes after its
    last batch, which may turn out to be damaged."""
    if not view.is_complete:
        return None
    segments = view.segments.from_offset(start)
    next_base = -1
    if isolation is Isolation.READ_UNCOMMITTED:  # otherwise markers may follow in any segment
        count = sum(segment.base_offset < end for segment in segments)
        next_base = segments[count - 1].next_base if count else -1
        segments = segments[:count]
    if not 0 < len(segments) <= _MOST_SEGMENTS:
        return None
    directory = segments[0].files.directory
    if any(segment.is_remote for segment in segments):
        return None
    assert directory.parent is not None
    return ViewReference(
        directory.parent.path,
        directory.name,
        view.topic,
        view.partition,
        topic_id,
        view.start_offset,
        view.end_offset,
        view.bound(isolation),
        tuple(map(_log_file, segments)),
        next_base,
    )


def _log_file(segment: Segment) -> LogFile:
    files = segment.files
    return LogFile(files.base_offset, files.state, files.identity, segment.size, segment.mtime_ns)


class ReferencedViews:
    """Reads views by reference. The caches are shared, and small: each view is read once."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        """Raises ConfigError if Kafka would refuse one of the ``configs``."""
        limits = read_limits(reader_config(run_configs(configs.items())))
        self._context = ReadContext(replace(limits, open_files=_OPEN_FILES))
        self._log_dirs: dict[str, tuple[Directory, HeldDirectory]] = {}

    def scan(
        self, reference: ViewReference, start: int, end: int, isolation: Isolation
    ) -> Iterator[Columns | Damage]:
        """Yields what `View.scan` yields for offsets [``start``, ``end``) of the view. Raises
        SegmentGone as soon as a file is found that is not as it was."""
        try:
            log_dir, held_log_dir = self._log_dir(reference.log_dir)
            directory = log_dir.child(reference.directory)
            held = directory.hold(held_log_dir)
            if read_topic_id(held) != reference.topic_id:
                raise SegmentGone(directory.path)
            segments = self._segments(reference, directory, held, start, end)
        except (SegmentGone, LogDirError, CorruptError):
            self._log_dirs.clear()  # one may have been replaced
            raise SegmentGone(reference.log_dir) from None
        view = View(
            topic=reference.topic,
            partition=reference.partition,
            segments=segments,
            start_offset=reference.start_offset,
            end_offset=reference.end_offset,
            stable_offset=reference.bound,
            context=self._context,
        )
        for number, part in enumerate(view.scan(start, end, isolation)):
            if number and read_topic_id(directory) not in ("", reference.topic_id):
                raise SegmentGone(directory.path)  # it was deleted and created again meanwhile
            yield part

    @property
    def max_batch_bytes(self) -> int:
        """The limit of the configs."""
        return self._context.limits.max_batch_bytes

    def open_single(self, reference: ViewReference) -> ReadableFile | None:
        """Opens the only file of a view; None if it is not as it was."""
        (file,) = reference.files
        try:
            log_dir, held_log_dir = self._log_dir(reference.log_dir)
            held = log_dir.child(reference.directory).hold(held_log_dir)
            if read_topic_id(held) != reference.topic_id:
                return None
            opened = held.open(segment_file(file.base_offset, FileKind.LOG, file.state))
        except (SegmentGone, LogDirError, CorruptError):
            return None
        return opened if _is_same(file, opened.stat(), reference.next_base < 0) else None

    def _log_dir(self, path: str) -> tuple[Directory, HeldDirectory]:
        """Returns a log directory, which is held open for other references to it."""
        found = self._log_dirs.get(path)
        if found is None:
            directory = open_directory(path, self._context.limits.remote)
            found = self._log_dirs[path] = directory, directory.hold()
        return found

    def _segments(
        self,
        reference: ViewReference,
        directory: Directory,
        held: HeldDirectory,
        start: int,
        end: int,
    ) -> Segments:
        files, found = reference.files, []
        for number, file in enumerate(files):
            next_base = reference.next_base
            if number + 1 < len(files):
                next_base = files[number + 1].base_offset
            identity = file.inode
            if file.base_offset < end and not 0 <= next_base <= start:
                identity = self._open(held, file, next_base < 0).identity
            of_segment = SegmentFiles(
                directory, file.base_offset, identity, self._context.files, file.state
            )
            found.append(Segment(of_segment, file.size, file.mtime_ns, next_base))
        return Segments(found)

    def _open(self, held: HeldDirectory, file: LogFile, is_active: bool) -> ReadableFile:
        """Opens a file, and keeps it for its segment. Raises SegmentGone if it is another one."""
        opened = held.open(segment_file(file.base_offset, FileKind.LOG, file.state))
        if not _is_same(file, opened.stat(), is_active):
            raise SegmentGone(opened.path)
        self._context.files.get((opened.identity, str(FileKind.LOG)), lambda: opened)
        return opened


def _is_same(file: LogFile, now: stat_result, is_active: bool) -> bool:
    """Whether a file is the one referred to. Device numbers are not compared: a network file system
    may have another one on each machine. The active segment may have grown."""
    if now.st_ino != file.inode[1]:
        return False
    if is_active:
        return now.st_size >= file.size
    return now.st_size == file.size and now.st_mtime_ns == file.mtime_ns
