"""Reads ranges of offsets into Arrow record batches: the work of a Spark task.

A task opens the files that the driver planned, and verifies that they are the same. If not, it
opens the log again, which may have changed since: it grows, is compacted, and loses its oldest
segments. Records deleted by retention are data loss, which fails the task or is skipped; so are all
records of a topic that was deleted and created again. Damaged bytes fail the task or are skipped,
and `losses` reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkafs.storage import (
    RECORD_SCHEMA,
    Columns,
    Damage,
    Isolation,
    JoinedColumns,
    LogRangeReader,
    Loss,
    OffsetRange,
    ReferencedViews,
    SchemaSourceDirs,
    SegmentGone,
    SmallRanges,
    fresh,
    next_offset,
    to_record_batch,
)

from .decoding import DECODED_COLUMNS, Decoding, TaskDecoder
from .planning import LOGGER, READ_REST, report_loss

#: The rows of `losses`, one for each damaged place: offsets [firstOffset, nextOffset) of the range
#: are lost; nextOffset is null if nothing readable follows in the segment.
LOSSES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("firstOffset", pa.int64()),
        ("nextOffset", pa.int64()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("what", pa.string()),
    ]
)
# About the most bytes of records in a record batch, unless a single record is larger.
_BATCH_BYTES: Final = 16 << 20
# Smaller record batches are joined until they have this many bytes: each costs Spark about a
# millisecond, and with thousands of small partitions most would have a few records.
_JOINED_BYTES: Final = 4 << 20
# Columns of at most this many bytes are joined before they become a record batch, which costs as
# much as reading a hundred records. The first columns of a large range have more.
_TINY_BYTES: Final = 64 << 10
_MOST_LOSSES: Final = 1000
_REMEDIES: Final = {
    Loss.MISSING: READ_REST,
    Loss.RECREATED: "Read the new topic, or set the option failOnDataLoss to false to leave it out",
}

# Columns, the ranges that their rows are of, and the number of each range's rows.
_Joined = tuple[Columns, list[OffsetRange], list[int]]


@dataclass(frozen=True, slots=True)
class Reading:
    """How ranges are read; the same for all tasks of a read. `at_ms`: as in ReadOptions.
    `decoding`: None if values are not decoded."""

    log_dirs: tuple[str, ...]
    configs: Mapping[str, str]
    isolation: Isolation
    fail_on_data_loss: bool
    permissive: bool
    at_ms: int | None = None
    decoding: Decoding | None = None

    def records(self, ranges: Iterable[OffsetRange], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yields the records of ranges in order. `schema` has fields of the records' Arrow schema,
        with the types that Spark requires.

        Raises CorruptError for damage, unless it is skipped, and DataLoss, unless that is skipped.
        """
        batches = _Batches(schema, self._decoder(schema))
        tiny = _TinyColumns(batches)
        for columns, origins, rows in self._joined(ranges):
            is_tiny = len(origins) > 1 or len(columns.data) <= _TINY_BYTES
            if tiny.nbytes and (not is_tiny or tiny.nbytes >= _JOINED_BYTES):
                yield tiny.pop()
            if is_tiny:
                tiny.add(columns, origins, rows)
                continue
            for piece in _pieces(columns):
                yield batches.batch(piece, origins, [len(piece)])
        if tiny.nbytes:
            yield tiny.pop()

    def _decoder(self, schema: pa.Schema) -> TaskDecoder | None:
        if self.decoding is None or {*DECODED_COLUMNS}.isdisjoint(schema.names):
            return None
        supplied = self.decoding.supplied
        source = SchemaSourceDirs(self.log_dirs, self.configs, self.at_ms, supplied)
        return TaskDecoder(self.decoding, source, schema)

    def _joined(self, ranges: Iterable[OffsetRange]) -> Iterator[_Joined]:
        """Yields the columns in ranges, small ranges together, without the damage."""
        small, waiting = SmallRanges(self._views()), list[OffsetRange]()
        for each in ranges:
            if each.view is not None and small.add(each.view, each.start, each.end):
                waiting.append(each)
                if not small.is_full:
                    continue
                yield from self._small(small, waiting)
            else:
                yield from self._small(small, waiting)
                yield from ((columns, [each], [len(columns)]) for columns in self._columns(each))
            waiting = []
        yield from self._small(small, waiting)

    def _small(self, small: SmallRanges, ranges: list[OffsetRange]) -> Iterator[_Joined]:
        """Yields the columns in the ranges that were added to `small`."""
        taken = small.take() if ranges else None
        if taken is not None:
            yield taken[0], ranges, taken[1]
            return
        for each in ranges:
            yield from ((columns, [each], [len(columns)]) for columns in self._columns(each))

    def _columns(self, offset_range: OffsetRange) -> Iterator[Columns]:
        """Yields the columns in a range, as `parts`, without the damage."""
        for part in self.parts(offset_range):
            if isinstance(part, Columns):
                yield part
            elif self.permissive:
                topic, partition = offset_range.topic, offset_range.partition
                LOGGER.warning("%s-%d: skipped: %s", topic, partition, part.error)
            else:
                raise fresh(part.error)

    def losses(self, ranges: Iterable[OffsetRange], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yields the damage in ranges; `schema` has fields of LOSSES."""
        rows: list[dict[str, object]] = []
        for offset_range in ranges:
            for part in self.parts(offset_range):
                if isinstance(part, Damage):
                    rows.append(_loss(offset_range, part))
                if len(rows) >= _MOST_LOSSES:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema)

    def parts(self, offset_range: OffsetRange) -> Iterator[Columns | Damage]:
        """Yields the columns and damage in a range. Columns are valid until the next are requested.

        They are read from the files that were planned if these still are as they were; else from
        one view of the log, or from several if segments vanish while they are read, because a
        cleaner replaces them or retention deletes them.
        """
        reached = offset_range.start
        try:
            for part in self._of_planned_view(offset_range):
                if isinstance(part, Damage):
                    break  # the files may have changed: the log as it is now tells
                reached = next_offset(part, reached)
                yield part
            else:
                return
        except SegmentGone:
            pass
        yield from self._range_reader().parts(offset_range, reached)

    def _of_planned_view(self, offset_range: OffsetRange) -> Iterator[Columns | Damage]:
        """Yields the parts of a range as planned. Raises SegmentGone if its files are no longer as
        they were then."""
        reference, start, end = offset_range.view, offset_range.start, offset_range.end
        if reference is None:
            raise SegmentGone(str(offset_range))
        yield from self._views().scan(reference, start, end, self.isolation)

    def _range_reader(self) -> LogRangeReader:
        return LogRangeReader(self.log_dirs, self.configs, self.isolation, self.at_ms, self._report)

    def _report(self, what: str, loss: Loss) -> None:
        report_loss(what, self.fail_on_data_loss, _REMEDIES[loss])

    def _views(self) -> ReferencedViews:
        return _views(tuple(sorted(self.configs.items())))


@lru_cache(maxsize=1)
def _views(configs: tuple[tuple[str, str], ...]) -> ReferencedViews:
    """Returns the opener of planned views, shared as `_engine`."""
    return ReferencedViews(dict(configs))


class _Batches:
    """Makes record batches of `schema`."""

    def __init__(self, schema: pa.Schema, decoder: TaskDecoder | None) -> None:
        self._schema = schema
        self._decoder = decoder
        # A batch of no columns would have no rows.
        self._names = [name for name in schema.names if name in RECORD_SCHEMA.names] or ["offset"]

    def batch(
        self,
        columns: Columns,
        ranges: Sequence[OffsetRange],
        rows: Sequence[int],
        instead: Mapping[str, pa.Array] = MappingProxyType({}),
    ) -> pa.RecordBatch:
        """Returns columns with so many rows of each range; arrays in `instead` replace those of
        their names."""
        first = ranges[0]
        made = to_record_batch(columns, first.topic, first.partition, self._names)
        found = {**dict(zip(made.schema.names, made.columns, strict=True)), **instead}
        if self._decoder is not None:
            found.update(self._decoder.arrays(columns, ranges, rows))
        arrays = [_as(found[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _TinyColumns:
    """The columns of tiny ranges, until they become one record batch."""

    def __init__(self, batches: _Batches) -> None:
        self._batches = batches
        self._columns = JoinedColumns()
        self._ranges: list[OffsetRange] = []
        self._rows: list[int] = []  # of each range

    @property
    def nbytes(self) -> int:
        return self._columns.nbytes

    def add(self, columns: Columns, ranges: Sequence[OffsetRange], rows: Sequence[int]) -> None:
        """Adds columns with so many rows of each range."""
        self._columns.add(columns)
        self._ranges += ranges
        self._rows += rows

    def pop(self) -> pa.RecordBatch:
        """Returns the record batch, and removes the columns."""
        columns = self._columns.columns(str(self._ranges[0]))
        batch = self._batches.batch(columns, self._ranges, self._rows, self._origins())
        self._columns.clear()
        self._ranges.clear()
        self._rows.clear()
        return batch

    def _origins(self) -> dict[str, pa.Array]:
        """Returns the columns `topic` and `partition`."""
        ranges = np.repeat(np.arange(len(self._ranges)), self._rows)
        topics = pa.array([each.topic for each in self._ranges], pa.string())
        partitions = pa.array([each.partition for each in self._ranges], pa.int32())
        return {"topic": topics.take(ranges), "partition": partitions.take(ranges)}


def combined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields all rows of the batches in order, with small batches joined."""
    small: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        size = batch.nbytes
        if small and nbytes + size > _JOINED_BYTES:
            yield _joined(small, schema)
            small, nbytes = [], 0
        small.append(batch)
        nbytes += size
    if small:
        yield _joined(small, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = (pa.concat_arrays(each) for each in zip(*(b.columns for b in batches), strict=True))
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _pieces(columns: Columns) -> Iterator[Columns]:
    """Yields the rows in pieces that keep each batch small."""
    rows = len(columns)
    if not rows:
        return
    parts = min(-(-columns.nbytes // _BATCH_BYTES), rows)
    edges = [rows * part // parts for part in range(parts + 1)]
    for low, high in pairwise(edges):
        yield columns if parts == 1 else columns.slice(low, high)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns the column with the type that Spark requires. An empty list of headers becomes null,
    as in Spark's own source."""
    if not pa.types.is_list(kind):
        return array if array.type == kind else array.cast(kind)
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    none = pa.array(np.equal(lengths, 0)) if (lengths == 0).any() else None
    return pa.ListArray.from_arrays(array.offsets, array.values, type=kind, mask=none)


def _loss(offset_range: OffsetRange, damage: Damage) -> dict[str, object]:
    values: Sequence[object] = (
        offset_range.topic,
        offset_range.partition,
        damage.first_offset,
        damage.next_offset if damage.next_offset >= 0 else None,
        damage.error.file,
        damage.error.position,
        damage.error.what,
    )
    return dict(zip(LOSSES.names, values, strict=True))
