"""The commit records of staged writes, pending and completed: the file `kafkafs.placed`.

A write adds segments to several partitions, one after the other. Interrupted in between, it would
be in only some of them. So the commit is recorded before the first partition is changed, as a
transaction's is (`TransactionLog`), and the next process to open the directories completes it.

A writer that repeats itself after a restart (a streaming query) numbers its writes. The last number
of each such writer stays recorded, so that each write is applied once.

Topics created for a write before its commit are removed if it is never committed. So their creation
is recorded first of all.

Opening the directories changes and removes the paths in the file, so it may name only parts in a
staging place, which only kafkafs creates and which is recognised by its name.

The file is in the root of a log directory, where a broker ignores it: the version, then JSON, one
line for each writer, each write whose topics are being created, and each committed write:

    1
    {"writer": "6fd2…", "epoch": 41}
    {"writer": "81c0…", "epoch": null, "topics": {"orders": "w3lWfd3QSJqEpMsVMd8eZA"}}
    {"writer": "6fd2…", "epoch": 42, "parts": [{"topic": "orders", …}]}
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import CorruptError, SegmentGone
from ..format.files.names import is_legal_topic, partition_dir
from ..io.directory import Directory
from ..io.durable import WritableDirFd, write_in_one_of
from ..io.small_file import lines_of, read_value
from .segment_series import SealedSegment

COMMIT_FILE = "kafkafs.placed"
#: The suffix of every staging place's name.
STAGING_SUFFIX = "kafkafs-staging"
# Version 0 has no joined parts. It is still written without them, for older programs.
_VERSIONS = ("0", "1")
_MAX_BYTES = 256 << 20
# Continuing without the file would leave a committed write in only some of its partitions, and let
# a writer that repeats its last write append it twice; so a person must decide.
_ADVICE = "repair it, or move the file away, which abandons the unfinished writes that it names"
_MAX_PARTITION = (1 << 31) - 1
# Writers whose last number is kept; the one that wrote longest ago is dropped first.
_MAX_WRITERS = 10_000


@dataclass(frozen=True, slots=True)
class IngestWrite:
    """One write: of a `writer` that never returns or, with an `epoch`, the writer's write of that
    number, which ascends."""

    writer: str
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Sealed segments in the directory `path` for one partition, in order. `keeps_offsets`: their
    offsets are final, else they count from 0. `records`: the number of records, at most."""

    path: str
    topic: str
    partition: int
    keeps_offsets: bool
    segments: tuple[SealedSegment, ...]
    records: int

    @property
    def size(self) -> int:
        """The bytes of its `.log` files."""
        return sum(segment.size for segment in self.segments)

    @property
    def attempt(self) -> WritableDirFd:
        """The attempt's directory, the parent of this part's. From the staging place on, no link is
        followed."""
        above, place, job, attempt, _ = self.path.rsplit("/", 4)
        return WritableDirFd(above or "/").child(place).child(job).child(attempt)

    @property
    def directory(self) -> WritableDirFd:
        """The part's directory, in that of the attempt."""
        return self.attempt.child(partition_dir(self.topic, self.partition))


@dataclass(frozen=True, slots=True)
class IngestedPart:
    """What one partition receives: the staged parts, and the resulting segments, whose batches have
    this leader epoch. If `is_joined`, there is one, which stands for a single batch at the end of
    the active segment."""

    topic: str
    partition: int
    leader_epoch: int
    staged: tuple[StagedPart, ...]
    segments: tuple[SealedSegment, ...]
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A committed write: each of these partitions receives its segments."""

    write: IngestWrite
    parts: tuple[IngestedPart, ...]


@dataclass(frozen=True, slots=True)
class StartedWrite:
    """A write not yet committed, and the topics created for it: their ids by name."""

    write: IngestWrite
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CommitRecords:
    """The content of the file. `latest`: the number of the last completed write of each writer that
    numbers its writes, the most recent writer last."""

    latest: Mapping[str, int] = field(default_factory=dict)
    started: Sequence[StartedWrite] = ()
    pending: Sequence[CommitRecord] = ()


def format_commit_records(records: CommitRecords) -> bytes:
    """Returns the file's content."""
    notes: list[dict[str, Any]] = [
        {"writer": writer, "epoch": epoch} for writer, epoch in records.latest.items()
    ]
    notes += [{**asdict(each.write), "topics": dict(each.topics)} for each in records.started]
    notes += [
        {**asdict(each.write), "parts": list(map(_note_of, each.parts))} for each in records.pending
    ]
    is_joined = any(part.is_joined for each in records.pending for part in each.parts)
    lines = [_VERSIONS[is_joined], *(json.dumps(note, separators=(",", ":")) for note in notes)]
    return "".join(f"{line}\n" for line in lines).encode()


def _note_of(part: IngestedPart) -> dict[str, Any]:
    note = asdict(part)
    if not note.pop("is_joined"):
        return note
    (note["batch"],) = note.pop("segments")
    return note


def parse_commit_records(data: bytes) -> CommitRecords:
    """Parses the file's content. Raises CorruptError, with the line number, if it is malformed."""
    lines = list(lines_of(data))
    if not lines or lines[0][2] not in _VERSIONS:
        what = f"line 1: not version {' or '.join(_VERSIONS)} of a file of staged writes; {_ADVICE}"
        raise CorruptError(what, position=0)
    latest: dict[str, int] = {}
    started: list[StartedWrite] = []
    pending: list[CommitRecord] = []
    for number, position, line in lines[1:]:
        try:
            note = json.loads(line)
            write = IngestWrite(_text(note["writer"]), _optional(note["epoch"]))
            if "parts" in note:
                pending.append(CommitRecord(write, tuple(map(_ingested_part, note["parts"]))))
            elif "topics" in note:
                started.append(StartedWrite(write, _topics(note["topics"])))
            else:
                latest[write.writer] = _int(note["epoch"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            what = f"line {number}: not a valid write; {_ADVICE}"
            raise CorruptError(what, position=position) from None
    return CommitRecords(latest, started, pending)


def read_commit_records(directory: Directory) -> CommitRecords:
    """Reads the file of a log directory; empty if there is none. Raises CorruptError."""
    try:
        return read_value(directory, COMMIT_FILE, _MAX_BYTES, parse_commit_records)
    except SegmentGone:
        return CommitRecords()


class CommitFile:
    """The commit records of a running engine, stored in the first of its directories that can be
    written. Thread-safe."""

    def __init__(
        self,
        directories: Sequence[Directory],
        live: Callable[[], Sequence[WritableDirFd]],
    ) -> None:
        """Reads them from the `directories`; `live` returns those that are not offline. Raises
        CorruptError."""
        self._live = live
        self._lock = threading.Lock()  # guards all that follows
        self._latest: dict[str, int] = {}
        found = [read_commit_records(directory) for directory in directories]
        for records in found:
            for writer, epoch in records.latest.items():
                self._latest[writer] = max(epoch, self._latest.get(writer, epoch))
        # A directory that went offline may list writes as pending that another lists as completed
        # or committed.
        pending = itertools.chain.from_iterable(records.pending for records in found)
        self._pending = {each.write: each for each in pending if not self._is_done(each.write)}
        started = itertools.chain.from_iterable(records.started for records in found)
        self._started = {
            each.write: each
            for each in started
            if each.write not in self._pending and not self._is_done(each.write)
        }

    def is_done(self, write: IngestWrite) -> bool:
        """Returns whether this write, or a later one of its writer, is complete."""
        with self._lock:
            return self._is_done(write)

    def _is_done(self, write: IngestWrite) -> bool:
        return write.epoch is not None and self._latest.get(write.writer, -1) >= write.epoch

    def last_epoch(self, writer: str) -> int:
        """Returns the number of the last completed write of a writer, -1 if it is unknown."""
        with self._lock:
            return self._latest.get(writer, -1)

    def is_pending(self, write: IngestWrite) -> bool:
        """Returns whether this write is committed but not complete."""
        with self._lock:
            return write in self._pending

    def pending(self) -> list[CommitRecord]:
        """Returns the writes that are committed but not complete."""
        with self._lock:
            return list(self._pending.values())

    def started(self) -> list[StartedWrite]:
        """Returns the writes that have created topics and are not committed."""
        with self._lock:
            return list(self._started.values())

    def start(self, write: IngestWrite, topics: Mapping[str, str]) -> None:
        """Durably records that these topics, ids by name, are created for a write. Raises
        OSError."""
        with self._lock:
            started = {**self._started, write: StartedWrite(write, topics)}
            self._write(self._latest, started, self._pending)
            self._started = started

    def abandon(self, write: IngestWrite) -> None:
        """Removes the record of a write's topics. If it raises OSError, the file still has it."""
        with self._lock:
            if self._started.pop(write, None) is not None:
                self._write(self._latest, self._started, self._pending)

    def commit(self, record: CommitRecord) -> None:
        """Durably records the commit. If it raises OSError, the write is not committed; if
        SyncFailed, that is unknown until the directories are opened again."""
        with self._lock:
            started = {
                write: each for write, each in self._started.items() if write != record.write
            }
            pending = {**self._pending, record.write: record}
            self._write(self._latest, started, pending)
            self._started, self._pending = started, pending

    def done(self, write: IngestWrite) -> None:
        """Records that the write is complete. If it raises OSError, the file does not say so
        yet."""
        with self._lock:
            self._pending.pop(write, None)
            if write.epoch is not None:
                self._latest.pop(write.writer, None)  # so that it moves to the end
                self._latest[write.writer] = write.epoch
                for oldest in list(self._latest)[:-_MAX_WRITERS]:
                    del self._latest[oldest]
            self._write(self._latest, self._started, self._pending)

    def _write(
        self,
        latest: dict[str, int],
        started: dict[IngestWrite, StartedWrite],
        pending: dict[IngestWrite, CommitRecord],
    ) -> None:
        data = format_commit_records(
            CommitRecords(latest, list(started.values()), list(pending.values()))
        )
        write_in_one_of(self._live(), COMMIT_FILE, data)


def _topics(note: dict[str, Any]) -> dict[str, str]:
    return {_topic(name): _text(topic_id) for name, topic_id in note.items()}


def _ingested_part(note: dict[str, Any]) -> IngestedPart:
    is_joined = "batch" in note
    return IngestedPart(
        _topic(note["topic"]),
        _int(note["partition"], _MAX_PARTITION),
        _int(note["leader_epoch"], _MAX_PARTITION),
        tuple(map(_staged_part, _some(note["staged"]))),
        (_segment(note["batch"]),) if is_joined else tuple(map(_segment, _some(note["segments"]))),
        is_joined,
    )


def _staged_part(note: dict[str, Any]) -> StagedPart:
    path, topic = _text(note["path"]), _topic(note["topic"])
    partition = _int(note["partition"], _MAX_PARTITION)
    if not _is_staging_path(path, partition_dir(topic, partition)):
        raise ValueError(path)
    return StagedPart(
        path,
        topic,
        partition,
        note["keeps_offsets"] is True,
        tuple(map(_segment, _some(note["segments"]))),
        _int(note["records"]),
    )


def _is_staging_path(path: str, name: str) -> bool:
    """Returns whether this is the path of a directory `name` as attempts create it in a staging
    place."""
    root, *names = path.split("/")
    is_plain = not root and "\0" not in path and not {"", ".", ".."} & set(names)
    return is_plain and len(names) >= 4 and names[-1] == name and names[-4].endswith(STAGING_SUFFIX)


def _segment(note: dict[str, Any]) -> SealedSegment:
    fields = ("base_offset", "size", "end_offset", "crc")
    return SealedSegment(*(_int(note[field]) for field in fields))


def _some(value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    return value


def _int(value: object, most: int = (1 << 63) - 1) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(value)
    return value


def _optional(value: object) -> int | None:
    return None if value is None else _int(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # UnicodeEncodeError, a ValueError, for half a surrogate pair
    return value


def _topic(value: object) -> str:
    topic = _text(value)
    if not is_legal_topic(topic):
        raise ValueError(topic)
    return topic
