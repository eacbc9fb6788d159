"""A topic as a pyarrow dataset: a scan reads the named columns of the ranges of offsets that a
filter can select, on all processors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kafkafs.storage import (
    RECORD_SCHEMA,
    Columns,
    Damage,
    Isolation,
    View,
    fresh,
    parallel_map,
    processors,
)

from ..api import LogDirectories
from ..api.arrow import READ_COMMITTED, ArrowForm, undamaged
from .foreign_threads import SCANS
from .times import within_sql

#: Into how many ranges of equally many offsets a partition is cut; a filter selects among them.
RANGES: Final = 64
# About as many bytes of the log are decoded at a time by each processor.
_UNIT_BYTES: Final = 16 << 20
# As many bytes of a unit are decoded ahead: what is compressed may be a hundred times as large.
_HELD_BYTES: Final = 64 << 20
# If a batch can only have fewer rows than this, it is decoding its columns that takes long.
_FEW_ROWS: Final = 1 << 14
# The most rows of a batch whose columns are constant.
_CONSTANT_ROWS: Final = 1 << 16
# Columns that have the same value in all records of a partition: their rows need only be counted.
_CONSTANTS: Final = frozenset(("topic", "partition"))
# The type of the indices of their dictionaries.
_INDEX: Final = pa.int8()
# Columns whose values are known to have bounds in a range of offsets.
_BOUNDED: Final = ("offset", "timestamp")
# Arrow judges fragments by their guarantees without opening them: no file of that name is needed.
_FORMAT: Final = ds.IpcFileFormat()


@dataclass(frozen=True, slots=True)
class TopicSlice:
    """The records of a partition with `start` <= offset < `end`. None: unbounded."""

    view: View
    start: int | None = None
    end: int | None = None

    @property
    def partition(self) -> int:
        return self.view.partition

    @property
    def bounds(self) -> tuple[int, int]:
        """The first offset that the log may have here, and the one after the last."""
        low, high = self.view.start_offset, self.view.end_offset
        return low if self.start is None else self.start, high if self.end is None else self.end

    def guarantee(self, *, of_time: bool) -> pc.Expression:
        """Returns what holds for each record; also of its timestamp if `of_time`."""
        holds = _of_partition(self.view.topic, self.partition)
        if self.start is not None:
            holds &= pc.field("offset") >= self.start
        if self.end is not None:
            holds &= pc.field("offset") < self.end
        if of_time:
            latest = self.view.timestamp_bound(self.start, self.end)
            scalar = pa.scalar(latest, RECORD_SCHEMA.field("timestamp").type)
            holds &= (pc.field("timestamp") <= scalar) | pc.field("timestamp").is_null()
        return holds

    def units(self) -> Iterator[TopicSlice]:
        """Yields the slice in parts of a few megabytes of the log, as far as can be told."""
        low, high = self.bounds
        view = self.view
        size = view.size * (high - low) // max(view.end_offset - view.start_offset, 1)
        step = max((high - low) // (size // _UNIT_BYTES + 1), 1)
        cuts = [self.start, *range(low + step, high, step), self.end]
        yield from (TopicSlice(view, start, end) for start, end in pairwise(cuts))

    def segment_units(self) -> Iterator[TopicSlice]:
        """Yields the slice segment by segment: batches do not cross from one to the next."""
        low, high = self.bounds
        bases = (segment.base_offset for segment in self.view.segments)
        cuts = [self.start, *(base for base in bases if low < base < high), self.end]
        yield from (TopicSlice(self.view, start, end) for start, end in pairwise(cuts))


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan of a topic reads: of `partitions` partitions with `offsets` offsets in all, those
    of `slices`, which have `selected` offsets."""

    slices: Sequence[TopicSlice]
    partitions: int
    offsets: int

    @property
    def selected(self) -> int:
        bounds = (part.bounds for part in self.slices)
        return sum(max(high - low, 0) for low, high in bounds)


class TopicDataset(ds.Dataset):
    """The records of one topic, read anew by each scan. If the topic has a schema that can be used,
    they have the columns `decoded` and `decodeError` of `Partition.scan`, and those of keys, of the
    types that they have now. `first`: columns that stand before the others. `encoded`: for DuckDB,
    `topic` and `partition` are dictionaries, by which it groups faster, and which are plain columns
    to it; and times are within those that it has.
    `isolation` as in `Partition.scan`."""

    def __init__(
        self,
        log_directories: LogDirectories,
        topic: str,
        *,
        first: Sequence[str] = (),
        encoded: bool = False,
        isolation: str = READ_COMMITTED,
    ) -> None:
        # The base class has no public initializer; readers use `schema` and `scanner` alone.
        self._log_directories = log_directories
        self._topic = topic
        self._decoded = log_directories.decoded_columns(topic)
        decoded = () if self._decoded is None else self._decoded.schema
        fields = {field.name: field for field in (*RECORD_SCHEMA, *map(_readable, decoded))}
        #: The columns in the order of `Partition.scan`.
        self.names = list(fields)
        ordered = [fields[name] for name in dict.fromkeys((*first, *fields))]
        self._encoded = encoded
        # Guarantees are compared with plain values, whatever the scan's columns are.
        self._plain_schema = pa.schema(ordered)
        self._schema = pa.schema(map(_encoded, ordered)) if encoded else self._plain_schema
        self._isolation = Isolation(isolation)

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def ranges(self, filter: pc.Expression | None = None) -> list[TopicSlice]:
        """Returns the ranges that can have records selected by `filter`, adjacent ones joined."""
        return self._ranges(self._log_directories.views(self._topic), filter)

    def plan(self, filter: pc.Expression | None = None) -> ScanPlan:
        """Returns what a scan with `filter` would read now."""
        views = self._log_directories.views(self._topic)
        offsets = sum(view.end_offset - view.start_offset for view in views)
        return ScanPlan(self._ranges(views, filter), len(views), offsets)

    def batches(
        self, columns: Sequence[str], filter: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields `columns` of a superset of the records that `filter` selects, in the order of
        partitions and offsets. Raises CorruptError in the place of damaged records."""
        ranges = self.ranges(filter)
        if _CONSTANTS.issuperset(columns):
            yield from _in_parallel(
                (unit for part in ranges for unit in part.segment_units()),
                lambda unit: self._counted(unit, columns),
            )
            return
        form = self._form(columns)
        if (form.batch_rows or _FEW_ROWS) < _FEW_ROWS:
            yield from self._wide_records(ranges, columns, form)
            return
        yield from _in_parallel(
            (unit for part in ranges for unit in part.units()),
            lambda unit: self._records(unit, columns, form),
        )

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """Returns a scanner of `columns` of the records that `filter` selects. Arrow applies the
        whole filter to the records that are read, so the ranges only spare reading."""
        names = self._schema.names if columns is None else list(columns)
        needed = self._schema.names if filter is not None else names or ["partition"]
        if filter is not None:
            needed = [name for name in needed if name in names or _mentions(filter, name)]
        schema = pa.schema([self._schema.field(name) for name in needed])
        return ds.Scanner.from_batches(
            SCANS.read(self.batches(needed, filter)),
            schema=schema,
            columns=names,
            filter=filter,
            **options,
        )

    def _ranges(self, views: Sequence[View], filter: pc.Expression | None) -> list[TopicSlice]:
        if filter is None:
            return [TopicSlice(view) for view in views]
        guarantees = [_of_partition(self._topic, view.partition) for view in views]
        found = [TopicSlice(views[at]) for at in self._selected(guarantees, filter)]
        if not any(_mentions(filter, name) for name in _BOUNDED):
            return found
        of_time = _mentions(filter, "timestamp")
        slices = [part for whole in found for part in _cut(whole.view)]
        guarantees = [part.guarantee(of_time=of_time) for part in slices]
        return _joined([slices[at] for at in self._selected(guarantees, filter)])

    def _selected(self, guarantees: Sequence[pc.Expression], filter: pc.Expression) -> list[int]:
        """Returns the numbers of the guarantees under which records can be selected."""
        files = LocalFileSystem()
        fragments = [
            _FORMAT.make_fragment(f"/{number}", files, guarantee)
            for number, guarantee in enumerate(guarantees)
        ]
        dataset = ds.FileSystemDataset(fragments, self._plain_schema, _FORMAT, files)
        return [int(fragment.path[1:]) for fragment in dataset.get_fragments(filter=filter)]

    def _form(self, columns: Sequence[str]) -> ArrowForm:
        read = [name for name in columns if not (self._encoded and name in _CONSTANTS)]
        return ArrowForm(read, self._decoded)

    def _records(
        self, unit: TopicSlice, columns: Sequence[str], form: ArrowForm
    ) -> Iterator[pa.RecordBatch]:
        for piece in form.pieces(self._scan(unit)):
            yield self._batch(piece, unit, columns, form)

    def _wide_records(
        self, ranges: Sequence[TopicSlice], columns: Sequence[str], form: ArrowForm
    ) -> Iterator[pa.RecordBatch]:
        """Yields batches of so many columns that it is their decoding that takes long: of a few
        records at a time, because the columns of a unit would not fit into memory."""

        def pieces() -> Generator[tuple[TopicSlice, Columns]]:
            for part in ranges:
                # Columns are valid until the next are requested.
                copies = (each.copy() for each in self._scan(part))
                yield from ((part, piece) for piece in form.pieces(copies))

        def work(found: tuple[TopicSlice, Columns]) -> pa.RecordBatch:
            part, piece = found
            return self._batch(piece, part, columns, form)

        yield from parallel_map(pieces(), [work] * processors(), on_demand=0)

    def _scan(self, part: TopicSlice) -> Generator[Columns]:
        return undamaged(part.view.scan(part.start, part.end, self._isolation), None)

    def _batch(
        self, piece: Columns, part: TopicSlice, columns: Sequence[str], form: ArrowForm
    ) -> pa.RecordBatch:
        schema = pa.schema([self._schema.field(name) for name in columns])
        batch = form.batch(piece, self._topic, part.partition)
        if form.schema.names != list(columns):
            batch = self._with_constants(batch, part, columns)
        batch = batch if batch.schema == schema else batch.cast(schema)
        return within_sql(batch) if self._encoded else batch

    def _with_constants(
        self, batch: pa.RecordBatch, unit: TopicSlice, columns: Sequence[str]
    ) -> pa.RecordBatch:
        """Returns `columns`, of which `batch` has all but constant ones."""
        constant = _constant(self._topic, unit.partition, encoded=True, rows=len(batch))
        arrays = [(constant if name in _CONSTANTS else batch)[name] for name in columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _counted(self, unit: TopicSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        count = 0
        for part in unit.view.record_counts(unit.start, unit.end, self._isolation):
            if isinstance(part, Damage):
                raise fresh(part.error)
            count += part
        rows = min(count, _CONSTANT_ROWS)
        constant = _constant(self._topic, unit.partition, encoded=self._encoded, rows=rows)
        for start in range(0, count, _CONSTANT_ROWS):
            yield constant.slice(0, min(count - start, _CONSTANT_ROWS)).select(columns)


def _in_parallel(
    units: Generator[TopicSlice], read: Callable[[TopicSlice], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """Yields the batches of all units in order, which several threads read."""
    functions = [lambda unit: _begun(read(unit))] * processors()
    for batches in parallel_map(units, functions, on_demand=0):
        yield from batches


def _begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns the batches, of which those are already made that may be held in memory."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _HELD_BYTES:
            return chain(held, batches)
    return iter(held)


def _constant(topic: str, partition: int, *, encoded: bool, rows: int) -> pa.RecordBatch:
    """Returns the columns that are equal in all records of a partition."""
    values = {"topic": topic, "partition": partition}
    scalars = [pa.scalar(value, RECORD_SCHEMA.field(name).type) for name, value in values.items()]
    if not encoded:
        return pa.RecordBatch.from_arrays([pa.repeat(each, rows) for each in scalars], [*values])
    indices = pa.repeat(pa.scalar(0, _INDEX), rows)
    arrays = [pa.DictionaryArray.from_arrays(indices, pa.array([each])) for each in scalars]
    return pa.RecordBatch.from_arrays(arrays, [*values])


def _encoded(field: pa.Field) -> pa.Field:
    is_constant = field.name in _CONSTANTS
    return field.with_type(pa.dictionary(_INDEX, field.type)) if is_constant else field


def _cut(view: View) -> Iterator[TopicSlice]:
    # The first and last are unbounded, so a scan reports what is wrong at the ends of the log.
    low, high = view.start_offset, view.end_offset
    step = max(1, -(-(high - low) // RANGES))
    cuts = [None, *range(low + step, high, step), None]
    yield from (TopicSlice(view, start, end) for start, end in pairwise(cuts))


def _of_partition(topic: str, partition: int) -> pc.Expression:
    number = pa.scalar(partition, RECORD_SCHEMA.field("partition").type)
    return (pc.field("topic") == topic) & (pc.field("partition") == number)


def _readable(field: pa.Field) -> pa.Field:
    """Returns the field with a type that DuckDB has: it has no decimals of more than 38 digits."""
    return field.with_type(_readable_type(field.type))


def _readable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_readable(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _readable_type(kind.item_type))
    return pa.string() if pa.types.is_decimal256(kind) else kind


def _joined(slices: Sequence[TopicSlice]) -> list[TopicSlice]:
    joined: list[TopicSlice] = []
    for part in slices:
        last = joined[-1] if joined else None
        if last and last.view is part.view and last.end == part.start is not None:
            joined[-1] = TopicSlice(part.view, last.start, part.end)
        else:
            joined.append(part)
    return joined


def _mentions(filter: pc.Expression, name: str) -> bool:
    """Returns whether `filter` may name a column: its text contains the name."""
    return name in str(filter)
