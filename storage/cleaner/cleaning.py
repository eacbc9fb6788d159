"""One pass of the log cleaner over one log.

Follows Kafka's `Cleaner.doClean`. The pass first builds the offset map from the dirty part of the
log, as far as the map has capacity: it cleans up to that offset, and the next pass continues there.
Then it goes through all segments below that offset, group by group of segments that are merged into
one, and passes the retained records of each batch to a sink, which writes or only counts them.

The input is a view, which is only read. Damage in it ends the pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from ..clock import Clock
from ..concurrency.interruption import uninterrupted
from ..concurrency.read_ahead import read_ahead
from ..config.kafka import TopicConfig
from ..errors import ConfigError, LogDirOffline
from ..format.records.batch import Int64s
from ..format.records.decoder import Decoder
from ..format.records.rewrite import rewrite
from ..io.durable import SyncFailed, WritableDirFd
from ..segment.segment import Segment
from .cleaned import CleanedSegment, discard_after
from .offset_map import OffsetMap
from .offset_map_builder import OffsetMapBuilder
from .plan import LogToClean, SegmentToClean, group, segments_of
from .reading import Chunk, read_chunks
from .record_filter import FilterResult, LatestOffsets, NewestInMap, RecordFilter, RecordRetention

_RATE: Final = "log.cleaner.io.max.bytes.per.second"
# The interval at which the rate is checked, as in Kafka's Throttler.
_CHECK_MS: Final = 300


class Sink(Protocol):
    """Receives what a pass retains, one group of merged segments after the other."""

    def begin(self, segments: Sequence[SegmentToClean]) -> None:
        """Starts the group of `segments`."""

    def put(self, filtered: FilterResult) -> int:
        """Adds consecutive batches; returns the number of bytes retained of them."""

    def end(self) -> None:
        """Completes the group."""

    def discard(self) -> None:
        """Removes whatever an incomplete group has left, because the pass has failed."""


class CleanedSink:
    """Writes a new `.cleaned` segment for each group and swaps it in for the group's segments."""

    def __init__(
        self,
        directory: WritableDirFd,
        config: TopicConfig,
        replace: Callable[[CleanedSegment, Sequence[int]], None],
    ) -> None:
        """`replace` swaps in a new segment, which is durable, for those with the given base
        offsets. If it raises anything but LogDirOffline and SyncFailed, nothing has changed."""
        self._directory = directory
        self._config = config
        self._replace = replace
        self._group: Sequence[SegmentToClean] = ()
        self._cleaned: CleanedSegment | None = None

    def begin(self, segments: Sequence[SegmentToClean]) -> None:
        self._group = segments
        self._cleaned = CleanedSegment(self._directory, segments[0].base_offset, self._config)

    def put(self, filtered: FilterResult) -> int:
        assert self._cleaned is not None
        kept = rewrite(
            filtered.data,
            filtered.base,
            filtered.columns,
            filtered.keep,
            filtered.actions,
            filtered.horizons,
        )
        if len(kept.table):
            self._cleaned.append(kept.data, kept.table)
        if filtered.aborted:
            self._cleaned.append_aborted(filtered.aborted)
        return len(kept.data)

    def end(self) -> None:
        assert self._cleaned is not None
        # Java sets a file's time in ms.
        self._cleaned.finish(self._group[-1].mtime_ms * 1_000_000)
        try:
            self._replace(self._cleaned, [segment.base_offset for segment in self._group])
        except (LogDirOffline, SyncFailed):
            self._cleaned = None  # the next loading needs its files to complete or undo the swap
            raise
        self._cleaned = None

    def discard(self) -> None:
        if self._cleaned is not None:
            self._cleaned.discard()


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """What a pass did. `end_offset`: the log is clean up to this offset, the new checkpoint.
    `counts`: the number of records processed, by retention. `keys`: the number of keys in the map.
    `tombstones`: the number retained. Bytes are those of the `.log` files that were read, and of
    what was retained of them."""

    end_offset: int
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    counts: Mapping[RecordRetention, int]
    keys: int
    tombstones: int


def clean(
    log: LogToClean, offset_map: OffsetMap, sink: Sink, throttle: Throttle | None = None
) -> CleaningResult:
    """Cleans a log by means of `offset_map`, whose content is overwritten.

    Raises CorruptError, with file and position, if a segment is damaged. After any error the sink
    discards its incomplete group.
    """
    with log.view.context.decoder() as decoder:
        cleaning = Cleaning(log, decoder, throttle)
        cleaning.build_offset_map(offset_map)
        result = cleaning.filter_into(NewestInMap(offset_map, log.first_dirty), sink)
        return replace(result, keys=len(offset_map))


def legacy_horizon_ms(
    segments: Sequence[SegmentToClean], first_dirty: int, config: TopicConfig
) -> int:
    """Returns the latest mtime in ms of a segment whose tombstones of magic 0 and 1 are deleted:
    `delete.retention.ms` before the mtime of the last segment that is already clean, or 0."""
    clean = [s.mtime_ms for s in segments if s.base_offset < first_dirty]
    return clean[-1] - config.delete_retention_ms if clean else 0


def check_rate(bytes_per_second: float) -> None:
    """Raises ConfigError for a rate at which nothing would ever be read."""
    if not bytes_per_second > 0:
        raise ConfigError(_RATE, f"must be greater than 0 (got {bytes_per_second})")


class Throttle:
    """Limits the bytes read and written per second."""

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """`wait` takes seconds, and may raise an error to end the pass. Raises ConfigError like
        `check_rate`."""
        check_rate(bytes_per_second)
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._since_ms = clock.now_ms()
        self._bytes = 0

    def spend(self, count: int) -> None:
        """Accounts for `count` bytes read or written, and waits until the rate allows them."""
        self._bytes += count
        elapsed = self._clock.now_ms() - self._since_ms
        if elapsed <= _CHECK_MS:
            return
        ahead = self._bytes * 1000 / self._rate - elapsed
        if ahead > 0:
            self._wait(ahead / 1000)
        self._since_ms = self._clock.now_ms()
        self._bytes = 0


class Copying:
    """Filters groups of segments into a sink and counts their records."""

    def __init__(
        self,
        record_filter: RecordFilter,
        decoder: Decoder,
        read: Callable[[Segment], Iterator[Chunk]],
        pay: Callable[[int], None] = lambda kept: None,
    ) -> None:
        """`pay` is called with the number of bytes retained of each chunk."""
        self._record_filter = record_filter
        self._decoder = decoder
        self._read = read
        self._pay = pay
        self._counts: Int64s = np.zeros(len(RecordRetention), dtype=np.int64)
        self._tombstones = 0
        self._written = 0

    def put(self, segments: Sequence[SegmentToClean], sink: Sink) -> None:
        """Passes what is retained of the log's next segments to the sink."""
        for segment in segments:
            for chunk in self._read(segment.segment):
                kept = 0
                for filtered in self._record_filter.filter(chunk, self._decoder):
                    kept += sink.put(filtered)
                    self._counts += filtered.counts()
                    self._tombstones += filtered.tombstones(filtered.keep)
                self._pay(kept)
                self._written += kept

    def result(
        self, end_offset: int, before: int, after: int, bytes_before: int, keys: int
    ) -> CleaningResult:
        """Returns the result so far; the parameters are fields of it."""
        counts = {retention: int(self._counts[retention]) for retention in RecordRetention}
        return CleaningResult(
            end_offset, before, after, bytes_before, self._written, counts, keys, self._tombstones
        )


class Cleaning:
    """The two steps of one pass."""

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

    def build_offset_map(self, offset_map: OffsetMap) -> bool:
        """Builds the offset map, whose content is overwritten. Returns whether keys alone decide
        what is retained (see `OffsetMapBuilder.keys_decide`)."""
        builder = OffsetMapBuilder(self._log, self._segments, offset_map)
        self._done, self._total = builder.skipped, self._size + builder.nbytes
        builder.build(self._spend)
        return builder.keys_decide

    def filter_into(self, newest: LatestOffsets, sink: Sink) -> CleaningResult:
        """Filters all segments up to the latest offset of `newest` into the sink. If that fails,
        the sink discards its incomplete group. `keys` of the result is 0."""
        try:
            return self._filter_into(newest, sink)
        except BaseException as error:
            discard_after(error, sink.discard)
            raise

    def _filter_into(self, newest: LatestOffsets, sink: Sink) -> CleaningResult:
        log = self._log
        end_offset = max(newest.latest_offset + 1, log.first_dirty)
        groups: list[list[SegmentToClean]] = []
        if end_offset > log.first_dirty:
            groups = group(self._segments, end_offset, log.first_uncleanable, log.config)
        taken = [segment for segments in groups for segment in segments]
        size = sum(segment.size for segment in taken)
        self._total = self._done + size
        record_filter = self._record_filter(newest)
        copying = Copying(record_filter, self._decoder, self._read, self._pay)
        for segments in groups:
            record_filter.set_producers(log.producers())
            with uninterrupted:  # else a group that was just started could not be discarded
                sink.begin(segments)
            copying.put(segments, sink)
            log.check()
            with uninterrupted:
                sink.end()
        return copying.result(end_offset, len(taken), len(groups), size, 0)

    def _record_filter(self, newest: LatestOffsets) -> RecordFilter:
        log = self._log
        return RecordFilter(
            log.view,
            newest,
            log.first_uncleanable,
            log.now_ms,
            log.config.delete_retention_ms,
            legacy_horizon_ms(self._segments, log.first_dirty, log.config),
        )

    def _read(self, segment: Segment) -> Iterator[Chunk]:
        is_shown = self._log.is_shown
        chunks = read_chunks(segment, 0, self._limit, stay_valid=is_shown, together=is_shown)
        for chunk in read_ahead(chunks) if is_shown else chunks:
            self._spend(chunk.nbytes)
            yield chunk

    def _spend(self, count: int) -> None:
        """Accounts for bytes read: checks for an abort, reports progress and throttles."""
        self._log.check()
        self._done += count
        self._log.on_progress(self._done, self._total)
        self._pay(count)

    def _pay(self, count: int) -> None:
        if self._throttle is not None:
            self._throttle.spend(count)
