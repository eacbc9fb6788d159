"""`key/`: the latest record of every key, by the key's name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkafs.storage import (
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    Columns,
    CorruptError,
    Damage,
    Int64s,
    OffsetNotFound,
    StorageError,
    did_you_mean,
    printable,
)

from ..catalog import Catalog
from ..node import File
from ..partition import MountedPartition
from ..vfs.errnos import NoSuchName, NotPermitted
from ..vfs.key_names import (
    HISTORY_SUFFIX,
    MIN_CUT_BYTES,
    CutName,
    is_history,
    key_of,
    name_of,
)
from ..vfs.timeouts import NOT_AT_ALL
from .key_history import KeyHistoryName
from .member import Member
from .offsets import OffsetDirectory
from .record import ValueFile

# How many of the last offsets are searched for keys that begin with given text.
_MATCHED: Final = 4096


class KeyDirectory(OffsetDirectory):
    """The files of `offset/` under the names of their keys: `key/K` is `offset/N` for the latest
    record of K. Listed in the order of these offsets.

    A key's name may lead elsewhere at any moment, so the kernel must not cache it.
    """

    member = Member.KEY
    links: Mapping[str, Member] = {}
    entry_timeout = NOT_AT_ALL
    reads_much = True
    #: Whether `K.history.jsonl` can be opened; it is not listed.
    has_histories = True

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        super().__init__(catalog, partition)
        self._latest = catalog.engine.latest

    def kept(self, offsets: Int64s) -> NDArray[np.bool_]:
        """Returns which records, each the latest of its key, are here: bool of shape (n,)."""
        return np.ones(len(offsets), dtype=np.bool_)

    def child(self, name: str) -> File:
        if self.has_histories and is_history(os.fsencode(name)):
            return self._history(name)
        offset = self.offset_of(name)
        return ValueFile(self.partition, offset, self.partition.entry_timeout(self.entry_timeout))

    def offset_of(self, name: str) -> int:
        """Returns the offset of the record that a name leads to. Raises NoSuchName."""
        self.visit()
        key = self._key_of(os.fsencode(name))
        try:
            offset = self._offset_of(key)
        except CorruptError as error:
            self.partition.note_damage(error)
            raise
        if offset < 0 or not self.kept(np.array([offset], dtype=np.int64))[0]:
            raise self._missing(name, key)
        return offset

    def _history(self, name: str) -> KeyHistoryName:
        """Returns the node of a key's history by its name. Raises NoSuchName."""
        key = self._key_of(os.fsencode(name).removesuffix(HISTORY_SUFFIX))
        return KeyHistoryName(self.catalog, self.partition, name, key)

    def _key_of(self, name: bytes) -> bytes:
        """Returns the key that a name stands for. Raises NoSuchName."""
        key = key_of(name)
        return self._whole(key, os.fsdecode(name)) if isinstance(key, CutName) else key

    def _missing(self, name: str, key: bytes) -> NoSuchName:
        """Returns the error if no value of `key` is served; `name` is the key's name."""

        def why() -> str:
            found = self._find(key)
            if found is None:
                return self._no_record(name)
            offset = int(found[0].offsets[found[1]])
            if found[0].spans[found[1], VALUE_SIZE] < 0:
                return f"key {name} was deleted: its latest record, {offset}, has no value"
            return f"compaction leaves no record with key {name}"

        return NoSuchName(name, why)

    def _no_record(self, name: str) -> str:
        """Returns that there is no key of this name, and the nearest keys of the last records."""
        try:
            hint = did_you_mean(name, self.matching(""))
        except (StorageError, OSError):  # it is only a hint
            hint = ""
        return printable(f"{self.partition.name} has no record with key {name}{hint}")

    def remove(self, name: str, pid: int) -> None:
        self.child(name)
        raise NotPermitted(f"{printable(name)} cannot be removed")

    def removed(self, name: str, pid: int) -> None:
        return None

    def child_may_block(self, name: str) -> bool:
        return True

    def _offset_of(self, key: bytes) -> int:
        """Returns the offset of a key's latest value; -1 if there is none or a tombstone."""
        found = self._find(key)
        if found is None:
            return -1
        columns, row = found
        return int(columns.offsets[row]) if columns.spans[row, VALUE_SIZE] >= 0 else -1

    def _find(self, key: bytes) -> tuple[Columns, int] | None:
        partition = self.partition
        return self._latest.find(partition.log, key, partition.isolation, partition.view)

    def _whole(self, cut: CutName, name: str) -> bytes:
        """Returns the key of a cut name: from memory if it was recently listed, else by reading
        all keys."""
        partition = self.partition
        offset = partition.cut_keys.offset_of(cut)
        try:
            if offset >= 0 and cut.is_of(key := self._key_at(offset)):
                return key
        except OffsetNotFound:
            pass

        def last_row(columns: Columns) -> int:
            rows = np.flatnonzero(columns.spans[:, KEY_SIZE] >= MIN_CUT_BYTES)[::-1].tolist()
            return next((row for row in rows if cut.is_of(columns.key(row) or b"")), -1)

        found = self._latest.find_key(partition.log, last_row, partition.isolation, partition.view)
        if found is None:
            raise NoSuchName(name, lambda: self._no_record(name))
        return found

    def _key_at(self, offset: int) -> bytes:
        columns, row = self.partition.view().locate(offset, self.partition.isolation)
        return columns.key(row) or b""

    # -- listing --------------------------------------------------------------------------------

    def scan(self, offset: int) -> Iterator[Columns | Damage]:
        partition = self.partition
        live = self._latest.live(partition.log, partition.isolation, partition.view)
        for part in super().scan(offset):
            if isinstance(part, Columns):
                part = part.where(live.mask(part.offsets))
                part = part.where(self.kept(part.offsets))
                if not len(part):
                    continue
            yield part

    def matching(self, start: str) -> Iterator[str]:
        """Yields only keys of the last records: all keys would take a read of the whole log."""
        partition = self.partition
        view = partition.view()
        low = max(partition.bound(view) - _MATCHED, view.start_offset)
        for part in view.scan(low, isolation=partition.isolation):
            if isinstance(part, Damage):
                continue
            part = part.where((part.spans[:, KEY_SIZE] >= 0) & (part.spans[:, VALUE_SIZE] >= 0))
            names = map(os.fsdecode, self.names(part, 0, len(part)))
            yield from (name for name in names if name.startswith(start))

    def names(self, columns: Columns, low: int, high: int) -> list[bytes]:
        data, spans = columns.data, columns.spans[low:high, KEY_START : KEY_SIZE + 1]
        names = [name_of(bytes(data[start : start + size])) for start, size in spans.tolist()]
        for at in np.flatnonzero(spans[:, 1] >= MIN_CUT_BYTES).tolist():
            self.partition.cut_keys.note(names[at], int(columns.offsets[low + at]))
        return names
