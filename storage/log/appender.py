"""Appends, as a log takes them: UnifiedLog.append.

Those that go into the active segment together are written together. One that does not, or not all
of it, is written by itself, in pieces with rolls between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LogDirOffline, RecordListTooLarge, StorageError
from ..format import batch as b
from ..format.batch import BatchHeader
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from ..format.origin import Origin
from ..format.validate import Admitted
from .appending import Appended, Group, Request, load_of, marker_reader, move, weights
from .health import Health
from .producers import Duplicate
from .roll import Filling, Load, Weight
from .unified_log import UnifiedLog


class Appender:
    """Of one partition. One thread at a time."""

    def __init__(self, log: UnifiedLog, health: Health) -> None:
        self._log = log
        self._local = log.local
        self._health = health

    def append(self, requests: Sequence[Request], *, up_to_failure: bool = False) -> None:
        """Appends what they ask for, in their order, or only what is in front of the first that
        fails. Whatever happens, that one and those in front of it are answered."""
        try:
            self._health.check()
            group = self._group()
            for request in requests:
                group = self._take(group, request)
                if up_to_failure and request.error is not None:
                    break
            self._write(group)
        except (StorageError, OSError) as error:
            _fail_rest(requests, error)
        except BaseException as error:
            self._health.note_interruption(error)
            _fail_rest(requests, self._health.failed or error)
            raise

    def has_room(self, size: int, *, is_recent: bool) -> bool:
        """Whether batches of at most `size` bytes together go into the active segment, their
        greatest timestamp being the present time or, unless they are `is_recent`, that of what is
        in it. May be asked while somebody appends, and then tell nothing."""
        local, filling = self._local, self._filling()
        time = local.clock.now_ms() if is_recent else local.active.largest_timestamp
        return filling.take_all(Load(Weight(size, self._log.end_offset, time), 1, size, time))

    # -- together --------------------------------------------------------------------------------

    def _group(self) -> Group:
        local = self._local
        update = self._log.producers.begin_update()
        return Group(self._filling(), update, local.end_offset, local.active.size)

    def _filling(self) -> Filling:
        local = self._local
        return Filling(local.active, local.config, local.clock.now_ms())

    def _take(self, group: Group, request: Request) -> Group:
        """Judges an append, and puts it into the group that is to be written or, where the segment
        ends before it or in it, writes both; the group to go on with."""
        try:
            self._health.check()
            admitted = request.admitted
            admitted.place(group.next_offset, self._log.leader_epoch)
            self._note_epochs(admitted)
            load = load_of(admitted.table, request.origin)
            self._check_size(load.largest)
            if group.filling.take_all(load):
                return self._take_in(group, request)
        except (StorageError, OSError) as error:
            request.fail(error)
            return group
        failure = self._write(group)
        if failure is None:
            self._append_rolling(request)
        else:
            request.fail(failure)
        return self._group()

    def _check_size(self, size: int) -> None:
        most = self._local.config.segment_size
        if size > most:
            raise RecordListTooLarge(f"an append of {size} bytes: more than segment.bytes, {most}")

    def _take_in(self, group: Group, request: Request) -> Group:
        admitted = request.admitted
        try:
            duplicate = group.update.add(admitted.table, request.origin, marker_reader(admitted))
        except StorageError as error:
            request.fail(error)
        else:
            if duplicate is None:
                group.put(request)
                return group
            group.put_duplicate(request, _duplicate(duplicate, admitted))
        # What was taken for it is still free: a new group knows.
        self._write(group)
        return self._group()

    def _write(self, group: Group) -> Exception | None:
        """Writes a group, or tells those who wait for it why not."""
        try:
            group.write(self._local)
        except (LogDirOffline, OSError) as error:
            failure = self._health.note(error)
            group.fail(failure)
            return failure
        group.answer()
        return None

    # -- in pieces -------------------------------------------------------------------------------

    def _append_rolling(self, request: Request) -> None:
        """An append that does not go into the active segment, or not all of it."""
        end = self._log.end_offset
        try:
            request.answer(self._append_in_pieces(request.admitted, request.origin))
        except (StorageError, OSError) as error:
            request.fail(self._health.note(error))
            if self._log.end_offset > end and self._health.failed is None:
                self._take_back(end)

    def _take_back(self, end: int) -> None:
        """Cuts off the pieces of an append that failed, and that began at offset `end`."""
        try:
            self._log.truncate_to(end)
        except LogDirOffline as error:
            self._health.note(error)  # `failed` tells

    def _append_in_pieces(self, admitted: Admitted, origin: Origin) -> Appended:
        """Writes batches, each into the segment that it belongs into. Kafka rolls before it looks
        for duplicates, so that one may roll the log and write nothing."""
        appends, table = weights(admitted.table, origin), admitted.table
        first = 0
        while first < len(appends):
            filling = self._filling()
            count = filling.take(appends[first:])
            if count == 0:
                self._log.roll(_first_offset(table[first]))
                filling = self._filling()
                filling.put(appends[first])
                count = 1 + filling.take(appends[first + 1 :])
            if first == 0:
                update = self._log.producers.begin_update()
                duplicate = update.add(table, origin, marker_reader(admitted))
                if duplicate is not None:
                    return _duplicate(duplicate, admitted)
            end = first + count
            piece = slice(first, end if end < len(appends) else None)
            self._write_piece(admitted, origin, piece, filling.first_timestamp)
            first = end
        return Appended(admitted.first_offset, admitted.last_offset, admitted.append_time)

    def _write_piece(
        self, admitted: Admitted, origin: Origin, chosen: slice, first_timestamp: int
    ) -> None:
        table = admitted.table.select(chosen)
        update = self._log.producers.begin_update()
        update.add(table, origin, marker_reader(admitted))
        start = int(table.rows[0, b.POSITION])
        end = int(table.rows[-1, b.POSITION] + table.rows[-1, b.SIZE])
        data = admitted.data[start:end]
        local = self._local
        move(table, local.active.size)
        local.append([data], table, first_timestamp, update.aborted, update.end_offset)
        update.commit()

    # -- epochs ----------------------------------------------------------------------------------

    def _note_epochs(self, admitted: Admitted) -> None:
        """In which epoch batches were written. Those before magic 2 do not say it, and show that
        epochs cannot be relied on."""
        epochs, leader_epoch = self._log.epochs, self._log.leader_epoch
        if not admitted.keeps_offsets:
            if leader_epoch != epochs.latest:
                epochs.assign(leader_epoch, admitted.first_offset)
            return
        for header in admitted.table:
            if header.magic < 2:
                epochs.clear()
            elif header.leader_epoch >= 0:
                epochs.assign(header.leader_epoch, header.base_offset)


def _fail_rest(requests: Sequence[Request], error: BaseException) -> None:
    for request in requests:
        if not request.is_done:
            request.fail(error)


def _duplicate(found: Duplicate, admitted: Admitted) -> Appended:
    append_time = NO_TIMESTAMP if admitted.append_time == NO_TIMESTAMP else found.timestamp
    return Appended(found.first_offset, found.last_offset, append_time, is_duplicate=True)


def _first_offset(header: BatchHeader) -> int:
    """The offset that an append begins with, or one that is not above it: of messages before magic
    2 it is not known without opening them (UnifiedLog.maybeRoll)."""
    return header.base_offset if header.magic > 1 else header.last_offset - MAX_INT32
