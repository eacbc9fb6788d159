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
        ├── InvalidTopic, InvalidPartitions
        ├── InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
        ├── OffsetOutOfRange, PolicyViolation
        └── OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
            TransactionCoordinatorFenced

`OSError` is not wrapped: a disk that fails (EIO) or a file that may not be read (EACCES) keeps its
errno, and its `filename` says which file it was.
"""

from __future__ import annotations


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
    """No record is served at `offset`; `why`: never written, compacted, out of range, hidden."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(offset, why)
        self.offset = offset
        self.why = why

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.why}"


class UnknownTopic(StorageError):
    """No partition of `topic` exists in the log directories."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"no topic {printable(self.topic)}"


class UnknownPartition(StorageError):
    """There is no partition `partition` of `topic`, or its directory has gone since it was
    opened."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic = topic
        self.partition = partition

    def __str__(self) -> str:
        return f"no partition {printable(self.topic)}-{self.partition}"


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


class ConfigError(StorageError):
    """The setting `name` does not exist, or has a value that Kafka would refuse; `why` gives what
    is allowed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.why}"


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
