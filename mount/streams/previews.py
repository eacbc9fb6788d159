"""Previews of compaction: what it would retain of a partition, computed on demand and cached.

A preview takes as long as a cleaning, so it is computed once for each state of a partition, and for
one partition at a time, which also bounds the memory (see `storage/cleaner/preview/preview.py`).
The most recently used previews are cached, up to `_KEPT_BYTES` or one of any size. The retained
records may be known before the number of discarded ones; `in_full` requests both.

A failure because of damage is cached until the log changes.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import Clock, CorruptError, Engine, SegmentGone, broker_config, fresh

from ..partition import FRESH_SECONDS, MountedPartition
from ..vfs.pending import Pending
from .stream_index import StreamIndex

if TYPE_CHECKING:  # a mount that previews nothing does not load the code that compacts
    from kafkafs.storage import CompactedView, OnProgress, Preview, PreviewRequest, Stamp

logger = logging.getLogger(__name__)

_KEPT_BYTES: Final = 64 << 20
# How often a preview is restarted when segments are deleted meanwhile.
_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class PreviewFailure:
    """The reason why a log in this state has no preview."""

    stamp: Stamp
    error: CorruptError


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running preview: bytes read, and the currently known total."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class LastResult:
    """The last result, and when it was returned, by `monotonic`."""

    compacted: CompactedView
    returned_at: float


Show = Callable[[], "AbstractContextManager[OnProgress]"]


@contextmanager
def no_progress() -> Iterator[OnProgress]:
    """Yields a callback that does nothing: progress appears in `status.json` only."""
    yield lambda done, total: None


class Previews:
    """The compacted views of a mount's partitions. Any thread may use it. `show`: returns a context
    manager around each computation; it yields a callback for its progress."""

    show: Show

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._broker = broker_config(engine.configs)
        self._computing = threading.Lock()  # held while a preview is computed
        self._lock = threading.Lock()  # guards what follows, for lookups only
        self._known: OrderedDict[MountedPartition, Preview] = OrderedDict()
        self._failures: dict[MountedPartition, PreviewFailure] = {}
        self._results: dict[MountedPartition, LastResult] = {}
        #: For the preview that was measured last, by kind of stream.
        self._indexes: dict[MountedPartition, tuple[Preview, dict[Hashable, StreamIndex]]] = {}
        self._progress: dict[MountedPartition, Progress] = {}
        self._is_ending = False
        self.show = no_progress

    def pending(self, partition: MountedPartition, *, in_full: bool = False) -> Pending | None:
        """Returns the long-running part of `of`; None if `of` was called a moment ago. Costs
        nothing."""
        fresh, seen = self._at_hand(partition, in_full), partition.last_seen
        if fresh is not None and seen is not None and fresh.request.whole is seen.view:
            return None
        return Pending(
            (partition, in_full),
            lambda: self._cached(partition, in_full) is not None,
            lambda: self.of(partition, in_full=in_full),
        )

    def of(self, partition: MountedPartition, *, in_full: bool = False) -> CompactedView:
        """Returns the partition as compaction would leave it now. Raises CorruptError, with file
        and position, if damage would stop compaction. May take long, and waits for other previews
        in progress."""
        for _ in range(_ATTEMPTS):
            try:
                found = self._cached(partition, in_full)
                if found is None:
                    with self._computing:
                        found = self._cached(partition, in_full)
                        if found is None:
                            found = self._compute(partition, in_full)
            except SegmentGone:  # deleted or replaced since the view was made
                continue
            return found
        raise SegmentGone(partition.log.path)

    def known(self, partition: MountedPartition, *, in_full: bool = False) -> CompactedView | None:
        """Returns what `of` does, or None if that must be computed. May read from disk."""
        try:
            return self._cached(partition, in_full)
        except (SegmentGone, CorruptError):
            return None

    def _cached(self, partition: MountedPartition, in_full: bool) -> CompactedView | None:
        """Returns a cached, still valid result. Raises CorruptError if damage is known."""
        fresh = self._at_hand(partition, in_full)
        if fresh is not None and fresh.request.whole is partition.view():
            return fresh
        request = self._request(partition)
        known = self._remembered(partition, request)
        if known is None or (in_full and known.totals is None):
            return None
        return self._result(partition, request, known)

    def _result(
        self, partition: MountedPartition, request: PreviewRequest, found: Preview
    ) -> CompactedView:
        from kafkafs.storage import CompactedView

        compacted = CompactedView(request, found)
        with self._lock:
            self._results[partition] = LastResult(compacted, monotonic())
        return compacted

    def _at_hand(self, partition: MountedPartition, in_full: bool) -> CompactedView | None:
        """Returns the result of a moment ago, even if the log has changed since."""
        last = self._results.get(partition)
        if last is None or monotonic() - last.returned_at >= FRESH_SECONDS:
            return None
        if in_full and last.compacted.preview.totals is None:
            return None
        return last.compacted

    def stream_index(
        self, partition: MountedPartition, found: Preview, kind: Hashable
    ) -> StreamIndex:
        """Returns the measurements of the streams of this kind that are made from a preview."""
        with self._lock:
            measured, indexes = self._indexes.get(partition, (None, {}))
            if measured is not found:
                self._indexes[partition] = found, (indexes := {})
            return indexes.setdefault(kind, StreamIndex())

    def status(self, partition: MountedPartition) -> dict[str, Any]:
        """Returns the preview's entry in `status.json`."""
        progress = self._progress.get(partition)
        if progress is not None:
            return {"state": "computing", "done": progress.done, "total": progress.total}
        if partition in self._failures:
            return {"state": "failed", "why": str(self._failures[partition].error)}
        return {"state": "known" if partition in self._known else "unknown"}

    def forget(self, partition: MountedPartition) -> None:
        """Forgets a partition that no longer exists."""
        with self._lock:
            self._known.pop(partition, None)
            self._failures.pop(partition, None)
            self._results.pop(partition, None)
            self._indexes.pop(partition, None)

    def _request(self, partition: MountedPartition) -> PreviewRequest:
        from kafkafs.storage import PreviewRequest

        topic, number = partition.topic, partition.number
        log_dir = self._engine.partition_dir(topic, number).log_dir
        return PreviewRequest.of(
            partition.view(),
            self._engine.topic_config(topic).config,
            self._broker,
            log_dir.cleaner_offsets.get((topic, number)),
            self._clock.now_ms(),
        )

    def _remembered(self, partition: MountedPartition, request: PreviewRequest) -> Preview | None:
        """Returns the cached preview that answers the request. Raises CorruptError if it is known
        to fail."""
        with self._lock:
            failure = self._failures.get(partition)
            if failure is not None and failure.stamp == request.stamp():
                raise fresh(failure.error)
            known = self._known.get(partition)
            if known is None or not known.answers(request):
                return None
            self._known.move_to_end(partition)
            return known

    def end(self) -> None:
        """Aborts the running preview and starts no more: the mount is shutting down."""
        self._is_ending = True

    def _check(self) -> None:
        from kafkafs.storage import CleaningAborted

        if self._is_ending:
            raise CleaningAborted("the mount is shutting down")

    def _compute(self, partition: MountedPartition, in_full: bool) -> CompactedView:
        request = self._request(partition)
        short = self._remembered(partition, request)
        started = monotonic()
        self._progress[partition] = Progress(0, sum(segment.size for segment in request.cleaned))
        try:
            found = self._computed(partition, request, short, in_full)
        except CorruptError as error:
            partition.note_damage(error)
            with self._lock:
                self._known.pop(partition, None)
                self._failures[partition] = PreviewFailure(request.stamp(), error)
            raise
        finally:
            del self._progress[partition]
        where, seconds = (partition.topic, partition.number), monotonic() - started
        done = "computed in %.3f s what compaction would leave"
        if short is not None:
            done = "counted in %.3f s what compaction would remove"
        logger.info("%s-%d: %s", *where, done % seconds)
        with self._lock:
            self._failures.pop(partition, None)
            self._known[partition] = found
            self._known.move_to_end(partition)
            self._drop_oldest()
        return self._result(partition, request, found)

    def _computed(
        self,
        partition: MountedPartition,
        request: PreviewRequest,
        short: Preview | None,
        in_full: bool,
    ) -> Preview:
        from kafkafs.storage import completed, preview

        pinned = request.pinned()
        with self.show() as show:

            def on_progress(done: int, total: int) -> None:
                self._progress[partition] = Progress(done, total)
                show(done, total)

            if short is not None:
                return completed(short, pinned, on_progress, self._check)
            return preview(pinned, on_progress, self._check, in_full=in_full)

    def _drop_oldest(self) -> None:
        kept = sum(found.kept.nbytes for found in self._known.values())
        while kept > _KEPT_BYTES and len(self._known) > 1:
            partition, dropped = self._known.popitem(last=False)
            self._results.pop(partition, None)
            self._indexes.pop(partition, None)
            kept -= dropped.kept.nbytes
