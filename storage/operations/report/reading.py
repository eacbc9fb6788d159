"""Reads all records of a partition for what headers do not show: exact counts and sizes, every step
back in time, and which records compaction would remove."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...cleaner.preview.compacted_view import CompactedView
from ...cleaner.preview.preview import preview
from ...errors import CorruptError
from ...format.files.names import TopicPartition
from ...format.layout import CODEC_MASK, CONTROL_MASK, NO_TIMESTAMP, Codec
from ...format.records import batch as b
from ...format.records.batch import Int64s
from ...format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from ...log.read.transactions import Isolation
from ...log.read.view import View
from ...log_dirs.engine import Engine
from ..compact import preview_request
from ..request import ProgressListener
from .model import CodecUse, Disorder, Growth, RecordCounts, TimeGap
from .sampling import growth, unusual

# Points of the growth noted of each run of batches, and kept of a whole log, at most.
_POINTS: Final = 8
_MOST_KEPT: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class RemovableRecords:
    """Records of a segment that compaction would remove, and about how many bytes of the `.log`
    they take: in proportion to their keys and values."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """What reading a log found. `removable`: for each segment, empty if the topic is not
    compacted."""

    growth: Growth
    codecs: dict[str, CodecUse]
    gaps: tuple[TimeGap, ...]
    disorder: Disorder
    damage: tuple[CorruptError, ...]
    counts: RecordCounts
    removable: tuple[RemovableRecords, ...]


def read_records(
    engine: Engine,
    key: TopicPartition,
    view: View,
    now_ms: int,
    is_compacted: bool,
    progress: ProgressListener,
) -> ReadRecords:
    """Reads the records of a view, including those of aborted and open transactions. Skips damage.
    Raises CorruptError, SegmentGone or OSError as reading or a preview of compaction does."""
    on_progress = partial(progress.report, view.name)
    compacted = None
    if is_compacted:
        request = preview_request(engine, key, now_ms)
        compacted = CompactedView(request, preview(request, on_progress))
    reader = _Reader(view, now_ms, compacted)
    damage: list[CorruptError] = []
    for part in view.scan(isolation=Isolation.READ_UNCOMMITTED, ahead=True):
        if isinstance(part, Columns):
            reader.take(part)
            on_progress(reader.reached, view.size)
        else:
            damage.append(part.error)
    return reader.result(tuple(damage))


class _Reader:
    """Adds up what runs of records contain."""

    def __init__(self, view: View, now_ms: int, compacted: CompactedView | None) -> None:
        self._view = view
        self._now_ms = now_ms
        self._compacted = compacted
        sizes = [segment.size for segment in view.segments]
        self._before = np.cumsum([0, *sizes])
        # By segment: the removable records, bytes of their keys and values, and of all.
        self._removable = np.zeros((len(sizes), 3), dtype=np.int64)
        self._counts = np.zeros(5, dtype=np.int64)
        self._codecs: defaultdict[str, CodecUse] = defaultdict(CodecUse)
        self._latest = NO_TIMESTAMP
        self._back = Disorder()
        # Timestamp, offset and size after some batches, and the longest pause before each of them.
        self._points: list[tuple[int, int, int]] = []
        self._pauses: list[TimeGap] = []
        #: The position after the last batch taken, from the first segment's start on.
        self.reached = 0

    def take(self, part: Columns) -> None:
        segment = max(self._view.segments.floor_index(int(part.offsets[0])), 0)
        end = part.batches.rows[-1, [b.POSITION, b.SIZE]].sum()
        self.reached = int(self._before[segment] + end)
        is_data = ~np.repeat(part.batches.flagged(CONTROL_MASK), np.diff(part.first_row))
        columns = part.where(is_data)
        if not len(columns):
            return
        sizes = columns.spans[:, [KEY_SIZE, VALUE_SIZE]].astype(np.int64)
        data = sizes.clip(0).sum(axis=1)
        self._counts += [
            len(columns),
            *sizes.clip(0).sum(axis=0).tolist(),
            *(sizes < 0).sum(axis=0).tolist(),
        ]
        self._note_codecs(columns, data)
        self._note_times(columns, segment)
        if self._compacted is not None:
            gone = ~self._compacted.mask(columns.offsets)
            self._removable[segment] += [gone.sum(), data[gone].sum(), data.sum()]

    def _note_codecs(self, columns: Columns, data: Int64s) -> None:
        of_batch = np.add.reduceat(data, columns.first_row[:-1])
        codecs = columns.batches.column(b.ATTRIBUTES) & CODEC_MASK
        stored = columns.batches.column(b.SIZE)
        for code in np.unique(codecs).tolist():
            is_it: NDArray[np.bool_] = codecs == code
            use = CodecUse(int(is_it.sum()), int(stored[is_it].sum()), int(of_batch[is_it].sum()))
            self._codecs[Codec(code).kafka_name] += use

    def _note_times(self, columns: Columns, segment: int) -> None:
        times, offsets = columns.timestamps, columns.offsets
        latest = np.maximum.accumulate(np.concatenate([[self._latest], times]))
        steps = np.where(times >= 0, latest[:-1] - times, 0)
        at = int(steps.argmax())
        back = self._back
        largest = (int(steps[at]), int(offsets[at]))
        if largest[0] <= back.largest_ms:
            largest = (back.largest_ms, back.offset)
        self._back = Disorder(
            back.examined + len(times),
            back.count + int((steps > 0).sum()),
            *largest,
            back.future + int((times > self._now_ms).sum()),
        )
        self._latest = int(latest[-1])
        if self._latest >= 0:
            self._note_growth(columns, np.minimum(latest, self._now_ms), segment)

    def _note_growth(self, columns: Columns, latest: Int64s, segment: int) -> None:
        """Notes points of the growth. `latest`: the greatest timestamp before each record, and
        after the last one."""
        latest = np.maximum(latest, latest[latest >= 0][0])  # the first may have no timestamp
        if not self._points:
            first, time = int(self._view.segments[0].base_offset), int(latest[1])
            self._points.append((time, first, 0))
            self._pauses.append(TimeGap(time, time, first))
        begin, count = 0, len(columns.batches)
        for batch in np.unique(np.linspace(0, count - 1, _POINTS).astype(np.int64)).tolist():
            end = int(columns.first_row[batch + 1])
            position, size = columns.batches.rows[batch, [b.POSITION, b.SIZE]].tolist()
            reached = int(self._before[segment]) + position + size
            self._points.append((int(latest[end]), int(columns.offsets[end - 1]) + 1, reached))
            self._pauses.append(_longest_pause(latest[begin : end + 1], columns.offsets[begin:end]))
            begin = end
        if len(self._points) > _MOST_KEPT:
            self._thin()

    def _thin(self) -> None:
        """Drops every other point."""
        for at in range(1, len(self._points) - 1, 2):
            pauses = self._pauses[at : at + 2]
            self._pauses[at + 1] = max(pauses, key=lambda each: each.length_ms)
        del self._points[1:-1:2]
        del self._pauses[1:-1:2]

    def result(self, damage: tuple[CorruptError, ...]) -> ReadRecords:
        points = np.array(self._points, dtype=np.int64).reshape(-1, 3)
        whole = growth(points[:, 0], points[:, 1], points[:, 2], self._now_ms)
        pauses = np.array([each.length_ms for each in self._pauses], dtype=np.int64)
        return ReadRecords(
            whole,
            dict(sorted(self._codecs.items())),
            tuple(self._pauses[at] for at in unusual(pauses)),
            self._back,
            damage,
            RecordCounts(*self._counts.tolist()),
            tuple(self._removable_records()) if self._compacted is not None else (),
        )

    def _removable_records(self) -> Iterator[RemovableRecords]:
        sizes = np.diff(self._before).tolist()
        for size, (records, gone, data) in zip(sizes, self._removable.tolist(), strict=True):
            yield RemovableRecords(records, size * gone // max(data, 1))


def _longest_pause(latest: Int64s, offsets: Int64s) -> TimeGap:
    """Returns the longest pause before one of some records; see `_Reader._note_growth`."""
    at = int(np.diff(latest).argmax())
    return TimeGap(int(latest[at]), int(latest[at + 1]), int(offsets[at]))
