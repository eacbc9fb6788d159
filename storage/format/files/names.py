"""Builds and parses the names of files and directories in a log directory.

A directory listing may contain any name. A name is parsed only if it is exactly what Kafka would
write: Java's parsers accept more (a leading `+`, leading zeros, digits of any script), but two
names must never mean the same thing. Names that do not parse are not served.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ..layout import MAX_INT32, MAX_OFFSET

# Files in a log directory.
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
# Directories in a log directory that are not partitions.
REMOTE_INDEX_CACHE = "remote-log-index-cache"

# Files in a partition directory whose names contain no offset.
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
# Only in the metadata log's directory.
QUORUM_STATE_FILE = "quorum-state"

# The topic of a KRaft quorum's metadata log, which is in the log directory like any partition.
METADATA_TOPIC = "__cluster_metadata"
# The topics of the brokers' coordinators.
INTERNAL_TOPICS = ("__consumer_offsets", "__share_group_state", "__transaction_state")
# The topic that records which segments are in the tier (TopicBasedRemoteLogMetadataManager).
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"

# The name of a topic and the number of a partition.
TopicPartition = tuple[str, int]

_MAX_NAME = 255
_MAX_TOPIC = 249  # leaves 6 of a file name's 255 bytes for "-" and a five-digit partition


class PartitionState(StrEnum):
    """The state of a partition directory. The value is the suffix of its name."""

    NORMAL = ""
    DELETE = "delete"  # the topic was deleted; the files wait for file.delete.delay.ms
    FUTURE = "future"  # a copy in progress, to move the partition to this log directory
    STRAY = "stray"  # a replica that the cluster no longer assigns to this broker


class PartitionDirName(NamedTuple):
    """The parsed name of a partition directory. In states DELETE and STRAY, a long topic may be
    truncated so that the name fits in 255 bytes."""

    topic: str
    partition: int
    state: PartitionState = PartitionState.NORMAL
    uuid: str = ""  # 32 hexadecimal digits that make the name unique; empty in NORMAL


class FileKind(StrEnum):
    """The kind of a segment file. The value is its suffix."""

    LOG = ".log"
    INDEX = ".index"
    TIMEINDEX = ".timeindex"
    TXNINDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """The state of a segment file. The value is the suffix after that of the kind."""

    LIVE = ""
    DELETED = ".deleted"  # waits for file.delete.delay.ms
    CLEANED = ".cleaned"  # the cleaner is filling it
    SWAP = ".swap"  # complete, and about to replace its source segments


class SegmentFileName(NamedTuple):
    """The parsed name of a segment file. `base_offset` is the segment's base offset or, for a
    SNAPSHOT, the offset of its producer state."""

    base_offset: int
    kind: FileKind
    state: FileState = FileState.LIVE


@dataclass(frozen=True, slots=True, order=True)
class MetadataSnapshotName:
    """The name of a KRaft snapshot of the metadata log's records below `end_offset`, the last of
    which has `epoch`. Later snapshots compare greater."""

    end_offset: int
    epoch: int


_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{_MAX_TOPIC}}}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_STATEFUL_DIR = re.compile(r"(.+)\.([0-9a-f]{32})-(delete|future|stray)")
_OFFSET_DIGITS = 20
_SUFFIXES = {f"{kind}{state}": (kind, state) for kind in FileKind for state in FileState}
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


def is_legal_topic(topic: str) -> bool:
    """Returns whether Kafka's Topic.validate accepts `topic`: 1 to 249 ASCII letters, digits, `.`,
    `_` or `-`, but not `.` or `..`."""
    return topic not in (".", "..") and _TOPIC.fullmatch(topic) is not None


def parse_partition_dir(name: str) -> PartitionDirName | None:
    """Parses a directory name by UnifiedLog's rules; returns None if it is not a partition's."""
    stateful = _STATEFUL_DIR.fullmatch(name)
    if stateful is not None:
        topic_partition, uuid, state = stateful.groups()
        parsed = _parse_topic_partition(topic_partition)
        return parsed and PartitionDirName(*parsed, PartitionState(state), uuid)
    parsed = _parse_topic_partition(name)
    return parsed and PartitionDirName(*parsed)


def partition_dir(topic: str, partition: int) -> str:
    """Returns the directory name of a partition in state NORMAL."""
    return f"{topic}-{partition}"


def deleted_partition_dir(topic: str, partition: int, uuid: str) -> str:
    """Returns the name to which the directory of a deleted partition is renamed until its files are
    removed; `uuid` as in `PartitionDirName`. A long topic is truncated."""
    ending = f"-{partition}.{uuid}-{PartitionState.DELETE}"
    return topic[: _MAX_NAME - len(ending)] + ending


def may_be_of_topic(name: str, topic: str) -> bool:
    """Returns whether a partition's directory `name` in a state other than NORMAL is one of
    `topic`, or has the beginning of a long topic's name that is also its beginning."""
    stateful = _STATEFUL_DIR.fullmatch(name)
    parsed = stateful and _parse_topic_partition(stateful[1])
    if not parsed:
        return False
    return parsed[0] == topic or (len(name) == _MAX_NAME and topic.startswith(parsed[0]))


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Parses a file name in a partition directory; returns None if it contains no offset."""
    found = _SUFFIXES.get(name[_OFFSET_DIGITS:])
    digits = name[:_OFFSET_DIGITS]
    if found is None or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return SegmentFileName(offset, *found) if offset <= MAX_OFFSET else None


def segment_file(base_offset: int, kind: FileKind, state: FileState = FileState.LIVE) -> str:
    """Returns the name of a segment file: 20 digits, then the suffixes of kind and state."""
    return f"{base_offset:020d}{kind}{state}"


def parse_metadata_snapshot(name: str) -> MetadataSnapshotName | None:
    """Parses a file name in the metadata log's directory; returns None if it is not a snapshot."""
    match = _METADATA_SNAPSHOT.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return MetadataSnapshotName(int(match[1]), int(match[2]))


def _parse_topic_partition(text: str) -> TopicPartition | None:
    """Splits at the last `-`, because a topic may contain `-` and end in it."""
    topic, dash, number = text.rpartition("-")
    if not dash or not is_legal_topic(topic) or _NUMBER.fullmatch(number) is None:
        return None
    partition = int(number)
    return (topic, partition) if partition <= MAX_INT32 else None
