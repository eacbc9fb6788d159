"""A topic as a pyarrow dataset: a scan reads the named columns of the ranges of offsets that a
filter can select."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafkafs.storage import RECORD_SCHEMA, DecodedColumns

from ..api import LogDirectories, Partition

#: Into how many ranges of equally many offsets a partition is cut; a filter selects among them.
RANGES: Final = 64
#: Arrow judges fragments by their guarantees without opening them: none needs contents.
_FORMAT: Final = ds.IpcFileFormat()
_NOTHING: Final = pa.py_buffer(b"")


@dataclass(frozen=True, slots=True)
class TopicSlice:
    """The records of a partition with `start` <= offset < `end`. None: unbounded."""

    partition: Partition
    start: int | None
    end: int | None

    def guarantee(self) -> pc.Expression:
        """Returns what holds for each record."""
        holds = pc.field("topic") == self.partition.topic
        holds &= pc.field("partition") == pa.scalar(self.partition.partition, pa.int32())
        if self.start is not None:
            holds &= pc.field("offset") >= self.start
        if self.end is not None:
            holds &= pc.field("offset") < self.end
        return holds


class TopicDataset(ds.Dataset):
    """The records of one topic, read anew by each scan. If the topic has a schema, they have the
    columns `decoded` and `decodeError` of `Partition.scan`, of the type that they have now."""

    def __init__(self, log_directories: LogDirectories, topic: str) -> None:
        # The base class has no public initializer; readers use `schema` and `scanner` alone.
        self._log_directories = log_directories
        self._topic = topic
        self._decoded = log_directories.decoded_columns(topic)
        decoded = () if self._decoded is None else self._decoded.schema
        self._schema = pa.schema([*RECORD_SCHEMA, *map(_readable, decoded)])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def ranges(self, filter: pc.Expression | None = None) -> list[TopicSlice]:
        """Returns the ranges that can have records selected by `filter`, adjacent ones joined."""
        numbers = self._log_directories.topics[self._topic]
        partitions = [self._log_directories[self._topic, number] for number in numbers]
        ranges = [part for partition in partitions for part in _cut(partition)]
        return _joined(ranges if filter is None else _selected(ranges, filter, self._schema))

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """Returns a scanner of `columns` of the records that `filter` selects. Arrow applies the
        whole filter to the records that are read, so the ranges only spare reading."""
        names = self._schema.names if columns is None else list(columns)
        needed = self._schema.names if filter is not None else names or ["offset"]
        if filter is not None:
            needed = [name for name in needed if name in names or _mentions(filter, name)]
        schema = pa.schema([self._schema.field(name) for name in needed])
        batches = _batches(self.ranges(filter), schema, self._decoded)
        return ds.Scanner.from_batches(
            batches, schema=schema, columns=names, filter=filter, **options
        )


def _cut(partition: Partition) -> Iterator[TopicSlice]:
    # The first and last are unbounded, so a scan reports what is wrong at the ends of the log.
    low, high = partition.start_offset, partition.end_offset
    step = max(1, -(-(high - low) // RANGES))
    cuts = [None, *range(low + step, high, step), None]
    yield from (TopicSlice(partition, start, end) for start, end in pairwise(cuts))


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


def _selected(
    ranges: Sequence[TopicSlice], filter: pc.Expression, schema: pa.Schema
) -> list[TopicSlice]:
    fragments = [_FORMAT.make_fragment(_NOTHING, None, part.guarantee()) for part in ranges]
    by_guarantee = {str(part.guarantee()): part for part in ranges}
    dataset = ds.FileSystemDataset(fragments, schema, _FORMAT)
    found = dataset.get_fragments(filter=filter)
    return [by_guarantee[str(fragment.partition_expression)] for fragment in found]


def _joined(ranges: Sequence[TopicSlice]) -> list[TopicSlice]:
    joined: list[TopicSlice] = []
    for part in ranges:
        last = joined[-1] if joined else None
        if last and last.partition is part.partition and last.end == part.start is not None:
            joined[-1] = TopicSlice(part.partition, last.start, part.end)
        else:
            joined.append(part)
    return joined


def _mentions(filter: pc.Expression, name: str) -> bool:
    """Returns whether `filter` may name a column: its text contains the name."""
    return name in str(filter)


def _batches(
    ranges: Sequence[TopicSlice], schema: pa.Schema, decoded: DecodedColumns | None
) -> Iterator[pa.RecordBatch]:
    decode = False if decoded is None else decoded
    for part in ranges:
        names, partition = schema.names, part.partition
        for batch in partition.scan(start=part.start, end=part.end, columns=names, decode=decode):
            yield batch if batch.schema == schema else batch.cast(schema)
