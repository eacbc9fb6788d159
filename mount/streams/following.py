"""An endless stream: the records served so far, then new ones as they arrive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kafkafs.storage import (
    Columns,
    CorruptError,
    Damage,
    SegmentGone,
    StorageError,
    SystemClock,
    UnknownPartition,
    View,
    fresh,
)

from ..partition import MountedPartition
from ..vfs.errnos import Invalid, ReadInterrupted, WouldBlock
from ..vfs.handles import IDLE_SECONDS, Data, Handle

# Polling interval, where there is no notification of new records.
_POLL_SECONDS: Final = 0.1
# Maximum number of bytes made before a read is answered (plus a piece, if records are large).
_ENOUGH: Final = 1 << 20
# How often a read retries when segments are deleted under it.
_ATTEMPTS: Final = 8


class FollowHandle(Handle):
    """Returns each record once, in order of offsets. One thread at a time may read.

    It can be read from the end of the last read on, from beyond that, which skips bytes, and again
    from within the last read: `head` seeks back to the end of the last line that it printed.

    The position in the log is an offset, not a position in a file, so rolled, deleted and replaced
    segments make no difference: the newest view is always scanned from that offset on.
    """

    direct_io = True

    def __init__(
        self,
        partition: MountedPartition,
        render: Callable[[Columns], Data],
        is_current: Callable[[MountedPartition], bool],
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
        self._last: Data = b""  # what the last read returned
        self.end = 0  # its end as a position in the file

    def read(self, position: int, size: int) -> Data:
        """Returns the next bytes, at least one. Returns nothing if the partition was deleted.
        Raises CorruptError at damage, ReadInterrupted on a timeout, Invalid for a position before
        the last read."""
        deadline = time.monotonic() + IDLE_SECONDS
        while (data := self.take(position, size)) is None:
            if not self.waits:
                raise WouldBlock
            if time.monotonic() >= deadline:
                raise ReadInterrupted
            time.sleep(_POLL_SECONDS)
        return data

    def take(self, position: int, size: int) -> Data | None:
        """Returns the next bytes without waiting for records: None if there are none yet. May read
        from disk."""
        if position >= self.end and not self._ready and not self._ended:
            self._produce()
        return self.at_hand(position, size)

    def at_hand(self, position: int, size: int) -> Data | None:
        while (again := self.end - position) <= 0:
            data = self._next(size if not again else min(-again, _ENOUGH))
            if data:
                self._last, self.end = data, self.end + len(data)
            if not data or not again:
                return data
        if again > len(self._last):
            raise Invalid("only the last read can be repeated")
        return memoryview(self._last)[-again:][:size]

    def _next(self, size: int) -> Data | None:
        """Returns at most `size` bytes that were not returned before; None if there are none now,
        b"" at the end."""
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
        """Returns whether a read would not have to wait. May read from disk."""
        if not self._ready and not self._ended:
            self._produce()
        return bool(self._ready) or self._ended

    def close(self) -> None:
        self._parts = None
        self._ready.clear()
        self._ended = True

    def _produce(self) -> None:
        """Renders served records from `_next_offset` on, until they suffice for one read."""
        made = attempts = 0
        while made < _ENOUGH and attempts < _ATTEMPTS:
            try:
                part = self._next_part()
            except SegmentGone:  # deleted or replaced; continue with a newer view
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
                self._ended = self._is_over()
                return
            if isinstance(part, Damage):
                made += self._note_damage(part.error)
                continue
            self._next_offset = int(part.offsets[-1]) + 1
            data = memoryview(self._render(part))
            self._ready.append(data)
            made += len(data)

    def _is_over(self) -> bool:
        """Returns whether nothing can be added, because the mount shows an earlier time."""
        at_ms = self.partition.log.at_ms
        if at_ms is None:
            return False
        is_ended = self._view is not None and self._view.ended_at_ms is not None
        return is_ended or SystemClock().now_ms() > at_ms

    def _next_part(self) -> Columns | Damage | None:
        """Returns the next part; None if everything served was returned."""
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
                # All offsets below are hidden, compacted away, or already returned.
                self._next_offset = max(self._next_offset, self.partition.bound(self._view))

    def _newer_view(self) -> View | None:
        """Returns the current view, or None if nothing changed. Raises UnknownPartition."""
        if not self._is_current(self.partition):
            raise UnknownPartition(self.partition.topic, self.partition.number)
        view = self.partition.view()
        return None if view is self._view else view

    def _note_damage(self, error: CorruptError) -> int:
        """Queues damage not met before; returns its size in a read, one byte, or 0."""
        self.partition.note_damage(error)
        place = (error.file, error.position)
        if place in self._damage_met:
            return 0
        self._damage_met.add(place)
        self._ready.append(error)
        return 1
