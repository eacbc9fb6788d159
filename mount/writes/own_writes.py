"""Remembers the latest records written through `key/`, so that looking them up reads nothing.

A program that writes a value looks its name up first, and finding the latest record of a key means
reading the new end of the log. That is unnecessary while all records at the end came from here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from kafkafs.storage import LogAppendInfo, LogWriter

    from ..partition import MountedPartition

# The most keys that are remembered per partition, and the most bytes of a key.
_REMEMBERED: Final = 1024
_KEY_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class Written:
    """A record. `size`: bytes of its value, -1 for a tombstone; `timestamp` in ms. `number`: the
    offset of a record with that key, which represents the key in inode numbers. It stays the same
    from one value to the next, since the kernel repeats a lookup if a name's inode has changed."""

    key: bytes
    offset: int
    size: int
    timestamp: int
    number: int


@dataclass(slots=True)
class _Known:
    """The latest record of each remembered key, by key and by number. All records from the first of
    these up to offset `end` were written here."""

    end: int
    by_key: OrderedDict[bytes, Written] = field(default_factory=OrderedDict)
    by_number: dict[int, Written] = field(default_factory=dict)

    def is_all_of(self, writer: LogWriter) -> bool:
        """Returns whether the log ends at `end` and has no open transaction."""
        return self.end == writer.end_offset == writer.last_stable_offset


class OwnWrites:
    """Any thread may use it."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[MountedPartition, _Known] = WeakKeyDictionary()
        self._lock = threading.Lock()  # guards _known

    def note(
        self,
        partition: MountedPartition,
        appended: LogAppendInfo,
        key: bytes,
        size: int,
        timestamp: int,
    ) -> None:
        """Records that a single record with the key was appended."""
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

    def latest(self, partition: MountedPartition, writer: LogWriter, key: bytes) -> Written | None:
        """Returns the latest record of a key, if it is served; None if it must be looked up."""
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_all_of(writer):
                return None
            written = known.by_key.get(key)
            return written if written and writer.start_offset <= written.offset else None

    def numbered(
        self, partition: MountedPartition, writer: LogWriter, number: int
    ) -> Written | None:
        """Returns the latest record of the key that a number represents; None as in `latest`."""
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_all_of(writer):
                return None
            written = known.by_number.get(number)
            return written if written and writer.start_offset <= written.offset else None

    def numbers(self, partition: MountedPartition, writer: LogWriter) -> dict[int, int]:
        """Returns the numbers of the records whose number differs from their offset, by offset."""
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_all_of(writer):
                return {}
            return {
                each.offset: each.number
                for each in known.by_key.values()
                if each.offset != each.number
            }
