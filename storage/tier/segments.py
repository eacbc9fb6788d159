"""The segments of one partition in remote storage: which of them are valid, and which one serves
which offsets.

Two leaders may have copied the same records in segments that overlap, and an old leader may have
copied records that the log later lost. A segment is therefore found by leader epoch and offset, as
RemoteLogMetadataCache and RemoteLogLeaderEpochState do it: of the segments with records of an
epoch, the one with the greatest start offset there at or below the wanted one. Which epochs count,
and where each begins, the partition's own leader epochs say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from ..errors import CorruptError
from ..format.files.checkpoints import EpochEntry
from ..format.layout import MAX_OFFSET
from ..format.messages.remote_log_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)

_COPY_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_COPIED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETE_STARTED: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_DELETED: Final = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
#: The states that may follow each (RemoteLogSegmentState.isValidTransition).
_NEXT: Final = {
    _COPY_STARTED: (_COPIED, _DELETE_STARTED),
    _COPIED: (_DELETE_STARTED,),
    _DELETE_STARTED: (_DELETED,),
    _DELETED: (),
}


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in remote storage with offsets from `start_offset` to `end_offset`, both included.

    `id` has 22 characters of URL-safe base64. `epochs`: its leader epochs with their first offsets
    in it, ascending. `size`: bytes of its log. `custom_metadata`: of the plugin, None if unknown.
    """

    id: str
    start_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    size: int
    custom_metadata: bytes | None = None

    def end_of_epoch(self, epoch: int) -> int:
        """Returns the last offset in it of one of its epochs."""
        later = (each.start_offset for each in self.epochs if each.epoch > epoch)
        return min(next(later, MAX_OFFSET) - 1, self.end_offset)


@dataclass(frozen=True, slots=True)
class RemotePiece:
    """Offsets from `start` up to, not including, `until`, to be read from a segment."""

    segment: RemoteSegment
    start: int
    until: int


class _Epoch:
    """The segments with records of one leader epoch, by their first offset of it
    (RemoteLogLeaderEpochState)."""

    __slots__ = ("_highest", "_ids", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []  # ascending
        self._ids: dict[int, str] = {}
        self._highest = -1

    def add(self, start: int, segment_id: str, end: int) -> None:
        """Adds a segment, which replaces those that it covers."""
        while self.starts and self.starts[-1] >= start and self._highest <= end:
            del self._ids[self.starts.pop()]
        if start not in self._ids:
            self.starts.insert(bisect_left(self.starts, start), start)
        self._ids[start] = segment_id
        self._highest = max(self._highest, end)

    def remove(self, start: int, segment_id: str) -> None:
        if self._ids.get(start) == segment_id:
            del self._ids[start]
            self.starts.remove(start)

    def items(self) -> Iterator[tuple[int, str]]:
        return ((start, self._ids[start]) for start in self.starts)


@dataclass(slots=True)
class RemoteSegments:
    """The segments of a partition, after all changes of their states so far
    (RemoteLogMetadataCache). Not thread-safe. `changes` counts those that took effect."""

    changes: int = 0
    _states: dict[str, RemoteLogSegmentState] = field(default_factory=dict)
    _segments: dict[str, RemoteSegment] = field(default_factory=dict)
    _epochs: dict[int, _Epoch] = field(default_factory=dict)

    def apply(self, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> None:
        """Takes a record of `__remote_log_metadata` into account; those that do not fit the
        segment's present state have no effect. Raises CorruptError for offsets that cannot be."""
        segment_id = event.segment_id.id
        if isinstance(event, RemoteLogSegmentMetadata):
            self._start(segment_id, event)
            return
        state = self._states.get(segment_id)
        if state is None or (state is not event.state and event.state not in _NEXT[state]):
            return
        segment = self._segments[segment_id]
        if event.custom_metadata is not None:
            segment = _with_custom(segment, event.custom_metadata)
        if event.state is _COPIED:
            self.add(segment)
        elif event.state is _DELETE_STARTED:
            for each in segment.epochs:
                self._epochs.setdefault(each.epoch, _Epoch()).remove(each.start_offset, segment_id)
            self._segments[segment_id] = segment
        elif event.state is _DELETED:
            del self._segments[segment_id], self._states[segment_id]
            self.changes += 1
            return
        self._states[segment_id] = event.state
        self.changes += 1

    def _start(self, segment_id: str, event: RemoteLogSegmentMetadata) -> None:
        known = self._states.get(segment_id)
        if event.state is not _COPY_STARTED or known not in (None, _COPY_STARTED):
            return
        if not 0 <= event.start_offset <= event.end_offset or event.segment_size < 0:
            raise CorruptError(f"segment {segment_id} cannot have these offsets and this size")
        self._states[segment_id] = _COPY_STARTED
        self._segments[segment_id] = RemoteSegment(
            segment_id,
            event.start_offset,
            event.end_offset,
            tuple(EpochEntry(*each) for each in event.segment_leader_epochs),
            event.segment_size,
            event.custom_metadata,
        )

    def add(self, segment: RemoteSegment) -> None:
        """Adds a segment whose copy is complete."""
        for each in segment.epochs:
            epoch = self._epochs.setdefault(each.epoch, _Epoch())
            epoch.add(each.start_offset, segment.id, segment.end_of_epoch(each.epoch))
        self._segments[segment.id] = segment
        self._states[segment.id] = _COPIED
        self.changes += 1

    def states(self) -> list[tuple[RemoteSegment, RemoteLogSegmentState]]:
        """Returns all segments that were not deleted, in no particular order."""
        return [(self._segments[each], state) for each, state in self._states.items()]

    def pieces(self, epochs: Sequence[EpochEntry]) -> list[RemotePiece]:
        """Returns what the segments have of a log with these leader epochs, ascending and without
        overlaps. The first epoch of a log begins at its log start offset, below which segments may
        still have records."""
        return list(_joined(_sweep(sorted(self._claims(epochs), key=lambda each: each.start))))

    def _claims(self, epochs: Sequence[EpochEntry]) -> Iterator[RemotePiece]:
        """Yields, for each epoch, the offsets that each of its segments has of it."""
        for number, entry in enumerate(epochs):
            known = self._epochs.get(entry.epoch)
            if known is None:
                continue
            low = entry.start_offset if number else 0
            high = epochs[number + 1].start_offset if number + 1 < len(epochs) else MAX_OFFSET
            for start, segment_id in known.items():
                segment = self._segments[segment_id]
                until = min(segment.end_of_epoch(entry.epoch) + 1, high)
                if max(start, low) < until:
                    yield RemotePiece(segment, max(start, low), until)


def _with_custom(segment: RemoteSegment, custom: bytes) -> RemoteSegment:
    return RemoteSegment(
        segment.id, segment.start_offset, segment.end_offset, segment.epochs, segment.size, custom
    )


def _sweep(claims: Sequence[RemotePiece]) -> Iterator[RemotePiece]:
    """Yields pieces without overlaps of claims in order of their starts. Where several claim an
    offset, the one that starts last has it."""
    bounds = sorted({each.start for each in claims} | {each.until for each in claims})
    open_claims: list[tuple[int, int]] = []  # a heap of negated numbers: the last start first
    number = 0
    for low, high in pairwise(bounds):
        while number < len(claims) and claims[number].start <= low:
            heappush(open_claims, (-number, number))
            number += 1
        while open_claims and claims[open_claims[0][1]].until <= low:
            heappop(open_claims)
        if open_claims:
            yield RemotePiece(claims[open_claims[0][1]].segment, low, high)


def _joined(pieces: Iterable[RemotePiece]) -> Iterator[RemotePiece]:
    """Joins adjacent pieces of one segment."""
    last: RemotePiece | None = None
    for piece in pieces:
        if last is not None and last.segment is piece.segment and last.until == piece.start:
            last = RemotePiece(last.segment, last.start, piece.until)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def cut_at(pieces: Sequence[RemotePiece], offset: int) -> list[RemotePiece]:
    """Returns pieces without what they have from `offset` on."""
    return [
        RemotePiece(each.segment, each.start, min(each.until, offset))
        for each in pieces
        if each.start < offset
    ]


def epochs_within(epochs: Sequence[EpochEntry], start: int, end: int) -> tuple[EpochEntry, ...]:
    """Returns the epochs of the offsets from `start` to `end`, the first one beginning at
    `start`."""
    number = max(bisect_right(epochs, start, key=lambda each: each.start_offset) - 1, 0)
    return tuple(
        EpochEntry(each.epoch, max(each.start_offset, start))
        for each in epochs[number:]
        if each.start_offset <= end
    )
