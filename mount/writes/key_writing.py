"""Collects values written to files of `key/` and appends them as records.

Records cannot change. So the bytes written to `key/K` are collected here, in memory, and when
a descriptor is closed they are appended as the key's next record. All open descriptors of a key
share one content, as those of a regular file do.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkafs.storage import RecordColumns

from ..vfs.errnos import Stale, TooLarge
from ..vfs.handles import Data
from ..vfs.write_handle import WriteHandle
from .own_writes import OwnWrites

if TYPE_CHECKING:
    from kafkafs.storage import LogManager, LogWriter

    from ..partition import MountedPartition

_Append = Callable[[bytes | None], object]

# A value of up to this many bytes is appended by the event loop itself, if that does not block.
_SMALL_BYTES: Final = 1 << 14


class KeyContent:
    """The value being written for a key. Any thread may use it.

    `number` identifies it until the mount ends.
    """

    def __init__(self, number: int, key: bytes, append: _Append, limit: int) -> None:
        """`append` appends a value, None for a tombstone; `limit`: the most bytes of a value."""
        self.number = number
        self.key = key
        self.handles = 0  # changed by `KeyContents` alone
        self._append = append
        self._limit = limit
        self._appending = threading.Lock()  # held during an append, to keep appends in order
        self._lock = threading.Lock()  # guards what follows; never held while waiting
        self._data = bytearray()
        self._is_written = False  # since the last record
        self._is_bare = False  # emptied or made, and not yet written
        self._has_record = False  # whether one was appended from here, and no tombstone since
        self._is_spoiled = False  # whether a write exceeded the limit: the value is incomplete

    @property
    def size(self) -> int:
        return len(self._data)

    def load(self, value: bytes) -> None:
        """Starts with the key's present value."""
        self._data[:] = value

    def read(self, position: int, size: int) -> bytes:
        with self._lock:
            return bytes(self._data[position : position + size])

    def write(self, position: int | None, data: bytes) -> None:
        """Writes at `position`, None for the end. Raises TooLarge, also from then on until the
        value is emptied."""
        with self._lock:
            start = len(self._data) if position is None else position
            self._bound(start + len(data))
            self._data.extend(bytes(max(start - len(self._data), 0)))
            self._data[start : start + len(data)] = data
            self._is_written, self._is_bare = True, False

    def resize(self, size: int) -> None:
        with self._lock:
            self._is_spoiled = self._is_spoiled and size > 0
            self._bound(size)
            del self._data[size:]
            self._data.extend(bytes(size - len(self._data)))
            self._is_written, self._is_bare = True, False

    def _bound(self, size: int) -> None:
        """Rejects a value beyond the limit. The part that fits is not appended either."""
        if size > self._limit:
            self._is_spoiled = True
            self._is_written = self._is_bare = False
        self._refuse_spoiled()

    def _refuse_spoiled(self) -> None:
        if self._is_spoiled:
            raise TooLarge(f"the value has more than {self._limit} bytes, the limit of a record")

    def make_bare(self) -> None:
        """Marks it as created, or emptied by open(2). This appends an empty record only if nothing
        has been written when it is closed: shells close one descriptor before they write."""
        with self._lock:
            self._data.clear()
            self._is_written, self._is_bare, self._is_spoiled = False, True, False

    @property
    def is_appended(self) -> bool:
        """Whether nothing was written since the last appended record."""
        return not (self._is_written or self._is_spoiled)

    @property
    def is_bare(self) -> bool:
        return self._is_bare

    @property
    def append_may_block(self) -> bool:
        """Whether it is large or is being appended right now."""
        return len(self._data) > _SMALL_BYTES or self._appending.locked()

    def append(self, *, if_bare: bool = False) -> None:
        """Appends a record if the value was changed since the last one."""
        with self._appending:
            with self._lock:
                self._refuse_spoiled()
                if not self._is_written and not (if_bare and self._is_bare):
                    return
                value = bytes(self._data)
                before = self._is_written, self._is_bare
                self._is_written = self._is_bare = False
            try:
                self._append(value)
            except BaseException:
                with self._lock:
                    self._is_written, self._is_bare = before
                raise
            self._has_record = True

    def remove(self, *, is_there: bool) -> None:
        """Appends a tombstone if the key has a value, and discards what was not appended yet.
        `is_there`: whether the caller found a value; one appended from here since then counts."""
        with self._appending:
            if is_there or self._has_record:
                self._append(None)
                self._has_record = False
            with self._lock:
                self._is_written = self._is_bare = self._is_spoiled = False


class KeyContents:
    """The contents that are open. Any thread may use it."""

    def __init__(self, engine: LogManager) -> None:
        self._engine = engine
        self.written = OwnWrites()
        self._open: dict[tuple[MountedPartition, bytes], KeyContent] = {}
        self._removed: set[tuple[MountedPartition, KeyContent]] = set()  # open, without a name
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards the above and the counts of handles

    def writer(self, partition: MountedPartition) -> LogWriter:
        """Returns a partition's writer. Raises UnknownTopic, UnknownPartition, PartitionNotOpened
        or LogDirOffline."""
        return self._engine.writer(partition.topic, partition.number)

    def latest_value(self, partition: MountedPartition, key: bytes) -> bytes | None:
        """Returns the value of a key that is served now; None if there is none or a tombstone."""
        latest = self._engine.latest
        found = latest.find(partition.log, key, partition.isolation, partition.view)
        return None if found is None else found[0].value(found[1])

    def find(self, partition: MountedPartition, key: bytes) -> KeyContent | None:
        return self._open.get((partition, key)) if self._open else None

    def by_number(self, partition: MountedPartition, number: int) -> KeyContent:
        """Returns the content with this number. Raises Stale if it is no longer open."""
        named = [(of, content) for (of, _), content in list(self._open.items())]
        for of, content in (*named, *list(self._removed)):
            if of is partition and content.number == number:
                return content
        raise Stale

    def are_open(self, partition: MountedPartition) -> bool:
        """Returns whether any content of this partition is open."""
        return any(of is partition for of, _ in list(self._open))

    def open(
        self, partition: MountedPartition, key: bytes, *, is_emptied: bool
    ) -> tuple[KeyContent, bool]:
        """Returns the content of a key, which the caller must release, and whether it is new. A new
        one starts with the key's present value, or empty if `is_emptied`."""
        while True:
            with self._lock:
                content = self._open.get((partition, key))
                if content is not None:
                    content.handles += 1
                    return content, False
            content = self._new(partition, key)
            present = None if is_emptied else self.latest_value(partition, key)  # may have to read
            if present is None:
                content.make_bare()
            else:
                content.load(present)
            with self._lock:
                if self._open.setdefault((partition, key), content) is content:
                    content.handles += 1
                    return content, True

    def release(self, partition: MountedPartition, content: KeyContent) -> None:
        with self._lock:
            content.handles -= 1
            if not content.handles:
                self._forget(partition, content)
                self._removed.discard((partition, content))

    def remove(self, partition: MountedPartition, key: bytes) -> None:
        """Appends a tombstone to a key that has a value."""
        content = self.find(partition, key) or self._new(partition, key)
        self.remove_content(partition, content, is_there=True)

    def remove_content(
        self, partition: MountedPartition, content: KeyContent, *, is_there: bool = False
    ) -> None:
        """Removes a key through its content, which may have appended its record since the look-up:
        the kernel does not wait for RELEASE when a file is closed. An open content loses its name.
        """
        content.remove(is_there=is_there)
        with self._lock:
            self._forget(partition, content)
            if content.handles:
                self._removed.add((partition, content))

    def _forget(self, partition: MountedPartition, content: KeyContent) -> None:
        if self._open.get((partition, content.key)) is content:
            del self._open[partition, content.key]

    def _new(self, partition: MountedPartition, key: bytes) -> KeyContent:
        writer = self.writer(partition)

        def append(value: bytes | None) -> None:
            now = self._engine.clock.now_ms()
            appended = writer.append_records(RecordColumns.from_values([value], [key], now))
            size = -1 if value is None else len(value)
            self.written.note(partition, appended, key, size, now)

        return KeyContent(next(self._numbers), key, append, writer.config.max_message_bytes)


class KeyHandle(WriteHandle):
    """An open file of `key/`."""

    write_may_block = False  # it needs only memory

    def __init__(
        self, contents: KeyContents, partition: MountedPartition, key: bytes, flags: int
    ) -> None:
        """`flags` are those of open(2)."""
        self._partition = partition
        self._contents = contents
        self._writer = contents.writer(partition)
        is_emptied = bool(flags & os.O_TRUNC)
        self._content, is_new = contents.open(partition, key, is_emptied=is_emptied)
        if is_emptied:
            self._content.make_bare()
        # An emptied value is appended when the handle that emptied it is closed.
        self._makes_bare = is_emptied or (is_new and self._content.is_bare)
        self._appends = bool(flags & os.O_APPEND)

    def read(self, position: int, size: int) -> Data:
        return self._content.read(position, size)

    def write(self, position: int, data: bytes) -> int:
        self._content.write(None if self._appends else position, data)
        return len(data)

    def truncate(self, size: int) -> None:
        self._content.resize(size)

    @property
    def flushes(self) -> bool:
        return not self._content.is_appended

    @property
    def flush_may_block(self) -> bool:
        content = self._content
        size = content.size + len(content.key)
        return content.append_may_block or not self._writer.takes_at_once(size)

    def flush(self) -> None:
        self._content.append()

    def sync(self) -> None:
        """Appends the value as a record and makes it durable."""
        self._content.append(if_bare=True)
        self._writer.flush()

    @property
    def closes(self) -> bool:
        return self._makes_bare and self._content.is_bare

    def close(self) -> None:
        try:
            if self.closes:
                self._content.append(if_bare=True)
        finally:
            self._contents.release(self._partition, self._content)
