"""Lists the partitions of a log directory, and reads the small files beside them.

No log is opened here. A directory is listed again only after its mtime shows that a name in it was
added, removed or renamed, so that getting the partitions costs one system call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from ..backup.layout import MARKER
from ..backup.opening import open_log_dir
from ..config.topic_file import (
    MAX_TOPIC_CONFIGS_BYTES,
    TOPIC_CONFIGS_FILE,
    FoundTopicConfigs,
    parse_topic_configs,
)
from ..errors import LogDirError, SegmentGone, StorageError
from ..format.files import names
from ..format.files.checkpoints import (
    MetaProperties,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from ..format.files.names import PartitionDirName, PartitionState, TopicPartition
from ..io.directory import Directory, DirectoryEntry, FileType, HeldDirectory
from ..io.small_file import SmallFile, Stamp, read_value, stamp
from ..wording import printable

T = TypeVar("T")
# A line of an offset checkpoint has at most 249 + 10 + 20 characters and 3 separators: enough for a
# quarter of a million partitions, far more than a broker can hold.
_MAX_CHECKPOINT_BYTES = 64 << 20
# Log directories described when their parent directory was given.
_DESCRIBED = 20
MAX_PROPERTIES_BYTES = 64 << 10
_MAX_PARTITION_METADATA_BYTES = 4 << 10


class PartitionDir(NamedTuple):
    """A partition's directory. After deletion and re-creation it is a different one, by its
    `inode`."""

    log_dir: LogDir
    name: str
    topic: str
    partition: int
    state: PartitionState
    inode: int

    @property
    def directory(self) -> Directory:
        return self.log_dir.directory.child(self.name)

    @property
    def path(self) -> str:
        return self.log_dir.directory.path_of(self.name)

    def log_start_offset(self) -> int:
        """Returns the checkpointed log start offset of a partition in normal use, 0 if there is
        none."""
        return self.log_dir.log_start_offsets.get((self.topic, self.partition), 0)

    def topic_id(self, held: HeldDirectory | None = None) -> str:
        """Returns the id in partition.metadata; "" if there is no such file. `held`: this
        directory, if the caller holds it. Raises CorruptError if the file is torn."""
        return read_topic_id(self.directory if held is None else held)


def read_topic_id(directory: Directory | HeldDirectory) -> str:
    """Returns `PartitionDir.topic_id` of a partition's directory."""
    name, limit = names.PARTITION_METADATA_FILE, _MAX_PARTITION_METADATA_BYTES
    try:
        return read_value(directory, name, limit, _parse_partition_metadata).topic_id
    except SegmentGone:
        return ""


# All partitions of a topic have the same content.
_parse_partition_metadata = lru_cache(maxsize=64)(parse_partition_metadata)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The content of a directory when it had `stamp`. Replaced as a whole, so that any thread may
    read it."""

    stamp: Stamp | None = None
    partitions: list[PartitionDir] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class LogDir:
    """One path of Kafka's `log.dirs`."""

    def __init__(
        self, path: str, directory: Directory | None = None, *, is_bare: bool = False
    ) -> None:
        """`directory`: how to read `path`, if not as it is there. `is_bare`: it has nothing but
        partitions. Raises LogDirError, with what it looks like instead, if `path` is not a log
        directory: a local one, one behind a URL or in an archive, or one of a backup's point in
        time (`backup.opening`)."""
        self.path = path
        self._is_bare = is_bare
        self.directory = open_log_dir(path) if directory is None else directory
        self._meta = self._small(
            names.META_PROPERTIES_FILE,
            MAX_PROPERTIES_BYTES,
            parse_meta_properties,
            MetaProperties(),
        )
        self._log_start_offsets = self._offsets(names.LOG_START_OFFSET_FILE)
        self._recovery_points = self._offsets(names.RECOVERY_POINT_FILE)
        self._high_watermarks = self._offsets(names.HIGH_WATERMARK_FILE)
        self._cleaner_offsets = self._offsets(names.CLEANER_OFFSET_FILE)
        self._stored_configs: SmallFile[dict[str, dict[str, str]]] = self._small(
            TOPIC_CONFIGS_FILE, MAX_TOPIC_CONFIGS_BYTES, parse_topic_configs, {}, optional=True
        )
        self._listing = _Listing()
        check_is_log_dir(self.directory)

    @property
    def meta(self) -> MetaProperties:
        """The owner of the directory; all fields are absent if meta.properties is."""
        return self._meta.value()

    @property
    def is_of_kraft(self) -> bool:
        """Whether the directory belongs to a KRaft broker, which serves only the partitions in its
        cluster's metadata. ZooKeeper brokers write meta.properties with version 0, KRaft brokers
        with version 1 (MetaPropertiesVersion), and since 3.3 `kafka-storage format` leaves a
        bootstrap.checkpoint in each directory. kafkafs marks the files it creates itself."""
        if self.meta.version == 1 and not self.meta.is_own:
            return True
        try:
            self.directory.stat(names.BOOTSTRAP_FILE)
        except SegmentGone:
            return False
        return True

    @property
    def log_start_offsets(self) -> Mapping[TopicPartition, int]:
        """The checkpointed log start offsets; only of partitions whose log starts after the base
        offset of their first segment."""
        return self._log_start_offsets.value()

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """The offsets below which everything is flushed to disk."""
        return self._recovery_points.value()

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """The offsets below which everything is replicated. Up to 5 s old beside a live broker."""
        return self._high_watermarks.value()

    @property
    def cleaner_offsets(self) -> Mapping[TopicPartition, int]:
        """The first offsets not yet cleaned, only of partitions that have been cleaned."""
        return self._cleaner_offsets.value()

    @property
    def stored_configs(self) -> FoundTopicConfigs:
        """The content of kafkafs's own file."""
        configs = self._stored_configs.value()
        return FoundTopicConfigs(configs, self._stored_configs.mtime_ns)

    @property
    def config_problem(self) -> str:
        """Why kafkafs's own file could not be read and does not apply, in one line; else ""."""
        return self._stored_configs.problem()

    @property
    def is_clean(self) -> bool:
        """Whether the broker that wrote the directory shut down cleanly. Only the marker's
        existence counts (LogManager); a running broker has removed it."""
        try:
            self.directory.stat(names.CLEAN_SHUTDOWN_FILE)
        except SegmentGone:
            return False
        return True

    def partitions(self) -> list[PartitionDir]:
        """Returns the partition directories of every state, by topic and partition. Raises
        LogDirError if the log directory itself was removed."""
        try:
            now = stamp(self.directory.stat())
            if now is None or now != self._listing.stamp:
                self._listing = self._list(now)
        except SegmentGone:
            raise LogDirError(self.path, "the directory no longer exists") from None
        return self._listing.partitions

    @property
    def problems(self) -> list[str]:
        """What is wrong in this directory, as of the last read of each file; one line each."""
        files = (
            self._meta,
            self._log_start_offsets,
            self._recovery_points,
            self._high_watermarks,
            self._cleaner_offsets,
            self._stored_configs,
        )
        in_files = [problem for file in files if (problem := file.problem())]
        return [*in_files, *self._listing.problems, *self.directory.problems]

    def _small(
        self,
        name: str,
        limit: int,
        parse: Callable[[bytes], T],
        empty: T,
        optional: bool = False,
    ) -> SmallFile[T]:
        is_optional = optional or self._is_bare
        return SmallFile(self.directory, name, limit, parse, empty, is_optional)

    def _offsets(self, name: str) -> SmallFile[dict[TopicPartition, int]]:
        return self._small(name, _MAX_CHECKPOINT_BYTES, parse_offsets, {})

    def _list(self, now: Stamp | None) -> _Listing:
        found: list[PartitionDir] = []
        problems: list[str] = []
        for entry in self.directory.list():
            parsed = names.parse_partition_dir(entry.name)
            if entry.is_dir and parsed is not None:
                found.append(self._partition_dir(entry, parsed))
            else:
                problems += self._unserved(entry, parsed)
        found.sort(key=lambda partition: (partition.topic, partition.partition, partition.name))
        if found == self._listing.partitions:
            # Only small files changed, as a broker's checkpoints do every few seconds.
            found = self._listing.partitions
        return _Listing(now, found, sorted(problems))

    def _partition_dir(self, entry: DirectoryEntry, name: PartitionDirName) -> PartitionDir:
        return PartitionDir(self, entry.name, name.topic, name.partition, name.state, entry.inode)

    def _unserved(self, entry: DirectoryEntry, parsed: PartitionDirName | None) -> Iterator[str]:
        """Yields why an entry that may have been meant as a partition is not one."""
        path = printable(self.directory.path_of(entry.name))
        if entry.is_dir and entry.name != names.REMOTE_INDEX_CACHE:
            yield f"{path}: not a valid partition directory name, not served"
        elif parsed is not None and entry.kind is FileType.SYMLINK:
            yield f"{path}: a symbolic link, which is not followed"
        elif parsed is not None and not entry.is_dir and not entry.is_file:
            yield f"{path}: a {entry.kind}, not the directory of a partition"


def owner_differences(
    meta: MetaProperties, owner: MetaProperties
) -> Iterator[tuple[str, str, str]]:
    """Yields how the owner in `meta` differs from `owner`: "cluster" or "node", and the id of each.
    All log directories of a broker belong to one node of one cluster."""
    if meta.cluster_id != owner.cluster_id:
        yield "cluster", str(meta.cluster_id), str(owner.cluster_id)
    if meta.node_id != owner.node_id:
        yield "node", str(meta.node_id), str(owner.node_id)


def _is_of_redpanda(directory: Directory) -> bool:
    from ..redpanda.data_directory import is_data_directory  # few directories are

    return is_data_directory(directory)


def check_is_log_dir(directory: Directory) -> None:
    """Raises LogDirError, with what to give instead, unless a broker may have used `directory`."""
    try:
        directory.hold()  # raises what listing it would
        with suppress(SegmentGone):
            directory.stat(names.META_PROPERTIES_FILE)
            return  # without listing what may be a hundred thousand partitions
        entries = directory.list()
    except SegmentGone:
        raise LogDirError(directory.path, "no such directory") from None
    if any(entry.name == MARKER for entry in entries):
        why = "a backup, which can only be read; `kafkafs revive` makes a new directory of it"
        raise LogDirError(directory.path, why)
    below = [entry.name for entry in entries if entry.is_dir]
    # Without meta.properties it may be part of a backup, if it contains a log.
    if any(names.parse_partition_dir(name) and _has(directory, name, _is_log) for name in below):
        return
    if any(_is_log(entry) for entry in entries):
        why = "the directory of one partition; give the log directory above it"
    elif _is_of_redpanda(directory):
        why = (
            "a data directory of Redpanda, which can only be read; `kafkafs revive` makes a log"
            " directory of Kafka from it"
        )
    elif inner := [name for name in sorted(below) if _has(directory, name, _is_meta_properties)]:
        why = _of_several([(name, directory.path_of(name)) for name in inner])
    else:
        why = (
            "not a Kafka log directory: it has neither meta.properties nor a directory"
            " <topic>-<partition> with a log"
        )
    raise LogDirError(directory.path, why)


def _of_several(found: Sequence[tuple[str, str]]) -> str:
    """Describes a directory that contains log directories, `found` by name and path: the owner of
    each, and how to open it. The directories of a cluster belong together, unless two of one broker
    share a partition, as backups of different days do."""
    described, clusters = [], set()
    replicas: list[tuple[int, str, int]] = []
    for name, path in found[:_DESCRIBED]:
        try:
            log_dir = LogDir(path)
            owner = log_dir.meta.cluster_id, log_dir.meta.node_id
            held = [(owner[1], each.topic, each.partition) for each in log_dir.partitions()]
            topics = len({topic for _, topic, _ in held})
        except (StorageError, OSError):
            described.append(f"{printable(name)} (cannot be read)")
            clusters.add(path)
            continue
        clusters.add(owner[0])
        replicas += held
        count = "1 topic" if topics == 1 else f"{topics} topics"
        described.append(f"{printable(name)} (node {owner[1]} of cluster {owner[0]}, {count})")
    if len(found) > _DESCRIBED:
        described.append(f"{len(found) - _DESCRIBED} more")
    paths = printable(",".join(path for _, path in found))
    one = printable(found[0][1])
    advice = f"give one of them, as in `kafkafs ls {one}`"
    is_one = len(clusters) == 1 and len(set(replicas)) == len(replicas)
    if is_one and 1 < len(found) <= _DESCRIBED:
        advice = f"give {paths} to read them together, or one of them"
    return f"not a log directory, but holds some: {', '.join(described)}; {advice}"


def _has(directory: Directory, name: str, condition: Callable[[DirectoryEntry], bool]) -> bool:
    """Returns whether the directory `name` has such an entry; False if it cannot be listed."""
    try:
        return any(condition(entry) for entry in directory.child(name).list())
    except (StorageError, OSError):
        return False


def _is_log(entry: DirectoryEntry) -> bool:
    parsed = names.parse_segment_file(entry.name)
    return entry.is_file and parsed is not None and parsed.kind is names.FileKind.LOG


def _is_meta_properties(entry: DirectoryEntry) -> bool:
    return entry.name == names.META_PROPERTIES_FILE
