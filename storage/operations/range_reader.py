"""Reads ranges of offsets from logs that may change meanwhile.

A log grows, is compacted, and loses its oldest segments, and a topic can be deleted and created
again. A range is read from one view of its log, or from several if segments vanish while they are
read. Records that no longer exist are reported as loss, and never replaced by those of another
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from ..errors import DataLoss, SegmentGone, StorageError, UnknownPartition, UnknownTopic
from ..format.files.names import TopicPartition
from ..format.records.columns import Columns, Damage
from ..log.read.transactions import Isolation
from ..log.read.view import View
from ..log_dirs.engine import Engine
from .offset_ranges import OffsetRange

# How many views are tried in a row when segments vanish before anything is read.
_ATTEMPTS: Final = 8


class Loss(Enum):
    """Why records no longer exist: they are MISSING in their log, or their topic was RECREATED."""

    MISSING = auto()
    RECREATED = auto()


def raise_loss(what: str, loss: Loss) -> None:
    """Raises DataLoss."""
    raise DataLoss(what)


def recreated(topic: str, known_id: str, topic_id: str) -> str:
    """Describes the re-creation of a topic whose id was `known_id` and now is `topic_id`, "" for
    none."""
    now = f"the topic id is {topic_id} now" if topic_id else "there is no topic id now"
    return f"topic {topic} was deleted and created again: {now}, not {known_id}"


def id_of(engine: Engine, key: TopicPartition) -> str | None:
    """Returns the topic id in a partition's directory, "" if it has none; None if the partition
    does not exist. Raises CorruptError if its partition.metadata is malformed."""
    try:
        found = engine.partition_dir(*key)
        topic_id = found.topic_id()
        if not topic_id:
            found.directory.stat()  # a directory that was just deleted has no id either
    except (UnknownTopic, UnknownPartition, SegmentGone):
        return None
    return topic_id


def next_offset(part: Columns | Damage, reached: int) -> int:
    """Returns the offset at which reading continues after a part."""
    if isinstance(part, Columns):
        return int(part.offsets[-1]) + 1
    return max(reached, part.first_offset, part.next_offset)


@dataclass(frozen=True, slots=True)
class LogRangeReader:
    """Reads ranges of the logs in `log_dirs`, as of `at_ms` (ms since 1970) unless that is None.
    `on_loss` is called with a description of records that no longer exist; unless it raises, they
    are left out. Threads and successive tasks of a process share the opened directories."""

    log_dirs: tuple[str, ...]
    configs: Mapping[str, str]
    isolation: Isolation
    at_ms: int | None = None
    on_loss: Callable[[str, Loss], None] = raise_loss

    def parts(self, offset_range: OffsetRange, reached: int) -> Iterator[Columns | Damage]:
        """Yields the columns and damage of a range from the offset `reached` on. Columns are valid
        until the next are requested. Raises StorageError if segments vanish faster than they can be
        read."""
        attempts = _ATTEMPTS
        while attempts:
            view = self._view(offset_range)
            if view is None or self._is_recreated(offset_range):
                return
            self._report_gone(offset_range, view, reached)
            end = (
                None
                if offset_range.is_last and offset_range.end == view.end_offset
                else offset_range.end
            )
            try:
                for part in view.scan(reached, end, self.isolation):
                    if self._is_recreated(offset_range):
                        return
                    reached, attempts = next_offset(part, reached), _ATTEMPTS
                    yield part
                return
            except SegmentGone:
                attempts -= 1
        raise StorageError(f"{offset_range}: its segments vanish faster than they can be read")

    def _view(self, offset_range: OffsetRange) -> View | None:
        """Returns the present view; None if the partition was deleted and that is not an error.
        Raises LogDirError if the directory itself is missing: a worker that does not see it has
        lost no data."""
        try:
            return self._engine().log(offset_range.topic, offset_range.partition).view()
        except (UnknownTopic, UnknownPartition) as error:
            self.on_loss(f"{offset_range}: {error}", Loss.MISSING)
            return None

    def _is_recreated(self, offset_range: OffsetRange) -> bool:
        """Returns whether the partition now belongs to another topic, after reporting the loss.
        False means that all that was read before belongs to the planned topic, since ids are never
        reused. A partition deleted meanwhile counts as unchanged."""
        if not offset_range.topic_id:
            return False
        topic_id = id_of(self._engine(), (offset_range.topic, offset_range.partition))
        if topic_id is None or topic_id == offset_range.topic_id:
            return False
        what = f"{offset_range}: {recreated(offset_range.topic, offset_range.topic_id, topic_id)}"
        self.on_loss(what, Loss.RECREATED)
        return True

    def _report_gone(self, offset_range: OffsetRange, view: View, reached: int) -> None:
        """Reports the loss of offsets of the range that the log no longer has."""
        if view.start_offset > reached:
            there = f"the log starts at {view.start_offset} now"
        elif view.end_offset < offset_range.end:
            there = f"the log ends at {view.end_offset} now"
        else:
            return
        self.on_loss(f"{offset_range} do not all exist any more: {there}", Loss.MISSING)

    def _engine(self) -> Engine:
        return _engine(self.log_dirs, tuple(sorted(self.configs.items())), self.at_ms)


@lru_cache(maxsize=1)
def _engine(
    log_dirs: tuple[str, ...], configs: tuple[tuple[str, str], ...], at_ms: int | None
) -> Engine:
    """Returns an engine; successive tasks of a process share it and what it has cached."""
    return Engine(log_dirs, dict(configs), at_ms)
