"""Merges small concurrent appends of records before they are encoded.

Like a producer's linger: records that arrive together share a batch. Most of the cost of appending
a few records is per append.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...errors import Refused
from ...format.layout import NO_PRODUCER_ID, RECORD_BATCH_OVERHEAD
from ...format.records import batch as b
from ...format.records.encoder import RECORD_OVERHEAD, BatchPlan
from ...format.records.record_columns import RecordColumns
from ...format.records.validate import AppendOrigin, ValidationResult, ValidationRules
from .appending import AppendRequest, LogAppendInfo
from .preparing import encoded

# Limit on the bytes of a small append's records.
_SMALL: Final = 4096


class RecordsRequest(AppendRequest):
    """An append of records to be encoded according to `plan`. `most`: upper bound on the bytes they
    take in a batch."""

    __slots__ = ("most", "plan", "records")

    def __init__(self, records: RecordColumns, plan: BatchPlan) -> None:
        self.records = records
        self.plan = plan
        self.origin = AppendOrigin.CLIENT
        self.appended = None
        self.error = None
        data = len(records.keys.data) + len(records.values.data)
        self.most = data + RECORD_OVERHEAD * len(records.timestamps)

    def has_plan(self, plan: BatchPlan) -> bool:
        return self.plan is plan or self.plan == plan


class MergedRequest(AppendRequest):
    """Several record requests merged into one, in order."""

    __slots__ = ("_parts",)

    def __init__(self, admitted: ValidationResult, parts: Sequence[RecordsRequest]) -> None:
        super().__init__(admitted, AppendOrigin.CLIENT)
        self._parts = parts

    def answer(self, appended: LogAppendInfo) -> None:
        super().answer(appended)
        first = appended.first_offset
        for part in self._parts:
            end = first + len(part.records)
            part.answer(LogAppendInfo(first, end - 1, appended.append_time))
            first = end

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        for part in self._parts:
            part.fail(error)


def may_merge(records: RecordColumns, plan: BatchPlan) -> bool:
    """Whether other records may share its batches, and merging pays off. A producer's batches
    cannot be shared: they carry its sequence numbers."""
    keys, values, headers = records.keys.data, records.values.data, records.headers
    return (
        0 < len(records.timestamps) <= _SMALL // RECORD_OVERHEAD
        and len(keys) + len(values) <= _SMALL
        and not len(headers.bounds)
        and plan.producer_id == NO_PRODUCER_ID
    )


def merge(
    requests: Sequence[AppendRequest], rules: ValidationRules, segment_size: int, now_ms: int
) -> list[AppendRequest]:
    """Returns the requests, with records encoded and merged where possible. A rejected one is
    answered and left out."""
    found: list[AppendRequest] = []
    for run in _runs(requests, min(rules.max_message_bytes, segment_size)):
        if isinstance(run, AppendRequest):
            found.append(run)
            continue
        merged = _merged(run, rules, segment_size, now_ms) if len(run) > 1 else None
        found += [part for part in run if _encode(part, rules, now_ms)] if not merged else [merged]
    return found


def _runs(
    requests: Sequence[AppendRequest], limit: int
) -> Iterator[AppendRequest | list[RecordsRequest]]:
    """Yields runs of consecutive requests with the same plan that fit into one batch of at most
    `limit` bytes. Each append stays within one batch, as it would alone: after a crash all of it
    exists, or nothing."""
    run: list[RecordsRequest] = []
    room = 0
    for request in requests:
        if not isinstance(request, RecordsRequest):
            if run:
                yield run
            run = []
            yield request
            continue
        if run and not (request.has_plan(run[0].plan) and request.most <= room):
            yield run
            run = []
        if not run:
            room = min(limit, request.plan.batch_bytes) - RECORD_BATCH_OVERHEAD
        run.append(request)
        room -= request.most
    if run:
        yield run


def _merged(
    run: Sequence[RecordsRequest], rules: ValidationRules, segment_size: int, now_ms: int
) -> AppendRequest | None:
    """Merges a run; None if one of them is invalid, or they are only valid separately."""
    records = RecordColumns.joined([part.records for part in run])
    try:
        admitted = encoded(records, run[0].plan, rules, now_ms)
    except (Refused, ValueError):
        return None
    if admitted.table.column(b.SIZE).max() > segment_size:  # compression may enlarge a batch
        return None
    return MergedRequest(admitted, run)


def _encode(part: RecordsRequest, rules: ValidationRules, now_ms: int) -> bool:
    """Encodes one request by itself; returns False if it is rejected."""
    try:
        part.admitted = encoded(part.records, part.plan, rules, now_ms)
    except (Refused, ValueError) as error:
        part.fail(error)
    return not part.is_done
