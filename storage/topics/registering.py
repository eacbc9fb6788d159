"""Makes topics known to the cluster of a node that is the only voter of its metadata quorum."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..clock import Clock
from ..errors import StorageError
from ..format.files.checkpoints import PartitionMetadata, format_partition_metadata
from ..format.files.names import METADATA_TOPIC, PARTITION_METADATA_FILE, partition_dir
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import PartitionDir
from ..log_dirs.log_opening import LogOpening
from ..log_dirs.writable_log_dir import WritableLogDir
from ..log_dirs.writable_log_dirs import WritableLogDirs, refuse_offline
from ..metadata.bootstrap import NewRecord
from ..metadata.image import MetadataImage
from ..metadata.leader_term import LeaderTerm, plan_term
from .topic_configs import StoredTopicConfigs
from .topics import Topics


class Registering:
    """Changes of the cluster's metadata, and of partitions that become known. Thread-safe; blocks
    other topic changes meanwhile."""

    def __init__(
        self,
        engine: Engine,
        topics: Topics,
        dirs: WritableLogDirs,
        configs: StoredTopicConfigs,
        opening: LogOpening,
        clock: Clock,
    ) -> None:
        """`engine`: for reading."""
        self._engine = engine
        self._topics = topics
        self._dirs = dirs
        self._configs = configs
        self._opening = opening
        self._clock = clock

    def append(self, groups: Sequence[Sequence[NewRecord]]) -> None:
        """Appends records to the metadata log, durably: those of a group all or none, and all
        groups before those not. Raises what `plan_term` and `LeaderTerm.append` raise, and
        LogDirOffline."""
        with self._topics.changing:
            log_dir = self._log_dir(self._engine.log_dirs.metadata_partition())
            with log_dir.guarded():
                directory = log_dir.directory.child(partition_dir(METADATA_TOPIC, 0))
                term, _ = planned_term(self._engine, self._clock.now_ms())
                term.append(directory, groups, self._clock)

    def restore_stray(self, stray: PartitionDir) -> None:
        """Gives a stray partition its name back, and opens it, as after a crash. Raises OSError or
        LogDirOffline; then it is still a stray, or in normal use and not open."""
        key = (stray.topic, stray.partition)
        with self._topics.changing:
            log_dir = self._log_dir(stray)
            with log_dir.guarded():
                log_dir.directory.rename_child(stray.name, partition_dir(*key))
                config = self._configs.config_of(stray.topic)
                log_dir.logs[key] = self._opening.open(log_dir, key, config, is_clean=False)

    def put_topic_id(self, found: PartitionDir, topic_id: str) -> None:
        """Writes the topic's id into a partition's directory, which has none."""
        log_dir = self._log_dir(found)
        with log_dir.guarded():
            data = format_partition_metadata(PartitionMetadata(0, topic_id))
            log_dir.directory.child(found.name).write_atomically(PARTITION_METADATA_FILE, data)

    def forget_configs(self, topic: str) -> None:
        """Removes a topic's configs from kafkafs's own file, now that the cluster's metadata have
        them. If that fails, the file repeats them."""
        with self._topics.changing, suppress(OSError, StorageError):
            self._configs.keep(topic, {})

    def _log_dir(self, found: PartitionDir) -> WritableLogDir:
        log_dir = next(each for each in self._dirs.dirs if each.holds(found))
        refuse_offline(log_dir)
        return log_dir


def planned_term(engine: Engine, now_ms: int) -> tuple[LeaderTerm, MetadataImage]:
    """Plans the next term of the node to which the directories belong; returns it with the cluster
    at its beginning. Only reads. Raises what `plan_term` raises; NoClusterMetadata."""
    found = engine.log_dirs.metadata_partition()
    metadata = engine.cluster_metadata()
    return plan_term(found.directory, found.log_dir.meta, metadata, now_ms)
