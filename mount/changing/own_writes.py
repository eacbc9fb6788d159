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
    """A record. `size`: bytes of its value, -1 for a tombstone; `timestamp` in ms."""

    key: bytes
    offset: int
    size: int
    timestamp: int


@dataclass(slots=True)
class _Known:
    """Some records below offset `end`, all behind the first of which came through here: the latest
    of each key that is remembered, by key and by offset."""

    end: int
    by_key: OrderedDict[bytes, Written] = field(default_factory=OrderedDict)
    by_offset: dict[int, Written] = field(default_factory=dict)


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
        written = Written(key, offset, size, timestamp)
        with self._lock:
            known = self._known.get(partition)
            if known is None or known.end != offset:
                known = self._known[partition] = _Known(offset)
            known.end = offset + 1
            before = known.by_key.pop(key, None)
            if before is not None:
                del known.by_offset[before.offset]
            if len(key) <= _KEY_BYTES:
                known.by_key[key], known.by_offset[offset] = written, written
            if len(known.by_key) > _REMEMBERED:
                _, oldest = known.by_key.popitem(last=False)
                del known.by_offset[oldest.offset]

    def latest(self, partition: Partition, writer: LogWriter, key: bytes) -> Written | None:
        """The latest record of a key, which is served; None where that has to be found out."""
        with self._lock:
            known = self._known.get(partition)
            written = known.by_key.get(key) if known is not None else None
            return written if written and _is_served(written, known, writer) else None

    def at(self, partition: Partition, writer: LogWriter, offset: int) -> Written | None:
        """The record there, if it is the latest of its key."""
        with self._lock:
            known = self._known.get(partition)
            written = known.by_offset.get(offset) if known is not None else None
            return written if written and _is_served(written, known, writer) else None


def _is_served(written: Written, known: _Known | None, writer: LogWriter) -> bool:
    """Whether the log ends where it was written last, nothing in it is undecided, and the record
    was not deleted."""
    end = writer.end_offset
    return (
        known is not None
        and known.end == end == writer.last_stable_offset
        and writer.start_offset <= written.offset
    )
