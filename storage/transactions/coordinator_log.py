"""Reads and writes the records of `__transaction_state`: the state of each transactional.id.

The latest record of an id counts. A coordinator that loads them completes what is prepared, and
aborts what is ongoing once its timeout is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

from ..errors import CorruptError
from ..format.messages.coordinator_records import CoordinatorRecords
from ..format.messages.message import Message, parse_schemas
from ..format.messages.schemas import transaction_coordinator
from ..format.records.columns import Damage
from ..format.records.record_columns import SimpleRecord
from ..log.read.transactions import Isolation
from ..log.read.view import View

TRANSACTIONS_TOPIC: Final = "__transaction_state"
_STATE: Final = 0  # the only type of record
_MAX_EPOCH: Final = (1 << 15) - 1


class TransactionStatus(IntEnum):
    """The numbers of Kafka's TransactionState."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The state of a transactional.id. `partition`: that of the topic where it is; `version`: that
    of the record with this `value`."""

    transactional_id: str
    partition: int
    version: int
    value: Message

    @property
    def status(self) -> int:
        return int(self.value["transactionStatus"])

    @property
    def producer_id(self) -> int:
        return int(self.value["producerId"])

    def includes(self, topic: str, partition: int) -> bool:
        """Returns whether a partition takes part in the transaction."""
        return any(
            each["topic"] == topic and partition in each["partitionIds"]
            for each in self.value["transactionPartitions"] or ()
        )

    @property
    def next_producer_id(self) -> int:
        """The id that the producer gets when its epochs are used up, -1 if it has none yet."""
        return int(self.value.get("nextProducerId", -1))

    @property
    def next_epoch(self) -> int:
        """The epoch that fences the producer, which is the greatest one already if it has that."""
        return min(int(self.value["producerEpoch"]) + 1, _MAX_EPOCH)

    def aborted(self, now_ms: int) -> SimpleRecord:
        """Returns the record by which its transaction is aborted, and its producer fenced, after
        all markers were written."""
        records = _records()
        value = {
            **self.value,
            "producerEpoch": self.next_epoch,
            "transactionStatus": int(TransactionStatus.COMPLETE_ABORT),
            "transactionPartitions": [],
            "transactionLastUpdateTimestampMs": now_ms,
        }
        key = records.encode_key(_STATE, {"transactionalId": self.transactional_id})
        return SimpleRecord(now_ms, key, records.encode_value(_STATE, value, self.version))


def read_transaction_states(views: Iterable[tuple[int, View]]) -> list[TransactionState]:
    """Returns the state of every transactional.id in partitions of the topic, given by number.
    Records that cannot be read are skipped."""
    found: dict[str, TransactionState] = {}
    for partition, view in views:
        for columns in view.scan(isolation=Isolation.READ_UNCOMMITTED):
            if isinstance(columns, Damage):
                continue
            for row in range(len(columns)):
                _replay(found, partition, columns.key(row), columns.value(row))
    return list(found.values())


def _replay(
    found: dict[str, TransactionState], partition: int, key: bytes | None, value: bytes | None
) -> None:
    records = _records()
    try:
        if key is None or records.number(key) != _STATE:
            return
        name = records.read_key(_STATE, key)["transactionalId"]
        if value is None:
            found.pop(name, None)
        else:
            version, message = records.read_value(_STATE, value)
            found[name] = TransactionState(name, partition, version, message)
    except CorruptError:
        return


@lru_cache(maxsize=1)
def _records() -> CoordinatorRecords:
    return CoordinatorRecords(parse_schemas(transaction_coordinator.SCHEMAS))
