"""How many bytes each segment contributes to a stream, so that a size is a sum.

A segment's share of a stream, its *part*, follows from the segment alone. Rendering a part from
beginning to end measures it, be it for a reader or for the pass that determines the size
(`sizes.py`); the result is stored here, with checkpoints for seeking.

The part of the active segment grows. In line formats, new records only append bytes: a measured
part is a prefix of the larger one, and only the rest has to be rendered. Arrow messages depend on
how much was read at a time, so there every larger part is a different one.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

# Memory limit in bytes: some hundred thousand parts, or 2 TiB of large segments.
_MOST_BYTES: Final = 32 << 20
# Approximate size of an entry without its checkpoints.
_ENTRY_BYTES: Final = 400
#: Distance of checkpoints in bytes of the stream.
CHECKPOINT_DISTANCE: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A segment's share of a stream: the records with `begin` <= offset < `end`. `key`: determines
    its bytes and its damage, together with `end`. `log_bytes`: the size of the segment. `is_empty`:
    it is certain that neither a byte nor damage comes from it."""

    key: Hashable
    begin: int
    end: int
    log_bytes: int
    is_empty: bool = False


@dataclass(slots=True)
class MeasuredPart:
    """The measurement of a part up to offset `end`: its length in bytes, whether it has unreadable
    bytes, and checkpoints: ascending positions in the part, each with the offset at which the
    source must be started to continue there. No checkpoint lies where bytes are missing: a source
    started there would pass over the damage."""

    end: int
    length: int = 0
    is_damaged: bool = False
    damaged_at: int = -1
    positions: array[int] = field(default_factory=lambda: array("q"))
    restarts: array[int] = field(default_factory=lambda: array("q"))

    @property
    def memory(self) -> int:
        return _ENTRY_BYTES + 16 * len(self.positions)

    def add(self, size: int, restart: int) -> None:
        """Appends a piece of `size` bytes; `restart` is -1 if the source cannot start there."""
        last = self.positions[-1] if self.positions else 0
        is_far = self.length >= last + CHECKPOINT_DISTANCE
        if restart >= 0 and is_far and self.length != self.damaged_at:
            self.positions.append(self.length)
            self.restarts.append(restart)
        self.length += size

    def note_damage(self) -> None:
        """Notes that bytes are missing after those measured so far."""
        self.is_damaged, self.damaged_at = True, self.length

    def before(self, position: int) -> tuple[int, int] | None:
        """Returns the last checkpoint at or before a position, and its restart, or None."""
        at = bisect_right(self.positions, position) - 1
        return (self.positions[at], self.restarts[at]) if at >= 0 else None

    def copy(self) -> MeasuredPart:
        """Returns a copy that may be extended."""
        return replace(self, positions=self.positions[:], restarts=self.restarts[:])

    def up_to(self, end: int) -> MeasuredPart | None:
        """Returns the measurement up to some offset <= `end`; None if there is none."""
        if self.end <= end:
            return self.copy()
        count = bisect_right(self.restarts, end)
        if not count:
            return None
        last = count - 1
        return MeasuredPart(
            self.restarts[last],
            self.positions[last],
            self.is_damaged,
            self.damaged_at,
            self.positions[:last],
            self.restarts[:last],
        )


class StreamIndex:
    """The most recently measured parts of all streams of a mount. Any thread may use it."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()  # guards what follows
        self._known: OrderedDict[Hashable, MeasuredPart] = OrderedDict()
        self._bytes = 0

    def find(self, part: Part) -> MeasuredPart | None:
        """Returns the measurement of the whole part, or None."""
        with self._lock:
            known = self._known.get(part.key)
            if known is None or known.end != part.end:
                return None
            self._known.move_to_end(part.key)
            return known

    def prefix(self, part: Part) -> MeasuredPart:
        """Returns the measurement of the part's beginning, to be extended."""
        with self._lock:
            known = self._known.get(part.key)
            found = known.up_to(part.end) if known is not None else None
            return found or MeasuredPart(part.begin)

    def keep(self, part: Part, measured: MeasuredPart) -> None:
        """Stores the measurement of a whole part; it must not be changed any more."""
        with self._lock:
            known = self._known.get(part.key)
            if known is not None and known.end > measured.end:
                return
            self._known[part.key] = measured
            self._known.move_to_end(part.key)
            self._bytes += measured.memory - (known.memory if known is not None else 0)
            while self._bytes > self._most_bytes and len(self._known) > 1:
                _, forgotten = self._known.popitem(last=False)
                self._bytes -= forgotten.memory

    def __len__(self) -> int:
        return len(self._known)

    @property
    def memory(self) -> int:
        """Memory used, in bytes, roughly."""
        return self._bytes
