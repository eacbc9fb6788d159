"""Names deleted by removing another name, which the same process may still remove.

`rm offset/*` uses the shell's order, 0 1 10 100 101 …: removing 100 deletes records 2 to 99, whose
names follow later. So for some seconds a process still finds the names that its removals deleted,
except those that it removed by name itself. Other processes do not find them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from ..partition import MountedPartition

#: How long after its last removal a process still finds the names that it deleted.
REMEMBERED_SECONDS: Final = 10.0
# The most pairs of partition and process that are remembered, and the most names.
_MOST: Final = 1024
_MOST_NAMES: Final = 1 << 16

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Removed:
    """What a process removed from a partition: the records [`start`, `end`), and with them
    segments from base offset `first_base` on."""

    first_base: int
    start: int
    end: int
    until: float

    def has_record(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def has_segment(self, base_offset: int) -> bool:
        return self.first_base <= base_offset < self.end


class RemovedNames:
    """What each process removed recently. Any thread may call."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._removed: OrderedDict[tuple[MountedPartition, int], Removed] = OrderedDict()
        self._by_name: OrderedDict[tuple[MountedPartition, int, str], None] = OrderedDict()

    def note(
        self,
        partition: MountedPartition,
        pid: int,
        name: str,
        first_base: int,
        start: int,
        end: int,
    ) -> None:
        """Records that process `pid` removed `name` and so moved the log start offset from `start`
        to `end`; `first_base` was the first segment's base offset. Processes of other PID
        namespaces all have pid 0 and are not remembered."""
        if not pid:
            return
        with self._lock:
            known = self._known(partition, pid)
            if known is not None:
                first_base, start = min(first_base, known.first_base), min(start, known.start)
                end = max(end, known.end)
            self._keep(partition, pid, name, Removed(first_base, start, end, self._until()))

    def note_again(self, partition: MountedPartition, pid: int, name: str) -> None:
        """Records that the process removed a name that its earlier removals had deleted."""
        with self._lock:
            known = self._known(partition, pid)
            if known is not None:
                self._keep(partition, pid, name, replace(known, until=self._until()))

    def of(self, partition: MountedPartition, pid: int, name: str) -> Removed | None:
        """Returns what the process removed from the partition; None if it removed nothing, or too
        long ago, or removed that very `name`."""
        with self._lock:
            known = self._known(partition, pid)
            return known if (partition, pid, name) not in self._by_name else None

    def _until(self) -> float:
        return self._clock() + REMEMBERED_SECONDS

    def _keep(self, partition: MountedPartition, pid: int, name: str, removed: Removed) -> None:
        _put_last(self._removed, (partition, pid), removed, _MOST)
        _put_last(self._by_name, (partition, pid, name), None, _MOST_NAMES)

    def _known(self, partition: MountedPartition, pid: int) -> Removed | None:
        known = self._removed.get((partition, pid))
        if known is not None and known.until < self._clock():
            del self._removed[partition, pid]
            return None
        return known


def _put_last(kept: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
