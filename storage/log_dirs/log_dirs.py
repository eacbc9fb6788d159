"""Several log directories as one: the partitions of all, and what is wrong between them.

The directories are those of one broker, as in its `log.dirs`, or of several brokers of a cluster.
Those of different clusters, and copies of one directory, are refused, unless one is preferred. See
`replicas.py` for partitions in more than one of them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..backup.opening import expand, open_log_dir
from ..config.kafka import ReaderConfig
from ..config.topic_file import newest
from ..errors import (
    ConfigError,
    LogDirError,
    NoClusterMetadata,
    SegmentGone,
    UnknownPartition,
    UnknownTopic,
)
from ..format.files.names import (
    METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    PartitionState,
    TopicPartition,
)
from ..io.directory import Directory
from ..io.local_path import absolute_path, local_path, location
from ..io.opening import is_local
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..metadata.cluster_metadata import ClusterMetadata
from ..metadata.image import MetadataImage
from ..metadata.served_metadata import ServedMetadata
from ..tier.configs import TIER_CONFIG, TIER_KEYS_CONFIG, absolute_keys
from ..wording import printable
from .log_dir import LogDir, PartitionDir
from .replicas import ADVICE, PREFERRED_DIR, Partitions, ReplicaSelector

if TYPE_CHECKING:
    from ..tier.copied import RemoteCopies
    from ..tier.opening import Tiering
    from ..tier.tier import Tier

#: The config with schemas that are given as files; `schemas/supplied.py` says what is in it.
SCHEMAS_CONFIG = "kafkafs.schemas"
CACHE_CONFIG = "kafkafs.remote.cache"


@dataclass(frozen=True, slots=True)
class _Joined:
    """The partitions in normal use of several listings, and the strays by directory name and
    number. Replaced as a whole, so that any thread may read it."""

    listings: list[list[PartitionDir]]
    partitions: Partitions
    strays: Mapping[TopicPartition, PartitionDir] = field(default_factory=dict)


def absolute_configs(configs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the configs of a run for a process with another working directory: paths in
    kafkafs.prefer.dir, kafkafs.remote.cache, kafkafs.schemas and kafkafs.tier are absolute. Raises
    LogDirError if one is a URL that cannot be read, or one of kafkafs.remote.cache or
    kafkafs.schemas that is another than `file:`."""
    found = dict(configs)
    for name in (PREFERRED_DIR, TIER_CONFIG):
        if found.get(name):
            found[name] = absolute_path(location(found[name]))
    if found.get(CACHE_CONFIG):
        directory, comma, size = found[CACHE_CONFIG].rpartition(",")
        found[CACHE_CONFIG] = f"{absolute_path(local_path(directory))}{comma}{size}"
    if found.get(TIER_KEYS_CONFIG):
        found[TIER_KEYS_CONFIG] = absolute_keys(found[TIER_KEYS_CONFIG])
    if found.get(SCHEMAS_CONFIG):
        entries = map(str.strip, found[SCHEMAS_CONFIG].split(","))
        found[SCHEMAS_CONFIG] = ",".join(map(_absolute_entry, filter(None, entries)))
    return found


def _absolute_entry(entry: str) -> str:
    """Returns an entry of kafkafs.schemas whose file has an absolute path."""
    if entry.startswith("@"):
        return f"@{absolute_path(local_path(entry[1:]))}"
    selector, _, text = entry.partition("=")
    path = local_path(text.strip() or entry)
    if not text.strip() or selector.strip().endswith((":framing", ":message")):
        return entry
    return f"{selector}={absolute_path(path)}"


def configs_of_both(
    configs: Mapping[str, str], first: Sequence[str], second: Sequence[str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the configs of a run for each of two sets of log directories: kafkafs.prefer.dir only
    for the one that has this directory, or for both if none has it, so that opening fails."""
    preferred = _path_identity(configs.get(PREFERRED_DIR, ""))
    others = {name: text for name, text in configs.items() if name != PREFERRED_DIR}
    is_in = [preferred in map(_path_identity, paths) for paths in (first, second)]
    if preferred is None or not any(is_in):
        return configs, configs
    return configs if is_in[0] else others, configs if is_in[1] else others


class LogDirs:
    """Several log directories as one, like the comma-separated list in Kafka's `log.dirs`, of one
    broker or several."""

    def __init__(
        self,
        paths: str | Sequence[str],
        context: ReadContext | None = None,
        config: ReaderConfig | None = None,
        at_ms: int | None = None,
    ) -> None:
        """`config` names the one of `paths` to serve where they contradict each other, and whose
        replicas to serve, and the remote storage of their topics. `at_ms`: of backups, the newest
        point at or before this time is opened (ms since 1970; None for the newest).

        Raises LogDirError if one of `paths` is not a log directory, or is given twice, or if they
        belong to different clusters or are copies of one directory and none is preferred;
        ConfigError if `preferred` is not one of them."""
        listed = paths.split(",") if isinstance(paths, str) else paths
        context, config = context or ReadContext(), config or ReaderConfig()
        self._context = context
        self._config = config
        self._remote_log_metadata: dict[int, tuple[PartitionDir, Log]] = {}
        self._remote_copies: RemoteCopies | None = None
        self._tiering = self._open_tiering() if config.kafkafs_tier else None
        #: Whether one of the directories is a data directory of Redpanda.
        self.is_of_redpanda = False
        given = [path.strip() for path in listed if path.strip()]
        remote = context.limits.remote
        self.dirs = tuple(
            self._open(each) for path in given for each in expand(path, at_ms, remote)
        )
        if not self.dirs:
            raise LogDirError(str(paths), "no log directory given")
        _refuse_duplicates(self.dirs)
        preferred = config.kafkafs_prefer_dir
        self._preferred = _find_preferred(self.dirs, preferred) if preferred else None
        if self._preferred is None:
            for found, why in (*self.of_other_clusters(), *_copies(self.dirs)):
                raise LogDirError(found.path, f"{why}; {ADVICE}")
        self._metadata = ServedMetadata(context)
        self._selector = ReplicaSelector(context, self._preferred, self._metadata)
        self._joined = _Joined([], Partitions({}, self._selector))
        self._failed: list[str] = []

    def partitions(self) -> Partitions:
        """Returns the partitions in normal use.

        A directory that can no longer be listed is a problem, and the others are still served; if
        there is no other, raises LogDirError or OSError.
        """
        return self._refreshed().partitions

    def topics(self) -> Mapping[str, list[int]]:
        """Returns the topics in order of name, with the numbers of their partitions here."""
        return self._refreshed().partitions.topics

    def partition(self, topic: str, partition: int) -> PartitionDir:
        """Returns the directory of one partition. A stray counts as a topic with the name of its
        directory and this partition. Raises UnknownTopic or UnknownPartition, LogDirError if its
        copies contradict each other."""
        joined = self._refreshed()
        key = (topic, partition)
        found = joined.partitions.get(key) or joined.strays.get(key)
        if found is not None:
            return found
        topics = joined.partitions.topics
        if topic not in topics:
            raise self.unknown_topic(topic)
        raise UnknownPartition(topic, partition, topics[topic])

    def unknown_topic(self, topic: str) -> UnknownTopic:
        """Returns the error for a topic that does not exist."""
        strays = self.strays().items()
        paths = [f"{name}/{number}" for (name, number), found in strays if found.topic == topic]
        return UnknownTopic(topic, self.topics(), sorted(paths))

    def strays(self) -> Mapping[TopicPartition, PartitionDir]:
        """Returns the replicas that a broker's cluster did not know, by directory name and number;
        they are not topics."""
        return self._refreshed().strays

    def metadata(self) -> MetadataImage:
        """Returns the cluster as `__cluster_metadata-0` describes it; empty if there is none."""
        try:
            return self.cluster_metadata().image()
        except (NoClusterMetadata, UnknownPartition, SegmentGone):
            return MetadataImage()

    def cluster_metadata(self) -> ClusterMetadata:
        """Returns the reader of `__cluster_metadata-0`. Raises what `metadata_partition` raises."""
        return self._metadata.of(self.metadata_partition())

    def metadata_partition(self) -> PartitionDir:
        """Returns the directory of `__cluster_metadata-0`. Raises NoClusterMetadata if there is
        none, LogDirError if its copies contradict each other."""
        try:
            return self.partition(METADATA_TOPIC, 0)
        except (UnknownTopic, UnknownPartition):
            raise NoClusterMetadata(",".join(each.path for each in self.dirs)) from None

    @property
    def metadata_problems(self) -> list[str]:
        """What could not be read of the cluster's metadata so far, one line each."""
        return self._metadata.problems

    def stored_configs(self, topic: str) -> Mapping[str, str]:
        """Returns a topic's configs from kafkafs's own file, as texts by name."""
        return newest(log_dir.stored_configs for log_dir in self.dirs).configs.get(topic, {})

    @property
    def preferred(self) -> LogDir | None:
        """The preferred directory, whose replicas are served; None if there is none."""
        return self._preferred

    @property
    def problems(self) -> list[str]:
        """What is wrong in the directories, and what is known to be wrong between them; one line
        each."""
        joined = self._refreshed()
        each = [problem for log_dir in self.dirs for problem in log_dir.problems]
        others = [f"{printable(found.path)}: {why}" for found, why in self.of_other_clusters()]
        between = self._selector.problems(joined.partitions)
        return [*self._failed, *others, *dict.fromkeys(between), *each, *self.tier_problems]

    @property
    def unserved(self) -> list[str]:
        """The replicas that are known to have, or may have, what the served ones lack; one line
        each. They are among the `problems`."""
        return list(self._selector.unserved(self._refreshed().partitions))

    @property
    def tier(self) -> Tier | None:
        """The remote storage of the brokers' topics, None if no config names it."""
        return None if self._tiering is None else self._tiering.tier

    @property
    def tier_problems(self) -> list[str]:
        """What was found to be wrong in remote storage so far, one line each."""
        return [] if self._tiering is None else self._tiering.problems

    def remote_copies(self) -> RemoteCopies:
        """Returns what the brokers have recorded about segments in remote storage."""
        # loading it takes a while, which most commands do without
        from ..tier.copied import RemoteCopies
        from ..tier.metadata import RemoteLogMetadata

        if self._remote_copies is None:
            numbers, log = self._metadata_numbers, self._open_remote_log_metadata
            self._remote_copies = RemoteCopies(RemoteLogMetadata(numbers, log))
        return self._remote_copies

    def _open_tiering(self) -> Tiering:
        # Imported here, as what follows, because only few directories need it: it takes a tenth of
        # the time in which a short verb starts.
        from ..tier.opening import Tiering

        numbers, log = self._metadata_numbers, self._open_remote_log_metadata
        return Tiering(self._config, self._context, numbers, log)

    def _open(self, path: str) -> LogDir:
        """Opens a log directory or, in place of one, a data directory of Redpanda, or remote
        storage: its partitions are all there is of a cluster whose brokers are lost."""
        directory = open_log_dir(path, self._context.limits.remote)
        try:
            tiering = self._tiering
            return LogDir(path, directory if tiering is None else tiering.joined(directory))
        except LogDirError:
            alone = self._open_in_place(directory)
            if alone is None:
                raise
        return LogDir(path, alone, is_bare=True)

    def _open_in_place(self, directory: Directory) -> Directory | None:
        """Opens remote storage or Redpanda's data as a log directory; None if it is neither."""
        self._tiering = self._tiering or self._open_tiering()
        alone = self._tiering.alone(directory)
        if alone is not None:
            return alone
        from ..redpanda.opening import open_redpanda

        redpanda = open_redpanda(directory, self._config)
        self.is_of_redpanda |= redpanda is not None
        return redpanda

    def _metadata_numbers(self) -> Sequence[int]:
        """Returns the partitions of `__remote_log_metadata` that are here."""
        return self.topics().get(REMOTE_LOG_METADATA_TOPIC, ())

    def _open_remote_log_metadata(self, number: int) -> Log:
        found = self.partition(REMOTE_LOG_METADATA_TOPIC, number)
        known = self._remote_log_metadata.get(number)
        if known is None or known[0] != found:
            start = found.log_start_offset
            log = Log(found.directory, found.topic, found.partition, start, self._context)
            known = self._remote_log_metadata[number] = found, log
        return known[1]

    def _refreshed(self) -> _Joined:
        listings = self._list()
        joined = self._joined
        # An unchanged directory returns the same list object.
        if len(listings) != len(joined.listings) or any(
            map(operator.is_not, listings, joined.listings)
        ):
            self._joined = joined = _join(listings, self._selector)
        return joined

    def _list(self) -> list[list[PartitionDir]]:
        """Returns a listing per directory, empty for one that fails."""
        listings: list[list[PartitionDir]] = []
        failed: list[str] = []
        for log_dir in self.dirs:
            try:
                listings.append(log_dir.partitions())
            except (LogDirError, OSError) as error:
                failed.append(str(error))
                if len(failed) == len(self.dirs):
                    raise
                listings.append([])
        self._failed = failed
        return listings

    def of_other_clusters(self) -> Iterator[tuple[LogDir, str]]:
        """Yields the directories of another cluster than the preferred one, or the first of a
        known cluster, and why."""
        known = [each for each in self.dirs if each.meta.cluster_id]
        if self._preferred in known:
            known.insert(0, self._preferred)
        for log_dir in known[1:]:
            why = other_cluster(log_dir, known[0])
            if why:
                yield log_dir, why


def other_cluster(log_dir: LogDir, first: LogDir) -> str:
    """Returns how the cluster of a directory differs from that of `first`, "" if it does not or is
    unknown."""
    found, expected = log_dir.meta.cluster_id, first.meta.cluster_id
    if not found or not expected or found == expected:
        return ""
    return (
        f"has cluster id {printable(found)}, but {printable(first.path)} has {printable(expected)}"
    )


def _copies(log_dirs: Sequence[LogDir]) -> Iterator[tuple[LogDir, str]]:
    """Yields the directories that are copies of an earlier one, and why."""
    seen: dict[str, LogDir] = {}
    for log_dir in log_dirs:
        directory_id = log_dir.meta.directory_id
        first = seen.setdefault(directory_id, log_dir)
        if directory_id and first is not log_dir:
            yield log_dir, f"has the directory.id of {printable(first.path)}: one is a copy"


def _find_preferred(log_dirs: Sequence[LogDir], path: str) -> LogDir:
    # A URL is compared as text, so that a wrong one is not requested from a server.
    identity = _path_identity(path) if is_local(path) else None
    for log_dir in log_dirs:
        if log_dir.path == path or _identity(log_dir.directory) == identity:
            return log_dir
    paths = ", ".join(printable(each.path) for each in log_dirs)
    raise ConfigError(PREFERRED_DIR, f"must be one of {paths} (got {printable(path)!r})")


def _join(listings: list[list[PartitionDir]], selector: ReplicaSelector) -> _Joined:
    """Merges the listings."""
    copies: dict[TopicPartition, list[PartitionDir]] = {}
    strays: dict[TopicPartition, PartitionDir] = {}
    for found in (found for listing in listings for found in listing):
        if found.state is PartitionState.STRAY:
            strays.setdefault((found.name, found.partition), found)
        if found.state is PartitionState.NORMAL:
            copies.setdefault((found.topic, found.partition), []).append(found)
    partitions = {key: tuple(copies[key]) for key in sorted(copies)}
    return _Joined(listings, Partitions(partitions, selector), strays)


def _refuse_duplicates(log_dirs: Sequence[LogDir]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for log_dir in log_dirs:
        first = seen.setdefault(_identity(log_dir.directory), log_dir.path)
        if first is not log_dir.path:
            why = f"the same directory as {printable(first)}; give it once"
            raise LogDirError(log_dir.path, why)


def _path_identity(path: str) -> tuple[int, int] | None:
    """Returns device and inode of a path given by the user; None if it cannot be a directory."""
    with suppress(SegmentGone, LogDirError, ValueError):  # ValueError: it contains a NUL
        return _identity(open_log_dir(location(path)))
    return None


def _identity(directory: Directory) -> tuple[int, int]:
    """Returns device and inode. Raises SegmentGone."""
    status = directory.stat()
    return status.st_dev, status.st_ino
