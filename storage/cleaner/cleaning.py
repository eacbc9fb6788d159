"""One pass of the cleaner over one log.

Rules: Kafka's `Cleaner.doClean`. First the newest offsets of the keys are learned from the dirty
part of the log, as far as the map has room: up to there the pass cleans, and there the next one
goes on. Then all segments up to there are gone through from the first one on, those together that
become one: each batch is judged, and what stays of it goes into a sink. Whether that writes files
or only counts, is its own affair.

Input comes from a view, which is only read. Damage in it ends the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..ahead import one_ahead
from ..config import TopicConfig
from ..durable import SyncFailed, WritableDirectory
from ..errors import LogDirOffline
from ..format.batch import Int64s
from ..format.decoder import Decoder
from ..format.rewrite import rewrite
from ..interruption import uninterrupted
from ..segment.segment import Segment
from .cleaned import CleanedSegment
from .fates import Fate, Judge, Judged, Newest, NewestInMap
from .learning import Learning
from .offset_map import OffsetMap
from .plan import LogToClean, SegmentToClean, group, segments_of
from .reading import Chunk, read_chunks
from .throttle import Throttle


class Sink(Protocol):
    """Takes what a pass keeps, group after group of segments that become one."""

    def begin(self, segments: Sequence[SegmentToClean]) -> None:
        """What comes now is of these segments."""

    def put(self, judged: Judged) -> int:
        """Takes some batches, in order. The bytes that stay of them."""

    def end(self) -> None:
        """All of the group was put."""

    def discard(self) -> None:
        """The pass has failed: nothing may be left of a group that did not end."""


class CleanedSink:
    """Makes of each group of segments a new one, `.cleaned`, and has it take their place."""

    def __init__(
        self,
        directory: WritableDirectory,
        config: TopicConfig,
        replace: Callable[[CleanedSegment, Sequence[int]], None],
    ) -> None:
        """`replace` puts a new segment, which is on the disk for certain, in the place of those
        with these base offsets. What it raises, other than LogDirOffline and SyncFailed, means that
        nothing has changed."""
        self._directory = directory
        self._config = config
        self._replace = replace
        self._group: Sequence[SegmentToClean] = ()
        self._cleaned: CleanedSegment | None = None

    def begin(self, segments: Sequence[SegmentToClean]) -> None:
        self._group = segments
        self._cleaned = CleanedSegment(self._directory, segments[0].base_offset, self._config)

    def put(self, judged: Judged) -> int:
        assert self._cleaned is not None
        kept = rewrite(
            judged.data,
            judged.base,
            judged.columns,
            judged.keep,
            judged.actions,
            judged.horizons,
        )
        if len(kept.table):
            self._cleaned.append(kept.data, kept.table)
        if judged.aborted:
            self._cleaned.append_aborted(judged.aborted)
        return len(kept.data)

    def end(self) -> None:
        assert self._cleaned is not None
        # Java sets a file's time in ms.
        self._cleaned.finish(self._group[-1].mtime_ms * 1_000_000)
        try:
            self._replace(self._cleaned, [segment.base_offset for segment in self._group])
        except (LogDirOffline, SyncFailed):
            self._cleaned = None  # what is left of it tells the next loading what counts
            raise
        self._cleaned = None

    def discard(self) -> None:
        if self._cleaned is not None:
            self._cleaned.discard()


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """What a pass did. `end_offset`: up to there the log is clean now, the new checkpoint.
    `counts`: the records that it went through by their fate. `keys`: how many the map held.
    `tombstones`: those that stayed. Bytes are those of the `.log` files that were gone through, and
    of what stayed of them."""

    end_offset: int
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    counts: Mapping[Fate, int]
    keys: int
    tombstones: int


def clean(
    log: LogToClean, offset_map: OffsetMap, sink: Sink, throttle: Throttle | None = None
) -> CleaningResult:
    """Clean a log, using `offset_map`, whatever it holds.

    CorruptError, with file and position, for damage in a segment. Whatever ends the pass, the sink
    is told to discard what it has not ended.
    """
    with log.view.context.decoder() as decoder:
        cleaning = Cleaning(log, decoder, throttle)
        cleaning.learn(offset_map)
        result = cleaning.go_through(NewestInMap(offset_map, log.first_dirty), sink)
        return replace(result, keys=len(offset_map))


def legacy_horizon_ms(
    segments: Sequence[SegmentToClean], first_dirty: int, config: TopicConfig
) -> int:
    """When a segment must have been written last for its tombstones of magic 0 and 1 to go: so long
    before the last one was that was cleaned before."""
    clean = [s.mtime_ms for s in segments if s.base_offset < first_dirty]
    return clean[-1] - config.delete_retention_ms if clean else 0


class Copying:
    """Groups of segments on their way into a sink, the records in them judged and counted."""

    def __init__(
        self,
        judge: Judge,
        decoder: Decoder,
        read: Callable[[Segment], Iterator[Chunk]],
        pay: Callable[[int], None] = lambda kept: None,
    ) -> None:
        """`pay` is told how many bytes stay."""
        self._judge = judge
        self._decoder = decoder
        self._read = read
        self._pay = pay
        self._counts: Int64s = np.zeros(len(Fate), dtype=np.int64)
        self._tombstones = 0
        self._written = 0

    def put(self, segments: Sequence[SegmentToClean], sink: Sink) -> None:
        """Give the sink what stays of the segments, the next ones of the log."""
        for segment in segments:
            for chunk in self._read(segment.segment):
                kept = 0
                for judged in self._judge.judge(chunk, self._decoder):
                    kept += sink.put(judged)
                    self._counts += judged.counts()
                    self._tombstones += judged.tombstones(judged.keep)
                self._pay(kept)
                self._written += kept

    def result(
        self, end_offset: int, before: int, after: int, bytes_before: int, keys: int
    ) -> CleaningResult:
        """What it came to; the arguments are as in the result."""
        counts = {fate: int(self._counts[fate]) for fate in Fate}
        return CleaningResult(
            end_offset, before, after, bytes_before, self._written, counts, keys, self._tombstones
        )


class Cleaning:
    """One pass, in its two steps."""

    def __init__(self, log: LogToClean, decoder: Decoder, throttle: Throttle | None = None) -> None:
        self._log = log
        self._decoder = decoder
        self._throttle = throttle
        self._limit = log.view.context.limits.max_batch_bytes
        self._segments = [
            segment
            for segment in segments_of(log.view)
            if segment.base_offset < log.first_uncleanable
        ]
        self._size = sum(segment.size for segment in self._segments)
        self._done = 0
        self._total = self._size

    def learn(self, offset_map: OffsetMap) -> bool:
        """Put the newest offsets of keys into a map, whatever it held. Whether nothing but the keys
        decides what stays; as `Learning`."""
        learning = Learning(self._log, self._segments, offset_map)
        self._done, self._total = learning.skipped, self._size + learning.nbytes
        learning.learn(self._spend)
        return learning.keys_decide

    def go_through(self, newest: Newest, sink: Sink) -> CleaningResult:
        """Judge all segments up to where `newest` ends, and give the sink what stays; where that
        fails, it is told to discard what has not ended. `keys` of the result is 0."""
        try:
            return self._go_through(newest, sink)
        except BaseException as error:
            _discard(sink, error)
            raise

    def _go_through(self, newest: Newest, sink: Sink) -> CleaningResult:
        log = self._log
        end_offset = max(newest.latest_offset + 1, log.first_dirty)
        groups: list[list[SegmentToClean]] = []
        if end_offset > log.first_dirty:
            groups = group(self._segments, end_offset, log.first_uncleanable, log.config)
        taken = [segment for segments in groups for segment in segments]
        size = sum(segment.size for segment in taken)
        self._total = self._done + size
        judge = self._judge(newest)
        copying = Copying(judge, self._decoder, self._read, self._pay)
        for segments in groups:
            judge.set_producers(log.producers())
            with uninterrupted:  # what is begun can be discarded
                sink.begin(segments)
            copying.put(segments, sink)
            log.check()
            with uninterrupted:
                sink.end()
        return copying.result(end_offset, len(taken), len(groups), size, 0)

    def _judge(self, newest: Newest) -> Judge:
        log = self._log
        return Judge(
            log.view,
            newest,
            log.first_uncleanable,
            log.now_ms,
            log.config.delete_retention_ms,
            legacy_horizon_ms(self._segments, log.first_dirty, log.config),
        )

    def _read(self, segment: Segment) -> Iterator[Chunk]:
        is_shown = self._log.is_shown
        chunks = read_chunks(segment, 0, self._limit, stay_good=is_shown, together=is_shown)
        for chunk in one_ahead(chunks) if is_shown else chunks:
            self._spend(chunk.nbytes)
            yield chunk

    def _spend(self, count: int) -> None:
        """So many bytes were read."""
        self._log.check()
        self._done += count
        self._log.told(self._done, self._total)
        self._pay(count)

    def _pay(self, count: int) -> None:
        if self._throttle is not None:
            self._throttle.spend(count)


def _discard(sink: Sink, error: BaseException) -> None:
    """What went wrong first is what is to be told."""
    try:
        sink.discard()
    except OSError as another:
        error.add_note(f"then, removing what was written: {another}")
