"""The committed offsets of one partition of `__consumer_offsets`, one for each group, topic and
partition (Kafka's OffsetMetadataManager), as columns: there may be millions of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..format.kernels import offset_commits as kernel
from ..format.primitives import uuid_text
from ..format.records.batch import Int64s
from ..format.records.columns import Columns

_FIRST_ROWS: Final = 1024
_FIRST_BYTES: Final = 1 << 16
_NO_TOPIC_ID: Final = bytes(16)
# The lengths of a group's and of a topic's name, and a partition.
_LENGTH_BYTES: Final = 2
_PARTITION_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group committed for a partition.

    `leader_epoch`: that of the record before `offset`, -1 if it was not given. Timestamps are ms
    since 1970; `expire_timestamp` is -1 unless an old client requested one. `topic_id`: "" if the
    record has none. `record`: offset of the record in `__consumer_offsets`.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: str
    record: int


class OffsetTable:
    """The offsets committed by the records that were replayed."""

    def __init__(self) -> None:
        import secrets  # imports hashlib, which most verbs do without

        # Random, so that no choice of names makes all keys collide.
        self._hash_key = secrets.randbits(64), secrets.randbits(64)
        self._table: Int64s = np.empty((_FIRST_ROWS, kernel.COLUMNS), dtype=np.int64)
        self._groups: Int64s = np.empty((_FIRST_ROWS, kernel.GROUP_COLUMNS), dtype=np.int64)
        self._slots: Int64s = np.zeros(2 * _FIRST_ROWS, dtype=np.int64)
        self._group_slots: Int64s = np.zeros(2 * _FIRST_ROWS, dtype=np.int64)
        self._arena: NDArray[np.uint8] = np.empty(_FIRST_BYTES, dtype=np.uint8)
        # Rows of the table, bytes of the arena, and rows of the groups in use.
        self._used: Int64s = np.zeros(3, dtype=np.int64)
        self._value: Int64s = np.empty(kernel.COLUMNS, dtype=np.int64)

    def replay(self, columns: Columns, counts: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Replays records. `counts`, bool of shape (n,), is False for those whose transaction is
        open or was aborted. Returns for each row 0, or OTHER or MALFORMED of the kernel if it is no
        readable commit, of shape (n,)."""
        left = np.zeros(len(columns), dtype=np.uint8)
        self._reserve(columns)
        kernel.replay(
            columns.data, np.ascontiguousarray(columns.spans),
            np.ascontiguousarray(columns.offsets), counts.view(np.uint8), *self._hash_key,
            self._slots, self._table, self._arena, self._group_slots, self._groups, self._used,
            self._value, left,
        )  # fmt: skip
        return left

    def finish(self) -> OffsetsByGroup:
        """Returns what is committed now. The table must not be used any more."""
        rows, _, groups = self._used.tolist()
        return OffsetsByGroup(self._table[:rows], self._groups[:groups], self._arena)

    def _reserve(self, columns: Columns) -> None:
        """Makes space for a key, a group and all bytes of each row."""
        rows, size, groups = self._used.tolist()
        count = len(columns)
        if rows + count > len(self._table):
            self._table = _grown(self._table, rows, rows + count)
            self._slots = _slots(self._table, rows)
        if groups + count > len(self._groups):
            self._groups = _grown(self._groups, groups, groups + count)
            self._group_slots = _slots(self._groups, groups)
        needed = size + int(np.maximum(columns.spans[:, (1, 3)], 0).sum(dtype=np.int64))
        if needed > len(self._arena):
            self._arena = _grown(self._arena, size, needed)


class OffsetsByGroup:
    """Committed offsets by group."""

    def __init__(self, table: Int64s, groups: Int64s, arena: NDArray[np.uint8]) -> None:
        """`table`, `groups`, `arena`: those of the kernel."""
        self._table = table
        self._groups = groups
        self._arena = arena.data

    def __len__(self) -> int:
        """Returns the number of committed offsets."""
        return int((self._table[:, kernel.RECORD] >= 0).sum())

    @cached_property
    def last_records(self) -> dict[str, int]:
        """The groups that ever committed, each with the offset of the last record that did, even if
        its transaction is open or was aborted."""
        columns = (0, 1, kernel.LAST_RECORD)
        rows = self._groups[:, columns].tolist()
        return {self._text(start, size): last for start, size, last in rows}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.last_records)}

    @cached_property
    def _by_group(self) -> tuple[Int64s, Int64s]:
        """The rows with an offset, in the order of their groups, and where each group begins."""
        there = np.flatnonzero(self._table[:, kernel.RECORD] >= 0)
        groups = self._table[there, kernel.GROUP]
        order = groups.argsort(kind="stable")
        bounds = groups[order].searchsorted(np.arange(len(self._groups) + 1))
        return there[order], bounds

    def of(self, group: str) -> list[CommittedOffset]:
        """Returns a group's offsets by topic and partition."""
        number = self._numbers.get(group, -1)
        if number < 0:
            return []
        rows, bounds = self._by_group
        own = self._table[rows[bounds[number] : bounds[number + 1]]]
        found = [self._offset(row) for row in own.tolist()]
        return sorted(found, key=lambda each: (each.topic, each.partition))

    def __iter__(self) -> Iterator[tuple[str, CommittedOffset]]:
        """Yields all groups and offsets, group by group."""
        for group in self.last_records:
            for offset in self.of(group):
                yield group, offset

    def _offset(self, row: list[int]) -> CommittedOffset:
        at, size = row[0], row[1]
        topic = at + 2 * _LENGTH_BYTES + int.from_bytes(self._arena[at : at + _LENGTH_BYTES], "big")
        end = at + size - _PARTITION_BYTES
        topic_id = b"".join(
            row[column].to_bytes(8, "big", signed=True)
            for column in (kernel.TOPIC_ID_HIGH, kernel.TOPIC_ID_LOW)
        )
        return CommittedOffset(
            topic=self._text(topic, end - topic),
            partition=int.from_bytes(self._arena[end : at + size], "big", signed=True),
            offset=row[kernel.OFFSET],
            leader_epoch=row[kernel.LEADER_EPOCH],
            metadata=self._text(row[kernel.METADATA_START], row[kernel.METADATA_SIZE]),
            commit_timestamp=row[kernel.COMMIT_TIMESTAMP],
            expire_timestamp=row[kernel.EXPIRE_TIMESTAMP],
            topic_id="" if topic_id == _NO_TOPIC_ID else uuid_text(topic_id),
            record=row[kernel.RECORD],
        )

    def _text(self, start: int, size: int) -> str:
        """Returns text that the kernel checked to be UTF-8."""
        return str(self._arena[start : start + size], "utf-8")


def _grown(array: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    """Returns an array of at least `needed` rows, with the first `used` of this one."""
    grown = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    grown[:used] = array[:used]
    return grown


def _slots(table: Int64s, rows: int) -> Int64s:
    """Returns a hash table for as many rows as there is space for in `table`, of which `rows` are
    used."""
    slots: Int64s = np.zeros(1 << (2 * len(table)).bit_length(), dtype=np.int64)
    kernel.fill_slots(slots, table, rows)
    return slots
