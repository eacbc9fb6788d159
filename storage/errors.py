"""What can go wrong in the storage engine: a class for each thing that a caller treats differently.

    StorageError
    ├── LogDirError          opening: the path is no log directory, or not one that can be used
    │   ├── LogDirLocked     opening to write: a broker or another engine holds the directory
    │   └── LogDirOffline    writing: a call failed after which the disk cannot be trusted
    ├── ConfigError          opening: a setting whose name or value Kafka would refuse
    ├── UnknownTopic         looking up: no such topic in any of the directories
    ├── UnknownPartition     looking up: the topic has no such partition, or its directory has gone
    ├── OffsetNotFound       looking up: no record is served at that offset
    ├── SegmentGone          reading: the file vanished under us, as live retention and cleaning do
    ├── CorruptError         reading: bytes that no Kafka broker wrote
    ├── CleaningAborted      cleaning: the log was cut, deleted or its cleaning stopped meanwhile
    ├── CannotUndelete       bringing back: what was deleted is not there any more, or does not fit
    ├── TopicExists          creating: there is such a topic, or one whose name differs in . and _
    └── Refused              writing: what Kafka would answer with an error; nothing was written
        ├── InvalidTopic, InvalidPartitions, Unregistered
        ├── InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
        ├── OffsetOutOfRange, PolicyViolation
        └── OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
            TransactionCoordinatorFenced

`OSError` is not wrapped: a disk that fails (EIO) or a file that may not be read (EACCES) keeps its
errno, and its `filename` says which file it was.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TypeVar

from .nearest import did_you_mean, nearest

# Of the partitions of a topic that has gaps between their numbers.
_RANGES_SHOWN = 8


class StorageError(Exception):
    """Base of all errors of the engine. `str()` is one line for people, attributes for programs."""


class CorruptError(StorageError):
    """Bytes on disk that break a rule of their format.

    `position` is the byte in `file` where the broken thing starts, -1 when it is not known. Code
    that decodes bytes without knowing where they came from leaves both out and counts positions
    from the start of what it was given; the caller that does know adds them with `at`.
    """

    def __init__(self, what: str, file: str = "", position: int = -1) -> None:
        super().__init__(what, file, position)
        self.what = what
        self.file = file
        self.position = position

    def __str__(self) -> str:
        place = [printable(self.file)] if self.file else []
        if self.position >= 0:
            place.append(f"position {self.position}")
        return ": ".join([*place, self.what])

    def at(self, file: str, base: int = 0) -> CorruptError:
        """The same error in `file`, where the decoded bytes start at position `base`."""
        return CorruptError(self.what, file, base + max(self.position, 0))


class OffsetNotFound(StorageError):
    """No record is served at `offset`. `why` is a sentence that names the offset and the partition:
    the offset is out of range, or its record was compacted away or is hidden."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(offset, why)
        self.offset = offset
        self.why = why

    def __str__(self) -> str:
        return self.why


class UnknownTopic(StorageError):
    """No partition of `topic` exists in the log directories, which have the topics `there`."""

    def __init__(self, topic: str, there: Collection[str] = ()) -> None:
        super().__init__(topic)
        self.topic = topic
        self._there = there

    def __reduce__(self) -> tuple[type[UnknownTopic], tuple[str, Collection[str]]]:
        return type(self), (self.topic, self.similar)

    @property
    def similar(self) -> tuple[str, ...]:
        """The topics that may have been meant, the likeliest first."""
        return tuple(nearest(self.topic, self._there))

    def __str__(self) -> str:
        return printable(f"no topic {self.topic}" + did_you_mean(self.topic, self._there))


class UnknownPartition(StorageError):
    """There is no partition `partition` of `topic`, or its directory has been removed since it was
    opened. `there`: the numbers of the partitions that the topic has, if they are known."""

    def __init__(self, topic: str, partition: int, there: Sequence[int] = ()) -> None:
        super().__init__(topic, partition, there)
        self.topic = topic
        self.partition = partition
        self.there = there

    def __str__(self) -> str:
        text = f"{printable(self.topic)} has no partition {self.partition}"
        return f"{text} (it has {ranges(self.there)})" if self.there else text


class LogDirError(StorageError):
    """`path` is not a log directory, or one that cannot be served; `why` says what to do about
    it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.why}"


class LogDirLocked(LogDirError):
    """Somebody else has the directory: `pid` of the process that holds its `.lock`, -1 when the
    system does not tell (a holder on another machine)."""

    def __init__(self, path: str, why: str, pid: int = -1) -> None:
        super().__init__(path, why)
        self.pid = pid


class LogDirOffline(LogDirError):
    """Nothing is written to the directory any more until it is opened anew: a write or an fsync
    failed in a way that leaves open what is on the disk (Kafka's LogDirFailureChannel)."""


class SegmentGone(StorageError):
    """`file` was there when it was listed and is not there, or is another file, now.

    No damage: a broker's retention, cleaner or topic deletion took it. Look again.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file

    def __str__(self) -> str:
        return f"{printable(self.file)}: the file has gone or was replaced"


class CleaningAborted(StorageError):
    """A cleaning was given up for `why`: the log changed under it, or somebody asked for that
    (LogCleaningAbortedException). What it had swapped in so far stays."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"cleaning given up: {self.why}"


class CannotUndelete(StorageError):
    """`what`, a topic or the path of a partition, cannot be brought back for `why`."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.what)}: cannot be brought back: {self.why}"


class TopicExists(StorageError):
    """`topic` cannot be created because `existing` is there: the same name, or one that differs
    only in `.` and `_`, which Kafka's metrics cannot tell apart (Topic.hasCollision)."""

    def __init__(self, topic: str, existing: str) -> None:
        super().__init__(topic, existing)
        self.topic = topic
        self.existing = existing

    def __str__(self) -> str:
        if self.topic == self.existing:
            return f"topic {printable(self.topic)} exists"
        return f"topic {printable(self.topic)}: too like {printable(self.existing)}, which exists"


class Refused(StorageError):
    """Something was not written, and nothing has changed. The class is Kafka's error (Errors);
    `why` says what was wrong, `index` which of the records given it was, -1 when it is about no
    single one."""

    def __init__(self, why: str, index: int = -1) -> None:
        super().__init__(why, index)
        self.why = why
        self.index = index

    def __str__(self) -> str:
        return self.why if self.index < 0 else f"record {self.index}: {self.why}"


class InvalidTopic(Refused):
    """A name that no topic can have (INVALID_TOPIC_EXCEPTION)."""


class InvalidPartitions(Refused):
    """A number of partitions that a topic cannot have (INVALID_PARTITIONS)."""


class InvalidRecord(Refused):
    """A batch or record that breaks a rule (INVALID_RECORD, CORRUPT_MESSAGE)."""


class InvalidTimestamp(Refused):
    """A timestamp outside what message.timestamp.before.max.ms and .after.max.ms allow
    (INVALID_TIMESTAMP)."""


class MessageTooLarge(Refused):
    """A batch larger than max.message.bytes (MESSAGE_TOO_LARGE)."""


class RecordListTooLarge(Refused):
    """An append larger than a segment (RECORD_LIST_TOO_LARGE)."""


class BadLine(StorageError):
    """Line `number`, from 1, of some that were to be appended is no record, or is refused for
    `cause`. Those before it are appended."""

    def __init__(self, number: int, cause: Refused) -> None:
        super().__init__(number, cause)
        self.number = number
        self.cause = cause

    def __str__(self) -> str:
        return f"line {self.number}: {self.cause.why}"


class Unregistered(Refused):
    """A topic or partition that a KRaft broker would not know: it would make a stray of it.
    `has_metadata`: whether the cluster's metadata are in the directories that are open."""

    def __init__(self, topic: str, directory: str, *, has_metadata: bool) -> None:
        partitions = f"the new partitions of {printable(topic)}"
        if has_metadata:
            known, or_else = f"which has no replicas of {partitions} on this node", ""
        else:
            known = f"and nothing here tells whether that has {partitions}"
            or_else = "give all of the broker's log.dirs, "
        super().__init__(
            f"{printable(directory)} belongs to a KRaft cluster, {known}: a broker that starts"
            " there renames the directories of such partitions to -stray"
            f" and serves nothing of them; {or_else}create the topic with the broker, or, if none"
            " will use the directory, with --unregistered (in Spark the option unregistered=true)"
        )


class OffsetOutOfRange(Refused):
    """An offset below the log start offset or above the high watermark (OFFSET_OUT_OF_RANGE)."""


class PolicyViolation(Refused):
    """Deleting records of a log that is only compacted (POLICY_VIOLATION)."""


class OutOfOrderSequence(Refused):
    """A batch of an idempotent producer that does not follow its last one
    (OUT_OF_ORDER_SEQUENCE_NUMBER)."""


class InvalidProducerEpoch(Refused):
    """A batch of a producer that another one with a higher epoch has replaced
    (INVALID_PRODUCER_EPOCH)."""


class InvalidTxnState(Refused):
    """Plain data of a producer inside its transaction, or a transaction's end without one
    (INVALID_TXN_STATE)."""


class TransactionCoordinatorFenced(Refused):
    """A marker of a coordinator that a later one has replaced (TRANSACTION_COORDINATOR_FENCED)."""


class NotClosed(StorageError):
    """Everything that was changed in the directory `path` is durable, but what makes the next
    opening quick, such as checkpoints, could not be written: `why`. Nothing is lost, since that
    opening recovers the directory, and nothing must be repeated."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return (
            f"{printable(self.path)}: all changes are on the disk, but the directory could not be"
            f" closed in good order ({printable(self.why)});"
            " the next opening for writing recovers it"
        )


class SettingsStay(StorageError):
    """The topic `topic` is deleted, but its settings could not be taken out of kafkafs's own file:
    `why`. A new topic of that name has none of them."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(topic, why)
        self.topic = topic
        self.why = why

    def __str__(self) -> str:
        return (
            f"topic {printable(self.topic)} is deleted, but its settings are still in kafkafs's own"
            f" file ({printable(self.why)}); a new topic of that name has none of them"
        )


class ConfigError(StorageError):
    """The setting `name` does not exist, or has a value that Kafka would refuse; `why` gives what
    is allowed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.why}"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in words: `0 to 2`, `0, 4 to 6`; of many ranges, the first ones."""
    starts = [numbers[0], *(high for low, high in pairwise(numbers) if high != low + 1)]
    ends = [*(low for low, high in pairwise(numbers) if high != low + 1), numbers[-1]]
    spans = [
        f"{start}" if start == end else f"{start} to {end}"
        for start, end in zip(starts, ends, strict=True)
    ]
    more = ", …" if len(spans) > _RANGES_SHOWN else ""
    return ", ".join(spans[:_RANGES_SHOWN]) + more


Error = TypeVar("Error", bound=BaseException)


def fresh(error: Error) -> Error:
    """A copy of an error that is kept somewhere, to be raised in its place.

    An error that is raised keeps all frames that it passes. If one of them can reach the error,
    they keep each other, and what they read with stays open until the garbage collector comes.
    """
    return copy.copy(error)


def printable(text: str) -> str:
    """`text` on one line, safe for a terminal and a UTF-8 log, however it was made up.

    Line breaks, escapes and bytes that are not UTF-8 (surrogates, in Python's file names) come out
    as escapes.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that os.fsdecode could not decode
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
