"""The tables that describe log directories: topics, partitions, segments, groups, schemas and
transactions. Each scan computes one; its rows are those that the verbs of these names show. Most
queries are on topics, so an operation is imported when its table is scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafkafs.storage import Engine, PartitionFailed, ProgressListener

from .foreign_threads import SCANS
from .times import TIME, within_sql

if TYPE_CHECKING:
    from kafkafs.storage import TopicSummary

Row = Mapping[str, Any]
#: Is called with what could not be read; everything else is in the table.
OnFailed = Callable[[PartitionFailed], object]

_BATCH_ROWS: Final = 4096
_PARTITION: Final = [("topic", pa.string()), ("partition", pa.int32())]


@dataclass(frozen=True, slots=True)
class _Form:
    """The schema of a table, and the operation that yields its rows and what failed."""

    schema: pa.Schema
    rows: Callable[[Engine, ProgressListener], Iterator[Row | PartitionFailed]]


class SystemTable(ds.Dataset):
    """One of SYSTEM_TABLES as a dataset, computed anew by each scan."""

    def __init__(
        self, name: str, engine: Engine, progress: ProgressListener, on_failed: OnFailed
    ) -> None:
        # The base class has no public initializer; readers use `schema` and `scanner` alone.
        self._form = SYSTEM_TABLES[name]
        self._engine = engine
        self._progress = progress
        self._on_failed = on_failed

    @property
    def schema(self) -> pa.Schema:
        return self._form.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """Returns a scanner of `columns` of the rows that `filter` selects."""
        names = self.schema.names if columns is None else list(columns)
        return ds.Scanner.from_batches(
            SCANS.read(self.batches()),
            schema=self.schema,
            columns=names,
            filter=filter,
            **options,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows. Raises StorageError or OSError if there can be none."""
        rows = self._rows()
        while some := list(islice(rows, _BATCH_ROWS)):
            yield within_sql(pa.RecordBatch.from_pylist(some, self.schema))

    def _rows(self) -> Iterator[Row]:
        for row in self._form.rows(self._engine, self._progress):
            self._progress.check()
            if isinstance(row, PartitionFailed):
                self._on_failed(row)
            else:
                yield row


def _summaries(
    engine: Engine, progress: ProgressListener
) -> Iterator[TopicSummary | PartitionFailed]:
    from kafkafs.storage import ListTopics, list_topics

    return list_topics(engine, ListTopics(), progress)


def _topics(engine: Engine, progress: ProgressListener) -> Iterator[Row | PartitionFailed]:
    for each in _summaries(engine, progress):
        if isinstance(each, PartitionFailed):
            yield each
            continue
        yield {
            **each.as_json(),
            "partitions": len(each.partitions),
            "segments": sum(part.segments for part in each.partitions),
            "size": sum(part.size for part in each.partitions),
        }


def _partitions(engine: Engine, progress: ProgressListener) -> Iterator[Row | PartitionFailed]:
    for each in _summaries(engine, progress):
        if isinstance(each, PartitionFailed):
            yield each
            continue
        yield from ({"topic": each.topic, **part.as_json()} for part in each.partitions)


def _segments(engine: Engine, progress: ProgressListener) -> Iterator[Row | PartitionFailed]:
    for each in _summaries(engine, progress):
        if isinstance(each, PartitionFailed):
            yield each
            continue
        for part in each.partitions:
            view = engine.log(each.topic, part.partition).view()
            for segment in view.segments:
                end = view.end_offset if segment.is_active else segment.next_base
                latest = view.largest_timestamp(segment)
                yield {
                    "topic": each.topic,
                    "partition": part.partition,
                    "baseOffset": segment.base_offset,
                    "nextOffset": end,
                    "size": segment.size,
                    "largestTimestamp": None if latest < 0 else latest,
                    "modified": segment.mtime_ns // 1_000_000,
                    "isActive": segment.is_active,
                    "file": segment.path,
                }


def _groups(engine: Engine, progress: ProgressListener) -> Iterator[Row | PartitionFailed]:
    from kafkafs.storage import ListGroups, list_groups

    return _as_rows(list_groups(engine, ListGroups(), progress))


def _schemas(engine: Engine, progress: ProgressListener) -> Iterator[Row | PartitionFailed]:
    from kafkafs.storage import ListSchemas, list_schemas

    return _as_rows(list_schemas(engine, ListSchemas(), progress))


def _transactions(engine: Engine, progress: ProgressListener) -> Iterator[Row | PartitionFailed]:
    from kafkafs.storage import Transactions, list_transactions

    return _as_rows(list_transactions(engine, Transactions(), progress))


def _as_rows(found: Iterable[Any]) -> Iterator[Row | PartitionFailed]:
    return (each if isinstance(each, PartitionFailed) else each.as_json() for each in found)


_REFERENCE: Final = pa.struct(
    [("name", pa.string()), ("subject", pa.string()), ("version", pa.int32())]
)

#: The tables by name.
SYSTEM_TABLES: Final[Mapping[str, _Form]] = {
    "topics": _Form(
        pa.schema(
            [
                *(("topic", pa.string()), ("topicId", pa.string()), ("isStray", pa.bool_())),
                *(("partitions", pa.int32()), ("segments", pa.int64()), ("size", pa.int64())),
            ]
        ),
        _topics,
    ),
    "partitions": _Form(
        pa.schema(
            [
                *_PARTITION,
                *(("startOffset", pa.int64()), ("lastStableOffset", pa.int64())),
                *(("endOffset", pa.int64()), ("segments", pa.int64()), ("size", pa.int64())),
            ]
        ),
        _partitions,
    ),
    "segments": _Form(
        pa.schema(
            [
                *_PARTITION,
                *(("baseOffset", pa.int64()), ("nextOffset", pa.int64()), ("size", pa.int64())),
                *(("largestTimestamp", TIME), ("modified", TIME)),
                *(("isActive", pa.bool_()), ("file", pa.string())),
            ]
        ),
        _segments,
    ),
    "groups": _Form(
        pa.schema(
            [
                *(("group", pa.string()), ("type", pa.string()), ("state", pa.string())),
                *_PARTITION,
                *(("offset", pa.int64()), ("leaderEpoch", pa.int32()), ("metadata", pa.string())),
                *(("commitTimestamp", TIME), ("logStartOffset", pa.int64())),
                *(("logEndOffset", pa.int64()), ("lag", pa.int64()), ("lagMs", pa.int64())),
                ("problem", pa.string()),
            ]
        ),
        _groups,
    ),
    "schemas": _Form(
        pa.schema(
            [
                *(("subject", pa.string()), ("version", pa.int32()), ("id", pa.int32())),
                *(("guid", pa.string()), ("schemaType", pa.string())),
                *(("references", pa.list_(_REFERENCE)), ("deleted", pa.string())),
                *(("schema", pa.string()), ("offset", pa.int64()), ("timestamp", TIME)),
                ("file", pa.string()),
            ]
        ),
        _schemas,
    ),
    "transactions": _Form(
        pa.schema(
            [
                *_PARTITION,
                *(("producerId", pa.int64()), ("producerEpoch", pa.int32())),
                *(("coordinatorEpoch", pa.int32()), ("firstOffset", pa.int64())),
                ("lastTimestamp", TIME),
            ]
        ),
        _transactions,
    ),
}
