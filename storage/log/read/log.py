"""A partition that may be changing: its state at one moment is a ``View``.

``view`` costs two system calls if nothing changed. A broker may at any moment append, roll, delete
from the front, or replace segments by cleaned ones; each change shows as a changed directory or a
longer file. Nothing is locked, opened for writing, or withheld from the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from ...concurrency.fair_lock import FairLock
from ...errors import CorruptError, SegmentGone, UnknownPartition
from ...format.files.names import FileState
from ...format.layout import MAX_OFFSET
from ...io.directory import Directory, HeldDirectory
from ...io.preallocated import has_writer, is_zero
from ...io.retry import retry_if_gone
from ...io.small_file import Stamp, stamp
from ...segment.extent import Fault
from ...segment.segment import Segment, SegmentFiles
from .as_of import LogEnd
from .context import ReadContext
from .segments import LogFile, Segments, drop_covered, list_logs, unchanged
from .tail import Tail, advance, settled_fault, walk_from_start
from .view import View

# How often a directory is listed while its names keep changing.
_LISTINGS = 8
_DAMAGE_KEPT = 1000
#: How often to check whether the process that preallocated space still runs.
WRITER_SECONDS: Final = 1.0


class _Listing(NamedTuple):
    """The directory listing taken when the directory had this ``stamp``. ``snapshots``: their
    offsets, ascending."""

    stamp: Stamp | None
    segments: Segments
    snapshots: tuple[int, ...]


class Log:
    """One partition's directory, opened for reading.

    ``log_start_offset`` returns the checkpointed log start offset, 0 if there is none. With
    ``at_ms`` (ms since 1970), the partition is shown as it was at that time: see `as_of.py`.
    ``damage``: the first errors met while reading this partition, by file and position.
    """

    def __init__(
        self,
        directory: Directory,
        topic: str,
        partition: int,
        log_start_offset: Callable[[], int],
        context: ReadContext,
        at_ms: int | None = None,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.at_ms = at_ms
        self.damage: dict[tuple[str, int], CorruptError] = {}
        self._log_start_offset = log_start_offset
        self._context = context
        self._lock = FairLock()  # guards the attributes below
        self._listing: _Listing | None = None
        self._tail: Tail | None = None
        self._walked: tuple[object, ...] = ()  # the active segment's state when _tail was made
        self._cuts = 0
        self._has_known_writer = False
        self._writer_checked_at = -inf
        self._end = None if at_ms is None else LogEnd(at_ms)
        self._view: View | None = None
        # The listing, log start, and active segment's size and mtime that _view shows; None if
        # they alone do not determine it.
        self._viewed: tuple[_Listing, int, int, int] | None = None

    @property
    def path(self) -> str:
        return self.directory.path

    def view(self) -> View:
        """Returns the partition's current state; the same object as before if nothing changed.

        Raises UnknownPartition if the directory no longer exists, and SegmentGone as
        `retry_if_gone` does.
        """
        with self._lock:
            return retry_if_gone(self._look)

    def report(self, error: CorruptError) -> bool:
        """Records damage. Returns True if it is new and worth reporting: there is a limit, since a
        log may consist of nothing but damage."""
        key = (error.file, error.position)
        if key in self.damage or len(self.damage) >= _DAMAGE_KEPT:
            return False
        self.damage[key] = error
        return True

    def _look(self) -> View:
        try:
            return self._refresh()
        except SegmentGone:
            # A file was removed between listing and opening.
            self._listing = None
            self._context.files.drop(self.directory)
            raise

    def _refresh(self) -> View:
        start = self._log_start_offset()
        listing = self._listing
        if listing is None:
            listing = self._listing = self._list()
        elif (now := self._stamp()) is None or now != listing.stamp:
            self._context.files.drop(self.directory)
            listing = self._listing = self._list()
        if not listing.segments:
            return self._empty_view(start)
        status = listing.segments[-1].files.log().stat()
        viewed = (listing, start, status.st_size, status.st_mtime_ns)
        view = self._view
        if view is None or viewed != self._viewed:
            view = self._view_of(*viewed)
            # a fault is reported only after some time
            is_ended = view.ended_at_ms is not None
            is_settled = is_ended or self._tail is None or self._tail.fault is None
            self._viewed = viewed if is_settled else None
        return view

    def _view_of(self, listing: _Listing, start: int, size: int, mtime_ns: int) -> View:
        """Returns the view of a listing whose active segment has that size and mtime."""
        segments, listed = listing.segments, listing.segments[-1]
        if (listed.size, listed.mtime_ns) != (size, mtime_ns):
            segments = segments.with_active(replace(listed, size=size, mtime_ns=mtime_ns))
        if self._end is not None:
            self._cuts += self._end.forget_if_truncated(segments)
            ended = self._end.segments_of(replace(self._empty_view(start), segments=segments))
            if ended is not None:
                self._view = self._ended_view(start, ended, listing.snapshots)
                return self._view
        self._walk(segments, listing.snapshots)
        view = self._view
        if view is None or not self._is_current(view, start, segments):
            view = self._view = self._make_view(start, segments)
        return view

    def _is_current(self, view: View, start: int, segments: Segments) -> bool:
        tail = self._tail
        assert tail is not None
        return (
            view.end_offset == max(tail.next_offset, view.start_offset)
            and view.start_offset == max(start, segments[0].base_offset)
            and view.cuts == self._cuts
            and view.segments.rolled == segments.rolled
            and view.segments[-1].files is segments[-1].files
            and view.segments[-1].size == tail.position
            and view.tail == self._damage_after(tail, segments[-1])
        )

    def _stamp(self) -> Stamp | None:
        try:
            return stamp(self.directory.stat())
        except SegmentGone:
            raise UnknownPartition(self.topic, self.partition) from None

    def _walk(self, segments: Segments, snapshots: Sequence[int]) -> None:
        """Advances ``_tail`` to the log's present end, reading only new data."""
        active = segments[-1]
        now = (active.files.identity, active.size, active.mtime_ns)
        tail = self._tail
        if tail is not None and now == self._walked:
            return
        limit = self._context.limits.max_batch_bytes
        if tail is None or not tail.continues(segments):
            self._cuts += tail is not None
            tail = walk_from_start(self._held, snapshots, segments, limit)
        else:
            tail = advance(tail, segments, limit)
        self._tail, self._walked = tail, now

    def _make_view(self, start: int, segments: Segments) -> View:
        tail = self._tail
        assert tail is not None
        end = tail.next_offset
        start = max(start, segments[0].base_offset)
        last_stable = min([end, *tail.open_transactions.values()])
        is_complete = segments[-1].size == tail.position
        if not is_complete:
            segments = segments.with_active(replace(segments[-1], size=tail.position))
        return View(
            topic=self.topic,
            partition=self.partition,
            segments=segments,
            start_offset=start,
            end_offset=max(end, start),
            stable_offset=max(last_stable, start),
            context=self._context,
            cuts=self._cuts,
            tail=self._damage_after(tail, segments[-1]),
            is_complete=is_complete,
        )

    def _damage_after(self, tail: Tail, active: Segment) -> Fault | None:
        """Returns the fault after the last batch, unless that is a write in progress or
        preallocated space."""
        fault, files = settled_fault(tail, active), active.files
        if fault is None:
            return None
        file = files.log()
        start, end = fault.error.position, file.size()
        is_room = (
            fault.reaches(end)
            and self._has_writer()
            and files.remember(
                "zeros", (start, end, active.mtime_ns), lambda: is_zero(file, start, end)
            )
        )
        return None if is_room else fault

    def _has_writer(self) -> bool:
        """Returns `has_writer`, asked again after a while: a killed broker changes no file."""
        now = monotonic()
        if now - self._writer_checked_at >= WRITER_SECONDS:
            self._has_known_writer = has_writer(self.directory)
            self._writer_checked_at = now
        return self._has_known_writer

    def _ended_view(self, start: int, ended: Segments, snapshots: Sequence[int]) -> View:
        """Returns the view of the segments up to the end at an earlier time."""
        of_last, at_end = ended[-1].end, self._end
        assert of_last is not None
        assert at_end is not None
        start = max(start, ended[0].base_offset)
        end = max(of_last.offset, start)
        view = self._view
        if view is not None and view.segments is ended and view.start_offset == start:
            return view
        usable = [offset for offset in snapshots if offset <= end]
        # Not a method: the view would refer to this log, which refers to the view.
        hold = partial(_hold, self.directory, self._context)
        limit = self._context.limits.max_batch_bytes
        stable = cache(partial(_stable_offset, hold, usable, ended, start, end, limit))
        return replace(
            self._empty_view(start),
            segments=ended,
            end_offset=end,
            stable_offset=stable,
            ended_at_ms=at_end.at_ms,
        )

    def _empty_view(self, start: int) -> View:
        return View(
            topic=self.topic,
            partition=self.partition,
            segments=Segments(()),
            start_offset=start,
            end_offset=start,
            stable_offset=start,
            context=self._context,
            cuts=self._cuts,
        )

    def _list(self) -> _Listing:
        try:
            listed, logs, snapshots = self._list_files()
        except SegmentGone:
            raise UnknownPartition(self.topic, self.partition) from None
        if any(log.state is not FileState.LIVE for log in logs):
            logs = drop_covered(logs, self._next_offset)
        known = {} if self._view is None else {s.base_offset: s.files for s in self._view.segments}
        next_bases = [log.base_offset for log in logs[1:]] + [-1] * bool(logs)
        segments = Segments(
            tuple(
                Segment(self._files(log, known), log.size, log.mtime_ns, next_base)
                for log, next_base in zip(logs, next_bases, strict=True)
            )
        )
        return _Listing(listed, segments, snapshots)

    def _list_files(self) -> tuple[Stamp | None, list[LogFile], tuple[int, ...]]:
        """Lists the directory until no name changes meanwhile: a segment that is being renamed
        might appear under neither name. Returns the directory's stamp before the last listing, and
        what `list_logs` returns."""
        held = self._held()
        for _ in range(_LISTINGS):
            before = held.stat()
            listed = stamp(before)
            logs, snapshots = list_logs(held, self.report)
            if held.stat().st_mtime_ns == before.st_mtime_ns:
                break
        return listed, logs, snapshots

    def _held(self) -> HeldDirectory:
        return _hold(self.directory, self._context)

    def _files(self, log: LogFile, known: dict[int, SegmentFiles]) -> SegmentFiles:
        files = known.get(log.base_offset)
        if files is not None and unchanged(files, log):
            return files
        return SegmentFiles(
            self.directory, log.base_offset, log.inode, self._context.files, log.state
        )

    def _next_offset(self, log: LogFile) -> int:
        """Returns the offset after the last batch of a ``.log``."""
        segment = Segment(self._files(log, {}), log.size, log.mtime_ns)
        limit = self._context.limits.max_batch_bytes
        tail = advance(Tail(log.base_offset), (segment,), limit)
        return min(tail.next_offset, MAX_OFFSET)


def _hold(directory: Directory, context: ReadContext) -> HeldDirectory:
    """Returns the directory, opened once for all readers."""
    held = context.files.get(directory, directory.hold)
    assert isinstance(held, HeldDirectory)
    return held


def _stable_offset(
    hold: Callable[[], HeldDirectory],
    snapshots: Sequence[int],
    segments: Segments,
    start: int,
    end: int,
    max_batch_bytes: int,
) -> int:
    """Returns the last stable offset of segments that end before ``end``."""
    tail = walk_from_start(hold, snapshots, segments, max_batch_bytes)
    return max(min([end, *tail.open_transactions.values()]), start)
