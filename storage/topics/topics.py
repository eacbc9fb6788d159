"""Creates, extends, configures and deletes topics in log directories that are held for writing.

What may be created follows Kafka's ReplicationControlManager; creating and deleting follow its
LogManager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from ..cleaner.manager import CleanerManager
from ..cleaner.plan import COMPACT
from ..clock import Clock
from ..config.kafka import Resolved, TopicConfig
from ..errors import (
    ConfigsNotRemoved,
    InvalidPartitions,
    InvalidTopic,
    StorageError,
    TopicExists,
    Unregistered,
)
from ..format.files.names import METADATA_TOPIC, TopicPartition, is_legal_topic
from ..format.primitives import is_uuid_text, random_uuid_text
from ..log.append.writer import LogWriter
from ..log_dirs.deleted_topics import DeletedPartition
from ..log_dirs.engine import Engine
from ..log_dirs.log_opening import LogOpening
from ..log_dirs.writable_log_dir import WritableLogDir
from ..log_dirs.writable_log_dirs import WritableLogDirs, refuse_offline
from ..metadata.image import TopicMetadata
from ..wording import printable
from .remote_part import refuse_deletion, refuse_disabling
from .topic_configs import StoredTopicConfigs

# The most that one request to a controller may create (ReplicationControlManager).
_MAX_PARTITIONS = 10_000


class Topics:
    """An engine's operations on topics. Thread-safe: each holds `changing`."""

    def __init__(
        self,
        engine: Engine,
        dirs: WritableLogDirs,
        configs: StoredTopicConfigs,
        opening: LogOpening,
        cleaner: CleanerManager,
        clock: Clock,
        unregistered: bool,
    ) -> None:
        """`engine`: for reading. `unregistered`: create topics and partitions even if a KRaft
        broker would turn them into strays."""
        self.changing = threading.RLock()  # held while topics are created, deleted or configured
        self._engine = engine
        self._dirs = dirs
        self._configs = configs
        self._opening = opening
        self._cleaner = cleaner
        self._clock = clock
        self._unregistered = unregistered
        self._incarnations: dict[str, int] = {}

    # -- creating -------------------------------------------------------------------------------

    def create(
        self,
        topic: str,
        partitions: int | Sequence[int],
        configs: Mapping[str, str],
        topic_id: str,
        carried_over: bool,
        unregistered: bool = False,
        register: Callable[[str], None] | None = None,
    ) -> str:
        """See LogManager.create_topic."""
        with self.changing:
            numbers = range(partitions) if isinstance(partitions, int) else partitions
            count = partitions if isinstance(partitions, int) else len(partitions)
            refuse_new_topic(topic, count, topic_id)
            unregistered = unregistered or self._unregistered or register is not None
            refuse_in_engine(self._engine, topic, numbers, topic_id, unregistered=unregistered)
            config = self._configs.check(topic, configs, carried_over).config
            topic_id = topic_id or random_uuid_text()
            # The configs come first: a topic's records must never be retained by configs other than
            # its own.
            self._configs.keep(topic, configs)
            try:
                self._make_partitions(topic, numbers, topic_id, config)
                if register is not None:
                    register(topic_id)
            except BaseException:
                with suppress(StorageError, OSError):  # report the first error
                    self._remove(topic)
                raise
            return topic_id

    def extend(self, topic: str, total: int, unregistered: bool = False) -> None:
        """See LogManager.create_partitions."""
        with self.changing:
            there = self._partitions_of(topic)
            count = there[-1] + 1
            _refuse_count(total)
            if total <= count:
                raise InvalidPartitions(f"{topic} has {count} partitions, and {total} is not more")
            self.add(topic, range(count, total), unregistered)

    def add(self, topic: str, numbers: Sequence[int], unregistered: bool = False) -> None:
        """See LogManager.add_partitions."""
        with self.changing:
            there = self._partitions_of(topic)
            _refuse_count(len(there) + len(numbers))
            if again := sorted(set(there) & set(numbers)):
                raise InvalidPartitions(f"{topic} already has partition {again[0]}")
            config = self._engine.topic_config(topic).config
            topic_id = self._engine.topic_id(topic)
            if not (unregistered or self._unregistered):
                refuse_unregistered(self._engine, topic, numbers, topic_id)
            self._make_partitions(topic, numbers, topic_id, config)

    def _make_partitions(
        self, topic: str, numbers: Sequence[int], topic_id: str, config: TopicConfig
    ) -> None:
        for number in numbers:
            key = (topic, number)
            open_log = partial(self._opening.open, key=key, config=config, is_clean=True)
            self._dirs.make(key, topic_id, open_log)

    def refuse_name(self, topic: str) -> None:
        """Raises InvalidTopic or TopicExists if a topic cannot be restored under this name."""
        refuse_new_topic(topic, 1)
        refuse_in_engine(self._engine, topic, (), unregistered=True)

    # -- configuring ----------------------------------------------------------------------------

    def configure(self, topic: str, changes: Mapping[str, str | None]) -> Resolved:
        """See LogManager.set_topic_config."""
        with self.changing:
            self._partitions_of(topic)
            configs = self._configs.changed(topic, changes)
            resolved = self._configs.check(topic, configs, carried_over=True)
            refuse_disabling(self._engine, topic, resolved.config.remote_storage_enable)
            self._configs.keep(topic, configs)
            for key, writer in self._dirs.live_logs().items():
                if key[0] == topic:
                    self._configure(key, writer, resolved.config)
            return resolved

    def _configure(self, key: TopicPartition, writer: LogWriter, config: TopicConfig) -> None:
        """Applies the configs; aborts cleaning a log that is no longer compacted
        (LogManager.updateTopicConfig)."""
        before = writer.config
        writer.config = config
        if COMPACT in before.cleanup_policy and COMPACT not in config.cleanup_policy:
            self._cleaner.cleaning_state.abort(key)

    # -- deleting -------------------------------------------------------------------------------

    def delete(self, topic: str, keep_remote: bool) -> None:
        """See LogManager.delete_topic."""
        with self.changing:
            if not keep_remote:
                refuse_deletion(self._engine, topic)
            for number in self._partitions_of(topic):
                refuse_offline(self._dirs.of((topic, number)))
            self._remove(topic, comes_back=True)

    def delete_unchanged(self, topic: str, ends: Mapping[int, int]) -> bool:
        """See LogManager.delete_unchanged_topic."""
        with self.changing:
            if self._partitions_of(topic) != sorted(ends):
                return False
            writers = [self._dirs.writer((topic, number)) for number in ends]
            with ExitStack() as undo:
                for writer, end in zip(writers, ends.values(), strict=True):
                    if not writer.seal(end):
                        return False
                    undo.callback(writer.unseal)
                self._remove(topic, comes_back=True)
            return True

    def incarnation(self, topic: str) -> int:
        """See LogManager.incarnation."""
        return self._incarnations.get(topic, 0)

    def _remove(self, topic: str, comes_back: bool = False) -> None:
        """Removes what exists of a topic: partitions, configs, checkpoints. `comes_back`: it may be
        restored later."""
        keys = [key for key in self._engine.log_dirs.partitions() if key[0] == topic]
        touched = set()
        now_ms, topic_id = self._clock.now_ms(), self._engine.topic_id(topic) if keys else ""
        for key in keys:
            log_dir = self._dirs.of(key)
            if log_dir is not None:
                with self._cleaner.cleaning_state.abort_and_pause(key):
                    was = self._as_it_is(log_dir, key, topic_id, len(keys), now_ms)
                    log_dir.delete(key, was if comes_back else None)
                self._cleaner.forget(key)
                touched.add(log_dir)
            self._engine.forget(*key)
        for log_dir in touched:
            # On a full disk this may fail; `WritableLogDir.make` removes such remains later.
            with suppress(OSError):
                log_dir.checkpoints.write()
                log_dir.checkpoints.forget_cleaner_offsets()
        self._incarnations[topic] = self.incarnation(topic) + 1
        try:
            self._configs.keep(topic, {})
        except OSError as error:
            if comes_back:
                raise ConfigsNotRemoved(topic, f"{error.filename}: {error.strerror}") from error
            raise

    def _as_it_is(
        self,
        log_dir: WritableLogDir,
        key: TopicPartition,
        topic_id: str,
        partitions: int,
        now_ms: int,
    ) -> DeletedPartition:
        """Describes a partition, one of `partitions`, that is about to be deleted."""
        writer = log_dir.logs.get(key)
        cleaned = log_dir.checkpoints.cleaner_offset(key)
        return DeletedPartition(
            topic=key[0],
            topic_id=topic_id,
            partition=key[1],
            partitions=partitions,
            start_offset=log_dir.checkpoints.log_start_offset(key)
            if writer is None
            else writer.log_start_offset,
            recovery_point=log_dir.checkpoints.recovery_point(key)
            if writer is None
            else writer.recovery_point,
            cleaner_offset=-1 if cleaned is None else cleaned,
            size=0 if writer is None else writer.size,
            deleted_at_ms=now_ms,
            configs=self._configs.of(key[0]),
        )

    def _partitions_of(self, topic: str) -> list[int]:
        return changeable_partitions(self._engine, topic)


def changeable_partitions(engine: Engine, topic: str) -> list[int]:
    """Returns the numbers of a topic's partitions. Raises UnknownTopic, or InvalidTopic for the
    KRaft quorum's own topic."""
    there = engine.partitions_of(topic)
    if topic == METADATA_TOPIC:
        raise InvalidTopic(f"{METADATA_TOPIC} is the quorum's own log and cannot be changed here")
    return there


def refuse_new_topic(topic: str, partitions: int, topic_id: str = "") -> None:
    """Raises InvalidTopic or InvalidPartitions for a topic that no directory can have. `topic_id`:
    "" to have one generated."""
    if not is_legal_topic(topic) or topic == METADATA_TOPIC:
        allowed = "1 to 249 of A-Z a-z 0-9 . _ -, and neither . nor .."
        raise InvalidTopic(f"{printable(topic)!r} cannot be a topic's name: {allowed}")
    _refuse_count(partitions)
    if topic_id and not is_uuid_text(topic_id):
        raise InvalidTopic(f"not a topic's id: {printable(topic_id)}")


def refuse_in_engine(
    engine: Engine,
    topic: str,
    numbers: Sequence[int],
    topic_id: str = "",
    *,
    unregistered: bool = False,
) -> None:
    """Raises TopicExists, or Unregistered unless `unregistered`, for a new topic that the
    directories of `engine` cannot have. `topic_id`: as given by the caller, "" to have one
    generated; if the cluster's metadata is not available, a given id is assumed to be
    registered."""
    like = topic.replace(".", "_")
    for existing in engine.topics():
        if existing.replace(".", "_") == like:
            raise TopicExists(topic, existing)
    is_said_to_be_known = topic_id and METADATA_TOPIC not in engine.topics()
    if not (unregistered or is_said_to_be_known):
        refuse_unregistered(engine, topic, numbers, topic_id)


def refuse_unregistered(engine: Engine, topic: str, numbers: Sequence[int], topic_id: str) -> None:
    """Raises Unregistered unless the cluster knows these partitions, or the directories do not
    belong to a KRaft broker. Such a broker keeps the cluster's metadata in one of its directories,
    and turns each replica missing from it into a stray (LogManager.isStrayKraftReplica)."""
    has_metadata = METADATA_TOPIC in engine.topics()
    if has_metadata:
        directory = engine.partition_dir(METADATA_TOPIC, 0).log_dir.path
    else:
        of_kraft = (each.path for each in engine.log_dirs.dirs if each.is_of_kraft)
        directory = next(of_kraft, "")
    if not directory:
        return
    known = engine.metadata().topics.get(topic)
    if known is None or known.topic_id != topic_id or not _are_of(engine, known, numbers):
        raise Unregistered(topic, directory, has_metadata=has_metadata)


def _are_of(engine: Engine, known: TopicMetadata, numbers: Sequence[int]) -> bool:
    """Returns whether the cluster has a replica of each partition on the node of these directories;
    on any node if the directories do not record theirs."""
    node_id = engine.log_dirs.dirs[0].meta.node_id
    for number in numbers:
        partition = known.partitions.get(number)
        replicas = () if partition is None else partition.replicas
        if not (replicas if node_id < 0 else node_id in replicas):
            return False
    return True


def _refuse_count(partitions: int) -> None:
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise InvalidPartitions(
            f"{partitions} partitions requested, must be 1 to {_MAX_PARTITIONS}"
        )
