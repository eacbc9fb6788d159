"""PySpark's interface of a read: groups of offset ranges as partitions, and their readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kafkafs.storage import OffsetRange

from ..options import ReadOptions
from ..workers import spare_collections, without_collections
from .conditions import Conditions
from .decoding import Decoding
from .planning import find_log_dirs, grouped, plan
from .reading import Reading, combined


class KafkafsInputPartition(InputPartition):
    """The ranges of one task, read one after another."""

    def __init__(self, value: Sequence[OffsetRange]) -> None:
        super().__init__(value)


class RangeReader:
    """The tasks' part of a reader: it is pickled, and reads the ranges of each task."""

    def __init__(
        self, options: ReadOptions, schema: pa.Schema, decoding: Decoding | None = None
    ) -> None:
        self._options = options
        self._schema = schema
        self._reading = Reading(
            log_dirs=tuple(find_log_dirs(options.paths)),
            configs=options.configs,
            isolation=options.isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            permissive=options.permissive,
            at_ms=options.at_ms,
            decoding=decoding,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_collections()
        if partition.value is None:  # Spark's replacement for an empty list of partitions
            return iter(())
        read = self._reading.losses if self._options.losses else self._reading.records
        return combined(read(partition.value, self._schema), self._schema)


class KafkafsReader(RangeReader, DataSourceReader):
    """One read: planned on the driver, pickled, and executed by tasks.

    It has no `pushFilters`. PySpark 4.1 to 4.3 keeps one reader per loaded DataFrame, the one
    planned last (PythonDataSourceV2.readInfo), and uses it for all queries on that DataFrame and
    all branches of a query, whatever their filters are; for a query without filters it does not
    even call Python. Records pruned by one query's filters would be missing from the others, and
    a task cannot find out which query it belongs to. (Spark's development branch keeps a reader
    for each scan, SPARK-58551.) Filters are passed to `kafkafs.spark.scan` instead.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        conditions: Conditions,
        decoding: Decoding | None = None,
    ) -> None:
        """`conditions`: those that all records have in common which the caller's query needs."""
        super().__init__(options, schema, decoding)
        self._conditions = conditions

    def partitions(self) -> list[InputPartition]:
        spare_collections()
        # Spark calls this in a process of its own, which has no other threads.
        with without_collections():
            ranges = plan(self._reading.log_dirs, self._options, self._conditions, may_fork=True)
        return [KafkafsInputPartition(each) for each in grouped(ranges, self._options)]
