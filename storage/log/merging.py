"""Small appends of records by many threads, put together before they are encoded.

As a producer's linger does it: records that come at the same time go into the same batches. What
costs the most about an append of a few records is that it is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..errors import Refused
from ..format import batch as b
from ..format.encoder import RECORD_OVERHEAD, BatchPlan, RecordColumns
from ..format.layout import NO_PRODUCER_ID, RECORD_BATCH_OVERHEAD
from ..format.origin import Origin
from ..format.validate import AdmitRules, Admitted
from .appending import Appended, Request
from .preparing import encoded

# The most bytes of records that are small.
_SMALL: Final = 4096


class RecordsRequest(Request):
    """An append of records that are still to be encoded, as `plan` says. `most`: bytes that they
    take in a batch, at most."""

    __slots__ = ("most", "plan", "records")

    def __init__(self, records: RecordColumns, plan: BatchPlan) -> None:
        self.records = records
        self.plan = plan
        self.origin = Origin.CLIENT
        self.appended = None
        self.error = None
        data = len(records.keys.data) + len(records.values.data)
        self.most = data + RECORD_OVERHEAD * len(records.timestamps)

    def has_plan(self, plan: BatchPlan) -> bool:
        return self.plan is plan or self.plan == plan


class MergedRequest(Request):
    """Some of them together, in their order."""

    __slots__ = ("_parts",)

    def __init__(self, admitted: Admitted, parts: Sequence[RecordsRequest]) -> None:
        super().__init__(admitted, Origin.CLIENT)
        self._parts = parts

    def answer(self, appended: Appended) -> None:
        super().answer(appended)
        first = appended.first_offset
        for part in self._parts:
            end = first + len(part.records)
            part.answer(Appended(first, end - 1, appended.append_time))
            first = end

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        for part in self._parts:
            part.fail(error)


def may_merge(records: RecordColumns, plan: BatchPlan) -> bool:
    """Whether others' records may come into its batches, and it is worth while: a producer's own
    batches have its sequence."""
    keys, values, headers = records.keys.data, records.values.data, records.headers
    return (
        0 < len(records.timestamps) <= _SMALL // RECORD_OVERHEAD
        and len(keys) + len(values) <= _SMALL
        and not len(headers.bounds)
        and plan.producer_id == NO_PRODUCER_ID
    )


def merge(
    requests: Sequence[Request], rules: AdmitRules, segment_size: int, now_ms: int
) -> list[Request]:
    """The requests, those of records encoded and put together where they can be. One that is
    refused is answered, and is none of them any more."""
    found: list[Request] = []
    for run in _runs(requests, min(rules.max_message_bytes, segment_size)):
        if isinstance(run, Request):
            found.append(run)
            continue
        merged = _merged(run, rules, segment_size, now_ms) if len(run) > 1 else None
        found += [part for part in run if _encode(part, rules, now_ms)] if not merged else [merged]
    return found


def _runs(requests: Sequence[Request], limit: int) -> Iterator[Request | list[RecordsRequest]]:
    """What can be put together because it comes one after the other, has the same plan, and fits
    into a batch of at most `limit` bytes. So every append is in one batch, as it would be by
    itself: after a crash all of it is there, or nothing."""
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
    run: Sequence[RecordsRequest], rules: AdmitRules, segment_size: int, now_ms: int
) -> Request | None:
    """All of them; None when one of them would not be taken, or they only by themselves."""
    records = RecordColumns.joined([part.records for part in run])
    try:
        admitted = encoded(records, run[0].plan, rules, now_ms)
    except (Refused, ValueError):
        return None
    if admitted.table.column(b.SIZE).max() > segment_size:  # compressed, a batch may be larger
        return None
    return MergedRequest(admitted, run)


def _encode(part: RecordsRequest, rules: AdmitRules, now_ms: int) -> bool:
    """Encodes it by itself; False when it is refused."""
    try:
        part.admitted = encoded(part.records, part.plan, rules, now_ms)
    except (Refused, ValueError) as error:
        part.fail(error)
    return not part.is_done
