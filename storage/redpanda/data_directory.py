"""A data directory of Redpanda as the log directory of a Kafka broker.

Its partitions are those in the namespace `kafka`. The other namespaces have no records of Kafka:
`redpanda` (the controller and the key-value store) and `kafka_internal` (transactions, ids).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from zlib import crc32

from ..errors import CorruptError, LogDirError, SegmentGone, StorageError
from ..format.files.checkpoints import format_offsets
from ..format.files.names import (
    LOG_START_OFFSET_FILE,
    TopicPartition,
    is_legal_topic,
    partition_dir,
)
from ..io.assembled import AssembledDirectory, AssembledListing, FileOfBytes, directory_status
from ..io.directory import Directory, DirectoryEntry, FileType, HeldDirectory, ReadableFile
from ..wording import printable
from .kvstore import Placed, UnseenOffsets, read_unseen_offsets
from .log_start import LogStart
from .names import KAFKA_NAMESPACE, PartitionName, parse_partition
from .partition import RedpandaPartition
from .translation import identity_of

# How long a listing of the topics counts, and how long the starts of the logs do, which a broker of
# Kafka writes once a minute.
_LISTING_SECONDS: Final = 1.0
_STARTS_SECONDS: Final = 10.0


def is_data_directory(directory: Directory) -> bool:
    """Returns whether a directory has the layout of Redpanda's data directory, or is its namespace
    `kafka`."""
    try:
        names = {entry.name for entry in directory.list() if entry.is_dir}
        if KAFKA_NAMESPACE in names:
            directory = directory.child(KAFKA_NAMESPACE)
            names = {entry.name for entry in directory.list() if entry.is_dir}
        return any(_has_partition(directory.child(name)) for name in names)
    except (SegmentGone, LogDirError, OSError):
        return False


def _has_partition(topic: Directory) -> bool:
    try:
        return any(entry.is_dir and parse_partition(entry.name) for entry in topic.list())
    except (SegmentGone, LogDirError, OSError):
        return False


@dataclass(frozen=True, slots=True)
class _Listing:
    """The partitions at one moment, by the name that a broker would give each directory."""

    partitions: Mapping[str, tuple[TopicPartition, RedpandaPartition]] = field(default_factory=dict)
    entries: Sequence[DirectoryEntry] = ()
    problems: Sequence[str] = ()
    listed_at: float = -_LISTING_SECONDS
    version: int = 0  # another one after any change of the entries


class RedpandaDirectory(AssembledDirectory):
    """A data directory. New topics and partitions are found within a second."""

    __slots__ = (
        "_data", "_known", "_listing", "_lock", "_may_shift", "_namespace", "_starts",
        "_store_problem", "_stores",
    )  # fmt: skip

    def __init__(self, directory: Directory, may_shift: bool = False) -> None:
        """`may_shift`: see RedpandaPartition."""
        super().__init__(directory.path)
        names = {entry.name for entry in directory.list() if entry.is_dir}
        is_inside = KAFKA_NAMESPACE not in names
        self._namespace = directory if is_inside else directory.child(KAFKA_NAMESPACE)
        self._data = directory
        self._may_shift = may_shift
        self._lock = threading.Lock()  # guards the attributes below
        self._known: dict[tuple[str, str], RedpandaPartition] = {}
        self._listing = _Listing()
        self._stores: tuple[float, Mapping[Placed, UnseenOffsets]] = (-_STARTS_SECONDS, {})
        self._store_problem = ""
        self._starts: tuple[float, bytes, int] = (-_STARTS_SECONDS, b"", 0)

    @property
    def problems(self) -> Sequence[str]:
        listing = self._listed()
        found = [partition.problems_found for _, partition in listing.partitions.values()]
        own = [*listing.problems, *filter(None, [self._store_problem])]
        return [*own, *(problem for each in found for problem in each)]

    def path_of(self, name: str) -> str:
        found = self._listing.partitions.get(name)
        return super().path_of(name) if found is None else found[1].path

    def child(self, name: str) -> Directory:
        found = self._listed().partitions.get(name)
        if found is None:
            raise SegmentGone(self.path_of(name))
        return found[1]

    def hold(self, parent: HeldDirectory | None = None) -> _DataListing:
        return _DataListing(self, self._namespace, self._listed())

    def log_starts(self) -> FileOfBytes:
        """Returns the checkpoint of the offsets at which the logs begin."""
        now = time.monotonic()
        with self._lock:
            read_at, data, mtime_ns = self._starts
        if now - read_at >= _STARTS_SECONDS:
            found = format_offsets(dict(self._log_starts()))
            if found != data:
                data, mtime_ns = found, time.time_ns()
            with self._lock:
                self._starts = (now, data, mtime_ns)
        status = self._namespace.stat()
        path = super().path_of(LOG_START_OFFSET_FILE)
        return FileOfBytes(path, data, identity_of(status, LOG_START_OFFSET_FILE), mtime_ns)

    def _log_starts(self) -> Iterator[tuple[TopicPartition, int]]:
        for key, partition in self._listed().partitions.values():
            start = partition.log_start()
            if start is not None and start.kafka_offset > 0:
                yield key, start.kafka_offset

    def _listed(self) -> _Listing:
        now = time.monotonic()
        with self._lock:
            if now - self._listing.listed_at < _LISTING_SECONDS:
                return self._listing
            problems: list[str] = []
            found: dict[str, tuple[PartitionName, str, DirectoryEntry]] = {}
            for topic, entry, parsed in self._directories(problems):
                name = partition_dir(topic, parsed.partition)
                other = found.get(name)
                if other is not None:
                    older = min(parsed, other[0])
                    stale = f"{older.partition}_{older.revision}"
                    path = printable(self._namespace.child(topic).path_of(stale))
                    problems.append(f"{path}: not served, there is one of a later revision")
                if other is None or other[0] < parsed:
                    found[name] = (parsed, topic, entry)
            partitions = {
                name: ((topic, parsed.partition), self._partition(name, topic, entry, parsed))
                for name, (parsed, topic, entry) in found.items()
            }
            self._known = {
                (topic, entry.name): partitions[name][1]
                for name, (_, topic, entry) in found.items()
            }
            entries = [
                DirectoryEntry(name, FileType.DIRECTORY, entry.inode)
                for name, (_, _, entry) in sorted(found.items())
            ]
            version = crc32("\n".join(f"{each.name} {each.inode}" for each in entries).encode())
            self._listing = _Listing(partitions, entries, problems, now, version)
            return self._listing

    def _partition(
        self, name: str, topic: str, entry: DirectoryEntry, parsed: PartitionName
    ) -> RedpandaPartition:
        known = self._known.get((topic, entry.name))
        if known is not None:
            return known
        source = self._namespace.child(topic).child(entry.name)
        number, revision = parsed
        placed = Placed(KAFKA_NAMESPACE, topic, number, revision)
        recorded = partial(self._recorded_start, placed)
        return RedpandaPartition(source, name, self, recorded, self._may_shift)

    def _recorded_start(self, placed: Placed, base_offset: int) -> LogStart | None:
        """Returns what the key-value stores know of the start of a log."""
        now = time.monotonic()
        read_at, known = self._stores
        if now - read_at >= _STARTS_SECONDS:
            try:
                known, self._store_problem = read_unseen_offsets(self._data), ""
            except SegmentGone:
                known = {}
            except (StorageError, OSError) as error:
                known, self._store_problem = {}, str(error)
            self._stores = (now, known)
        found = known.get(placed)
        return None if found is None else found.start_of(base_offset)

    def _directories(
        self, problems: list[str]
    ) -> Iterator[tuple[str, DirectoryEntry, PartitionName]]:
        """Yields the topic, the entry and the parsed name of each partition's directory."""
        for topic in self._namespace.list():
            path = printable(self._namespace.path_of(topic.name))
            if not topic.is_dir:
                if topic.kind is not FileType.FILE:
                    problems.append(f"{path}: a {topic.kind}, which is not followed")
                continue
            directory = self._namespace.child(topic.name)
            try:
                entries = directory.list()
            except SegmentGone:
                continue
            except (LogDirError, OSError) as error:
                problems.append(str(error))
                continue
            if not is_legal_topic(topic.name):
                problems.append(f"{path}: not a legal name of a topic, not served")
                continue
            for entry in entries:
                parsed = parse_partition(entry.name)
                if parsed is not None and entry.is_dir:
                    yield topic.name, entry, parsed
                elif parsed is not None or entry.is_dir:
                    inner = printable(directory.path_of(entry.name))
                    problems.append(
                        f"{inner}: not the directory of a partition"
                        " (<partition>_<revision>), not served"
                    )


class _DataListing(AssembledListing):
    """The partitions of a data directory at one moment, and the checkpoint of their starts."""

    __slots__ = ("_found", "_namespace")

    def __init__(self, directory: RedpandaDirectory, namespace: Directory, found: _Listing) -> None:
        super().__init__(directory)
        self._namespace = namespace
        self._found = found

    def entries(self, wants_stat: Callable[[str], bool] | None) -> list[DirectoryEntry]:
        return [*self._found.entries, DirectoryEntry(LOG_START_OFFSET_FILE, FileType.FILE, 0)]

    def stat(self) -> os.stat_result:
        real = self._namespace.stat()
        identity = (real.st_dev, real.st_ino)
        return directory_status(identity, self._found.version, real.st_mtime_ns)

    def status_of(self, name: str) -> os.stat_result:
        return self.open(name).stat()

    def open(self, name: str) -> ReadableFile:
        if name in self._found.partitions:
            what = f"a {FileType.DIRECTORY}, not a regular file"
            raise CorruptError(what, self._directory.path_of(name))
        if name != LOG_START_OFFSET_FILE:
            raise SegmentGone(self._directory.path_of(name))
        assert isinstance(self._directory, RedpandaDirectory)
        return self._directory.log_starts()
