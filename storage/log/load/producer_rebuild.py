"""Rebuilds the state of a partition's producers while its log is loaded.

Follows Kafka's UnifiedLog.rebuildProducerState and ProducerStateManager. Nothing is written: the
result includes the snapshots that the partition should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import CorruptError
from ...format.layout import MAX_OFFSET
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ..state.producers import ProducerStateManager


class Batches(Protocol):
    """A segment as the source of producer batches."""

    @property
    def base_offset(self) -> int: ...

    def tables(self, from_offset: int) -> Iterator[BatchTable]:
        """Yields its batches, beginning at or before `from_offset`."""

    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        """Reads one of its control batches."""


class Snapshots:
    """The snapshots that a partition should have, by offset.

    `read` returns the bytes of a snapshot on disk; `known` are the offsets of those. `written` and
    `gone` (reasons by offset) are the differences from the disk.
    """

    def __init__(self, known: Iterable[int], read: Callable[[int], bytes]) -> None:
        self._read = read
        self._offsets = set(known)
        self.written: dict[int, bytes] = {}
        self.gone: dict[int, str] = {}

    @property
    def newest(self) -> int | None:
        return max(self._offsets, default=None)

    @property
    def offsets(self) -> list[int]:
        """The offsets of all snapshots to keep, ascending."""
        return sorted(self._offsets)

    def get(self, offset: int) -> bytes:
        data = self.written.get(offset)
        return self._read(offset) if data is None else data

    def put(self, offset: int, data: bytes) -> None:
        self._offsets.add(offset)
        self.written[offset] = data
        self.gone.pop(offset, None)

    def drop(self, offset: int, why: str) -> None:
        self._offsets.discard(offset)
        self.written.pop(offset, None)
        self.gone[offset] = why

    def drop_outside(self, lowest: int, highest: int) -> None:
        """Drops all that are below `lowest` or above `highest`."""
        for offset in list(self._offsets):
            if offset < lowest:
                self.drop(offset, f"not above the log start offset {lowest - 1}")
            elif offset > highest:
                self.drop(offset, f"rebuilt from offset {highest} on, or above the log's end")

    def drop_all(self, why: str) -> None:
        for offset in list(self._offsets):
            self.drop(offset, why)

    def drop_strays(self, bases: Sequence[int]) -> None:
        """Drops those not at a segment's base, except the newest if it is at or above all bases: a
        clean shutdown wrote it (ProducerStateManager.removeStraySnapshots)."""
        strays = sorted(self._offsets.difference(bases))
        if strays and bases and strays[-1] >= bases[-1]:
            strays.pop()
        for offset in strays:
            self.drop(offset, "at the base of no segment")


class LoadedProducers:
    """A partition's producers while its log is loaded; remembers the last snapshot, as Kafka."""

    def __init__(self, snapshots: Snapshots, expiration_ms: int) -> None:
        self.producers = ProducerStateManager(expiration_ms)
        self._snapshots = snapshots
        self._last_snapshot = 0

    def take_snapshot(self) -> None:
        """Takes a snapshot at the current offset unless there already is one at or above it."""
        offset = self.producers.map_end_offset
        if offset > self._last_snapshot:
            self._snapshots.put(offset, self.producers.snapshot())
            self._last_snapshot = offset

    def start_from_nothing(self, offsets: Iterable[int]) -> None:
        """Sets the empty state of a log without any snapshots. Writes empty snapshots for these
        offsets, so that the next load need not scan the log either."""
        for offset in offsets:
            self.producers.map_end_offset = offset
            self.take_snapshot()

    def load_newest(self, log_start: int, now_ms: int) -> None:
        """Loads the newest readable snapshot and drops malformed ones."""
        while (newest := self._snapshots.newest) is not None:
            try:
                self.producers.load(self._snapshots.get(newest), newest, now_ms)
            except CorruptError as error:
                self._snapshots.drop(newest, f"it cannot be read: {error.what}")
            else:
                self._last_snapshot = newest
                return
        self.producers.clear(log_start)
        self._last_snapshot = log_start

    def stay_empty(self, log_start: int) -> None:
        """Sets the state at offset 0, for which no snapshot is loaded."""
        self.producers.map_end_offset = log_start
        newest = self._snapshots.newest
        self._last_snapshot = log_start if newest is None else newest


@dataclass(frozen=True, slots=True)
class ProducerRebuild:
    """The inputs of a rebuild: the snapshots, the log start offset, and the expiration of
    producers."""

    snapshots: Snapshots
    log_start: int
    expiration_ms: int
    now_ms: int

    def at(self, end: int, segments: Sequence[Batches], is_clean: bool) -> LoadedProducers:
        """Builds the state at offset `end`, which lies in or after `segments`."""
        loaded = LoadedProducers(self.snapshots, self.expiration_ms)
        last_two = [segment.base_offset for segment in segments[-2:]]
        if is_clean and self.snapshots.newest is None:
            loaded.start_from_nothing([*last_two, end])
            return loaded
        self.snapshots.drop_outside(self.log_start + 1, end)
        if end == 0:
            loaded.stay_empty(self.log_start)
        else:
            loaded.load_newest(self.log_start, self.now_ms)
            if loaded.producers.map_end_offset < end:
                self._replay(loaded, end, segments, {*last_two, end})
        loaded.producers.map_end_offset = end
        loaded.take_snapshot()
        return loaded

    def _replay(
        self, loaded: LoadedProducers, end: int, segments: Sequence[Batches], snapshot_at: set[int]
    ) -> None:
        """Replays the batches from the state's offset up to `end`."""
        producers = loaded.producers
        counted = producers.map_end_offset
        for segment, next_base in zip(segments, _next_bases(segments), strict=True):
            if next_base <= counted or segment.base_offset >= end:
                continue
            producers.map_end_offset = max(
                segment.base_offset, producers.map_end_offset, self.log_start
            )
            if segment.base_offset in snapshot_at:
                loaded.take_snapshot()
            for table in segment.tables(producers.map_end_offset):
                last_offsets = table.column(b.LAST_OFFSET)
                in_range = (last_offsets >= producers.map_end_offset) & (last_offsets < end)
                replayed = table.select(in_range & (table.column(b.MAGIC) > 1))
                producers.replay(replayed, segment.read_marker)


def _next_bases(segments: Sequence[Batches]) -> list[int]:
    return [segment.base_offset for segment in segments[1:]] + [MAX_OFFSET] * bool(segments)
