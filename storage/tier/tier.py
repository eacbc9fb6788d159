"""Remote storage as a whole: what is valid in it, for each partition.

The brokers recorded that in `__remote_log_metadata`. Where the log directories do not have it, it
is derived from the objects themselves: each segment has the leader epochs of the log up to its end,
and its last batch tells that end.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import CorruptError, SegmentGone, StorageError
from ..format.files.checkpoints import EpochEntry, parse_leader_epochs
from ..format.layout import MAX_INT32, MAX_OFFSET
from ..format.messages.remote_log_metadata import TopicIdPartition
from ..format.records import batch as b
from ..segment.extent import Extent, Fault
from ..segment.offset_index import OffsetIndex
from ..segment.walk import walk_headers
from ..wording import printable
from .layout import ObjectId, RemoteFileKind, TierLayout
from .metadata import RemoteLogMetadata
from .segments import RemotePiece, RemoteSegment, RemoteSegments, epochs_within

# Of the checkpoint of a segment's leader epochs.
_MAX_EPOCHS_BYTES: Final = 16 << 20
_MOST_PROBLEMS: Final = 100

Epochs = tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """What remote storage has of a log at one moment: `pieces` in order. `epochs`: the leader
    epochs by which they were chosen. `is_recorded`: by `__remote_log_metadata`, not derived from
    the objects. `version` differs between any two states of one partition."""

    pieces: tuple[RemotePiece, ...] = ()
    epochs: Epochs = ()
    is_recorded: bool = True
    version: int = 0

    @property
    def latest_offset(self) -> int:
        """The last offset that it has, -1 if it has none (OffsetSpec.latestTiered)."""
        return self.pieces[-1].until - 1 if self.pieces else -1


class Tier:
    """Remote storage with the objects of one `layout`. Any thread may use it.

    `max_batch_bytes`: the largest batch, as in a ReadContext.
    """

    def __init__(
        self, layout: TierLayout, metadata: RemoteLogMetadata | None, max_batch_bytes: int
    ) -> None:
        """Without `metadata` everything is derived from the objects."""
        self.layout = layout
        layout.report = self.report
        self.max_batch_bytes = max_batch_bytes
        self._metadata = metadata
        self._lock = threading.Lock()  # guards the attributes below
        self._partitions: dict[TopicIdPartition, RemotePartition] = {}
        self._problems: dict[str, None] = {}

    def partition(self, partition: TopicIdPartition) -> RemotePartition:
        with self._lock:
            known = self._partitions.get(partition)
            if known is None:
                known = RemotePartition(self, partition, self._metadata)
                self._partitions[partition] = known
            return known

    def report(self, problem: str) -> None:
        """Notes what is wrong with the objects."""
        with self._lock:
            if len(self._problems) < _MOST_PROBLEMS:
                self._problems.setdefault(problem)

    @property
    def problems(self) -> list[str]:
        """What was found to be wrong so far, one line each."""
        recorded = [] if self._metadata is None else self._metadata.problems
        with self._lock:
            return [*recorded, *self._problems]


class RemotePartition:
    """A partition in remote storage."""

    def __init__(
        self, tier: Tier, partition: TopicIdPartition, metadata: RemoteLogMetadata | None
    ) -> None:
        self.tier = tier
        self.partition = partition
        self._metadata = metadata
        self._lock = threading.Lock()  # guards the attributes below
        self._state: tuple[object, ...] = ()
        self._log = RemoteLog()
        self._derived: dict[ObjectId, RemoteSegment | None] = {}
        self._ranges: dict[RemotePiece, tuple[int, int]] = {}

    def log(self, epochs: Epochs | None) -> RemoteLog:
        """Returns what the objects have of a log with these leader epochs; None for the latest ones
        that a segment has. Raises LogDirError or OSError if the place cannot be read."""
        with self._lock:
            found = self._recorded(epochs) if self._metadata is not None else None
            state, pieces, chosen, is_recorded = found or self._from_objects(epochs)
            if state != self._state or not self._log.version:
                version = self._log.version + 1
                self._log = RemoteLog(tuple(pieces), chosen, is_recorded, version)
                self._state = state
            return self._log

    def _recorded(self, epochs: Epochs | None) -> _Found | None:
        assert self._metadata is not None

        def look(segments: RemoteSegments) -> _Found:
            chosen = latest_epochs(segments) if epochs is None else epochs
            state = (id(segments), segments.changes, chosen)
            if state == self._state:
                return state, self._log.pieces, chosen, True
            return state, segments.pieces(chosen), chosen, True

        return self._metadata.look(self.partition, look)

    def _from_objects(self, epochs: Epochs | None) -> _Found:
        stamp = self.tier.layout.stamp(self.partition)
        state = (stamp, epochs)
        if state == self._state:
            return state, self._log.pieces, self._log.epochs, False
        segments = RemoteSegments()
        for segment in sorted(
            self._segments(), key=lambda each: (_last_epoch(each), each.start_offset)
        ):
            segments.add(segment)
        chosen = epochs
        if chosen is None:
            chosen = self._latest_checkpoint(segments)
        return state, segments.pieces(chosen), chosen, False

    def _segments(self) -> list[RemoteSegment]:
        found: dict[ObjectId, RemoteSegment | None] = {}
        for each in self.tier.layout.objects(self.partition):
            found[each] = self._derived[each] if each in self._derived else self._describe(each)
        self._derived = found
        return [segment for segment in found.values() if segment is not None]

    def _describe(self, found: ObjectId) -> RemoteSegment | None:
        """Returns a segment as its objects describe it; None if they cannot be read."""
        layout = self.tier.layout
        try:
            return layout.described(found) or self._from_files(found)
        except SegmentGone:
            return None
        except StorageError as error:
            self.tier.report(str(error))
            return None

    def _from_files(self, found: ObjectId) -> RemoteSegment:
        log = self.tier.layout.open(found, RemoteFileKind.LOG)
        size, start = log.size(), found.start_offset
        extent = Extent(log, start, 0, size, self.tier.max_batch_bytes)
        end = start - 1
        for part in walk_headers(_from_last_entry(self.tier.layout, found, extent)):
            if not isinstance(part, Fault):
                end = int(part.rows[-1, b.LAST_OFFSET])
        if end < start:
            raise CorruptError("has no batch, so that it is not known what it is", log.path)
        epochs = epochs_within(self._checkpoint(found), start, end)
        return RemoteSegment(found.id, start, end, epochs, size, found.custom_metadata)

    def _checkpoint(self, found: ObjectId) -> Epochs:
        """Returns the leader epochs of the log up to the end of a segment."""
        file = self.tier.layout.open(found, RemoteFileKind.LEADER_EPOCHS)
        if file.size() > _MAX_EPOCHS_BYTES:
            raise CorruptError(f"larger than {_MAX_EPOCHS_BYTES} bytes", file.path)
        try:
            return tuple(parse_leader_epochs(file.read(0, file.size())))
        except CorruptError as error:
            raise error.at(file.path) from None

    def _latest_checkpoint(self, segments: RemoteSegments) -> Epochs:
        """Returns the leader epochs of the segment that a leader copied last."""
        last = max(
            (segment for segment, _ in segments.states()),
            key=lambda each: (_last_epoch(each), each.end_offset),
            default=None,
        )
        if last is None:
            return ()
        try:
            return self._checkpoint(ObjectId.of(self.partition, last))
        except StorageError as error:
            self.tier.report(str(error))
            return latest_epochs(segments)

    def byte_range(self, piece: RemotePiece) -> tuple[int, int]:
        """Returns the bytes [start, end) of a segment's log that have the offsets of a piece, whole
        batches. Raises as `TierLayout.open`."""
        segment = piece.segment
        if piece.start == segment.start_offset and piece.until == segment.end_offset + 1:
            return 0, segment.size
        with self._lock:
            known = self._ranges.get(piece)
        if known is None:
            known = self._find_range(piece)
            with self._lock:
                self._ranges[piece] = known
        return known

    def _find_range(self, piece: RemotePiece) -> tuple[int, int]:
        found = ObjectId.of(self.partition, piece.segment)
        log = self.tier.layout.open(found, RemoteFileKind.LOG)
        extent = Extent(
            log, piece.segment.start_offset, 0, piece.segment.size, self.tier.max_batch_bytes
        )
        start, end = 0, piece.segment.size
        if piece.start > piece.segment.start_offset:
            start = end
        for part in walk_headers(extent):
            if isinstance(part, Fault):
                continue
            first, last = part.column(b.BASE_OFFSET), part.column(b.LAST_OFFSET)
            positions = part.column(b.POSITION)
            if piece.start > piece.segment.start_offset and (first >= piece.start).any():
                start = min(start, int(positions[(first >= piece.start).argmax()]))
            if (last >= piece.until).any():
                end = int(positions[(last >= piece.until).argmax()])
                break
        return min(start, end), end


_Found = tuple[tuple[object, ...], Sequence[RemotePiece], Epochs, bool]


def latest_epochs(segments: RemoteSegments) -> Epochs:
    """Returns the leader epochs that all segments together have, where the latest leader wins."""
    kept: list[EpochEntry] = []
    starts: dict[int, int] = {}
    for segment, _ in segments.states():
        for each in segment.epochs:
            starts[each.epoch] = min(starts.get(each.epoch, MAX_OFFSET), each.start_offset)
    for epoch, start in sorted(starts.items()):
        while kept and kept[-1].start_offset >= start:
            kept.pop()
        kept.append(EpochEntry(epoch, start))
    return tuple(kept)


def _last_epoch(segment: RemoteSegment) -> int:
    return segment.epochs[-1].epoch if segment.epochs else -1


def _from_last_entry(layout: TierLayout, found: ObjectId, extent: Extent) -> Extent:
    """Returns the part of a log from the batch of its last index entry on; all of it if there is
    none, or if it is wrong."""
    try:
        index = OffsetIndex(layout.open(found, RemoteFileKind.OFFSET_INDEX), found.start_offset)
        position = index.lookup(found.start_offset + MAX_INT32, extent.end).position
    except (SegmentGone, CorruptError, OSError):
        return extent
    from_entry = Extent(
        extent.file, extent.base_offset, position, extent.end, extent.max_batch_bytes
    )
    first = next(walk_headers(from_entry), None)
    is_fault = first is None or isinstance(first, Fault)
    return extent if is_fault else from_entry


def by_topic(
    partitions: Sequence[TopicIdPartition],
) -> Mapping[tuple[str, int], list[TopicIdPartition]]:
    """Returns the partitions by topic name and number: a topic that was deleted and created again
    has several ids."""
    found: dict[tuple[str, int], list[TopicIdPartition]] = {}
    for each in partitions:
        found.setdefault((each.topic, each.partition), []).append(each)
    return found


def describe(partition: TopicIdPartition) -> str:
    """Returns a partition for messages."""
    return printable(f"{partition.topic}-{partition.partition} (id {partition.topic_id})")
