"""The storage engine's exceptions: one class for each failure that callers handle differently.

    StorageError
    ├── LogDirError          opening: the path is not a log directory, or not a usable one
    │   ├── LogDirLocked     opening for writing: a broker or another engine holds the directory
    │   └── LogDirOffline    writing: a call failed after which the disk cannot be trusted
    ├── ConfigError          opening: a config whose name or value Kafka would refuse
    ├── UnknownTopic         looking up: no such topic in any of the directories
    │   └── CreatedLater     looking up as of a time: the topic is newer
    ├── UnknownPartition     looking up: no such partition, or its directory was removed
    ├── UnknownGroup         looking up: no group of that name is recorded
    ├── PartitionNotOpened   writing: a partition could not be opened, for example for damage
    ├── OffsetNotFound       looking up: no record is served at that offset
    ├── NoClusterMetadata    looking up: the directories have no log of the cluster's metadata
    ├── MetadataUnavailable  looking up: the metadata on the disk do not reach back that far
    ├── UnknownName          looking up: the cluster's metadata has nothing of that name
    ├── SegmentGone          reading: the file vanished, as live retention and cleaning cause
    ├── DataLoss             reading: records that were to be read no longer exist
    ├── CorruptError         reading: bytes that no Kafka broker wrote
    ├── CleaningAborted      cleaning: the log was truncated or deleted, or cleaning was stopped
    ├── UnknownSchema        looking up: no schema has this id, or no subject this name
    ├── SchemaError          decoding: a schema that cannot be used
    │   └── MissingReference decoding: a schema refers to one that is not there
    ├── DatumError           decoding: a key or value that does not fit its schema
    │   └── BytesLeft        decoding: it does, but bytes follow it
    ├── RecordNotFound       erasing: no such record is on the disk
    ├── NotErased            erasing: a file that is not of the log still holds such a record
    ├── CannotUndelete       restoring: the deleted data no longer exists, or does not fit
    ├── TopicExists          creating: the topic exists, or one whose name differs in . and _
    ├── ConfigsNotRemoved    deleting: the topic is gone, but not its configs in kafkafs's own file
    ├── BadLine              appending lines: one is not a record, or was refused
    ├── OtherJob             resuming: the notes are those of another job
    ├── NotClosed            closing: everything is durable, but the next opening must recover
    └── Refused              writing: Kafka would answer with an error; nothing was written
        ├── InvalidTopic, InvalidPartitions, Unregistered
        ├── InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
        ├── OffsetOutOfRange, PolicyViolation, NotCompacted, InRemoteStorage
        └── OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
            TransactionCoordinatorFenced

`OSError` is not wrapped: a failing disk (EIO) or an unreadable file (EACCES) keeps its errno, and
`filename` names the file.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import TypeVar

from .clock import time_text
from .wording import NAMES_SHOWN, did_you_mean, first_of, nearest, printable, ranges


class StorageError(Exception):
    """Base of all errors of the engine. `str()` is one line for people, attributes are for
    programs."""


class CorruptError(StorageError):
    """Bytes on disk that violate their format.

    `position` is the byte in `file` where the broken element starts, -1 if unknown. Code that
    decodes bytes without knowing their origin leaves both out and counts positions from the start
    of its input; a caller that knows the origin adds them with `at`.
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
        """Returns the same error in `file`, where the decoded bytes start at position `base`."""
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
    """No partition of `topic` exists in the log directories, whose topics are `there`. `strays`:
    the paths in the tree under which stray partitions of that topic can be read."""

    def __init__(self, topic: str, there: Collection[str] = (), strays: Sequence[str] = ()) -> None:
        super().__init__(topic)
        self.topic = topic
        self.strays = strays
        self._there = there

    def __reduce__(self) -> tuple[type[UnknownTopic], tuple[object, ...]]:
        return type(self), (self.topic, self.similar, self.strays)

    @property
    def similar(self) -> tuple[str, ...]:
        """The topics that may have been meant, the likeliest first."""
        return tuple(nearest(self.topic, self._there))

    def __str__(self) -> str:
        if self.strays:
            more = ", …" if len(self.strays) > NAMES_SHOWN else ""
            shown = ", ".join(self.strays[:NAMES_SHOWN]) + more
            hint = f"; a broker set its partitions aside as stray, read them as {shown}"
        else:
            hint = did_you_mean(self.topic, self._there)
        return printable(f"no topic {self.topic}{hint}")


class CreatedLater(UnknownTopic):
    """`topic` was created after `at_ms` (ms since 1970), when the topics were `there`."""

    def __init__(self, topic: str, at_ms: int, there: Collection[str] = ()) -> None:
        super().__init__(topic, there)
        self.at_ms = at_ms

    def __reduce__(self) -> tuple[type[CreatedLater], tuple[object, ...]]:
        return type(self), (self.topic, self.at_ms, tuple(self._there))

    def __str__(self) -> str:
        shown = sorted(self._there)[:NAMES_SHOWN]
        more = len(self._there) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        had = f"then there were {names}" if shown else "then there was none"
        return printable(f"topic {self.topic} was created after {time_text(self.at_ms)}; {had}")


class UnknownPartition(StorageError):
    """`topic` has no partition `partition`, or its directory was removed after it was opened.
    `there`: the numbers of the topic's partitions, if known."""

    def __init__(self, topic: str, partition: int, there: Sequence[int] = ()) -> None:
        super().__init__(topic, partition, there)
        self.topic = topic
        self.partition = partition
        self.there = there

    def __str__(self) -> str:
        text = f"{printable(self.topic)} has no partition {self.partition}"
        return f"{text} (it has {ranges(self.there)})" if self.there else text


class NoClusterMetadata(StorageError):
    """None of the directories, at `paths`, has a log of the cluster's metadata."""

    def __init__(self, paths: str) -> None:
        super().__init__(paths)
        self.paths = paths

    def __str__(self) -> str:
        return (
            f"{printable(self.paths)}: no __cluster_metadata-0, the log of the cluster's metadata;"
            " a KRaft broker has it in the first of its log.dirs, or in metadata.log.dir, and up to"
            " Kafka 3.9 a cluster may have used ZooKeeper instead"
        )


class MetadataUnavailable(StorageError):
    """The state of the cluster at `offset` or `at_ms` (ms since 1970; None if not given) cannot be
    derived from the metadata log in the directory `path`; `reach` says what can."""

    def __init__(self, path: str, offset: int | None, at_ms: int | None, reach: str) -> None:
        super().__init__(path, offset, at_ms, reach)
        self.path = path
        self.offset = offset
        self.at_ms = at_ms
        self.reach = reach

    def __str__(self) -> str:
        when = "" if self.at_ms is None else f" at {time_text(self.at_ms)}"
        where = "" if self.offset is None else f" at offset {self.offset}"
        what = f"the state of the cluster{when}{where} is unknown"
        return f"{printable(self.path)}: {what}: {self.reach}"


class UnknownGroup(StorageError):
    """No group `group` is recorded in the log directories, whose groups are `there`. `coordinator`:
    the partition of `__consumer_offsets` that would record it, if that is in none of them, else
    "". `then`: the time of which the groups are, as text, "" for now."""

    def __init__(
        self, group: str, there: Sequence[str] = (), coordinator: str = "", then: str = ""
    ) -> None:
        super().__init__(group, there, coordinator, then)
        self.group = group
        self.there = there
        self.coordinator = coordinator
        self.then = then

    def __str__(self) -> str:
        if self.coordinator:
            hint = f"; {self.coordinator}, which records it, is not in these directories"
        elif not self.there:
            hint = "; no groups are recorded in these directories"
        else:
            hint = did_you_mean(self.group, self.there) or f"; there are {first_of(self.there)}"
        when = f" at {self.then}" if self.then else ""
        return printable(f"no group {self.group}{when}{hint}")


class UnknownName(StorageError):
    """None of the cluster's `what`, which are called `there`, has this name."""

    def __init__(self, what: str, name: str, there: Sequence[str]) -> None:
        super().__init__(what, name, there)
        self.what = what
        self.name = name
        self.there = there

    def __str__(self) -> str:
        if not self.there:
            hint = "; there are none"
        else:
            hint = did_you_mean(self.name, self.there) or f"; there are {first_of(self.there)}"
        return printable(f"the {self.what} of the cluster include no {self.name}{hint}")


class UnknownSchema(StorageError):
    """No schema, subject or version `name` is recorded in the log directories, whose subjects are
    `there`."""

    def __init__(self, name: str, there: Sequence[str] = ()) -> None:
        super().__init__(name, there)
        self.name = name
        self.there = there

    def __str__(self) -> str:
        if not self.there:
            hint = "; no schemas are recorded in these directories"
        else:
            hint = did_you_mean(self.name, self.there) or f"; there are {first_of(self.there)}"
        return printable(f"no subject {self.name}{hint}")


class SchemaError(StorageError):
    """The schema that messages call `name` cannot be used because of `why`."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return printable(f"{self.name}: {self.why}")


class MissingReference(SchemaError):
    """The schema `name` refers to a version of a subject that is not there; `why` names it."""


class DatumError(StorageError):
    """Bytes that are not a datum of their schema, because of `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return printable(self.why)


class BytesLeft(DatumError):
    """Bytes follow a datum, which is `value`: as Confluent's deserializers do, users are shown it,
    together with this reason."""

    def __init__(self, why: str, value: object) -> None:
        super().__init__(why)
        self.value = value

    def __reduce__(self) -> tuple[type[BytesLeft], tuple[str, object]]:
        return type(self), (self.why, self.value)


class PartitionNotOpened(StorageError):
    """The partition exists, but could not be opened for writing because of `why`, when its log
    directory was opened."""

    def __init__(self, topic: str, partition: int, why: str) -> None:
        super().__init__(topic, partition, why)
        self.topic = topic
        self.partition = partition
        self.why = why

    def __str__(self) -> str:
        name = printable(f"{self.topic}-{self.partition}")
        return f"{name} could not be opened for writing: {self.why}"


class LogDirError(StorageError):
    """`path` is not a log directory, or not a usable one; `why` says what to do about it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.why}"


class LogDirLocked(LogDirError):
    """Another process holds the directory: `pid` is that of the holder of `.lock`, -1 if the system
    does not report it (a holder on another machine)."""

    def __init__(self, path: str, why: str, pid: int = -1) -> None:
        super().__init__(path, why)
        self.pid = pid


class LogDirOffline(LogDirError):
    """Nothing more is written to the directory until it is reopened: a write or an fsync failed in
    a way that leaves the state of the disk unknown (Kafka's LogDirFailureChannel)."""


class RecordNotFound(StorageError):
    """No record that is to be erased is on the disk. `what` describes such a record."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"no record {self.what} is on the disk"


class NotErased(StorageError):
    """The file `path` holds records that were to be erased, and still does because of `why`; or it
    may hold some if `is_certain` is false."""

    def __init__(self, path: str, why: str, is_certain: bool = True) -> None:
        super().__init__(path, why, is_certain)
        self.path = path
        self.why = why
        self.is_certain = is_certain

    def __str__(self) -> str:
        holds = "still holds" if self.is_certain else "may still hold"
        return f"{printable(self.path)}: {holds} such records: {self.why}"


class SegmentGone(StorageError):
    """`file` was listed, but has since been removed or replaced.

    Not corruption: a broker's retention, cleaner or topic deletion removed it. Read again.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file

    def __str__(self) -> str:
        return f"{printable(self.file)}: the file was removed or replaced"


class DataLoss(StorageError):
    """Records that were to be read no longer exist: retention deleted them, or their topic was
    deleted. The message says which."""


class OtherJob(StorageError):
    """A directory has the notes of another job, or of the same job with other arguments."""


class CleaningAborted(StorageError):
    """A cleaning was aborted because of `why`: the log changed, or an abort was requested
    (LogCleaningAbortedException). Segments already swapped in stay."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"cleaning aborted: {self.why}"


class CannotUndelete(StorageError):
    """`what`, a topic or the path of a partition, cannot be restored because of `why`."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.what)}: cannot be restored: {self.why}"


class TopicExists(StorageError):
    """`topic` cannot be created because `existing` exists: the same name, or one that differs only
    in `.` and `_`, which Kafka's metrics cannot distinguish (Topic.hasCollision)."""

    def __init__(self, topic: str, existing: str) -> None:
        super().__init__(topic, existing)
        self.topic = topic
        self.existing = existing

    def __str__(self) -> str:
        if self.topic == self.existing:
            return f"topic {printable(self.topic)} exists"
        return (
            f"topic {printable(self.topic)}: too similar to the existing {printable(self.existing)}"
        )


class Refused(StorageError):
    """A write was rejected and nothing has changed. The class corresponds to Kafka's error
    (Errors); `why` says what was wrong, `index` is that of the offending record, -1 if no single
    record is at fault."""

    def __init__(self, why: str, index: int = -1) -> None:
        super().__init__(why, index)
        self.why = why
        self.index = index

    def __str__(self) -> str:
        return self.why if self.index < 0 else f"record {self.index}: {self.why}"


class InvalidTopic(Refused):
    """An illegal topic name (INVALID_TOPIC_EXCEPTION)."""


class InvalidPartitions(Refused):
    """An illegal number of partitions (INVALID_PARTITIONS)."""


class InvalidRecord(Refused):
    """A batch or record that violates a rule (INVALID_RECORD, CORRUPT_MESSAGE)."""


class InvalidTimestamp(Refused):
    """A timestamp outside the range allowed by message.timestamp.before.max.ms and .after.max.ms
    (INVALID_TIMESTAMP)."""


class MessageTooLarge(Refused):
    """A batch larger than max.message.bytes (MESSAGE_TOO_LARGE)."""


class RecordListTooLarge(Refused):
    """An append larger than a segment (RECORD_LIST_TOO_LARGE)."""


class BadLine(StorageError):
    """Line `number` (from 1) of the input is not a record, or was refused because of `cause`. The
    lines before it are appended."""

    def __init__(self, number: int, cause: Refused) -> None:
        super().__init__(number, cause)
        self.number = number
        self.cause = cause

    def __str__(self) -> str:
        return f"line {self.number}: {self.cause.why}"


class Unregistered(Refused):
    """A topic or partition unknown to the KRaft cluster: a broker would turn it into a stray.
    `has_metadata`: whether the cluster's metadata is in the open directories."""

    def __init__(self, topic: str, directory: str, *, has_metadata: bool) -> None:
        partitions = f"the new partitions of {printable(topic)}"
        if has_metadata:
            known = f"whose metadata has no replicas of {partitions} on this node"
            or_else = "if it is the only voter, use `kafkafs topic create --register`, else "
        else:
            known = f"and its metadata, which would list {partitions}, is not here"
            or_else = "give all of the broker's log.dirs, "
        super().__init__(
            f"{printable(directory)} belongs to a KRaft cluster, {known}: when a broker starts"
            " there, it renames the directories of such partitions to -stray"
            f" and does not serve them; {or_else}create the topic with the broker or, if no broker"
            " will use the directory, with --unregistered (in Spark the option unregistered=true)"
        )


class OffsetOutOfRange(Refused):
    """An offset below the log start offset or above the high watermark (OFFSET_OUT_OF_RANGE)."""


class PolicyViolation(Refused):
    """Deleting records of a log whose only cleanup policy is compact (POLICY_VIOLATION)."""


class InRemoteStorage(PolicyViolation):
    """`topic` is not deleted, because something of it would stay in remote storage: `remains` says
    what."""

    def __init__(self, topic: str, remains: str) -> None:
        super().__init__(
            f"{printable(topic)}: not deleted, because {remains}, and would stay there: have a"
            " broker delete the topic, or delete only what is here with --keep-remote"
        )
        self.topic = topic
        self.remains = remains


class NotCompacted(PolicyViolation):
    """A log cannot be compacted because of its topic's configs."""

    def __init__(self, why: str = 'cleanup.policy does not include "compact"') -> None:
        super().__init__(why)

    def __reduce__(self) -> tuple[type[NotCompacted], tuple[str]]:
        return NotCompacted, (self.why,)


class OutOfOrderSequence(Refused):
    """A batch of an idempotent producer that does not follow its previous one
    (OUT_OF_ORDER_SEQUENCE_NUMBER)."""


class InvalidProducerEpoch(Refused):
    """A batch of a producer that was fenced by a higher epoch (INVALID_PRODUCER_EPOCH)."""


class InvalidTxnState(Refused):
    """Non-transactional data of a producer inside its transaction, or the end of a transaction that
    is not open (INVALID_TXN_STATE)."""


class TransactionCoordinatorFenced(Refused):
    """A marker of a coordinator that a later one has fenced (TRANSACTION_COORDINATOR_FENCED)."""


class NotClosed(StorageError):
    """All changes in the directory `path` are durable, but files that speed up the next opening,
    such as checkpoints, could not be written because of `why`. Nothing is lost and nothing need be
    repeated: the next opening recovers the directory."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return (
            f"{printable(self.path)}: all changes are on disk, but the directory could not be"
            f" closed cleanly ({printable(self.why)});"
            " the next opening for writing recovers it"
        )


class ConfigsNotRemoved(StorageError):
    """The topic `topic` is deleted, but its configs could not be removed from kafkafs's own file
    because of `why`. A new topic of that name does not inherit them."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(topic, why)
        self.topic = topic
        self.why = why

    def __str__(self) -> str:
        return (
            f"topic {printable(self.topic)} is deleted, but its configs are still in kafkafs's own"
            f" file ({printable(self.why)}); a new topic of that name does not inherit them"
        )


class ConfigError(StorageError):
    """The config `name` does not exist, or has a value that Kafka would refuse; `why` says what is
    allowed."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.why}"


Error = TypeVar("Error", bound=BaseException)


def fresh(error: Error) -> Error:
    """Returns a copy of a stored error, to be raised in its place.

    A raised error references all frames that it passes. If one of them can reach the error, they
    form a cycle, and open files stay open until the garbage collector runs.
    """
    return copy.copy(error)


def raise_first(failures: list[Error]) -> None:
    """Raises the first of the failures, if there are any, and clears the list: its owner's frame is
    in the traceback, so that they would form a reference cycle."""
    if failures:
        first = failures[0]
        failures.clear()
        try:
            raise first
        finally:
            del first
