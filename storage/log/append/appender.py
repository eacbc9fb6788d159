"""Appends batches to a log, like Kafka's UnifiedLog.append.

Appends that fit into the active segment are written together. One that does not fit, or fits only
in part, is written alone, in pieces with rolls between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LogDirOffline, RecordListTooLarge, StorageError
from ...format.layout import MAX_INT32, NO_TIMESTAMP
from ...format.records import batch as b
from ...format.records.batch import BatchHeader
from ...format.records.validate import AppendOrigin, ValidationResult
from ..state.producers import Duplicate
from .appending import AppendRequest, Group, LogAppendInfo, load_of, marker_reader, move, weights
from .health import Health
from .roll import GroupRollParams, RollParams, SegmentFill
from .unified_log import UnifiedLog


class Appender:
    """The appender of one partition. Used by one thread at a time."""

    def __init__(self, log: UnifiedLog, health: Health) -> None:
        self._log = log
        self._local = log.local
        self._health = health

    def append(self, requests: Sequence[AppendRequest], *, up_to_failure: bool = False) -> None:
        """Appends `requests` in order; with `up_to_failure`, stops at the first that fails. In
        every case each request up to the point reached has a result or an error."""
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
        """Whether batches of at most `size` bytes in total fit into the active segment, assuming
        that their greatest timestamp is the present time if `is_recent`, else that of the
        segment. May be called during an append; the result is then unreliable."""
        local, fill = self._local, self._fill()
        time = local.clock.now_ms() if is_recent else local.active.largest_timestamp
        return fill.add_all(
            GroupRollParams(RollParams(size, self._log.end_offset, time), 1, size, time)
        )

    # -- together --------------------------------------------------------------------------------

    def _group(self) -> Group:
        local = self._local
        update = self._log.producers.begin_update()
        return Group(self._fill(), update, local.end_offset, local.active.size)

    def _fill(self) -> SegmentFill:
        local = self._local
        return SegmentFill(local.active, local.config, local.clock.now_ms())

    def _take(self, group: Group, request: AppendRequest) -> Group:
        """Validates a request and adds it to the group. If the segment ends before or within it,
        writes the group, then the request. Returns the group to continue with."""
        try:
            self._health.check()
            admitted = request.admitted
            admitted.place(group.next_offset, self._log.leader_epoch)
            self._note_epochs(admitted)
            load = load_of(admitted.table, request.origin)
            self._check_size(load.largest)
            if group.fill.add_all(load):
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
            raise RecordListTooLarge(f"an append of {size} bytes exceeds segment.bytes ({most})")

    def _take_in(self, group: Group, request: AppendRequest) -> Group:
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
        # The group was built on an offset that is still free: start a new one.
        self._write(group)
        return self._group()

    def _write(self, group: Group) -> Exception | None:
        """Writes a group. On failure, fails its requests and returns the error."""
        try:
            group.write(self._local)
        except (LogDirOffline, OSError) as error:
            failure = self._health.note(error)
            group.fail(failure)
            return failure
        group.answer()
        return None

    # -- in pieces -------------------------------------------------------------------------------

    def _append_rolling(self, request: AppendRequest) -> None:
        """Appends a request that does not fit, or not entirely, into the active segment."""
        end = self._log.end_offset
        try:
            request.answer(self._append_in_pieces(request.admitted, request.origin))
        except (StorageError, OSError) as error:
            request.fail(self._health.note(error))
            if self._log.end_offset > end and self._health.failed is None:
                self._take_back(end)

    def _take_back(self, end: int) -> None:
        """Truncates the pieces of a failed append that began at offset `end`."""
        try:
            self._log.truncate_to(end)
        except LogDirOffline as error:
            self._health.note(error)  # later calls raise `failed`

    def _append_in_pieces(self, admitted: ValidationResult, origin: AppendOrigin) -> LogAppendInfo:
        """Writes each batch into its segment. Kafka rolls before it checks for duplicates, so a
        duplicate may roll the log and write nothing."""
        appends, table = weights(admitted.table, origin), admitted.table
        first = 0
        while first < len(appends):
            fill = self._fill()
            count = fill.add_until_full(appends[first:])
            if count == 0:
                self._log.roll(_first_offset(table[first]))
                fill = self._fill()
                fill.add(appends[first])
                count = 1 + fill.add_until_full(appends[first + 1 :])
            if first == 0:
                update = self._log.producers.begin_update()
                duplicate = update.add(table, origin, marker_reader(admitted))
                if duplicate is not None:
                    return _duplicate(duplicate, admitted)
            end = first + count
            piece = slice(first, end if end < len(appends) else None)
            self._write_piece(admitted, origin, piece, fill.first_timestamp)
            first = end
        return LogAppendInfo(admitted.first_offset, admitted.last_offset, admitted.append_time)

    def _write_piece(
        self, admitted: ValidationResult, origin: AppendOrigin, piece: slice, first_timestamp: int
    ) -> None:
        table = admitted.table.select(piece)
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

    def _note_epochs(self, admitted: ValidationResult) -> None:
        """Records the leader epochs of batches. Batches before magic 2 have none, so from then on
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


def _fail_rest(requests: Sequence[AppendRequest], error: BaseException) -> None:
    for request in requests:
        if not request.is_done:
            request.fail(error)


def _duplicate(found: Duplicate, admitted: ValidationResult) -> LogAppendInfo:
    append_time = NO_TIMESTAMP if admitted.append_time == NO_TIMESTAMP else found.timestamp
    return LogAppendInfo(found.first_offset, found.last_offset, append_time, is_duplicate=True)


def _first_offset(header: BatchHeader) -> int:
    """The first offset of an append, or a lower bound: for messages before magic 2 the exact value
    is unknown without decompressing them (UnifiedLog.maybeRoll)."""
    return header.base_offset if header.magic > 1 else header.last_offset - MAX_INT32
