"""The rows that a read of a corpus must return, derived from Kafka's recorded answers."""

from __future__ import annotations

from collections.abc import Iterator

from tests import answers

#: Selects the columns of these rows from a read with headers.
COLUMNS = [
    *("key", "value", "topic", "partition", "offset"),
    *("unix_micros(timestamp) AS timestamp", "timestampType", "headers"),
]
_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def rows_of_kafka(corpus: str, isolation: str) -> Iterator[dict[str, object]]:
    """Yields the rows of all topics except internal ones, in order; timestamps in µs since 1970."""
    for topic, partition in answers.partitions_with_records(corpus):
        if topic.startswith("__"):
            continue
        for expected in answers.records(corpus, topic, partition, isolation):
            yield {
                "key": expected.key,
                "value": expected.value,
                "topic": topic,
                "partition": partition,
                "offset": expected.offset,
                "timestamp": None if expected.timestamp == -1 else expected.timestamp * 1000,
                "timestampType": _TYPES[expected.timestamp_type],
                "headers": [{"key": key, "value": value} for key, value in expected.headers]
                or None,
            }
