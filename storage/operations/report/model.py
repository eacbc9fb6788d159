"""What a report says about log directories: frozen, typed, and without any drawing.

Times are milliseconds since 1970, sizes are bytes of `.log` files. A report without records
(`is_deep` false) comes from the segment listing, the indexes and the batch headers: exact where a
whole small segment was walked, otherwise from headers sampled at index entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ...config.kafka import ConfigSource
from ...format.records.batch import Int64s
from ...log.state.producers import OpenTransaction
from ..groups import GroupOffset
from ..remote import RemotePart
from ..request import PartitionFailed


class SegmentState(StrEnum):
    """What happens to a segment at the time of the report."""

    LIVE = "live"
    DIRTY = "dirty"  # the cleaner may clean it: it may have superseded records
    EXPIRED = "expired"  # retention deletes it


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """A segment. `why`: the rule that deletes it, or what retains it. `expires_at_ms`: when
    `retention.ms` deletes it, `bytes_to_come`: after how many more bytes `retention.bytes` does,
    None for never. `first_timestamp`: of its first batch, -1 if unknown; `largest_timestamp`: see
    `SegmentWhy`. `removable_records`, `removable_bytes`: the records that compaction would remove,
    and about how many bytes they take; 0 without reading records."""

    base_offset: int
    end_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int
    state: SegmentState
    why: str
    expires_at_ms: int | None
    bytes_to_come: int | None
    removable_records: int = 0
    removable_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "baseOffset": self.base_offset,
            "endOffset": self.end_offset,
            "size": self.size,
            "firstTimestamp": self.first_timestamp,
            "largestTimestamp": self.largest_timestamp,
            "state": str(self.state),
            "why": self.why,
            "expiresAt": self.expires_at_ms,
            "bytesToCome": self.bytes_to_come,
            "removableRecords": self.removable_records,
            "removableBytes": self.removable_bytes,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """How a log grew: after `timestamps[i]` (ascending) it had `sizes[i]` bytes and
    `offsets[i]` - `offsets[0]` offsets; int64 of shape (n,), empty without timestamps. A timestamp
    is the greatest so far, so that records out of order do not count as earlier."""

    timestamps: Int64s
    offsets: Int64s
    sizes: Int64s

    def __len__(self) -> int:
        return len(self.timestamps)


@dataclass(frozen=True, slots=True)
class TimeGap:
    """A time without records, between the records before and at `offset`."""

    from_ms: int
    until_ms: int
    offset: int

    @property
    def length_ms(self) -> int:
        return self.until_ms - self.from_ms

    def as_json(self) -> dict[str, int]:
        return {"from": self.from_ms, "until": self.until_ms, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class Disorder:
    """Timestamps that go back. `count` of `examined` records (batches, without reading records)
    begin before the greatest timestamp so far; `largest_ms`: the largest step back, which ends at
    `offset` (-1: none). `future`: how many are later than the time of the report."""

    examined: int = 0
    count: int = 0
    largest_ms: int = 0
    offset: int = -1
    future: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "examined": self.examined,
            "count": self.count,
            "largestMs": self.largest_ms,
            "offset": self.offset,
            "future": self.future,
        }


@dataclass(frozen=True, slots=True)
class CodecUse:
    """The examined batches with a codec: how many, and their bytes. `data_bytes`: of the keys and
    values in them, 0 without reading records."""

    batches: int = 0
    stored_bytes: int = 0
    data_bytes: int = 0

    def __add__(self, other: CodecUse) -> CodecUse:
        return CodecUse(
            self.batches + other.batches,
            self.stored_bytes + other.stored_bytes,
            self.data_bytes + other.data_bytes,
        )

    def as_json(self) -> dict[str, int]:
        return {
            "batches": self.batches,
            "storedBytes": self.stored_bytes,
            "dataBytes": self.data_bytes,
        }


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """What is known only from the records; `null_values` are tombstones if the log is compacted.
    Control records are not counted."""

    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0

    def as_json(self) -> dict[str, int]:
        return {
            "records": self.records,
            "keyBytes": self.key_bytes,
            "valueBytes": self.value_bytes,
            "nullKeys": self.null_keys,
            "nullValues": self.null_values,
        }


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """A partition. `log_dir`: the path of its log directory. `dirty_ratio`: 0 to 1, None if the
    topic is not compacted. `deleted_bytes`: of files that are deleted but still on the disk.
    `counts`: None without reading records. `remote`: what is in remote storage."""

    topic: str
    partition: int
    log_dir: str
    start_offset: int
    end_offset: int
    last_stable_offset: int
    segments: tuple[SegmentReport, ...]
    growth: Growth
    codecs: Mapping[str, CodecUse]
    gaps: tuple[TimeGap, ...]
    disorder: Disorder
    transactions: tuple[OpenTransaction, ...]
    damage: tuple[PartitionFailed, ...]
    dirty_ratio: float | None
    deleted_bytes: int = 0
    counts: RecordCounts | None = None
    remote: RemotePart | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def size(self) -> int:
        return sum(each.size for each in self.segments)

    @property
    def records(self) -> int:
        """The number of records or, without reading them, of offsets in the log."""
        return self.counts.records if self.counts else self.end_offset - self.start_offset

    @property
    def latest_ms(self) -> int | None:
        """The largest timestamp found; None without one."""
        found = [
            each.largest_timestamp
            for each in self.segments
            if each.first_timestamp >= 0  # otherwise it may be the file's time
        ]
        return max([*found, *self.growth.timestamps[-1:].tolist()], default=None)

    def bytes_in(self, state: SegmentState) -> int:
        return sum(each.size for each in self.segments if each.state is state)

    @property
    def removable_bytes(self) -> int:
        return sum(each.removable_bytes for each in self.segments)

    @property
    def removable_records(self) -> int:
        return sum(each.removable_records for each in self.segments)

    def next_deletion_ms(self, at_ms: int) -> int | None:
        """When retention deletes the next segment after `at_ms`. The time of one that is held
        although it has expired is not known."""
        times = [each.expires_at_ms for each in self.segments if each.expires_at_ms is not None]
        return min((each for each in times if each > at_ms), default=None)

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "logDir": self.log_dir,
            "logStartOffset": self.start_offset,
            "logEndOffset": self.end_offset,
            "lastStableOffset": self.last_stable_offset,
            "size": self.size,
            "deletedBytes": self.deleted_bytes,
            "remote": self.remote and self.remote.as_json(),
            "dirtyRatio": self.dirty_ratio,
            "segments": [each.as_json() for each in self.segments],
            "codecs": {name: use.as_json() for name, use in self.codecs.items()},
            "gaps": [each.as_json() for each in self.gaps],
            "disorder": self.disorder.as_json(),
            "transactions": [asdict(each) for each in self.transactions],
            "damage": [each.as_json() for each in self.damage],
            "counts": self.counts and self.counts.as_json(),
        }


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A topic with its readable partitions. `configs`: those that are not defaults, as text and
    source by name; `problems`: what is wrong with them."""

    topic: str
    topic_id: str
    configs: Mapping[str, tuple[str, ConfigSource]]
    problems: tuple[str, ...]
    partitions: tuple[PartitionReport, ...]

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's own topics."""
        return self.topic.startswith("__")

    @property
    def size(self) -> int:
        return sum(each.size for each in self.partitions)

    @property
    def skew(self) -> float:
        """How many times as large as the average the largest partition is; 1.0 is even. 0.0 if the
        topic is empty."""
        sizes = [each.size for each in self.partitions]
        return max(sizes) * len(sizes) / sum(sizes) if any(sizes) else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "topicId": self.topic_id or None,
            "size": self.size,
            "skew": round(self.skew, 4),
            "configs": {
                name: {"value": text, "source": str(source)}
                for name, (text, source) in self.configs.items()
            },
            "problems": list(self.problems),
            "partitions": [each.as_json() for each in self.partitions],
        }


@dataclass(frozen=True, slots=True)
class LogDirReport:
    """A log directory and its owner; "" and -1 if that is unknown."""

    path: str
    cluster_id: str
    node_id: int
    is_clean: bool

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "clusterId": self.cluster_id or None,
            "nodeId": self.node_id,
            "cleanShutdown": self.is_clean,
        }


@dataclass(frozen=True, slots=True)
class LogDirsReport:
    """Everything, as of `at_ms`. `unreadable`: the partitions that could not be read at all.
    `problems`: of the directories, their small files and the topics that record groups, one line
    each. `groups`: the offsets of groups, of the described partitions if these were selected."""

    at_ms: int
    is_deep: bool
    log_dirs: tuple[LogDirReport, ...]
    topics: tuple[TopicReport, ...]
    unreadable: tuple[PartitionFailed, ...]
    problems: tuple[str, ...]
    groups: tuple[GroupOffset, ...] = ()

    @property
    def partitions(self) -> Sequence[PartitionReport]:
        return [each for topic in self.topics for each in topic.partitions]

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at_ms,
            "isDeep": self.is_deep,
            "logDirs": [each.as_json() for each in self.log_dirs],
            "topics": [each.as_json() for each in self.topics],
            "groups": [each.as_json() for each in self.groups],
            "unreadable": [each.as_json() for each in self.unreadable],
            "problems": list(self.problems),
        }
