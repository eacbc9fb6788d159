"""Writes records with librdkafka's idempotent producer, one partition after the other.

The producer keeps the records of a partition in order and without duplicates, and fails rather than
skip one. So the number of records that are not acknowledged yet says which they are: the last ones.
Delivery reports are only made for failures, since a call per record would halve the speed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from kafkafs.storage import Columns, Int64s, TopicPartition, record_tuples

from .cluster import RestoreError, TargetCluster
from .state import OffsetRun, RestoredPartition, RestoreState, RestoreStateFile, runs_of

SAVE_SECONDS: Final = 1.0
#: How long to wait for the next acknowledgement. librdkafka's own limit would also count the time
#: that a record waits for those before it, which on a slow network is longer.
STALL_SECONDS: Final = 120.0
# Two checks that are further apart are not of the same wait.
_WAITING_SECONDS: Final = 5.0
# How long a report of a failure may take after the failure.
_REPORT_SECONDS: Final = 1.0
# Records between two calls of `poll`, which frees the memory of acknowledged ones.
_POLL_RECORDS: Final = 2000
_QUEUED_RECORDS: Final = 500_000
_QUEUED_KIB: Final = 256 << 10
# The largest that librdkafka allows; the topic has its own limit.
_LARGEST_MESSAGE: Final = 1_000_000_000
_BATCH_BYTES: Final = 1_000_000
# What a batch needs besides its records, generously.
_BATCH_OVERHEAD: Final = 512
_ADVICE: Final = "the same command continues from there once the cause is removed"


class RecordProducer:
    """Writes records, and saves up to where they are acknowledged."""

    def __init__(
        self,
        cluster: TargetCluster,
        file: RestoreStateFile,
        state: RestoreState,
        *,
        compression: str,
        max_batch_bytes: int,
    ) -> None:
        self._file = file
        self._state = state
        self._failed: KafkaError | None = None
        batch_bytes = min(_BATCH_BYTES, max_batch_bytes - _BATCH_OVERHEAD)
        self._producer: Any = cluster.client(
            Producer,
            linger_ms=20,
            message_timeout_ms=0,
            compression_type=compression,
            queue_buffering_max_messages=_QUEUED_RECORDS,
            queue_buffering_max_kbytes=_QUEUED_KIB,
            batch_size_=max(batch_bytes, 1),
            message_max_bytes_=_LARGEST_MESSAGE,
            enable_idempotence_=True,
            enable_gapless_guarantee_=True,
            delivery_report_only_error_=True,
            on_delivery_=self._on_failure,
        )
        self._rows: list[tuple[TopicPartition, OffsetRun]] = []
        self._sent: deque[Int64s] = deque()
        self._unacknowledged = 0
        self._waiting = 0
        self._saved_at = self._checked_at = self._progress_at = time.monotonic()

    def _on_failure(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def send(
        self,
        key: TopicPartition,
        partition: RestoredPartition,
        columns: Columns,
    ) -> None:
        """Hands records to the producer, which writes them in the background, and notes which are
        acknowledged. Raises RestoreError."""
        produce, topic, number = self._producer.produce, self._state.targets[key[0]], key[1]
        done = 0
        self._sent.append(columns.offsets.copy())
        self._unacknowledged += len(columns)
        for key_, value, timestamp, headers in record_tuples(columns):
            try:
                produce(topic, value, key_, number, None, None, timestamp, headers)
            except BufferError:
                self._wait_for_room(key, topic, number, value, key_, timestamp, headers)
            except KafkaException as error:
                raise self._failure(key, error.args[0]) from None
            done += 1
            if done == _POLL_RECORDS:
                done = 0
                self._poll(key, 0)
        self._settle(key, partition)
        self._save_if_due()

    def _wait_for_room(self, key: TopicPartition, topic: str, number: int, *record: Any) -> None:
        value, key_, timestamp, headers = record
        while True:
            is_empty = not len(self._producer)
            self._poll(key, 0.01)
            self._check_progress(key)
            try:
                self._producer.produce(topic, value, key_, number, None, None, timestamp, headers)
            except BufferError:
                if is_empty:
                    what = "a record is too large for librdkafka's queue"
                    raise RestoreError(f"{'{}-{}'.format(*key)}: {what}") from None
            except KafkaException as error:
                raise self._failure(key, error.args[0]) from None
            else:
                return

    def _poll(self, key: TopicPartition, seconds: float) -> None:
        self._call(key, self._producer.poll, seconds)

    def _call(self, key: TopicPartition, call: Callable[[float], object], seconds: float) -> None:
        """Makes a call that also makes the callbacks. It raises a fatal error; if a report of a
        failure follows, it is reported as an error of that callback."""
        try:
            call(seconds)
        except KafkaException as error:
            raise self._failure(key, error.args[0]) from None
        except SystemError as error:
            # confluent_kafka raises this if it makes another callback after that of a fatal error,
            # whose exception may be lost.
            cause = error.__cause__
            failed = cause.args[0] if isinstance(cause, KafkaException) else self._reported()
            if failed is None:
                raise
            raise self._failure(key, failed) from None
        if self._failed is not None:
            raise self._failure(key, self._failed)

    def _reported(self) -> KafkaError | None:
        """Returns why a record has failed, which may be reported only now; None if it has not."""
        if self._failed is None:
            with suppress(KafkaException, SystemError):
                self._producer.poll(_REPORT_SECONDS)
        return self._failed

    def _check_progress(self, key: TopicPartition) -> None:
        """Is called again and again while waiting. Raises RestoreError if nothing was acknowledged
        for too long."""
        now, waiting = time.monotonic(), len(self._producer)
        if waiting < self._waiting or now - self._checked_at > _WAITING_SECONDS:
            self._progress_at = now
        self._waiting, self._checked_at = waiting, now
        if waiting and now - self._progress_at > STALL_SECONDS:
            what = f"has acknowledged no record for {STALL_SECONDS:g} seconds"
            raise RestoreError(f"{'{}-{}'.format(*key)}: the cluster {what}; {_ADVICE}")

    def finish(self, key: TopicPartition, partition: RestoredPartition) -> None:
        """Waits until all records sent so far are acknowledged."""
        while len(self._producer):
            self._call(key, self._producer.flush, 0.5)
            self._check_progress(key)
            self._settle(key, partition)
            self._save_if_due()
        self._settle(key, partition)

    def note(self, key: TopicPartition, partition: RestoredPartition, offsets: Int64s) -> None:
        """Notes that the next records, with these old offsets, are in the target."""
        for run in runs_of(offsets, partition.target_next):
            before = self._rows[-1] if self._rows else None
            if before is not None and before[0] == key and before[1].is_continued_by(run):
                run = OffsetRun(before[1].first, before[1].new, before[1].records + run.records)
                self._rows[-1] = key, run
            else:
                self._rows.append((key, run))
        partition.source_next = int(offsets[-1]) + 1
        partition.target_next += len(offsets)

    def save(self) -> None:
        """Saves what is acknowledged."""
        self._file.save(self._state, self._rows)
        self._rows.clear()
        self._saved_at = time.monotonic()

    def _settle(self, key: TopicPartition, partition: RestoredPartition) -> None:
        """Notes the records that have been acknowledged since the last call."""
        self._poll(key, 0)
        waiting = len(self._producer)
        while self._sent and self._unacknowledged - len(self._sent[0]) >= waiting:
            offsets = self._sent.popleft()
            self._unacknowledged -= len(offsets)
            self.note(key, partition, offsets)

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def _failure(self, key: TopicPartition, error: KafkaError) -> RestoreError:
        return RestoreError(
            f"{'{}-{}'.format(*key)}: the cluster has not taken a record: {error.str()}; {_ADVICE}"
        )
