"""What a read gives of a corpus, told by Kafka's own answers about it."""

from __future__ import annotations

from collections.abc import Iterator

from tests import answers

_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def told_by_kafka(corpus: str, isolation: str) -> Iterator[dict[str, object]]:
    """The rows of all topics but Kafka's own, in order; timestamps in microseconds since 1970."""
    for topic, partition in answers.partitions_with_records(corpus):
        if topic.startswith("__"):
            continue
        for told in answers.records(corpus, topic, partition, isolation):
            yield {
                "key": told.key,
                "value": told.value,
                "topic": topic,
                "partition": partition,
                "offset": told.offset,
                "timestamp": None if told.timestamp == -1 else told.timestamp * 1000,
                "timestampType": _TYPES[told.timestamp_type],
                "headers": [{"key": key, "value": value} for key, value in told.headers] or None,
            }
