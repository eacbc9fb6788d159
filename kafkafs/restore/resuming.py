"""Finds out which records an interrupted restore had written after the last save.

Its producer does not know another process's records, so they are read back: the records in the
target after the last acknowledged one must be the source's next ones. Requests that were on their
way when the process died may still arrive for a moment, so the end must have come to rest before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafkafs.storage import Columns, Int64s, RecordTuple, TopicPartition, record_tuples

from .cluster import ANSWER_SECONDS, RestoreError, TargetCluster
from .records import REPLACED_TIMESTAMP

#: So long no record may arrive.
REST_SECONDS: Final = 1.0
# librdkafka waits so long for so many messages.
_AT_ONCE: Final = 1000
_WAIT_SECONDS: Final = 0.1
_CREATE_TIME: Final = 1  # confluent_kafka.TIMESTAMP_CREATE_TIME


def ends_at_rest(
    cluster: TargetCluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the log end offsets of partitions once they no longer change."""
    keys = list(partitions)
    ends = cluster.ends(keys)
    while ends:
        time.sleep(REST_SECONDS)
        before, ends = ends, cluster.ends(keys)
        if ends == before:
            break
    return ends


def written(
    cluster: TargetCluster, target: TopicPartition, start: int, end: int, source: Iterable[Columns]
) -> Int64s:
    """Returns the old offsets of the records that the target has from offset `start` to `end`;
    `source` are the records that belong there. Raises RestoreError if the target has others.

    Records that the cluster has deleted or compacted away meanwhile are taken for those that belong
    there.
    """
    parts = iter(source)
    offsets: list[Int64s] = []

    def expected() -> Iterator[RecordTuple]:
        for columns in parts:
            offsets.append(columns.offsets.copy())
            yield from record_tuples(columns)

    rows = enumerate(expected(), start)
    for offset, found in _read(cluster, target, start, end):
        row = next((row for at, row in rows if at == offset), None)
        if row is None or not _is_equal(row, found):
            raise _foreign(target, offset)
    while sum(map(len, offsets)) < end - start:
        columns = next(parts, None)
        if columns is None:
            raise _foreign(target, end - 1)
        offsets.append(columns.offsets.copy())
    return np.concatenate(offsets)[: end - start]


def _is_equal(expected: RecordTuple, found: Any) -> bool:
    key, value, timestamp, headers = expected
    kind, stamp = found.timestamp()
    return bool(
        found.key() == key
        and found.value() == value
        and (found.headers() or None) == headers
        and (kind != _CREATE_TIME or timestamp in (stamp, REPLACED_TIMESTAMP))
    )


def _read(
    cluster: TargetCluster, target: TopicPartition, start: int, end: int
) -> Iterator[tuple[int, Any]]:
    """Yields the records of a partition with their offsets."""
    consumer = cluster.client(
        Consumer,
        group_id_="kafkafs-restore",
        enable_auto_commit_=False,
        enable_partition_eof_=True,
        isolation_level_="read_uncommitted",
        auto_offset_reset_="earliest",
    )
    try:
        consumer.assign([KafkaPartition(*target, start)])
        waited_since = time.monotonic()
        while True:
            for message in consumer.consume(_AT_ONCE, _WAIT_SECONDS):
                waited_since = time.monotonic()
                error = message.error()
                if error is None and message.offset() < end:
                    yield message.offset(), message
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise RestoreError(f"{'{}-{}'.format(*target)}: {error.str()}")
            if time.monotonic() - waited_since > ANSWER_SECONDS:
                raise RestoreError(
                    f"{'{}-{}'.format(*target)}: {cluster.bootstrap} does not answer"
                )
    except KafkaException as error:
        raise RestoreError(f"{'{}-{}'.format(*target)}: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _foreign(target: TopicPartition, offset: int) -> RestoreError:
    return RestoreError(
        f"{'{}-{}'.format(*target)} of the cluster: the record at offset {offset} is not the one"
        " that this restore would have written; another program writes there"
    )
