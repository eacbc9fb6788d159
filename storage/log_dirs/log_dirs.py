"""Several log directories as one: the partitions of all, and what is wrong between them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..config.topic_file import newest
from ..errors import LogDirError, UnknownPartition, UnknownTopic, printable
from ..format.files.names import PartitionState, TopicPartition
from .log_dir import LogDir, PartitionDir, owner_differences


@dataclass(frozen=True, slots=True)
class _Joined:
    """The partitions in normal use of several listings, and the strays by directory name and
    number. Replaced as a whole, so that any thread may read it."""

    listings: list[list[PartitionDir]] = field(default_factory=list)
    partitions: dict[TopicPartition, PartitionDir] = field(default_factory=dict)
    topics: dict[str, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    strays: dict[TopicPartition, PartitionDir] = field(default_factory=dict)


class LogDirs:
    """Several log directories as one, like the comma-separated list in Kafka's `log.dirs`."""

    def __init__(self, paths: str | Sequence[str]) -> None:
        """Raises LogDirError if one of `paths` is not a log directory, or is given twice."""
        listed = paths.split(",") if isinstance(paths, str) else paths
        self.dirs = tuple(LogDir(path.strip()) for path in listed if path.strip())
        if not self.dirs:
            raise LogDirError(str(paths), "no log directory given")
        _refuse_duplicates(self.dirs)
        self._joined = _Joined()
        self._failed: list[str] = []

    def partitions(self) -> Mapping[TopicPartition, PartitionDir]:
        """Returns the directory in normal use of each partition, sorted by topic and number.

        A directory that can no longer be listed is a problem, and the others are still served; if
        there is no other, raises LogDirError or OSError.
        """
        return self._refreshed().partitions

    def topics(self) -> Mapping[str, list[int]]:
        """Returns the topics in order of name, with the numbers of their partitions here."""
        return self._refreshed().topics

    def partition(self, topic: str, partition: int) -> PartitionDir:
        """Returns the directory of one partition. A stray counts as a topic with the name of its
        directory and this partition. Raises UnknownTopic or UnknownPartition."""
        joined = self._refreshed()
        key = (topic, partition)
        found = joined.partitions.get(key) or joined.strays.get(key)
        if found is not None:
            return found
        if topic not in joined.topics:
            raise self.unknown_topic(topic)
        raise UnknownPartition(topic, partition, joined.topics[topic])

    def unknown_topic(self, topic: str) -> UnknownTopic:
        """Returns the error for a topic that does not exist."""
        strays = self.strays().items()
        paths = [f"{name}/{number}" for (name, number), found in strays if found.topic == topic]
        return UnknownTopic(topic, self.topics(), sorted(paths))

    def strays(self) -> Mapping[TopicPartition, PartitionDir]:
        """Returns the replicas that a broker's cluster did not know, by directory name and number;
        they are not topics."""
        return self._refreshed().strays

    def stored_configs(self, topic: str) -> Mapping[str, str]:
        """Returns a topic's configs from kafkafs's own file, as texts by name."""
        return newest(log_dir.stored_configs for log_dir in self.dirs).configs.get(topic, {})

    @property
    def problems(self) -> list[str]:
        """What is wrong in the directories, and between them; one line each."""
        joined = self._refreshed()
        each = [problem for log_dir in self.dirs for problem in log_dir.problems]
        return [*self._failed, *self._of_other_owners(), *joined.problems, *each]

    def _refreshed(self) -> _Joined:
        listings = self._list()
        joined = self._joined
        # An unchanged directory returns the same list object.
        if len(listings) != len(joined.listings) or any(
            map(operator.is_not, listings, joined.listings)
        ):
            self._joined = joined = _join(listings)
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

    def _of_other_owners(self) -> Iterator[str]:
        """Yields the directories of another cluster or broker than the first; Kafka would not start
        on them."""
        first = self.dirs[0].meta
        for log_dir in self.dirs[1:]:
            for what, found, expected in owner_differences(log_dir.meta, first):
                yield (
                    f"{printable(log_dir.path)}: belongs to {what} {found},"
                    f" but the first directory to {expected}"
                )


def _join(listings: list[list[PartitionDir]]) -> _Joined:
    """Merges the listings. If a partition is in two directories, the first is served."""
    partitions: dict[TopicPartition, PartitionDir] = {}
    problems = []
    strays: dict[TopicPartition, PartitionDir] = {}
    for found in (found for listing in listings for found in listing):
        if found.state is PartitionState.STRAY:
            strays.setdefault((found.name, found.partition), found)
        if found.state is not PartitionState.NORMAL:
            continue
        served = partitions.setdefault((found.topic, found.partition), found)
        if served is not found:
            problems.append(
                f"{printable(found.path)}: not served, because {printable(served.path)} is"
            )
    partitions = {key: partitions[key] for key in sorted(partitions)}
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return _Joined(listings, partitions, topics, problems, strays)


def _refuse_duplicates(log_dirs: Sequence[LogDir]) -> None:
    seen: dict[tuple[int, int], str] = {}
    for log_dir in log_dirs:
        status = log_dir.directory.stat()
        first = seen.setdefault((status.st_dev, status.st_ino), log_dir.path)
        if first is not log_dir.path:
            why = f"the same directory as {printable(first)}; give it once"
            raise LogDirError(log_dir.path, why)
