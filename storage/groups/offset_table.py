"""The committed offsets of one partition of `__consumer_offsets`, one for each group, topic and
partition (Kafka's OffsetMetadataManager), as columns: there may be millions of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
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
    record has none. `record`: offset of the record in `__consumer_offsets`. `is_pending`: whether a
    transaction that is still open commits another offset.
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
    is_pending: bool = False


class OffsetTable:
    """The offsets committed by the records that were replayed."""

    def __init__(self) -> None:
        import secrets  # imports hashlib, which most verbs do without

        # The key of the hash is random, so that no choice of names makes all keys collide.
        key = secrets.randbits(63), secrets.randbits(63)
        self._state: Int64s = np.array([0, 0, *key], dtype=np.int64)
        self._table: Int64s = np.empty((_FIRST_ROWS, kernel.COLUMNS), dtype=np.int64)
        self._slots: Int64s = np.zeros(2 * _FIRST_ROWS, dtype=np.int64)
        self._arena: NDArray[np.uint8] = np.empty(_FIRST_BYTES, dtype=np.uint8)
        self._value: Int64s = np.empty(kernel.COLUMNS, dtype=np.int64)

    def replay(self, columns: Columns, outcomes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Replays records. `outcomes`, of shape (n,), are those of their transactions: ABORTED,
        COMMITTED or OPEN of the kernel. Returns for each row 0, or OTHER or MALFORMED of the kernel
        if it is no readable commit, of shape (n,)."""
        left = np.zeros(len(columns), dtype=np.uint8)
        self._reserve(columns)
        kernel.replay(
            columns.data, np.ascontiguousarray(columns.spans),
            np.ascontiguousarray(columns.offsets), outcomes,
            self._slots, self._table, self._arena, self._state, self._value, left,
        )  # fmt: skip
        return left

    @property
    def size(self) -> int:
        """The number of bytes of names and metadata."""
        return int(self._state[1])

    def finish(self) -> OffsetsByGroup:
        """Returns what is committed now. The table must not be used any more."""
        return OffsetsByGroup(self._table[: self._state[0]], self._arena)

    def _reserve(self, columns: Columns) -> None:
        """Makes space for a key, a group and all bytes of each row."""
        rows, size, *_ = self._state.tolist()
        needed = rows + 2 * len(columns)
        if needed > len(self._table):
            self._table = _grown(self._table, rows, needed)
            self._slots = _slots(self._table, rows)
        needed = size + int(np.maximum(columns.spans[:, (1, 3)], 0).sum(dtype=np.int64))
        if needed > len(self._arena):
            self._arena = _grown(self._arena, size, needed)


class OffsetsByGroup:
    """Committed offsets by group."""

    def __init__(self, table: Int64s, arena: NDArray[np.uint8]) -> None:
        """`table`, `arena`: those of the kernel."""
        self._table = table
        self._arena = arena.data

    def __len__(self) -> int:
        """Returns the number of committed offsets."""
        return len(self._committed)

    @cached_property
    def last_records(self) -> dict[str, int]:
        """The groups that have an offset, or one in a transaction that is open, each with the
        offset of the last record of one."""
        table = self._table
        last = table[:, kernel.RECORD : kernel.OPEN_RECORD + 1].max(axis=1)
        keys = np.flatnonzero((table[:, kernel.GROUP] >= 0) & (last >= 0))
        last_of_group = np.full(len(table), -1, dtype=np.int64)
        np.maximum.at(last_of_group, table[keys, kernel.GROUP], last[keys])
        groups = np.flatnonzero(last_of_group >= 0)
        return dict(zip(self._names(groups), last_of_group[groups].tolist(), strict=True))

    def _names(self, groups: NDArray[np.intp]) -> list[str]:
        """Returns the names of the groups in these rows."""
        rows = self._table[groups, :2].tolist()
        return [self._text(start + _LENGTH_BYTES, size - _LENGTH_BYTES) for start, size in rows]

    @cached_property
    def _committed(self) -> NDArray[np.intp]:
        """The rows with an offset, in the order of their groups."""
        is_key = self._table[:, kernel.GROUP] >= 0
        there = np.flatnonzero(is_key & (self._table[:, kernel.RECORD] >= 0))
        groups: Int64s = self._table[there, kernel.GROUP]
        return there[groups.argsort(kind="stable")]

    @cached_property
    def _bounds(self) -> dict[str, tuple[int, int]]:
        """The groups that have an offset, each with the bounds of its rows among `_committed`."""
        groups, starts = np.unique(self._table[self._committed, kernel.GROUP], return_index=True)
        bounds = pairwise([*starts.tolist(), len(self._committed)])
        return dict(zip(self._names(groups), bounds, strict=True))

    def of(self, group: str) -> list[CommittedOffset]:
        """Returns a group's offsets by topic and partition."""
        start, end = self._bounds.get(group, (0, 0))
        own = self._table[self._committed[start:end]]
        found = [self._offset(row) for row in own.tolist()]
        return sorted(found, key=lambda each: (each.topic, each.partition))

    def __iter__(self) -> Iterator[tuple[str, CommittedOffset]]:
        """Yields all groups and offsets, group by group."""
        for group in self._bounds:
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
            is_pending=row[kernel.OPEN_RECORD] >= 0,
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
