"""Computes what compaction would retain of a log now, without writing anything.

A preview is a pass of the cleaner whose output is counted instead of written; the retained offsets
are remembered as bits. If the offset map is too small for all keys, several passes are made, each
over the result of the previous one. The preview is valid as long as nothing changes below the first
uncleanable offset: records appended meanwhile are above it and are always retained.

If a log was never cleaned and has no transactions, the offset map alone determines what is
retained; a caller that does not need the totals can then skip counting.

Memory: the offset map, `log.cleaner.dedupe.buffer.size`, during the passes; `KeptOffsets`, a bit
for each record of an ordinary log, twice during a second pass; four runs being read; the hashed
keys of three of them, 24 bytes each and at most a million plus one batch; and the buffers of three
decoders. It does not depend on the number of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...config.kafka import BrokerConfig, TopicConfig
from ...format.records import batch as b
from ...log.delete import retention
from ...log.delete.retention import DELETE
from ...log.load.last_producers import producers_of
from ...log.read.lookup import extent_from
from ...log.read.segments import Segments
from ...log.read.view import View
from ...log.state.producer_state import ProducerStateEntry
from ...segment.extent import Fault
from ...segment.segment import Segment
from ...segment.walk import walk_headers
from ..cleaning import Cleaning
from ..kept_offsets import KeptOffsets
from ..offset_map import SLOT_BYTES, OffsetMap
from ..plan import COMPACT, CleanPlan, LogToClean, plan, state_of
from ..record_filter import NewestAmong, NewestInMap
from .counting import Counting, Totals

#: Called with the bytes read in a pass, and the total.
OnProgress = Callable[[int, int], None]

# The largest size of a log that counts as small.
_FEW_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a preview depends on: it is valid for every state of a log that has the same stamp."""

    segments: tuple[tuple[tuple[int, int], int], ...]  # identity and size
    start_offset: int
    first_dirty: int
    first_uncleanable: int
    cuts: int
    config: TopicConfig


@dataclass(frozen=True, slots=True)
class PreviewRequest:
    """A log, and what determines how it would be compacted at `now_ms`.

    `whole` is the whole log, `view` what retention leaves of it; Kafka's cleaner applies retention
    before it compacts and again afterwards. `config` has a cleanup.policy of compact;
    `is_compacted` is False if the topic's own has not.
    """

    whole: View
    view: View
    config: TopicConfig
    broker: BrokerConfig
    planned: CleanPlan
    now_ms: int
    is_compacted: bool

    @classmethod
    def of(
        cls,
        view: View,
        config: TopicConfig,
        broker: BrokerConfig,
        checkpoint: int | None,
        now_ms: int,
    ) -> PreviewRequest:
        """`checkpoint`: from the `cleaner-offset-checkpoint`, None without an entry."""
        is_compacted = COMPACT in config.cleanup_policy
        if not is_compacted:
            config = replace(config, cleanup_policy=(COMPACT,))
        left = _retained(view, config, now_ms)
        planned = plan(state_of(left, checkpoint), config, now_ms)
        return cls(view, left, config, broker, planned, now_ms, is_compacted)

    def pinned(self) -> PreviewRequest:
        """Returns the same request with every `.log` held open, as `View.pin` does. Raises
        SegmentGone if a segment no longer exists."""
        view = replace(self.view, _pinned=[])
        view.pin()
        return replace(self, view=view)

    @property
    def cleaned(self) -> Sequence[Segment]:
        """The segments that passes cover."""
        end = self.planned.first_uncleanable
        return [segment for segment in self.view.segments if segment.base_offset < end]

    def stamp(self) -> Stamp:
        return Stamp(
            tuple((segment.files.identity, segment.size) for segment in self.cleaned),
            self.view.start_offset,
            self.planned.first_dirty,
            self.planned.first_uncleanable,
            self.view.cuts,
            self.config,
        )


def _retained(view: View, config: TopicConfig, now_ms: int) -> View:
    """Returns what retention leaves of a view."""
    planned = retention.plan(retention.state_of(view), config, now_ms)
    if not planned.count:
        return view
    left = Segments(view.segments[planned.count :])
    return replace(view, segments=left, start_offset=max(view.start_offset, planned.start_offset))


@dataclass(frozen=True, slots=True)
class Preview:
    """What passes would retain of a log up to `end_offset`, which is 0 if there is nothing to
    clean. `totals`: None if they were neither requested nor needed."""

    stamp: Stamp
    kept: KeptOffsets
    end_offset: int
    totals: Totals | None

    def answers(self, request: PreviewRequest) -> bool:
        """Returns whether a new preview would be the same. (Without totals there are no delete
        horizons.)"""
        expires_at_ms = self.totals.expires_at_ms if self.totals is not None else None
        is_over = expires_at_ms is not None and expires_at_ms <= request.now_ms
        return not is_over and self.stamp == request.stamp()

    def mask(self, offsets: b.Int64s) -> NDArray[np.bool_]:
        """Returns which of the ascending offsets of some records are retained: bool of shape
        (n,)."""
        below = int(offsets.searchsorted(self.end_offset))
        is_kept = np.ones(len(offsets), dtype=np.bool_)
        if below:
            is_kept[:below] = self.kept.mask(offsets[:below])
        return is_kept


def _ignore_progress(done: int, total: int) -> None:
    """Ignores progress."""


def preview(
    request: PreviewRequest,
    on_progress: OnProgress = _ignore_progress,
    check: Callable[[], None] = lambda: None,
    *,
    in_full: bool = True,
) -> Preview:
    """Returns what would be retained. This takes about as long as a cleaning; without `in_full`,
    the totals are omitted if the offset map alone determines the result and retention needs no
    sizes, which takes half that time. Raises CorruptError, with file and position, if damage would
    stop a cleaning. `check` may raise an error to end the preview."""
    end, first_dirty = request.planned.first_uncleanable, request.planned.first_dirty
    found = Counting(request.view.start_offset, request.now_ms)
    if first_dirty >= end or not request.cleaned:
        return Preview(request.stamp(), found.kept, 0, found.totals(0))
    offset_map = _map_for(request)
    is_cut_short = not in_full and DELETE not in request.config.cleanup_policy
    log, passes = _log_to_clean(request, on_progress, check), 0
    with request.view.context.decoder() as decoder:
        while first_dirty < end:
            cleaning = Cleaning(replace(log, first_dirty=first_dirty), decoder)
            keys_decide = cleaning.build_offset_map(offset_map)
            if is_cut_short and keys_decide and not passes:
                kept = _kept_by_map(offset_map, request)
                if kept is not None:
                    return Preview(request.stamp(), kept, end, None)
            found.begin_pass()
            newest = NewestInMap(offset_map, first_dirty)
            reached = cleaning.filter_into(newest, found).end_offset
            assert reached > first_dirty, "the map has room for a key at least"
            found.end_pass(reached, request.view)
            first_dirty, passes = reached, passes + 1
    return Preview(request.stamp(), found.kept, end, found.totals(passes))


def completed(
    short: Preview,
    request: PreviewRequest,
    on_progress: OnProgress = _ignore_progress,
    check: Callable[[], None] = lambda: None,
) -> Preview:
    """Returns a preview without totals that answers the request, completed with its totals. For
    the parameters see `preview`."""
    found = Counting(request.view.start_offset, request.now_ms)
    with request.view.context.decoder() as decoder:
        cleaning = Cleaning(_log_to_clean(request, on_progress, check), decoder)
        found.begin_pass()
        cleaning.filter_into(NewestAmong(short.kept, short.end_offset - 1), found)
        found.end_pass(short.end_offset, request.view)
    return replace(short, totals=found.totals(1))


def _log_to_clean(
    request: PreviewRequest, on_progress: OnProgress, check: Callable[[], None]
) -> LogToClean:
    view, planned, now_ms = request.view, request.planned, request.now_ms

    @cache
    def producers() -> Sequence[ProducerStateEntry]:
        return producers_of(view, now_ms, request.broker.producer_id_expiration_ms).states()

    return LogToClean(
        view, request.config, planned.first_dirty, planned.first_uncleanable, now_ms,
        producers, check, on_progress, is_shown=True,
    )  # fmt: skip


def _kept_by_map(offset_map: OffsetMap, request: PreviewRequest) -> KeptOffsets | None:
    """Returns what is retained if keys alone decide: the records in the map. None if the map lacks
    keys, or was not built from all records."""
    planned = request.planned
    is_whole = offset_map.latest_offset == planned.first_uncleanable - 1
    if not is_whole or planned.first_dirty > request.cleaned[0].base_offset:
        return None
    newest = offset_map.newest(planned.first_dirty)
    if newest is None:
        return None
    kept = KeptOffsets()
    for offsets in newest.offsets():
        kept.add(offsets)
    kept.finish()
    return kept


def _map_for(request: PreviewRequest) -> OffsetMap:
    """Returns a map of the broker's size, or only as large as a small log needs, because touching
    new memory is slow."""
    memory = request.broker.log_cleaner_dedupe_buffer_size
    load_factor = request.broker.log_cleaner_io_buffer_load_factor
    records = _records_of_few(request)
    if records is not None:
        memory = min(memory, (int(records / load_factor) + 2) * SLOT_BYTES)
    return OffsetMap(memory, load_factor)


def _records_of_few(request: PreviewRequest) -> int | None:
    """Returns an upper bound of the records put into the map of a small log; None if the log is
    larger, or its headers do not contain record counts."""
    low, limit = request.planned.first_dirty, request.view.context.limits.max_batch_bytes
    dirty = [segment for segment in request.cleaned if segment.next_base > low]
    if sum(segment.size for segment in dirty) > _FEW_BYTES:
        return None
    count = 0
    for segment in dirty:
        for table in walk_headers(extent_from(segment, 0, limit)):
            if isinstance(table, Fault) or int(table.column(b.MAGIC).min(initial=2)) < 2:
                return None
            count += int(table.column(b.RECORD_COUNT).sum())
    return count
