"""Which writes of staged segments were decided, and which are done: the file `kafkafs.placed`.

A write puts segments into several partitions, one after the other. Stopped in between, by whatever,
some would have theirs and others not. So it is noted before the first one gets its own, as a
transaction is (`transaction_log`); who opens the directories next finishes what was decided.

A writer that repeats itself after a restart (a streaming query does) numbers its writes. The
number of the last one of each such writer stays noted, so that it is done once.

What is made for a write before it is decided, topics, goes again when it never is. So that is noted
first of all.

Who opens the directories changes and removes what the file names, so it may name nothing but parts
in a staging place, which only kafkafs makes and which tells itself by its name.

The file lies in the root of a log directory, where a broker ignores it: the version, then JSON, a
line for each writer, each write for which topics are being made, and each decided write:

    0
    {"writer": "6fd2…", "epoch": 41}
    {"writer": "81c0…", "epoch": null, "topics": {"orders": "w3lWfd3QSJqEpMsVMd8eZA"}}
    {"writer": "6fd2…", "epoch": 42, "parts": [{"topic": "orders", …}]}
"""

from __future__ import annotations

import errno
import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .disk import Directory
from .durable import SyncFailed, WritableDirectory
from .errors import CorruptError, SegmentGone
from .format.names import is_legal_topic, partition_dir
from .segment_series import SealedSegment
from .small_file import lines_of, read_value

PLACEMENTS_FILE = "kafkafs.placed"
#: How the name of every staging place ends.
STAGING_SUFFIX = "kafkafs-staging"
_VERSION = "0"
_MAX_BYTES = 256 << 20
# Going on without the file would leave a decided write in some of its partitions only, and have a
# writer that repeats its last write append it twice; so that is for people to decide.
_ADVICE = "mend it, or move the file away, which gives up the unfinished writes that it names"
_MAX_PARTITION = (1 << 31) - 1
# Writers whose last number is remembered; the one that wrote longest ago is forgotten first.
_MAX_WRITERS = 10_000


@dataclass(frozen=True, slots=True)
class Write:
    """One write: of a `writer` that never comes again or, with an `epoch`, its write of that
    number, which ascends."""

    writer: str
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Sealed segments in the directory `path` that go to one partition, in order. `keeps_offsets`:
    theirs are final, else they count from 0. `records`: how many, at most."""

    path: str
    topic: str
    partition: int
    keeps_offsets: bool
    segments: tuple[SealedSegment, ...]
    records: int

    @property
    def size(self) -> int:
        """Bytes of its `.log` files."""
        return sum(segment.size for segment in self.segments)

    @property
    def attempt(self) -> WritableDirectory:
        """The directory that its own one is in. From the staging place on no link is followed."""
        above, place, job, attempt, _ = self.path.rsplit("/", 4)
        return WritableDirectory(above or "/").child(place).child(job).child(attempt)

    @property
    def directory(self) -> WritableDirectory:
        """Its directory, in that of the attempt."""
        return self.attempt.child(partition_dir(self.topic, self.partition))


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """What one partition gets: the parts it is made from, and the segments as they are to be, with
    batches of this leader epoch."""

    topic: str
    partition: int
    leader_epoch: int
    staged: tuple[StagedPart, ...]
    segments: tuple[SealedSegment, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """A write that is decided: each of these partitions gets its segments."""

    write: Write
    parts: tuple[PlacedPart, ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """A write that is not decided, and the topics that are made for it: their ids by name."""

    write: Write
    topics: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Noted:
    """What the file says. `latest`: of each writer that comes again the number of the last write
    that is done; the writers that wrote last come last."""

    latest: Mapping[str, int] = field(default_factory=dict)
    begun: Sequence[Begun] = ()
    pending: Sequence[Placement] = ()


def format_placements(noted: Noted) -> bytes:
    """The file's bytes."""
    notes: list[dict[str, Any]] = [
        {"writer": writer, "epoch": epoch} for writer, epoch in noted.latest.items()
    ]
    notes += [{**asdict(each.write), "topics": dict(each.topics)} for each in noted.begun]
    notes += [
        {**asdict(each.write), "parts": [asdict(part) for part in each.parts]}
        for each in noted.pending
    ]
    lines = [_VERSION, *(json.dumps(note, separators=(",", ":")) for note in notes)]
    return "".join(f"{line}\n" for line in lines).encode()


def parse_placements(data: bytes) -> Noted:
    """Of a file's bytes. CorruptError, with the number of the line, when it is no such file."""
    lines = list(lines_of(data))
    if not lines or lines[0][2] != _VERSION:
        what = f"line 1: no version {_VERSION} of placed writes; {_ADVICE}"
        raise CorruptError(what, position=0)
    latest: dict[str, int] = {}
    begun: list[Begun] = []
    pending: list[Placement] = []
    for number, position, line in lines[1:]:
        try:
            note = json.loads(line)
            write = Write(_text(note["writer"]), _optional(note["epoch"]))
            if "parts" in note:
                pending.append(Placement(write, tuple(map(_placed_part, note["parts"]))))
            elif "topics" in note:
                begun.append(Begun(write, _topics(note["topics"])))
            else:
                latest[write.writer] = _int(note["epoch"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            what = f"line {number}: not a write and what it places; {_ADVICE}"
            raise CorruptError(what, position=position) from None
    return Noted(latest, begun, pending)


def read_placements(directory: Directory) -> Noted:
    """Those noted in a log directory, none where there is no such file. CorruptError."""
    try:
        return read_value(directory, PLACEMENTS_FILE, _MAX_BYTES, parse_placements)
    except SegmentGone:
        return Noted()


class Placements:
    """The notes of a running engine, in the first of its directories that takes them. Any thread
    may call."""

    def __init__(
        self,
        directories: Sequence[Directory],
        live: Callable[[], Sequence[WritableDirectory]],
    ) -> None:
        """As the `directories` have them; `live` gives those that are not offline. CorruptError."""
        self._live = live
        self._lock = threading.Lock()  # over all that follows
        self._latest: dict[str, int] = {}
        found = [read_placements(directory) for directory in directories]
        for noted in found:
            for writer, epoch in noted.latest.items():
                self._latest[writer] = max(epoch, self._latest.get(writer, epoch))
        # One that went offline may have kept what another one says is done, or decided.
        pending = itertools.chain.from_iterable(noted.pending for noted in found)
        self._pending = {each.write: each for each in pending if not self._is_done(each.write)}
        begun = itertools.chain.from_iterable(noted.begun for noted in found)
        self._begun = {
            each.write: each
            for each in begun
            if each.write not in self._pending and not self._is_done(each.write)
        }

    def is_done(self, write: Write) -> bool:
        """Whether it, or a later one of its writer, was placed."""
        with self._lock:
            return self._is_done(write)

    def _is_done(self, write: Write) -> bool:
        return write.epoch is not None and self._latest.get(write.writer, -1) >= write.epoch

    def is_pending(self, write: Write) -> bool:
        """Whether it is decided and not done."""
        with self._lock:
            return write in self._pending

    def pending(self) -> list[Placement]:
        """Those that are decided and not done."""
        with self._lock:
            return list(self._pending.values())

    def begun(self) -> list[Begun]:
        """Those for which topics were made and that are not decided."""
        with self._lock:
            return list(self._begun.values())

    def begin(self, write: Write, topics: Mapping[str, str]) -> None:
        """Makes it durable that these topics, ids by name, are made for a write. OSError."""
        with self._lock:
            begun = {**self._begun, write: Begun(write, topics)}
            self._write(self._latest, begun, self._pending)
            self._begun = begun

    def give_up(self, write: Write) -> None:
        """Nothing is made for a write any longer. OSError: the file does not say so yet."""
        with self._lock:
            if self._begun.pop(write, None) is not None:
                self._write(self._latest, self._begun, self._pending)

    def decide(self, placement: Placement) -> None:
        """Makes it durable that it is decided. OSError: it is not. SyncFailed when that is not
        certain: only opening the directories again tells."""
        with self._lock:
            begun = {write: each for write, each in self._begun.items() if write != placement.write}
            pending = {**self._pending, placement.write: placement}
            self._write(self._latest, begun, pending)
            self._begun, self._pending = begun, pending

    def done(self, write: Write) -> None:
        """All of it is in place. OSError: the file does not say so yet."""
        with self._lock:
            self._pending.pop(write, None)
            if write.epoch is not None:
                self._latest.pop(write.writer, None)  # so that it comes last
                self._latest[write.writer] = write.epoch
                for oldest in list(self._latest)[:-_MAX_WRITERS]:
                    del self._latest[oldest]
            self._write(self._latest, self._begun, self._pending)

    def _write(
        self, latest: dict[str, int], begun: dict[Write, Begun], pending: dict[Write, Placement]
    ) -> None:
        data = format_placements(Noted(latest, list(begun.values()), list(pending.values())))
        failure = OSError(errno.EIO, "no log directory is live", PLACEMENTS_FILE)
        for directory in self._live():
            try:
                directory.write_atomically(PLACEMENTS_FILE, data)
            except OSError as error:
                if not isinstance(failure, SyncFailed):  # what is certain of none counts
                    failure = error
            else:
                return
        try:
            raise failure
        finally:
            del failure  # else it and this frame would keep each other


def _topics(note: dict[str, Any]) -> dict[str, str]:
    return {_topic(name): _text(topic_id) for name, topic_id in note.items()}


def _placed_part(note: dict[str, Any]) -> PlacedPart:
    return PlacedPart(
        _topic(note["topic"]),
        _int(note["partition"], _MAX_PARTITION),
        _int(note["leader_epoch"], _MAX_PARTITION),
        tuple(map(_staged_part, _some(note["staged"]))),
        tuple(map(_segment, _some(note["segments"]))),
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
    """Whether it is the path of a directory `name` as attempts make it in a staging place."""
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
