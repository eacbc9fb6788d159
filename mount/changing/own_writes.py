"""The records that were written to `key/` last, and by nobody else since.

Who writes a value looks its name up first, and to find the latest record of a key the log's new end
has to be read. As long as everything at that end came through here it need not be.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from kafkafs.storage.log.appending import Appended
    from kafkafs.storage.log.writer import LogWriter

    from ..partition import Partition

# Keys that are remembered of a partition, and the most bytes of one.
_REMEMBERED: Final = 1024
_KEY_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class Written:
    """A record. `size`: bytes of its value, -1 for a tombstone; `timestamp` in ms. `number`: the
    offset of a record with that key, which stands for the key in an inode's number. It stays the
    same from one value to the next, since for a name that leads elsewhere the kernel asks twice."""

    key: bytes
    offset: int
    size: int
    timestamp: int
    number: int


@dataclass(slots=True)
class _Known:
    """Some records below offset `end`, all behind the first of which came through here: the latest
    of each key that is remembered, by key and by number."""

    end: int
    by_key: OrderedDict[bytes, Written] = field(default_factory=OrderedDict)
    by_number: dict[int, Written] = field(default_factory=dict)

    def is_all_of(self, writer: LogWriter) -> bool:
        """Whether the log ends where it was written last, and nothing in it is undecided."""
        return self.end == writer.end_offset == writer.last_stable_offset


class OwnWrites:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Partition, _Known] = WeakKeyDictionary()
        self._lock = threading.Lock()  # guards all of it

    def note(
        self, partition: Partition, appended: Appended, key: bytes, size: int, timestamp: int
    ) -> None:
        """A record with the key was appended, by itself."""
        if appended.append_time >= 0:
            timestamp = appended.append_time
        offset = appended.last_offset
        with self._lock:
            known = self._known.get(partition)
            if known is None or known.end != offset:
                known = self._known[partition] = _Known(offset)
            known.end = offset + 1
            before = known.by_key.pop(key, None)
            is_next_value = before is not None and before.size >= 0 and size >= 0
            number = before.number if before and is_next_value else offset
            if len(key) <= _KEY_BYTES:
                written = Written(key, offset, size, timestamp, number)
                known.by_key[key] = known.by_number[number] = written
            if len(known.by_key) > _REMEMBERED:
                _, oldest = known.by_key.popitem(last=False)
                del known.by_number[oldest.number]

    def latest(self, partition: Partition, writer: LogWriter, key: bytes) -> Written | None:
        """The latest record of a key, which is served; None where that has to be found out."""
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_all_of(writer):
                return None
            written = known.by_key.get(key)
            return written if written and writer.start_offset <= written.offset else None

    def numbered(self, partition: Partition, writer: LogWriter, number: int) -> Written | None:
        """The latest record of the key that a number stands for; None as above."""
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_all_of(writer):
                return None
            written = known.by_number.get(number)
            return written if written and writer.start_offset <= written.offset else None

    def numbers(self, partition: Partition, writer: LogWriter) -> dict[int, int]:
        """Those of the records that have others than their offsets, by these."""
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_all_of(writer):
                return {}
            return {
                each.offset: each.number
                for each in known.by_key.values()
                if each.offset != each.number
            }
