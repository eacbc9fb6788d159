"""A stream without an end: the records served so far, then those to come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kafkafs.storage.errors import (
    CorruptError,
    SegmentGone,
    StorageError,
    UnknownPartition,
    fresh,
)
from kafkafs.storage.format.columns import Columns, Damage
from kafkafs.storage.log.view import View

from ..errnos import Idle, WouldBlock
from ..handles import IDLE_SECONDS, Data, Handle
from ..partition import Partition

# How often it looks meanwhile, where nothing else tells it of new records.
_POLL_SECONDS: Final = 0.1
# Bytes made before a read is answered, at most (a piece more, where records are large).
_ENOUGH: Final = 1 << 20
# How often what is read may vanish under a reader before it is asked to come again.
_ATTEMPTS: Final = 8


class FollowHandle(Handle):
    """Gives each record once, in order of offsets. One thread at a time may read.

    The place in the log is an offset and not a position in a file, so rolled, deleted and replaced
    segments make no difference: what is asked of the newest view is always "from here on".
    """

    direct_io = True
    seekable = False

    def __init__(
        self,
        partition: Partition,
        render: Callable[[Columns], Data],
        is_current: Callable[[Partition], bool],
        *,
        waits: bool,
    ) -> None:
        self.partition = partition
        self.waits = waits
        self._render = render
        self._is_current = is_current
        self._next_offset = 0
        self._parts: Iterator[Columns | Damage] | None = None
        self._view: View | None = None
        self._ready: deque[memoryview | CorruptError] = deque()
        self._damage_met: set[tuple[str, int]] = set()
        self._ended = False

    def read(self, position: int, size: int) -> Data:
        """What comes next, at least a byte; `position` is where the last read ended. Nothing when
        the partition was deleted, CorruptError at damage, Idle when nothing came for a while."""
        deadline = time.monotonic() + IDLE_SECONDS
        while (data := self.take(size)) is None:
            if not self.waits:
                raise WouldBlock
            if time.monotonic() >= deadline:
                raise Idle
            time.sleep(_POLL_SECONDS)
        return data

    def take(self, size: int) -> Data | None:
        """The same without waiting for records: None when there is nothing yet. May read from
        disk."""
        if not self._ready and not self._ended:
            self._produce()
        return self.at_hand(0, size)

    def at_hand(self, position: int, size: int) -> Data | None:
        if not self._ready:
            return b"" if self._ended else None
        first = self._ready.popleft()
        if isinstance(first, CorruptError):
            raise fresh(first)
        if len(first) > size:
            self._ready.appendleft(first[size:])
            return first[:size]
        parts = [first]
        size -= len(first)
        while size and self._ready and not isinstance(self._ready[0], CorruptError):
            part = self._ready.popleft()
            assert isinstance(part, memoryview)
            if len(part) > size:
                self._ready.appendleft(part[size:])
            parts.append(part[:size])
            size -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def is_ready(self) -> bool:
        """Whether a read would not have to wait. May read from disk."""
        if not self._ready and not self._ended:
            self._produce()
        return bool(self._ready) or self._ended

    def close(self) -> None:
        self._parts = None
        self._ready.clear()
        self._ended = True

    def _produce(self) -> None:
        """Render what is served from `_next_offset` on, until there is enough for one read."""
        made = attempts = 0
        while made < _ENOUGH and attempts < _ATTEMPTS:
            try:
                part = self._next_part()
            except SegmentGone:  # deleted or replaced under us; a newer view goes on
                self._parts = self._view = None
                attempts += 1
                continue
            except UnknownPartition:
                self._ended = True
                return
            except (StorageError, OSError):
                self._parts = self._view = None
                raise
            if part is None:
                return
            if isinstance(part, Damage):
                made += self._note_damage(part.error)
                continue
            self._next_offset = int(part.offsets[-1]) + 1
            data = memoryview(self._render(part))
            self._ready.append(data)
            made += len(data)

    def _next_part(self) -> Columns | Damage | None:
        """None when everything served has been given."""
        while True:
            if self._parts is None:
                view = self._newer_view()
                if view is None:
                    return None
                self._view = view
                self._parts = view.scan(self._next_offset, isolation=self.partition.isolation)
            part = next(self._parts, None)
            if part is not None:
                return part
            self._parts = None
            if self._view is not None:
                # Nothing below is served any more: hidden, compacted away, or given already.
                self._next_offset = max(self._next_offset, self.partition.bound(self._view))

    def _newer_view(self) -> View | None:
        """What the partition looks like now, None when nothing changed. UnknownPartition."""
        if not self._is_current(self.partition):
            raise UnknownPartition(self.partition.topic, self.partition.number)
        view = self.partition.view()
        return None if view is self._view else view

    def _note_damage(self, error: CorruptError) -> int:
        """Queue damage that was not met before, as the one byte that a read for it costs."""
        self.partition.note_damage(error)
        place = (error.file, error.position)
        if place in self._damage_met:
            return 0
        self._damage_met.add(place)
        self._ready.append(error)
        return 1
