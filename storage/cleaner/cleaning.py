"""One pass of the cleaner over one log.

Rules: Kafka's `Cleaner.doClean`. First the newest offsets of the keys are learned from the dirty
part of the log, as far as the map has room: up to there the pass cleans, and there the next one
goes on. Then all segments up to there are gone through from the first one on, those together that
become one: each batch is judged, and what stays of it goes into a sink. Whether that writes files
or only counts, is its own affair.

Input comes from a view, which is only read. Damage in it ends the pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Protocol

import numpy as np

from ..ahead import one_ahead, side_by_side
from ..clock import Clock
from ..config import TopicConfig
from ..durable import SyncFailed, WritableDirectory
from ..errors import ConfigError, LogDirOffline
from ..format import batch as b
from ..format.batch import BatchTable, Int64s
from ..format.columns import Columns
from ..format.decoder import Decoder
from ..format.layout import CONTROL_MASK, DELETE_HORIZON_MASK, TRANSACTIONAL_MASK
from ..format.rewrite import rewrite
from ..log.lookup import position_for
from ..log.producer_state import ProducerState
from ..log.view import View
from ..segment.segment import Segment
from .cleaned import CleanedSegment
from .fates import Fate, Judge, Judged, Newest, NewestInMap, Outcomes
from .offset_map import Entries, OffsetMap
from .plan import SegmentToClean, group, segments_of
from .reading import Chunk, read_chunks

_RATE: Final = "log.cleaner.io.max.bytes.per.second"
# As Kafka's Throttler: a rate is looked at so often.
_CHECK_MS: Final = 300
# Threads that find keys, where other threads do it: two and the one that puts them into the map
# are about as busy.
_HASHERS: Final = 2
# As many keys, 24 bytes each, are found in a chunk before they are asked for.
_ENTRIES_AHEAD: Final = 1 << 20


def check_rate(bytes_per_second: float) -> None:
    """ConfigError for a rate at which nothing would ever be read."""
    if not bytes_per_second > 0:
        raise ConfigError(_RATE, f"{bytes_per_second} is not more than 0")


class Throttle:
    """Bounds how many bytes a second are read and written."""

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """`wait` takes seconds, and may raise what is to end the pass. ConfigError as of
        `check_rate`."""
        check_rate(bytes_per_second)
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._since_ms = clock.now_ms()
        self._bytes = 0

    def spend(self, count: int) -> None:
        """`count` bytes were read or written: waits until the rate allows for it."""
        self._bytes += count
        elapsed = self._clock.now_ms() - self._since_ms
        if elapsed <= _CHECK_MS:
            return
        ahead = self._bytes * 1000 / self._rate - elapsed
        if ahead > 0:
            self._wait(ahead / 1000)
        self._since_ms = self._clock.now_ms()
        self._bytes = 0


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
class LogToClean:
    """What is to be cleaned: offsets in [`first_dirty`, `first_uncleanable`) of a log, whose
    records below `first_dirty` that they supersede go, too. `now_ms`: since 1970.

    `producers` tells the active producers; it is asked for each group. `check` raises what is to
    end the pass, `told` is told its progress: bytes read, and to be read in all. `reads_ahead`:
    other threads read and hash keys, which is quicker where a processor has nothing else to do.
    """

    view: View
    config: TopicConfig
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    producers: Callable[[], Iterable[ProducerState]]
    check: Callable[[], None]
    told: Callable[[int, int], None]
    reads_ahead: bool = False


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


def learned(
    chunk: Chunk, low: int, outcomes: Outcomes, decoder: Decoder
) -> Iterator[tuple[Columns, int]]:
    """The records of a chunk whose keys a pass has to know, and the first row of each that counts,
    with an offset from `low` on: all but markers and what was aborted."""
    table = chunk.table
    wanted = table.column(b.RECORD_COUNT) != 0
    wanted &= table.column(b.LAST_OFFSET) >= low
    wanted &= ~table.flagged(CONTROL_MASK)
    in_transaction = np.flatnonzero(wanted & table.flagged(TRANSACTIONAL_MASK))
    if len(in_transaction):
        wanted[in_transaction] = np.logical_not(outcomes.aborted(chunk, in_transaction))
    for columns in chunk.decode(table if wanted.all() else table.select(wanted), decoder):
        yield columns, int(columns.offsets.searchsorted(low))


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


@dataclass(frozen=True, slots=True)
class _Keys:
    """The next keys that a pass has to know: of batches of `table`. `nbytes`: of all batches if no
    more of them follow, else 0. `reached`: where a segment is through, without keys: all that is to
    be known lies there or below."""

    table: BatchTable | None
    entries: Entries | None = None
    nbytes: int = 0
    reached: int = -1


class _Hasher:
    """Finds the keys in chunks of a log, ascending ones. One thread at a time."""

    def __init__(self, log: LogToClean, offset_map: OffsetMap) -> None:
        self._context = log.view.context
        self._low = log.first_dirty
        self._outcomes = Outcomes(log.view)
        self._map = offset_map

    def keys(self, chunk: Chunk | int) -> Iterator[_Keys]:
        if isinstance(chunk, int):
            yield _Keys(None, reached=chunk)
            return
        entries = None
        with self._context.decoder() as decoder:
            for columns, first in learned(chunk, self._low, self._outcomes, decoder):
                if entries is not None:
                    yield _Keys(chunk.table, entries)
                entries = self._map.entries(columns, first)
        yield _Keys(chunk.table, entries, chunk.nbytes)

    def begin(self, chunk: Chunk | int) -> Iterator[_Keys]:
        """The same, found before they are asked for, as far as that takes little memory."""
        rest = self.keys(chunk)
        made: list[_Keys] = []
        room = _ENTRIES_AHEAD
        for keys in rest:
            made.append(keys)
            room -= len(keys.entries) if keys.entries is not None else 0
            if room <= 0:
                break
        return chain(made, rest)


class Cleaning:
    """One pass, in its two steps.

    `keys_decide`: whether nothing but its key decides if a record stays that was learned from:
    there was no marker, no delete horizon and no batch of magic 0 or 1.
    """

    def __init__(self, log: LogToClean, decoder: Decoder, throttle: Throttle | None = None) -> None:
        self.keys_decide = True
        self._log = log
        self._decoder = decoder
        self._throttle = throttle
        self._limit = log.view.context.limits.max_batch_bytes
        self._segments = [
            segment
            for segment in segments_of(log.view)
            if segment.base_offset < log.first_uncleanable
        ]
        self._done = 0
        self._total = 2 * sum(segment.size for segment in self._segments)

    # -- the map --------------------------------------------------------------------------------

    def learn(self, offset_map: OffsetMap) -> None:
        """Put the newest offsets of the keys from the first dirty offset on into a map, as far as
        it has room, whatever it held (`Cleaner.buildOffsetMap`)."""
        self._map = offset_map
        self._map.clear()
        low = self._log.first_dirty
        dirty = [s.segment for s in self._segments if s.segment.next_base > low]
        self._total = sum(s.size for s in self._segments) + sum(s.size for s in dirty)
        starts = [
            position_for(segment, low, self._limit) if segment.base_offset < low else 0
            for segment in dirty
        ]
        self._done = sum(starts)
        with closing(self._hashed(self._chunks_of(dirty, starts))) as hashed:
            for keys in hashed:
                if not all(map(self._put, keys)):
                    return

    def _hashed(self, chunks: Generator[Chunk | int]) -> Generator[Iterator[_Keys]]:
        if self._log.reads_ahead:
            hashers = [_Hasher(self._log, self._map) for _ in range(_HASHERS)]
            return side_by_side(chunks, [each.begin for each in hashers])
        hasher = _Hasher(self._log, self._map)
        return (hasher.keys(chunk) for chunk in chunks)

    def _chunks_of(
        self, segments: Sequence[Segment], starts: Sequence[int]
    ) -> Generator[Chunk | int]:
        """Those of the segments, each from a byte on; and behind each how far it reaches."""
        for segment, start in zip(segments, starts, strict=True):
            yield from read_chunks(segment, start, self._limit, stay_good=self._log.reads_ahead)
            yield segment.next_base - 1  # there may be a gap

    def _put(self, keys: _Keys) -> bool:
        """False when the map is full."""
        entries, table = keys.entries, keys.table
        if table is None:
            self._reach(keys.reached)
            return True
        if entries is not None:
            stop = self._map.put_entries(entries)
            if stop:
                self._reach(int(entries[stop - 1, 2]))
            if stop < len(entries):
                self._reach(_last_before(table, int(entries[stop, 2])))
                return False
        if keys.nbytes:
            self.keys_decide &= _keys_decide(table)
            self._reach(int(table.rows[-1, b.LAST_OFFSET]))
            self._spend(keys.nbytes)
        return True

    def _reach(self, offset: int) -> None:
        """All that is to be put up to this offset has been (`updateLatestOffset`)."""
        if offset >= self._log.first_dirty:
            self._map.latest_offset = max(self._map.latest_offset, offset)

    # -- what stays -----------------------------------------------------------------------------

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
            sink.begin(segments)
            copying.put(segments, sink)
            log.check()
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
        ahead = self._log.reads_ahead
        chunks = read_chunks(segment, 0, self._limit, stay_good=ahead)
        for chunk in one_ahead(chunks) if ahead else chunks:
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


def _last_before(table: BatchTable, offset: int) -> int:
    """The last offset of the batch in front of that of a record, -1 where it is a table's first."""
    at = int(table.column(b.LAST_OFFSET).searchsorted(offset))
    return int(table.rows[at - 1, b.LAST_OFFSET]) if at else -1


def _keys_decide(table: BatchTable) -> bool:
    decided_else = table.union(b.ATTRIBUTES) & (CONTROL_MASK | DELETE_HORIZON_MASK)
    return not decided_else and int(table.column(b.MAGIC).min(initial=2)) == 2


def _discard(sink: Sink, error: BaseException) -> None:
    """What went wrong first is what is to be told."""
    try:
        sink.discard()
    except OSError as another:
        error.add_note(f"then, removing what was written: {another}")
