"""Creates a directory on which a new single-node Kafka (KRaft) starts as if nothing had happened.

The partitions are copied as they are and loaded, which recovers them after a crash. The new node's
controller finds the old cluster's metadata, restated for a single node, in `bootstrap.checkpoint`,
and appends them to its empty log when it first becomes active. The broker then loads the logs as
after a clean shutdown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote

from ...errors import SegmentGone
from ...format.files import names
from ...format.files.checkpoints import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
)
from ...format.files.names import TopicPartition
from ...format.primitives import random_uuid_text
from ...io.durable import FileOwner, WritableDirFd
from ...log.check.partition_listing import PartitionListing
from ...log_dirs.engine import Engine
from ...log_dirs.log_dir import PartitionDir
from ...log_dirs.replicas import PREFERRED_DIR
from ...metadata.bootstrap import format_bootstrap
from ...transactions.producer import OWN_IDS
from ...wording import printable
from ..request import SILENT, PartitionFailed, ProgressListener
from .group_offsets import move_offsets, take_back_offsets
from .partitions import LoadedPartition, PartitionMaker, selected_copies
from .records import bootstrap_records
from .request import Revive, RevivedNode, RevivedPartition, ReviveNote, ReviveRow
from .server_properties import server_properties
from .share_groups import take_back_share_groups
from .sources import SourceCluster, SourceTopic, survey
from .target import NewNodeDir
from .transactions import TransactionOutcomes

_META_VERSION = 1
# The epoch that a controller expects of a broker it does not know yet: with any other one, the
# broker's shutdown would count as unclean, and all replicas as in need of recovery
# (ClusterControlManager.registerBroker).
_UNREGISTERED_EPOCH = -2


def revive(
    engine: Engine, request: Revive, progress: ProgressListener = SILENT
) -> Iterator[ReviveRow | PartitionFailed]:
    """Yields what differs from the old cluster, then a row for each partition, and finally the new
    node. The sources are only read. With `dry_run`, nothing is written.

    Raises LogDirError if the directories are in use or contradict each other, if the new one
    exists, or for a release that cannot read what is in them; UnknownTopic or UnknownPartition.
    Whatever ends it early, an error or the process, the same request starts again.
    """
    cluster = survey(engine, request)
    target = NewNodeDir(request.output, [each.directory for each in engine.log_dirs.dirs])
    identity = request.identity(engine)
    target.check(identity)
    yield from cluster.notes
    work = _Work(engine, request, cluster, progress)
    if request.dry_run:
        yield from work.load(None)
        yield from work.rows(target)
        return
    try:
        data = target.begin(identity, _permissions(engine))
        yield from work.load(data)
        work.write_files(data)
        owner = _owner(engine)
        properties = server_properties(cluster, request, target.data_path)
        is_given = target.finish(identity, properties, owner)
    finally:
        target.release()
    if owner is None or not is_given:
        yield _must_be_given(target, owner)
    yield from work.rows(target)


def _permissions(engine: Engine) -> int:
    """Returns the permissions of the new log directory: it lets in nobody who may not enter all
    directories of the sources, because the credentials of users are copied, too."""
    found = 0o777
    for log_dir in engine.log_dirs.dirs:
        for each in (log_dir.directory, *(there.directory for there in log_dir.partitions())):
            with suppress(SegmentGone):
                found &= each.stat().st_mode
    return found | 0o700


def _owner(engine: Engine) -> FileOwner | None:
    """Returns whom the sources belong to, None if they belong to several users or groups."""
    owners = {FileOwner.of(each.directory.stat()) for each in engine.log_dirs.dirs}
    return owners.pop() if len(owners) == 1 else None


def _must_be_given(target: NewNodeDir, owner: FileOwner | None) -> ReviveNote:
    whose = "different users or groups" if owner is None else f"another user or group ({owner})"
    return ReviveNote(
        f"{printable(target.path)}: belongs to you, but the sources belong to {whose}; if Kafka"
        f" runs as that user, run: chown -R {owner or 'USER:GROUP'} {quote(printable(target.path))}"
    )


@dataclass(slots=True)
class _Found:
    """A partition of the new node; `loaded`: None if it starts empty. `end_offset`: after the
    markers of transactions that were aborted."""

    topic: SourceTopic
    number: int
    loaded: LoadedPartition | None
    leader_epoch: int
    end_offset: int

    @property
    def key(self) -> TopicPartition:
        return self.topic.name, self.number

    def row(self) -> RevivedPartition:
        where = (self.topic.name, self.number, self.topic.topic_id)
        loaded = self.loaded
        if loaded is None:
            return RevivedPartition(*where, (), 0, 0, 0, 0, self.leader_epoch)
        numbers = (loaded.segments, loaded.size, loaded.start_offset, self.end_offset)
        return RevivedPartition(*where, loaded.sources, *numbers, self.leader_epoch)


def _log_bytes(found: PartitionDir) -> int:
    return sum(PartitionListing(found.directory).sizes.values())


class _Work:
    """One run."""

    def __init__(
        self, engine: Engine, request: Revive, cluster: SourceCluster, progress: ProgressListener
    ) -> None:
        self._engine, self._request = engine, request
        self._cluster, self._progress = cluster, progress
        self._found: list[_Found] = []
        self._notes: list[ReviveNote] = []
        self._transactions = TransactionOutcomes(engine, cluster, aborts=request.abort_open)
        self._last_producer_id = self._transactions.last_producer_id

    def load(self, data: WritableDirFd | None) -> Iterator[PartitionFailed]:
        """Copies all partitions to `data`, None to only look at them, and yields what is wrong with
        them."""
        there = [each for t in self._cluster.topics for each in t.partitions.values() if each]
        total = 0 if data is None else sum(map(_log_bytes, there))
        done = 0

        def copied(size: int) -> None:
            nonlocal done
            done += size
            self._progress.report("copying", done, total)

        link, salvage = self._request.link, self._request.salvage
        maker = PartitionMaker(self._engine, data, copied, link=link, salvage=salvage)
        for topic in self._cluster.topics:
            for number in topic.partitions:
                self._progress.check()
                loaded = self._load(topic, number, maker)
                epoch = self._leader_epoch(topic, number, loaded)
                end = 0 if loaded is None else loaded.end_offset
                self._found.append(_Found(topic, number, loaded, epoch, end))
                if loaded is not None:
                    yield from self._looked_at(loaded)

    def write_files(self, data: WritableDirFd) -> None:
        """Writes the files of the log directory itself, and ends transactions."""
        cluster, now_ms = self._cluster, self._engine.clock.now_ms()
        directory_id = random_uuid_text()
        epochs = {found.key: found.leader_epoch for found in self._found}
        records = bootstrap_records(cluster, directory_id, epochs, self._last_producer_id)
        bootstrap = format_bootstrap(list(records), now_ms)
        meta = MetaProperties(_META_VERSION, cluster.cluster_id, cluster.node_id, directory_id)
        clean = format_clean_shutdown(_UNREGISTERED_EPOCH)
        for name, offsets in self._checkpoints().items():
            data.write_atomically(name, format_offsets(offsets))
        data.write_atomically(names.BOOTSTRAP_FILE, bootstrap)
        data.write_atomically(names.META_PROPERTIES_FILE, format_meta_properties(meta, now_ms))
        data.write_atomically(names.CLEAN_SHUTDOWN_FILE, clean)
        is_of_redpanda = self._engine.log_dirs.is_of_redpanda
        if self._transactions.must_end or is_of_redpanda or self._engine.at_ms is not None:
            self._end_what_is_open(data.path)
            data.write_atomically(names.CLEAN_SHUTDOWN_FILE, clean)

    def _end_what_is_open(self, data_path: str) -> None:
        """Ends transactions, moves the offsets of groups to where Kafka looks for them and, as of a
        time, takes back those that are ahead of their logs."""
        from ...log_manager import LogManager  # which a dry run does not need

        engine = self._engine
        configs = {n: text for n, text in engine.configs.items() if n != PREFERRED_DIR}
        with LogManager(data_path, configs, engine.clock) as manager:
            self._transactions.end(manager)
            if engine.log_dirs.is_of_redpanda:
                self._notes += move_offsets(manager)
            if engine.at_ms is not None:
                self._notes += take_back_offsets(manager)
                self._notes += take_back_share_groups(manager)
            for found in self._found:
                if found.loaded is not None:
                    found.end_offset = manager.writer(*found.key).end_offset

    def rows(self, target: NewNodeDir) -> Iterator[ReviveRow]:
        """Yields a row for each partition and open transaction, and for the node."""
        yield from self._notes
        yield from (found.row() for found in self._found)
        yield from self._transactions.rows()
        yield self.node(target)

    def node(self, target: NewNodeDir) -> RevivedNode:
        """Returns the row of the new node."""
        cluster = self._cluster
        loaded = [found.loaded for found in self._found if found.loaded is not None]
        return RevivedNode(
            target.properties_path,
            cluster.cluster_id,
            cluster.node_id,
            cluster.release.name,
            len(cluster.topics),
            len(self._found),
            sum(each.size for each in loaded),
        )

    def _load(
        self, topic: SourceTopic, number: int, maker: PartitionMaker
    ) -> LoadedPartition | None:
        found = topic.partitions[number]
        if found is None:
            return None
        return maker.make(selected_copies(self._engine, found), topic.topic_id)

    def _leader_epoch(self, topic: SourceTopic, number: int, loaded: LoadedPartition | None) -> int:
        """Returns an epoch above all that the partition had."""
        known = self._cluster.image.topics.get(topic.name)
        old = known.partitions.get(number) if known is not None else None
        latest = -1 if old is None else old.leader_epoch
        return max(latest, -1 if loaded is None else loaded.latest_epoch) + 1

    def _looked_at(self, loaded: LoadedPartition) -> Iterator[PartitionFailed]:
        """Notes the producers of a partition, and yields what is wrong with it."""
        self._transactions.add(loaded.key, loaded.producers.open_transactions())
        ids = [state.producer_id for state in loaded.producers.states()]
        # kafkafs chooses its own ids far above those that a controller assigns.
        assigned = (each for each in ids if each < OWN_IDS)
        self._last_producer_id = max(self._last_producer_id, *assigned, -1)
        where = f"{loaded.topic}-{loaded.partition}"
        for line in loaded.wrong:
            yield PartitionFailed(line, "StorageError", where)

    def _checkpoints(self) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Returns the offset checkpoints by name of the file."""
        loaded = {found.key: found.loaded for found in self._found if found.loaded is not None}
        ends = {key: each.plan.end_offset for key, each in loaded.items()}
        starts = {k: each.plan.start_offset for k, each in loaded.items() if each.has_moved_start}
        cleaned: dict[TopicPartition, int] = {}
        for found in self._found:
            source = found.topic.partitions[found.number]
            is_one = found.loaded is not None and len(found.loaded.sources) == 1
            offsets = source.log_dir.cleaner_offsets if source is not None and is_one else {}
            if found.key in offsets:
                cleaned[found.key] = min(offsets[found.key], ends[found.key])
        return {
            names.RECOVERY_POINT_FILE: ends,
            names.HIGH_WATERMARK_FILE: ends,
            names.LOG_START_OFFSET_FILE: starts,
            names.CLEANER_OFFSET_FILE: cleaned,
        }
