"""Appends on their way into a log: each by itself, and some of them that are written together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..durable import Buffer
from ..errors import fresh
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable
from ..format.control import EndTxnMarker, parse_end_txn_marker
from ..format.origin import Origin
from ..format.validate import Admitted
from .local_log import LocalLog
from .producers import ProducerUpdate, ReadMarker
from .roll import Filling, Load, Weight


@dataclass(frozen=True, slots=True)
class Appended:
    """Where records are in the log. `append_time`: their timestamp in ms with LogAppendTime, else
    -1. `is_duplicate`: they were there already, and nothing was written."""

    first_offset: int
    last_offset: int
    append_time: int = -1
    is_duplicate: bool = False


class Request:
    """An append, and what became of it. `admitted` may come late: see `RecordsRequest`."""

    __slots__ = ("admitted", "appended", "error", "origin")

    admitted: Admitted

    def __init__(self, admitted: Admitted, origin: Origin) -> None:
        self.admitted = admitted
        self.origin = origin
        self.appended: Appended | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.appended is not None or self.error is not None

    def answer(self, appended: Appended) -> None:
        self.appended = appended

    def fail(self, error: BaseException) -> None:
        """Each thread raises an error of its own: raising one changes it."""
        self.error = fresh(error)

    def result(self) -> Appended:
        if self.error is not None:
            raise fresh(self.error)
        assert self.appended is not None
        return self.appended


class Group:
    """Appends that are written together at the end of the active segment.

    What is in it has been judged as if those before it were in the log.
    """

    def __init__(
        self, filling: Filling, update: ProducerUpdate, offset: int, position: int
    ) -> None:
        """At `offset` and, in the segment's file, byte `position` the log goes on."""
        self.filling = filling
        self.update = update
        self.next_offset = offset
        self.buffers: list[Buffer] = []
        self._position = position
        self._tables: list[BatchTable] = []
        self._answers: list[tuple[Request, Appended]] = []

    def put(self, request: Request) -> None:
        """Batches that go into the segment, and that the producers' update has taken in."""
        admitted = request.admitted
        self.buffers.append(admitted.data)
        self._tables.append(move(admitted.table, self._position))
        self._position += len(admitted.data)
        first, last = admitted.first_offset, admitted.last_offset
        self.next_offset = last + 1
        self._answers.append((request, Appended(first, last, admitted.append_time)))

    def put_duplicate(self, request: Request, appended: Appended) -> None:
        """An append that was made before; it is answered once that is written for certain."""
        self._answers.append((request, appended))

    def write(self, local: LocalLog) -> None:
        """Writes all of it, or raises and leaves all as it was."""
        if self.buffers:
            tables = [table.rows for table in self._tables]
            table = self._tables[0] if len(tables) == 1 else BatchTable(np.concatenate(tables))
            first, aborted = self.filling.first_timestamp, self.update.aborted
            local.append(self.buffers, table, first, aborted, self.next_offset)
            self.update.commit()

    def answer(self) -> None:
        """It is written."""
        for request, appended in self._answers:
            request.answer(appended)

    def fail(self, error: BaseException) -> None:
        """It is not."""
        for request, _ in self._answers:
            request.fail(error)


def move(table: BatchTable, position: int) -> BatchTable:
    """The table itself, its batches being from byte `position` of a file on."""
    table.rows[:, b.POSITION] += position - int(table.rows[0, b.POSITION])
    return table


def weights(table: BatchTable, origin: Origin) -> list[Weight]:
    """What must fit into one segment together: each batch by itself, as producers and coordinators
    send them, or all that come from another log."""
    if origin is Origin.REPLICATION:
        return [load_of(table, origin).whole]
    columns = (b.SIZE, b.LAST_OFFSET, b.MAX_TIMESTAMP)
    return [Weight(*fields) for fields in table.rows[:, columns].tolist()]


def load_of(table: BatchTable, origin: Origin) -> Load:
    """All of them together."""
    rows = table.rows
    last_offset = int(rows[-1, b.LAST_OFFSET])
    first_timestamp = int(rows[0, b.MAX_TIMESTAMP])
    if len(rows) == 1:
        size = int(rows[0, b.SIZE])
        return Load(Weight(size, last_offset, first_timestamp), 1, size, first_timestamp)
    sizes = rows[:, b.SIZE]
    whole = Weight(int(sizes.sum()), last_offset, int(rows[:, b.MAX_TIMESTAMP].max()))
    if origin is Origin.REPLICATION:
        return Load(whole, 1, whole.size, whole.max_timestamp)
    return Load(whole, len(rows), int(sizes.max()), first_timestamp)


def marker_reader(admitted: Admitted) -> ReadMarker:
    """Reads the markers that are in batches on their way."""

    def read(header: BatchHeader) -> EndTxnMarker | None:
        return parse_end_txn_marker(admitted.data[header.position :])

    return read
