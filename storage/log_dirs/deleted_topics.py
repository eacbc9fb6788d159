"""What is remembered of a deleted topic while its files still exist.

The directory of each of its partitions, already renamed to `-delete`, holds a small file with what
only the log directory knew, so that another process can restore the topic, too. The file is not
synced; after a power failure it may be missing.

    # Java properties
    topic=orders
    log.start.offset=17
    config.retention.ms=86400000
    checksum=0b37ca4f
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..config.topic_file import can_be_kept
from ..errors import CorruptError, SegmentGone
from ..format.files.names import deleted_partition_dir, is_legal_topic, parse_partition_dir
from ..format.files.properties import format_properties, parse_properties
from ..format.layout import MAX_INT32, MAX_OFFSET
from ..io.small_file import read_value
from ..log.delete.deletions import NEVER_MS, Cause, Deletion
from ..wording import printable
from .log_dir import PartitionDir

# Never present in a partition that is in use.
DELETED_PARTITION_FILE = "kafkafs.deleted"
MAX_DELETED_PARTITION_BYTES = 1 << 20

_CONFIG = "config."
_NUMBER = re.compile("-1|[0-9]{1,19}")
_CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class DeletedPartition:
    """One partition of a topic that had `partitions` of them. The offsets are those that were, or
    would have been, checkpointed; `cleaner_offset` is -1 if there was none. `size`: bytes of its
    `.log` files. `configs`: the topic's configs in kafkafs's own file."""

    topic: str
    topic_id: str
    partition: int
    partitions: int
    start_offset: int
    recovery_point: int
    cleaner_offset: int
    size: int
    deleted_at_ms: int
    configs: Mapping[str, str]

    @property
    def together(self) -> tuple[str, str, int]:
        """A key shared by all partitions of one topic. A topic without an id may have been created
        again under its name, so the time of deletion distinguishes it."""
        return self.topic, self.topic_id, 0 if self.topic_id else self.deleted_at_ms


_NUMBERS = {
    "partition": "partition",
    "partitions": "partitions",
    "log.start.offset": "start_offset",
    "recovery.point.offset": "recovery_point",
    "cleaner.offset": "cleaner_offset",
    "size": "size",
    "deleted.at.ms": "deleted_at_ms",
}


def format_deleted_partition(deleted: DeletedPartition) -> bytes:
    """Returns the content of a deleted partition's `kafkafs.deleted`."""
    values = {"topic": deleted.topic, "topic.id": deleted.topic_id}
    values |= {key: str(getattr(deleted, name)) for key, name in _NUMBERS.items()}
    values |= {_CONFIG + name: text for name, text in deleted.configs.items()}
    return format_properties({**values, _CHECKSUM: _checksum(values)}, deleted.deleted_at_ms)


def _checksum(values: Mapping[str, str]) -> str:
    """Returns the checksum of the file's values. The file is not synced, so a power failure may
    truncate it."""
    lines = (f"{key}={text}\n" for key, text in values.items())
    return f"{zlib.crc32(''.join(lines).encode()):08x}"


def parse_deleted_partition(data: bytes) -> DeletedPartition:
    """Raises CorruptError if something is missing or invalid."""
    values = parse_properties(data)
    try:
        if values.pop(_CHECKSUM, "") != _checksum(values):
            raise CorruptError("checksum mismatch")
        numbers = {name: _number(values[key]) for key, name in _NUMBERS.items()}
        topic, topic_id = values["topic"], values["topic.id"]
    except (KeyError, ValueError) as error:
        raise CorruptError(f"not the note of a deleted partition: {error}") from None
    is_whole = all(number >= 0 or name == "cleaner_offset" for name, number in numbers.items())
    is_partition = numbers["partition"] <= MAX_INT32 >= numbers["partitions"] > 0
    if not is_whole or not is_partition or not is_legal_topic(topic):
        raise CorruptError("not the note of a deleted partition")
    configs = {
        name.removeprefix(_CONFIG): text
        for name, text in values.items()
        if name.startswith(_CONFIG)
    }
    if not can_be_kept(configs):
        raise CorruptError("a config is not one line of text")
    return DeletedPartition(topic, topic_id, **numbers, configs=configs)


def _number(text: str) -> int:
    """Returns a number, at least -1. Raises ValueError."""
    number = int(text) if _NUMBER.fullmatch(text) else MAX_OFFSET + 1
    if number > MAX_OFFSET:
        raise ValueError(f"{printable(text[:40])!r} is not a number from -1 to 2^63-1")
    return number


@dataclass(frozen=True, slots=True)
class DeletedPartitionDir:
    """The directory `name` in a log directory, and the partition that it was; None if unknown, in
    which case it cannot be restored. It is removed some time after `since_ms`, when this process
    deleted it; NEVER_MS for a directory found at startup, which stays until it is purged."""

    name: str
    since_ms: int
    was: DeletedPartition | None


def read_deleted_dir(found: PartitionDir) -> DeletedPartitionDir:
    """Reads a partition directory that another process deleted. Its file counts only if it names
    the partition that the directory is named after, because the partition is restored under the
    name in the file."""
    try:
        was = read_deleted_partition(found)
    except CorruptError:
        was = None
    return DeletedPartitionDir(found.name, NEVER_MS, was)


def read_deleted_partition(found: PartitionDir) -> DeletedPartition | None:
    """Reads the file of a deleted partition's directory; returns None if there is none. Raises
    CorruptError if it is malformed, or names another partition than the directory's name."""
    name, limit = DELETED_PARTITION_FILE, MAX_DELETED_PARTITION_BYTES
    try:
        was = read_value(found.directory, name, limit, parse_deleted_partition)
    except SegmentGone:
        return None
    parsed = parse_partition_dir(found.name)
    if parsed is not None:
        right = deleted_partition_dir(was.topic, was.partition, parsed.uuid)
        if right != found.name:
            what = f"partition {was.topic}-{was.partition} in the directory of another partition"
            raise CorruptError(what, found.directory.path_of(name))
    return was


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that can be restored: its partitions by number, each with the index of its log
    directory."""

    partitions: tuple[tuple[int, DeletedPartitionDir], ...]

    @property
    def was(self) -> list[DeletedPartition]:
        """The partitions as they were."""
        return [each.was for _, each in self.partitions if each.was is not None]

    def deletion(self, delay_ms: int) -> Deletion:
        """Returns the Deletion to report, if the files are removed after `delay_ms`."""
        first, *_ = was = self.was
        return Deletion(
            topic=first.topic,
            partition=-1,
            start_offset=-1,
            end_offset=-1,
            segments=(),
            partitions=tuple(one.partition for one in was),
            size=sum(one.size for one in was),
            cause=Cause.TOPIC,
            deleted_at_ms=first.deleted_at_ms,
            until_ms=self._until_ms(delay_ms),
        )

    def _until_ms(self, delay_ms: int) -> int:
        since_ms = min(each.since_ms for _, each in self.partitions)
        return NEVER_MS if since_ms == NEVER_MS else since_ms + delay_ms


def deleted_topics(deleted_dirs: Iterable[Iterable[DeletedPartitionDir]]) -> list[DeletedTopic]:
    """Returns the topics of which every partition still exists, oldest deletion first.
    `deleted_dirs`: the deleted partitions of each log directory."""
    together: dict[tuple[str, str, int], list[tuple[int, DeletedPartitionDir]]] = {}
    for number, each in enumerate(deleted_dirs):
        for one in each:
            if one.was is not None:
                together.setdefault(one.was.together, []).append((number, one))
    found = [DeletedTopic(tuple(sorted(parts, key=_partition_of))) for parts in together.values()]
    whole = [each for each in found if _is_whole(each.was)]
    return sorted(whole, key=lambda each: each.was[0].deleted_at_ms)


def _is_whole(partitions: Sequence[DeletedPartition]) -> bool:
    """Returns whether every partition is present exactly once. Some are missing if an earlier
    deletion failed half-way; a number occurs twice only if a directory was copied."""
    numbers = {one.partition for one in partitions}
    return len(numbers) == len(partitions) == max(one.partitions for one in partitions)


def _partition_of(found: tuple[int, DeletedPartitionDir]) -> int:
    was = found[1].was
    assert was is not None
    return was.partition
