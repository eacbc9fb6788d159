"""Appends records to the metadata log of a stopped node, as its next leader would.

The node must be the only voter of the quorum. When it starts, it elects itself without asking
anybody, in an epoch above all before, and appends a LeaderChange record; as the only voter, it
commits whatever its own log holds (KafkaRaftClient, LeaderState). Here it has such a term between
two runs: an epoch of its own that begins with a LeaderChange record and has the new records, and
that `quorum-state` names before the log does. The node then starts in a later epoch.

The epoch must be a new one. Observers, such as brokers without a controller, may have fetched
records of the last epoch that a power cut has taken from the leader (it lets them fetch before it
flushes). As records of a new epoch are now at these offsets, the observers find out and truncate
their logs. Other records of the same epoch they would take for those that they have
(QuorumState.initialize: offset and epoch identify a record).

A crash leaves a log that Kafka accepts, whatever was written of it: a term without records, or with
the records of the first batches. Kafka recovers the metadata log from its beginning at every start
and truncates it before a batch that is not whole (KafkaMetadataLog), so nothing else counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..clock import Clock
from ..config.kafka import Configs, TopicConfig, topic_config
from ..errors import CorruptError, LogDirError, SegmentGone, StorageError
from ..format.files.checkpoints import MetaProperties
from ..format.files.names import (
    METADATA_TOPIC,
    QUORUM_STATE_FILE,
    FileKind,
    FileState,
    parse_segment_file,
    segment_file,
)
from ..format.files.quorum_state import QuorumState, format_leader, parse_quorum_state
from ..format.layout import MAX_INT32, ControlType
from ..format.messages.control import quorum_record
from ..format.messages.metadata import format_metadata_record
from ..format.records.encoder import BatchPlan, encode
from ..format.records.record_columns import RecordColumns, SimpleRecord
from ..format.records.validate import AppendOrigin
from ..io.directory import Directory
from ..io.durable import WritableDirFd
from ..log.append.writer import LogWriter
from ..log.load.log_loader import LogLoader, RecoveryPlan
from ..segment.extent import Extent
from ..segment.salvage import next_batch
from .bootstrap import NewRecord
from .cluster_metadata import ClusterMetadata
from .image import MetadataImage, Quorum, Voter

# The largest batch that a controller and its observers read (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
_MAX_BATCH_BYTES: Final = 8 << 20
# Groups of records share a batch up to this size.
_BATCH_BYTES: Final = 1 << 20
_MAX_QUORUM_STATE_BYTES: Final = 1 << 20
# As a controller configures its log: any batch fits, and nothing is deleted (KafkaMetadataLog).
_LOG_CONFIGS: Final = {
    "max.message.bytes": str(_MAX_BATCH_BYTES),
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


class AppendedRecord(NamedTuple):
    """A record with its offset in the metadata log."""

    offset: int
    record: NewRecord


@dataclass(frozen=True, slots=True)
class LeaderTerm:
    """A term of the only voter `node_id`, planned: its `epoch`, and the `offset` of its
    LeaderChange record, after which the records follow. `recovery`: how the log is opened."""

    node_id: int
    epoch: int
    offset: int
    recovery: RecoveryPlan

    def placed(self, groups: Sequence[Sequence[NewRecord]]) -> list[AppendedRecord]:
        """Returns records with the offsets that they will have."""
        records = [record for group in groups for record in group]
        return [AppendedRecord(self.offset + 1 + at, each) for at, each in enumerate(records)]

    def append(
        self, directory: WritableDirFd, groups: Sequence[Sequence[NewRecord]], clock: Clock
    ) -> None:
        """Appends the records, durably: those of a group all or none. `directory` must be as it was
        when the term was planned, and its log directory locked.

        Raises LogDirError for a group too large for a batch, before anything is written; OSError,
        LogDirOffline or NotClosed."""
        batches = list(self._batches(directory, groups, clock.now_ms()))
        self._note_term(directory)
        self.recovery.apply(directory)
        writer = LogWriter(
            directory,
            METADATA_TOPIC,
            0,
            config=_log_config(),
            clock=clock,
            loaded=self.recovery,
            leader_epoch=self.epoch,
        )
        try:
            writer.append(b"".join(batches), AppendOrigin.REPLICATION, durable=True)
        finally:
            _close(writer)

    def _note_term(self, directory: WritableDirFd) -> None:
        """Makes this node the leader in `quorum-state`, so that no other term has its epoch."""
        old = directory.read_small(QUORUM_STATE_FILE, _MAX_QUORUM_STATE_BYTES)
        directory.write_atomically(QUORUM_STATE_FILE, format_leader(old, self.node_id, self.epoch))

    def _batches(
        self, directory: Directory, groups: Sequence[Sequence[NewRecord]], now_ms: int
    ) -> Iterator[bytes]:
        """Yields the batches of the term, the first one with the LeaderChange record."""
        voter = {"voterId": self.node_id}
        change = {
            "version": 0,
            "leaderId": self.node_id,
            "voters": [voter],
            "grantingVoters": [voter],
        }
        control = SimpleRecord(now_ms, *quorum_record(ControlType.LEADER_CHANGE, change))
        yield self._batch([control], self.offset, is_control=True)
        offset = self.offset + 1
        for values in _shared(directory, groups):
            records = [SimpleRecord(now_ms, None, value) for value in values]
            yield self._batch(records, offset, is_control=False)
            offset += len(values)

    def _batch(self, records: Sequence[SimpleRecord], offset: int, *, is_control: bool) -> bytes:
        plan = BatchPlan(offset, self.epoch, batch_bytes=_MAX_BATCH_BYTES, is_control=is_control)
        return bytes(encode(RecordColumns.from_records(records), plan).data)


def plan_term(
    directory: Directory, meta: MetaProperties, metadata: ClusterMetadata, now_ms: int
) -> tuple[LeaderTerm, MetadataImage]:
    """Plans a term of the node that owns `directory`, that of a stopped node's metadata log, of
    which `metadata` is the reader. Returns it with the cluster at its beginning. Only reads.

    Raises LogDirError if the node is not the only voter, or if its log is damaged or ends in a
    transaction; MetadataUnavailable. A batch at the log's end that is not whole is no damage: a
    crash leaves it, and Kafka truncates it, too."""
    path = directory.path
    state = _quorum_state(directory)
    recovery = LogLoader(directory, 0, 0, False, _log_config(), now_ms).plan()
    is_torn = bool(recovery.faults)
    if is_torn and not _is_torn_at_end(directory, recovery):
        raise LogDirError(path, f"the metadata log is damaged: {recovery.faults[0]}")
    image = metadata.image_at(recovery.end_offset if is_torn else None)
    if image.problems:
        raise LogDirError(path, f"the metadata log is not whole: {image.problems[0]}")
    if recovery.end_offset != image.offset:
        why = f"the metadata log ends at offset {recovery.end_offset}"
        raise LogDirError(path, f"{why}, but its newest snapshot at {image.offset}")
    noted = Quorum(
        state.leader_id, state.leader_epoch, {each: Voter(each) for each in state.voters}
    )
    quorum = image.quorum.completed(noted)
    _refuse_other_voters(path, meta, quorum, state)
    if image.has_open_transaction:
        why = "the metadata log ends within a transaction, which a controller aborts when it starts"
        raise LogDirError(path, f"{why}: start the node once")
    epoch = max(state.leader_epoch, quorum.leader_epoch, recovery.latest_epoch) + 1
    if epoch > MAX_INT32:
        raise LogDirError(path, f"there is no leader epoch after {epoch - 1}")
    return LeaderTerm(meta.node_id, epoch, recovery.end_offset, recovery), image


def _is_torn_at_end(directory: Directory, recovery: RecoveryPlan) -> bool:
    """Returns whether recovery takes away nothing but the end of the last segment, in which there
    is no whole batch."""
    parsed = (parse_segment_file(entry.name) for entry in directory.list())
    live = [each for each in parsed if each is not None and each.state is FileState.LIVE]
    bases = [each.base_offset for each in live if each.kind is FileKind.LOG]
    last = recovery.segments[-1]
    if max(bases) != last.base_offset:
        return False
    file = directory.open(segment_file(last.base_offset, FileKind.LOG))
    extent = Extent(file, last.base_offset, last.size, file.size(), _MAX_BATCH_BYTES)
    return next_batch(extent, last.size, recovery.end_offset - 1) == extent.end


def _close(writer: LogWriter) -> None:
    """Closes the log. What cannot be written then does not matter, as Kafka recovers this log at
    every start."""
    try:
        writer.close()
    except (StorageError, OSError):
        writer.abandon()


def _quorum_state(directory: Directory) -> QuorumState:
    """Returns the node's own note of the quorum. Raises LogDirError if there is none, or if it is
    damaged."""
    path = directory.path_of(QUORUM_STATE_FILE)
    try:
        data = directory.read_small(QUORUM_STATE_FILE, _MAX_QUORUM_STATE_BYTES)
        return parse_quorum_state(data)
    except SegmentGone:
        raise LogDirError(path, "is missing: the node has never run") from None
    except CorruptError as error:
        raise LogDirError(path, error.what) from None


def _refuse_other_voters(
    path: str, meta: MetaProperties, quorum: Quorum, state: QuorumState
) -> None:
    """Raises LogDirError unless the log and `quorum-state` agree that the node is the only voter,
    and that none other has led it last."""
    node = meta.node_id
    if set(quorum.voters) != {node} or state.voters not in ((), (node,)):
        voters = ", ".join(map(str, sorted({*quorum.voters, *state.voters}))) or "unknown"
        why = f"the voters of the metadata quorum are {voters}"
        if node in quorum.voters:
            why += f"; node {node} cannot decide alone what its log holds"
        else:
            why += f", and node {node} is none: its log is only a copy"
        raise LogDirError(path, why)
    leaders = {quorum.leader_id, state.leader_id} - {-1}
    if leaders - {node}:
        raise LogDirError(path, f"node {max(leaders - {node})} has led the metadata quorum last")
    known = quorum.voters[node].directory_id
    if quorum.kraft_version > 0 and known != meta.directory_id:
        why = f"the voter is node {node} with the directory {known}"
        raise LogDirError(path, f"{why}, but this one is {meta.directory_id}")


def _shared(directory: Directory, groups: Sequence[Sequence[NewRecord]]) -> Iterator[list[bytes]]:
    """Yields the values of records for a batch each. Raises LogDirError for a group that is too
    large."""
    values: list[bytes] = []
    size = 0
    for group in groups:
        its = [format_metadata_record(*record) for record in group]
        more = sum(map(len, its)) + 32 * len(its)  # at most, with the fields of a record
        if more > _MAX_BATCH_BYTES:
            raise LogDirError(directory.path, f"{len(its)} records do not fit into a batch")
        if values and size + more > _BATCH_BYTES:
            yield values
            values, size = [], 0
        values += its
        size += more
    if values:
        yield values


def _log_config() -> TopicConfig:
    return topic_config(Configs(topic=_LOG_CONFIGS)).config
