"""Lists open transactions, and aborts hanging ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InvalidTxnState
from ..format.files.names import TopicPartition
from ..io.retry import retry_if_gone
from ..log.state.producers import OpenTransaction, ProducerStateManager
from ..log_dirs.engine import Engine
from .recover import plan_for
from .request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    per_partition,
    writable,
)


@dataclass(frozen=True, slots=True)
class Transactions(PartitionsRequest):
    """Lists the open transactions. `abort`: abort those of the producer with this id, and list only
    them."""

    abort: int | None = None

    @property
    def writes(self) -> bool:
        return self.abort is not None

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition. Returns a failure if the producer has no
        transaction open, as far as everything can be read."""
        PartitionsRequest.check(self, engine)
        if self.abort is None:
            return ()
        found = list(list_transactions(engine, replace(self, abort=None)))
        is_there = any(
            isinstance(each, PartitionFailed) or each.transaction.producer_id == self.abort
            for each in found
        )
        return () if is_there else [_none_open(self.abort)]


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction that is open, or was until it was aborted."""

    topic: str
    partition: int
    transaction: OpenTransaction

    def as_json(self) -> dict[str, Any]:
        found = self.transaction
        return {
            "topic": self.topic,
            "partition": self.partition,
            "producerId": found.producer_id,
            "producerEpoch": found.producer_epoch,
            "coordinatorEpoch": found.coordinator_epoch,
            "firstOffset": found.first_offset,
            "lastTimestamp": found.last_timestamp,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> PartitionTransaction:
        """Restores an object from the result of `as_json`."""
        found = OpenTransaction(
            row["producerId"],
            row["producerEpoch"],
            row["coordinatorEpoch"],
            row["firstOffset"],
            row["lastTimestamp"],
        )
        return cls(row["topic"], row["partition"], found)


def list_transactions(
    engine: Engine, request: Transactions, progress: ProgressListener = SILENT
) -> Iterator[PartitionTransaction | PartitionFailed]:
    """Yields the open transactions, from the newest snapshots and later records; or aborts those of
    one producer and yields them, which fails with InvalidTxnState if there are none."""

    def look(key: TopicPartition) -> Iterator[PartitionTransaction]:
        producers = retry_if_gone(lambda: _producers(engine, key))
        return (PartitionTransaction(*key, each) for each in producers.open_transactions())

    def abort(key: TopicPartition) -> Iterator[PartitionTransaction]:
        from ..transactions.producer import abort_transaction  # which listing does not need

        assert request.abort is not None
        writer = writable(engine).writer(*key)
        for each in writer.producers.open_transactions():
            if each.producer_id == request.abort:
                abort_transaction(writer, request.abort)
                yield PartitionTransaction(*key, each)

    if request.abort is None:
        yield from per_partition(engine, request, "reading partitions", look, progress)
        return
    count = 0
    for row in per_partition(engine, request, "aborting transactions", abort, progress):
        count += 1
        yield row
    if not count:
        yield _none_open(request.abort)


def _producers(engine: Engine, key: TopicPartition) -> ProducerStateManager:
    if engine.at_ms is None:
        return plan_for(engine, *key, is_clean=True).producers
    from ..log.load.last_producers import producers_of

    return producers_of(engine.log(*key).view(), engine.at_ms)


def _none_open(producer_id: int) -> PartitionFailed:
    error = InvalidTxnState(f"producer {producer_id} has no transaction open there")
    return PartitionFailed.of(error)
