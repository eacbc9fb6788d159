"""Pending appends to a log, and groups of them that are written together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import fresh
from ...format.messages.control import EndTxnMarker, parse_end_txn_marker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.validate import AppendOrigin, ValidationResult
from ...io.durable import Buffer
from ..state.producers import ProducerAppendInfo, ReadMarker
from .local_log import LocalLog
from .roll import GroupRollParams, RollParams, SegmentFill


@dataclass(frozen=True, slots=True)
class LogAppendInfo:
    """The position of appended records. `append_time`: their timestamp in ms with LogAppendTime,
    else -1. `is_duplicate`: they were already in the log, and nothing was written."""

    first_offset: int
    last_offset: int
    append_time: int = -1
    is_duplicate: bool = False


class AppendRequest:
    """An append and its result. `admitted` may be set late: see `RecordsRequest`."""

    __slots__ = ("admitted", "appended", "error", "origin")

    admitted: ValidationResult

    def __init__(self, admitted: ValidationResult, origin: AppendOrigin) -> None:
        self.admitted = admitted
        self.origin = origin
        self.appended: LogAppendInfo | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.appended is not None or self.error is not None

    def answer(self, appended: LogAppendInfo) -> None:
        self.appended = appended

    def fail(self, error: BaseException) -> None:
        """Stores a copy of `error`: raising an exception changes it, so it cannot be shared."""
        self.error = fresh(error)

    def result(self) -> LogAppendInfo:
        if self.error is not None:
            raise fresh(self.error)
        assert self.appended is not None
        return self.appended


class Group:
    """Appends that are written together at the end of the active segment.

    Each was validated as if those before it were already in the log.
    """

    def __init__(
        self, fill: SegmentFill, update: ProducerAppendInfo, offset: int, position: int
    ) -> None:
        """`offset` and `position`: the log's end offset and the size of the segment's file."""
        self.fill = fill
        self.update = update
        self.next_offset = offset
        self.buffers: list[Buffer] = []
        self._position = position
        self._tables: list[BatchTable] = []
        self._answers: list[tuple[AppendRequest, LogAppendInfo]] = []

    def put(self, request: AppendRequest) -> None:
        """Adds batches that fit into the segment and are already in the producer update."""
        admitted = request.admitted
        self.buffers.append(admitted.data)
        self._tables.append(move(admitted.table, self._position))
        self._position += len(admitted.data)
        first, last = admitted.first_offset, admitted.last_offset
        self.next_offset = last + 1
        self._answers.append((request, LogAppendInfo(first, last, admitted.append_time)))

    def put_duplicate(self, request: AppendRequest, appended: LogAppendInfo) -> None:
        """Adds a duplicate append. It is answered once the original is written for certain."""
        self._answers.append((request, appended))

    def write(self, local: LocalLog) -> None:
        """Writes the whole group, or raises and changes nothing."""
        if self.buffers:
            tables = [table.rows for table in self._tables]
            table = self._tables[0] if len(tables) == 1 else BatchTable(np.concatenate(tables))
            first, aborted = self.fill.first_timestamp, self.update.aborted
            local.append(self.buffers, table, first, aborted, self.next_offset)
            self.update.commit()

    def answer(self) -> None:
        """Reports success to every request."""
        for request, appended in self._answers:
            request.answer(appended)

    def fail(self, error: BaseException) -> None:
        """Reports `error` to every request."""
        for request, _ in self._answers:
            request.fail(error)


def move(table: BatchTable, position: int) -> BatchTable:
    """Moves the batches of `table`, in place, to byte `position` of a file; returns the table."""
    table.rows[:, b.POSITION] += position - int(table.rows[0, b.POSITION])
    return table


def weights(table: BatchTable, origin: AppendOrigin) -> list[RollParams]:
    """Returns the units that must each fit into one segment: every batch from a producer or
    coordinator, or all batches together if they are replicated."""
    if origin is AppendOrigin.REPLICATION:
        return [load_of(table, origin).whole]
    columns = (b.SIZE, b.LAST_OFFSET, b.MAX_TIMESTAMP)
    return [RollParams(*fields) for fields in table.rows[:, columns].tolist()]


def load_of(table: BatchTable, origin: AppendOrigin) -> GroupRollParams:
    """Returns the total of all batches in `table`."""
    rows = table.rows
    last_offset = int(rows[-1, b.LAST_OFFSET])
    first_timestamp = int(rows[0, b.MAX_TIMESTAMP])
    if len(rows) == 1:
        size = int(rows[0, b.SIZE])
        return GroupRollParams(
            RollParams(size, last_offset, first_timestamp), 1, size, first_timestamp
        )
    sizes = rows[:, b.SIZE]
    whole = RollParams(int(sizes.sum()), last_offset, int(rows[:, b.MAX_TIMESTAMP].max()))
    if origin is AppendOrigin.REPLICATION:
        return GroupRollParams(whole, 1, whole.size, whole.max_timestamp)
    return GroupRollParams(whole, len(rows), int(sizes.max()), first_timestamp)


def marker_reader(admitted: ValidationResult) -> ReadMarker:
    """Returns a reader of the transaction markers in batches that are not yet written."""

    def read(header: BatchHeader) -> EndTxnMarker | None:
        return parse_end_txn_marker(admitted.data[header.position :])

    return read
