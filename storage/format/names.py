"""The names in a log directory, built and parsed in this one place.

Names come from a listing and may be anything at all. A name is parsed only if Kafka itself would
have written it so, to the letter: Java's parsers take more (a leading `+`, leading zeros, digits of
any script), and two names must never mean one thing. What does not parse is not served.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from .layout import MAX_INT32, MAX_OFFSET

# Files in a log directory.
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
# Directories in it that are no partitions.
REMOTE_INDEX_CACHE = "remote-log-index-cache"

# Files in a partition directory, beside those that carry an offset.
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

# The topic of a KRaft quorum's own log. It is in the log directory like any other partition.
METADATA_TOPIC = "__cluster_metadata"

_MAX_NAME = 255
_MAX_TOPIC = 249  # leaves 6 of a file name's 255 bytes for "-" and a partition of five digits


class PartitionState(StrEnum):
    """What a broker means with a partition directory. The value is the ending of its name."""

    NORMAL = ""
    DELETE = "delete"  # the topic was deleted; the files wait for file.delete.delay.ms
    FUTURE = "future"  # a copy being made, to move the partition to this directory
    STRAY = "stray"  # a replica that the cluster no longer knows


@dataclass(frozen=True, slots=True)
class PartitionDirName:
    """What the name of a partition directory says. In DELETE and STRAY the end of a long topic may
    have been cut off, so that the name fits 255 bytes."""

    topic: str
    partition: int
    state: PartitionState = PartitionState.NORMAL
    uuid: str = ""  # 32 hexadecimal digits, only there to make the name unique; none in NORMAL


class FileKind(StrEnum):
    """What one of a segment's files holds. The value is its suffix."""

    LOG = ".log"
    INDEX = ".index"
    TIMEINDEX = ".timeindex"
    TXNINDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """Whether a file is part of the log. The value is the suffix behind that of the kind."""

    LIVE = ""
    DELETED = ".deleted"  # waits for file.delete.delay.ms
    CLEANED = ".cleaned"  # the cleaner is filling it
    SWAP = ".swap"  # filled, and about to replace what it was made from


@dataclass(frozen=True, slots=True)
class SegmentFileName:
    """What a file's name says. In a SNAPSHOT's, `base_offset` is the offset that its state is of;
    in the others', the base of the segment they belong to."""

    base_offset: int
    kind: FileKind
    state: FileState = FileState.LIVE


@dataclass(frozen=True, slots=True, order=True)
class MetadataSnapshotName:
    """A KRaft snapshot: the metadata log's records below `end_offset`, the last one of `epoch`. The
    later one is the greater."""

    end_offset: int
    epoch: int


_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{_MAX_TOPIC}}}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_STATEFUL_DIR = re.compile(r"(.+)\.([0-9a-f]{32})-(delete|future|stray)")
_SEGMENT_FILE = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(|\.deleted|\.cleaned|\.swap)"
)
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


def is_legal_topic(topic: str) -> bool:
    """Kafka's Topic.validate: 1 to 249 of ASCII letters, digits, `.`, `_`, `-`; not `.` or `..`."""
    return topic not in (".", "..") and _TOPIC.fullmatch(topic) is not None


def parse_partition_dir(name: str) -> PartitionDirName | None:
    """What the directory `name` is, None when it cannot be a partition's (UnifiedLog's rules)."""
    stateful = _STATEFUL_DIR.fullmatch(name)
    if stateful is not None:
        topic_partition, uuid, state = stateful.groups()
        parsed = _parse_topic_partition(topic_partition)
        return parsed and PartitionDirName(*parsed, PartitionState(state), uuid)
    parsed = _parse_topic_partition(name)
    return parsed and PartitionDirName(*parsed)


def partition_dir(topic: str, partition: int) -> str:
    """The name of the directory that holds a partition in normal use."""
    return f"{topic}-{partition}"


def deleted_partition_dir(topic: str, partition: int, uuid: str) -> str:
    """The name that the directory of a partition gets when it is deleted, for its last minute;
    `uuid` as in `PartitionDirName`. Of a long topic the end is cut off."""
    ending = f"-{partition}.{uuid}-{PartitionState.DELETE}"
    return topic[: _MAX_NAME - len(ending)] + ending


def parse_segment_file(name: str) -> SegmentFileName | None:
    """What the file `name` in a partition directory is, None when it carries no offset."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return SegmentFileName(int(match[1]), FileKind(match[2]), FileState(match[3]))


def segment_file(base_offset: int, kind: FileKind, state: FileState = FileState.LIVE) -> str:
    """The name of a segment's file: 20 digits, the suffix of its kind, then that of its state."""
    return f"{base_offset:020d}{kind}{state}"


def parse_metadata_snapshot(name: str) -> MetadataSnapshotName | None:
    """What the file `name` in the metadata log's directory is, None when it is no snapshot."""
    match = _METADATA_SNAPSHOT.fullmatch(name)
    if match is None or int(match[1]) > MAX_OFFSET:
        return None
    return MetadataSnapshotName(int(match[1]), int(match[2]))


def _parse_topic_partition(text: str) -> tuple[str, int] | None:
    """Split at the last `-`: a topic may hold others, and end in one."""
    topic, dash, number = text.rpartition("-")
    if not dash or not is_legal_topic(topic) or _NUMBER.fullmatch(number) is None:
        return None
    partition = int(number)
    return (topic, partition) if partition <= MAX_INT32 else None
