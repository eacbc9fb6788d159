"""PySpark's interface of a stream reader, from PySpark 4.2 on."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ..options import ReadOptions
from .decoding import Decoding
from .partition_offsets import PartitionOffsets, from_json, to_json
from .planning import grouped
from .range_reader import KafkafsInputPartition, RangeReader
from .streaming import Stream

# The start of the first batch. Spark stores only a batch's end, so its start is derived from the
# options, also when the batch is repeated.
_INITIAL: Final = {"startingOffsets": "as the options say"}


class KafkafsStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query: on the driver it plans batches, in tasks it reads ranges."""

    def __init__(
        self, options: ReadOptions, schema: pa.Schema, decoding: Decoding | None = None
    ) -> None:
        super().__init__(options, schema, decoding)
        self._opened: Stream | None = None  # never in a task

    @property
    def _stream(self) -> Stream:
        if self._opened is None:
            self._opened = Stream(self._reading.log_dirs, self._options)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return _INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Returns a limit if the options have any. PySpark cannot combine two, so `latestOffset`
        applies those of the options, whichever limit it gets."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.stop_at_the_present_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        limited = not isinstance(limit, ReadAllAvailable)
        return self._json(self._stream.next_end(_parsed(start), limited))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._stream.latest
        return self._json(latest) if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        ranges = self._stream.plan(_parsed(start), from_json(end))
        return [KafkafsInputPartition(each) for each in grouped(ranges, self._options)]

    def _json(self, partition_offsets: PartitionOffsets) -> dict[str, Any]:
        return to_json(partition_offsets, self._options.checkpoint_topic_ids)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _parsed(value: dict[str, Any]) -> PartitionOffsets | None:
    """Parses an offset of the checkpoint; None before the first batch."""
    return None if value == _INITIAL else from_json(value)
