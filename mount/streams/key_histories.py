"""The versions of keys that are still on the disk, as JSON lines.

Each search reads all files of a partition, and a program looks a file up several times, so the last
histories are remembered until the partition changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkafs.storage import CorruptError, Engine, SegmentGone

from ..partition import MountedPartition
from ..vfs import render
from .streams import StreamPiece

if TYPE_CHECKING:  # a mount that searches no history does not load the code
    from kafkafs.storage import History, View

_REMEMBERED: Final = 16
_REMEMBERED_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class KeyLines:
    """The versions of a key: their lines in order, with the damage where it was met.
    `last_timestamp`: that of the last version in ms since 1970; None without a version."""

    pieces: Sequence[StreamPiece | CorruptError]
    last_timestamp: int | None

    @property
    def damage(self) -> list[CorruptError]:
        return [piece for piece in self.pieces if isinstance(piece, CorruptError)]

    @property
    def data(self) -> bytes:
        """All lines."""
        return b"".join(piece.data for piece in self.pieces if isinstance(piece, StreamPiece))


# What changes with the records of a partition, and with the names in the directories searched.
_State = tuple["View", Sequence[tuple[str, int]]]


class KeyHistories:
    """The histories searched last. Any thread may use it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()  # guards what follows
        self._known: OrderedDict[tuple[MountedPartition, bytes], tuple[_State, KeyLines]]
        self._known = OrderedDict()

    def find(self, partition: MountedPartition, key: bytes) -> KeyLines:
        """Returns the history of a key; may read all files of the partition. Damage is noted.
        Raises UnknownPartition if the partition no longer exists."""
        from kafkafs.storage import History, Selection

        selection = Selection(((partition.topic, partition.number),))
        request = History(selection, key, partition.isolation)
        state = partition.view(), self._changed_at(request)
        with self._lock:
            known = self._known.get((partition, key))
            if known is not None and known[0][0] is state[0] and known[0][1] == state[1]:
                self._known.move_to_end((partition, key))
                return known[1]
        found = self._search(request)
        for error in found.damage:
            partition.note_damage(error)
        with self._lock:
            self._known[partition, key] = state, found
            self._known.move_to_end((partition, key))
            self._forget_oldest()
        return found

    def forget(self, partition: MountedPartition) -> None:
        """Forgets a partition that no longer exists."""
        with self._lock:
            for known in [each for each in self._known if each[0] is partition]:
                del self._known[known]

    def _changed_at(self, request: History) -> Sequence[tuple[str, int]]:
        """Returns the directories that are searched, and when the names in each last changed."""
        found: list[tuple[str, int]] = []
        for each in request.directories(self._engine):
            with suppress(SegmentGone):  # that of a deleted partition
                found.append((each.path, each.stat().st_mtime_ns))
        return found

    def _search(self, request: History) -> KeyLines:
        from kafkafs.storage import PartitionFailed, fresh, history

        pieces: list[StreamPiece | CorruptError] = []
        last: int | None = None
        for row in history(self._engine, request):
            if not isinstance(row, PartitionFailed):
                last = row.record.timestamp
                pieces.append(StreamPiece(render.json_line(row.as_json())))
            elif isinstance(row.cause, CorruptError):
                pieces.append(row.cause)
            elif row.cause is not None:
                raise fresh(row.cause)
        return KeyLines(pieces, last)

    def _forget_oldest(self) -> None:
        sizes = [sum(map(_size, lines.pieces)) for _, lines in self._known.values()]
        total = sum(sizes)
        while len(sizes) > 1 and (len(sizes) > _REMEMBERED or total > _REMEMBERED_BYTES):
            self._known.popitem(last=False)
            total -= sizes.pop(0)


def _size(piece: StreamPiece | CorruptError) -> int:
    return len(piece.data) if isinstance(piece, StreamPiece) else 0
