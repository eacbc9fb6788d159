"""Which transactions over several partitions are committed, noted before their markers are written.

A transaction ends in each of its partitions with a marker of its own, one after the other. Stopped
in between, by whatever, some partitions would have it and others not. So the decision is noted
first, as Kafka's coordinator does in its own topic; who opens the directories next finishes what
was decided. It says nothing new to a partition that has its marker: a transaction's producer id and
epoch never come again.

The file lies in the root of a log directory, where a broker ignores it:

    0
    4611686018427387905 7 orders 0
    4611686018427387905 7 orders 1

The version; then a line for each partition, with producer id and epoch of the transaction.
"""

from __future__ import annotations

import errno
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .disk import Directory
from .durable import WritableDirectory
from .errors import CorruptError, SegmentGone
from .format.names import is_legal_topic
from .log_dir import TopicPartition
from .small_file import lines_of, read_value

TRANSACTIONS_FILE = "kafkafs.transactions"
_VERSION = "0"
_MAX_BYTES = 64 << 20
# Going on without the file would leave a decided transaction open, or let it be aborted, in some of
# its partitions; so that is for people to decide.
_ADVICE = (
    "mend it, or move the file away, which leaves the transactions in it without their markers"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """The transaction of that producer's epoch is committed, in all these partitions."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


def format_decisions(decisions: Iterable[Decision]) -> bytes:
    """The file's bytes."""
    lines = [
        f"{decision.producer_id} {decision.producer_epoch} {topic} {partition}"
        for decision in decisions
        for topic, partition in decision.partitions
    ]
    return "".join(f"{line}\n" for line in (_VERSION, *lines)).encode()


def parse_decisions(data: bytes) -> list[Decision]:
    """Of a file's bytes. CorruptError, with the number of the line, when it is no such file."""
    lines = list(lines_of(data))
    if not lines or lines[0][2] != _VERSION:
        what = f"line 1: no version {_VERSION} of decided transactions; {_ADVICE}"
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
            what = f"line {number}: not producer id, epoch, topic and partition; {_ADVICE}"
            raise CorruptError(what, position=position) from None
    return [Decision(*key, tuple(partitions)) for key, partitions in found.items()]


def _number(text: str, bits: int) -> int:
    """ValueError unless it is a number from 0 on of so many bits."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(text)
    number = int(text)
    if number >= 1 << bits:
        raise ValueError(text)
    return number


def read_decisions(directory: Directory) -> list[Decision]:
    """Those noted in a log directory, none where there is no such file. CorruptError."""
    try:
        return read_value(directory, TRANSACTIONS_FILE, _MAX_BYTES, parse_decisions)
    except SegmentGone:
        return []


class TransactionLog:
    """The decisions of a running engine, in the first of its directories that takes them. Any
    thread may call."""

    def __init__(self, live: Callable[[], Sequence[WritableDirectory]]) -> None:
        """`live` gives the log directories that are not offline."""
        self._live = live
        self._pending: dict[tuple[int, int], Decision] = {}
        self._lock = threading.Lock()  # over both

    def note(self, decision: Decision) -> None:
        """Makes a decision durable. OSError: it is not taken, as far as this process goes."""
        key = (decision.producer_id, decision.producer_epoch)
        with self._lock:
            self._write([*self._pending.values(), decision])
            self._pending[key] = decision

    def finished(self, decision: Decision) -> None:
        """All markers are written. The lines stay until the next decision; they do no harm."""
        with self._lock:
            self._pending.pop((decision.producer_id, decision.producer_epoch), None)

    def _write(self, decisions: list[Decision]) -> None:
        data = format_decisions(decisions)
        failure = OSError(errno.EIO, "no log directory is live", TRANSACTIONS_FILE)
        for directory in self._live():
            try:
                directory.write_atomically(TRANSACTIONS_FILE, data)
            except OSError as error:
                failure = error
            else:
                return
        try:
            raise failure
        finally:
            del failure  # else it and this frame would keep each other
