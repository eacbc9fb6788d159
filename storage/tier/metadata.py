"""The state of remote segments as the brokers recorded it in `__remote_log_metadata`
(TopicBasedRemoteLogMetadataManager)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import numpy as np

from ..errors import CorruptError, LogDirError, SegmentGone, UnknownPartition, UnknownTopic
from ..format.kernels import murmur2
from ..format.layout import MAX_INT32
from ..format.messages.remote_log_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    parse_remote_log_metadata,
)
from ..format.primitives import uuid_bytes
from ..format.records.columns import Damage
from ..log.read.log import Log
from ..log.read.transactions import Isolation
from ..log.read.view import View
from .segments import RemoteSegments

T = TypeVar("T")
# Problems that are kept of each partition of the topic; the others are like them.
_MOST_PROBLEMS: Final = 20


class RemoteLogMetadata:
    """The topic, read as far as it goes on each use. Any thread may use it."""

    def __init__(
        self, numbers: Callable[[], Sequence[int]], open_log: Callable[[int], Log]
    ) -> None:
        """`numbers` returns those of the topic's partitions that are on the disk and all there are,
        () if there is no such topic; `open_log` opens one."""
        self._numbers = numbers
        self._open_log = open_log
        self._logs: dict[int, _MetadataLog] = {}
        self._lock = threading.Lock()  # guards _logs

    def look(self, partition: TopicIdPartition, compute: Callable[[RemoteSegments], T]) -> T | None:
        """Returns what `compute` returns for the segments of a partition, which it must not keep;
        None if the log with their metadata is not here."""
        numbers = self._numbers()
        if not numbers:
            return None
        number = metadata_partition(partition, max(numbers) + 1)
        if number not in numbers:
            return None
        with self._lock:
            log = self._logs.get(number)
            if log is None:
                log = self._logs[number] = _MetadataLog(number, self._open_log)
        return log.look(partition, compute)

    @property
    def problems(self) -> list[str]:
        """What could not be read so far, one line each."""
        with self._lock:
            logs = list(self._logs.values())
        return [problem for log in logs for problem in log.problems]


class _MetadataLog:
    """One partition of the topic."""

    def __init__(self, number: int, open_log: Callable[[int], Log]) -> None:
        self._number = number
        self._open_log = open_log
        self._lock = threading.Lock()  # guards the attributes below
        self._segments: dict[TopicIdPartition, RemoteSegments] = {}
        self._view: View | None = None
        self._next = 0
        self.problems: list[str] = []

    def look(self, partition: TopicIdPartition, compute: Callable[[RemoteSegments], T]) -> T | None:
        with self._lock:
            try:
                self._refresh(self._open_log(self._number).view())
            except (UnknownTopic, UnknownPartition, SegmentGone, LogDirError) as error:
                self._note(str(error))
                return None
            return compute(self._segments.setdefault(partition, RemoteSegments()))

    def _refresh(self, view: View) -> None:
        before = self._view
        if view is before:
            return
        if before is not None and before.cuts != view.cuts:
            self._segments, self._next = {}, 0
        if view.start_offset > self._next:
            lost = f"its records before offset {view.start_offset} were deleted"
            self._note(f"{view.name}: {lost}, and with them what they say about remote segments")
        for part in view.scan(self._next, isolation=Isolation.READ_UNCOMMITTED):
            if isinstance(part, Damage):
                self._note(str(part.error))
                continue
            for row in range(len(part)):
                try:
                    self._apply(part.value(row))
                except CorruptError as error:
                    self._note(f"{view.name}: offset {int(part.offsets[row])}: {error.what}")
        self._view, self._next = view, view.end_offset

    def _apply(self, value: bytes | None) -> None:
        event = parse_remote_log_metadata(value)
        if isinstance(event, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            partition = event.segment_id.partition
            self._segments.setdefault(partition, RemoteSegments()).apply(event)
        elif (
            isinstance(event, RemotePartitionDeleteMetadata)
            and event.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED
        ):
            self._segments.pop(event.partition, None)

    def _note(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Returns which of the `count` partitions of the topic has the metadata of a partition
    (RemoteLogMetadataTopicPartitioner)."""
    topic_id = uuid_bytes(partition.topic_id)
    low, high = (int.from_bytes(topic_id[at : at + 8], "big") for at in (8, 0))
    combined = 1
    for number in ((low ^ low >> 32), (high ^ high >> 32), partition.partition):
        combined = (31 * combined + number) & 0xFFFFFFFF
    found = np.empty(1, dtype=np.int64)
    starts, sizes = np.array([0], dtype=np.int64), np.array([4], dtype=np.int64)
    murmur2.hashes(combined.to_bytes(4, "big"), starts, sizes, found)
    return (int(found[0]) & MAX_INT32) % count
