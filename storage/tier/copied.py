"""What the brokers have recorded about segments that they copied to remote storage, for those who
delete or keep what is here. Remote storage itself is not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..format.files.checkpoints import EpochEntry
from ..format.messages.remote_log_metadata import TopicIdPartition
from .metadata import RemoteLogMetadata
from .segments import RemotePiece, RemoteSegments


@dataclass(frozen=True, slots=True)
class RemoteContents:
    """What remote storage has of a partition, also segments whose copy or deletion did not finish.
    `size`: bytes of their logs. Without `segments` the offsets are -1."""

    segments: int = 0
    size: int = 0
    first_offset: int = -1
    last_offset: int = -1


class RemoteCopies:
    """What `__remote_log_metadata` says about the segments of partitions. Any thread may use it."""

    def __init__(self, metadata: RemoteLogMetadata) -> None:
        self._metadata = metadata

    def until(self, partition: TopicIdPartition, epochs: tuple[EpochEntry, ...], first: int) -> int:
        """Returns the offset up to which remote storage has the records from `first` on of a log
        with these leader epochs, without a gap; `first` if that is not known. What cannot be read
        may be a deletion, so that nothing is known then."""
        pieces = self._metadata.look(partition, lambda segments: segments.pieces(epochs))
        return first if pieces is None or self._metadata.problems else _covered(pieces, first)

    def contents(self, partition: TopicIdPartition) -> RemoteContents | None:
        """Returns what remote storage has of a partition, None if that is not known."""
        found = self._metadata.look(partition, _contents)
        return None if self._metadata.problems else found


def _covered(pieces: Iterable[RemotePiece], first: int) -> int:
    until = first
    for each in pieces:
        if each.start <= until < each.until:
            until = each.until
    return until


def _contents(segments: RemoteSegments) -> RemoteContents:
    found = [segment for segment, _ in segments.states()]
    if not found:
        return RemoteContents()
    return RemoteContents(
        len(found),
        sum(each.size for each in found),
        min(each.start_offset for each in found),
        max(each.end_offset for each in found),
    )
