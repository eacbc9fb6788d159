"""What of a partition lies in remote storage (tiered storage), and what there cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..errors import CorruptError, SegmentGone, StorageError
from ..format.files.names import TopicPartition
from ..log.delete import retention
from ..log.read.view import View
from ..log.state.epochs import LeaderEpochFileCache, read_epoch_entries
from ..log_dirs.engine import Engine

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class RemotePart:
    """`local_start_offset`: where the local log begins. `segments`, `size`: how many segments are
    read from remote storage, and their bytes. `latest_offset`: the last one that remote storage
    has, which the local log may have, too; -1 if it has none.

    `unread_from`, `unread_until`: offsets before the log that is served, which remote storage has
    or had and which are not read, because none was given or because it lacks them; -1 if there are
    none."""

    local_start_offset: int
    segments: int
    size: int
    latest_offset: int
    unread_from: int = _NONE
    unread_until: int = _NONE

    @property
    def unread(self) -> str:
        """Says what is not read, "" if all is."""
        if self.unread_from == _NONE:
            return ""
        return f"offsets {self.unread_from} to {self.unread_until - 1} are in remote storage"

    def as_json(self) -> dict[str, Any]:
        return {
            "localLogStartOffset": self.local_start_offset,
            "segments": self.segments,
            "size": self.size,
            "latestOffset": self.latest_offset,
            "unreadFrom": self.unread_from,
            "unreadUntil": self.unread_until,
        }


def remote_part(engine: Engine, key: TopicPartition, view: View) -> RemotePart:
    """Returns what of a partition is in remote storage. Raises as `Engine.partition_dir`."""
    found = engine.partition_dir(*key)
    remote = [segment.size for segment in view.segments if segment.is_remote]
    start, until = _NONE, _NONE
    checkpoint = found.log_dir.log_start_offsets.get(key)
    if checkpoint is not None and checkpoint < view.start_offset and _is_tiered(engine, key[0]):
        start, until = checkpoint, view.start_offset
    latest = found.directory.latest_remote_offset()
    local = view.local_start_offset
    return RemotePart(local, len(remote), sum(remote), latest, start, until)


def _is_tiered(engine: Engine, topic: str) -> bool:
    """Returns whether segments of a topic may be in remote storage. A broker checkpoints the log
    start offset of such logs also where it is before the first local segment; for others that
    happens only for a moment, when retention has just deleted segments."""
    if topic not in engine.metadata().topics:
        return True
    return engine.topic_config(topic).config.remote_storage_enable


def copied_until(engine: Engine, view: View) -> int | None:
    """Returns the offset up to which remote storage is known to have the local segments of a view;
    None if no broker copies them there. Raises as `Engine.partition_dir`."""
    if not retention.copies(engine.topic_config(view.topic).config):
        return None
    key = (view.topic, view.partition)
    first = next((each.base_offset for each in view.segments if not each.is_remote), -1)
    try:
        epochs = read_epoch_entries(engine.partition_dir(*key).directory)
    except (SegmentGone, CorruptError):  # without them it is not known which segments count
        return first
    return engine.copied_until(key, LeaderEpochFileCache.assigned(epochs), first)


def unread_parts(engine: Engine, advice: str = "see --tier") -> Iterator[str]:
    """Yields a line for each partition opened so far with offsets that are not read."""
    for log in engine.opened():
        try:
            view = log.view()
        except (StorageError, OSError):  # reported where it matters
            continue
        if line := unread_part(engine, view, advice):
            yield line


def unread_part(engine: Engine, view: View, advice: str = "see the config kafkafs.tier") -> str:
    """Returns a line that says which offsets of a partition are not read, "" if all are."""
    try:
        unread = remote_part(engine, (view.topic, view.partition), view).unread
    except (StorageError, OSError):  # reported where it matters
        return ""
    place = f"{view.topic}/{view.partition}"
    return f"{place}: {unread}, and were not read; {advice}" if unread else ""
