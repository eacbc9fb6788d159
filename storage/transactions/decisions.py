"""Records commits of transactions over several partitions, before their markers are written.

A transaction ends with a marker in each of its partitions, one after the other. Interrupted in
between, only some partitions would have theirs. So the decision is recorded first, as Kafka's
coordinator does in its own topic, and the next process to open the directories completes it. That
has no effect on a partition that already has its marker: a transaction's producer id and epoch
never recur.

The file is in the root of a log directory, where a broker ignores it:

    0
    4611686018427387905 7 orders 0
    4611686018427387905 7 orders 1

The version; then one line per partition, with the transaction's producer id and epoch.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import CorruptError, SegmentGone
from ..format.files.names import TopicPartition, is_legal_topic
from ..io.directory import Directory
from ..io.durable import WritableDirFd, write_in_one_of
from ..io.small_file import lines_of, read_value

TRANSACTIONS_FILE = "kafkafs.transactions"
_VERSION = "0"
_MAX_BYTES = 64 << 20
# Continuing without the file would leave a committed transaction open, or let it be aborted, in
# some of its partitions; so a person must decide.
_ADVICE = (
    "repair it, or move the file away, which leaves the transactions in it without their markers"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The transaction of this producer id and epoch is committed, in all these partitions."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def format_decisions(decisions: Iterable[Decision]) -> bytes:
    """Returns the file's content."""
    lines = [
        f"{decision.producer_id} {decision.producer_epoch} {topic} {partition}"
        for decision in decisions
        for topic, partition in decision.partitions
    ]
    return "".join(f"{line}\n" for line in (_VERSION, *lines)).encode()


def parse_decisions(data: bytes) -> list[Decision]:
    """Parses the file's content. Raises CorruptError, with the line number, if it is malformed."""
    lines = list(lines_of(data))
    if not lines or lines[0][2] != _VERSION:
        what = f"line 1: not version {_VERSION} of a file of committed transactions; {_ADVICE}"
        raise CorruptError(what, position=0)
    found: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
    for number, position, line in lines[1:]:
        try:
            producer_id, epoch, topic, partition = line.split(" ")
            key = _number(producer_id, 63), _number(epoch, 15)
            if not is_legal_topic(topic):
                raise ValueError(topic)
            found[key].append((topic, _number(partition, 31)))
        except ValueError:
            what = f"line {number}: must be producer id, epoch, topic and partition; {_ADVICE}"
            raise CorruptError(what, position=position) from None
    return [Decision(*key, tuple(partitions)) for key, partitions in found.items()]


def _number(text: str, bits: int) -> int:
    """Raises ValueError unless the text is a non-negative number of at most that many bits."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    number = int(text)
    if number >= 1 << bits:
        raise ValueError(text)
    return number


def read_decisions(directory: Directory) -> list[Decision]:
    """Reads the decisions in a log directory; none if there is no file. Raises CorruptError."""
    try:
        return read_value(directory, TRANSACTIONS_FILE, _MAX_BYTES, parse_decisions)
    except SegmentGone:
        return []


class TransactionLog:
    """The decisions of a running engine, stored in the first of its directories that can be
    written. Thread-safe."""

    def __init__(self, live: Callable[[], Sequence[WritableDirFd]]) -> None:
        """`live` returns the log directories that are not offline."""
        self._live = live
        self._pending: dict[tuple[int, int], Decision] = {}
        self._lock = threading.Lock()  # guards both

    def note(self, decision: Decision) -> None:
        """Durably records a decision. If it raises OSError, the decision is not made, as far as
        this process is concerned."""
        key = (decision.producer_id, decision.producer_epoch)
        with self._lock:
            self._write([*self._pending.values(), decision])
            self._pending[key] = decision

    def finished(self, decision: Decision) -> None:
        """Removes a decision whose markers are all written. Its lines stay until the next decision,
        harmlessly."""
        with self._lock:
            self._pending.pop((decision.producer_id, decision.producer_epoch), None)

    def _write(self, decisions: list[Decision]) -> None:
        data = format_decisions(decisions)
        write_in_one_of(self._live(), TRANSACTIONS_FILE, data)
