"""Values of keys while files of `key/` are open for writing, as they become records.

A file of a record cannot change. What is written to `key/K` is collected here, in memory, and when
a descriptor is closed it is appended as the key's next record. All files of a key that are open at
once share one content, as those of a file elsewhere do.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkafs.storage.format.encoder import RecordColumns

from ..errnos import NoSuchName, Stale, TooLarge
from ..handles import Data
from ..write_handle import WriteHandle
from .own_writes import OwnWrites

if TYPE_CHECKING:
    from kafkafs.storage.log.writer import LogWriter

    from ..partition import Partition
    from .changes import Changes

_Append = Callable[[bytes | None], object]

# A value of so many bytes is appended by the event loop itself, if nobody has to be waited for.
_NEAR_BYTES: Final = 1 << 14


class KeyContent:
    """The value that a key is being given. Any thread may use it.

    `number` is its own as long as the mount lasts.
    """

    def __init__(self, number: int, key: bytes, append: _Append, limit: int) -> None:
        """`append` appends a value, None for a tombstone; `limit`: the most bytes of one."""
        self.number = number
        self.key = key
        self.handles = 0  # changed by `KeyContents` alone
        self._append = append
        self._limit = limit
        self._appending = threading.Lock()  # held through an append, so that they keep their order
        self._lock = threading.Lock()  # guards what follows; nobody waits for anything with it
        self._data = bytearray()
        self._is_written = False  # since the last record
        self._is_bare = False  # emptied or made, and not yet written
        self._is_spoiled = False  # a write found no room, so that it is no whole value

    @property
    def size(self) -> int:
        return len(self._data)

    def load(self, value: bytes) -> None:
        """Begins with what the key has now."""
        self._data[:] = value

    def read(self, position: int, size: int) -> bytes:
        with self._lock:
            return bytes(self._data[position : position + size])

    def write(self, position: int | None, data: bytes) -> None:
        """`position` None: at the end. TooLarge, now and until it is emptied."""
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
        """A value that was to be larger than any can be is none, also without what was too much."""
        if size > self._limit:
            self._is_spoiled = True
            self._is_written = self._is_bare = False
        self._refuse_spoiled()

    def _refuse_spoiled(self) -> None:
        if self._is_spoiled:
            raise TooLarge(f"a value of more than {self._limit} bytes, which no record can have")

    def make_bare(self) -> None:
        """It was made, or emptied as it was opened. That makes a record only if nothing is written
        before it is closed: shells close a descriptor of a file before they write to it."""
        with self._lock:
            self._data.clear()
            self._is_written, self._is_bare, self._is_spoiled = False, True, False

    @property
    def is_settled(self) -> bool:
        """Whether nothing was written since the last record."""
        return not (self._is_written or self._is_spoiled)

    @property
    def is_bare(self) -> bool:
        return self._is_bare

    @property
    def is_near(self) -> bool:
        """Whether it is small, and nobody appends it right now."""
        return len(self._data) <= _NEAR_BYTES and not self._appending.locked()

    def append(self, *, if_bare: bool = False) -> None:
        """Appends a record if it was changed since the last one."""
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

    def remove(self, *, is_there: bool) -> None:
        """Appends a tombstone if the key has a value; what was not appended yet is forgotten."""
        with self._appending:
            if is_there:
                self._append(None)
            with self._lock:
                self._is_written = self._is_bare = self._is_spoiled = False


class KeyContents:
    """Those that are open. Any thread may use it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.written = OwnWrites()
        self._open: dict[tuple[Partition, bytes], KeyContent] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards _open, and how often each is open

    def find(self, partition: Partition, key: bytes) -> KeyContent | None:
        return self._open.get((partition, key)) if self._open else None

    def by_number(self, partition: Partition, number: int) -> KeyContent:
        """Stale when it is no longer open."""
        for (of, _), content in list(self._open.items()):
            if of is partition and content.number == number:
                return content
        raise Stale

    def are_open(self, partition: Partition) -> bool:
        """Whether any is, of this partition."""
        return any(of is partition for of, _ in list(self._open))

    def open(
        self, partition: Partition, writer: LogWriter, key: bytes, value: Callable[[], bytes | None]
    ) -> tuple[KeyContent, bool]:
        """The content of a key, to be released, and whether it is new. `value` gives what that
        begins with; None if the key has none, or it does not matter."""
        while True:
            with self._lock:
                content = self._open.get((partition, key))
                if content is not None:
                    content.handles += 1
                    return content, False
            content = self._new(partition, writer, key)
            present = value()  # may have to read
            if present is None:
                content.make_bare()
            else:
                content.load(present)
            with self._lock:
                if self._open.setdefault((partition, key), content) is content:
                    content.handles += 1
                    return content, True

    def release(self, partition: Partition, content: KeyContent) -> None:
        with self._lock:
            content.handles -= 1
            if not content.handles:
                self._open.pop((partition, content.key), None)

    def remove(
        self, partition: Partition, writer: LogWriter, key: bytes, *, is_there: bool
    ) -> None:
        """Appends a tombstone. NoSuchName when there is nothing to be removed."""
        content = self.find(partition, key)
        if content is None:
            if not is_there:
                name = os.fsdecode(key)
                raise NoSuchName(name, lambda: f"{partition.name} has no record with key {name}")
            content = self._new(partition, writer, key)
        content.remove(is_there=is_there)

    def _new(self, partition: Partition, writer: LogWriter, key: bytes) -> KeyContent:
        def append(value: bytes | None) -> None:
            now = self._now_ms()
            appended = writer.append_records(RecordColumns.from_values([value], [key], now))
            size = -1 if value is None else len(value)
            self.written.note(partition, appended, key, size, now)

        return KeyContent(next(self._numbers), key, append, writer.config.max_message_bytes)


class KeyHandle(WriteHandle):
    """An open file of `key/`."""

    writes_near = True  # into memory

    def __init__(self, changes: Changes, partition: Partition, key: bytes, flags: int) -> None:
        """With open(2)'s `flags`."""
        self._partition = partition
        self._contents = changes.keys
        self._writer = changes.writer(partition)

        def value() -> bytes | None:
            return None if flags & os.O_TRUNC else latest_value(changes, partition, key)

        self._content, is_new = self._contents.open(partition, self._writer, key, value)
        if flags & os.O_TRUNC:
            self._content.make_bare()
        # A value that is only emptied counts when the file is closed that emptied it.
        self._makes_bare = bool(flags & os.O_TRUNC) or (is_new and self._content.is_bare)
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
        return not self._content.is_settled

    @property
    def flushes_near(self) -> bool:
        content = self._content
        return content.is_near and self._writer.takes_at_once(content.size + len(content.key))

    def flush(self) -> None:
        self._content.append()

    def sync(self) -> None:
        """Makes the value a record, and that durable."""
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


def latest_value(changes: Changes, partition: Partition, key: bytes) -> bytes | None:
    """The value that is served of a key now; None where there is none, or a tombstone."""
    latest = changes.engine.latest
    found = latest.find(partition.log, key, partition.isolation, partition.view)
    return None if found is None else found[0].value(found[1])
