"""PySpark's interface of a read: ranges of offsets as partitions, and their readers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..options import ReadOptions
from ..workers import spare_collections
from .planning import OffsetRange, find_log_dirs, plan
from .reading import Reading


class KafkafsInputPartition(InputPartition):
    """The range of one task."""

    def __init__(self, value: OffsetRange) -> None:
        super().__init__(value)


class RangeReader:
    """The tasks' part of a reader: it is pickled, and reads one range per task."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._reading = Reading(
            log_dirs=tuple(find_log_dirs(options.paths)),
            configs=options.configs,
            isolation=options.isolation,
            fail_on_data_loss=options.fail_on_data_loss,
            permissive=options.permissive,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_collections()
        if partition.value is None:  # Spark's replacement for an empty list of partitions
            return iter(())
        if self._options.losses:
            return self._reading.losses(partition.value, self._schema)
        return self._reading.records(partition.value, self._schema)


class KafkafsReader(RangeReader, DataSourceReader):
    """One read: planned on the driver, pickled, and executed by tasks.

    It has no `pushFilters`. PySpark 4.1 to 4.3 keeps one reader per loaded DataFrame, the one
    planned last (PythonDataSourceV2.readInfo), and uses it for all queries on that DataFrame and
    all branches of a query, whatever their filters are; for a query without filters it does not
    even call Python. Records pruned by one query's filters would be missing from the others, and
    a task cannot find out which query it belongs to.
    """

    def partitions(self) -> list[InputPartition]:
        return [KafkafsInputPartition(each) for each in plan(self._reading.log_dirs, self._options)]
