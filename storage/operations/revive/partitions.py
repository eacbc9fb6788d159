"""Brings a partition into the new log directory, and loads it there as a broker would.

A partition that exists once is copied file by file. Of several replicas, and of damaged logs that
are salvaged, the intact batches are written to new logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...cleaner.plan import COMPACT
from ...format.files.checkpoints import (
    PartitionMetadata,
    format_leader_epochs,
    format_partition_metadata,
)
from ...format.files.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    FileState,
    TopicPartition,
    parse_segment_file,
    partition_dir,
)
from ...format.layout import TRANSACTIONAL_MASK
from ...io.directory import Directory, DirectoryEntry
from ...io.durable import WritableDirFd
from ...log.check.partition_listing import INDEXES
from ...log.check.replicas import Replica
from ...log.load.last_producers import producers_of
from ...log.load.log_loader import LogLoader, RecoveryPlan
from ...log.read.log import Log
from ...log.read.lookup import extent_from
from ...log.read.markers import read_marker
from ...log.read.view import View
from ...log.state.producers import ProducerStateManager
from ...log_dirs.engine import Engine
from ...log_dirs.log_dir import PartitionDir
from ...segment.extent import Fault
from ...segment.segment import Segment
from ...segment.walk import walk_headers
from ...wording import printable
from ..merge import merge_logs
from ..new_log_dir import new_log
from ..salvage import is_useless, salvage_segment, segments_to_salvage, survey_segment

# Producers are never too old: the greatest of their ids counts.
_NO_EXPIRATION: Final = 1 << 62
# Of segments, what a broker serves or completes; leftovers of deletions and cleanings stay behind.
_KEPT_STATES: Final = (FileState.LIVE, FileState.SWAP)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """A partition and how it is loaded. `sources`: the paths of the directories that it is from;
    `wrong`: what is lost or left out, a line each. All but the `plan` is as it will be; a dry run
    plans with the log to serve as it is."""

    topic: str
    partition: int
    sources: tuple[str, ...]
    plan: RecoveryPlan
    segments: int
    size: int
    start_offset: int
    end_offset: int
    producers: ProducerStateManager
    wrong: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        key: TopicPartition,
        copies: Sequence[PartitionDir],
        plan: RecoveryPlan,
        wrong: Sequence[str],
    ) -> LoadedPartition:
        """Returns what a plan makes of a partition."""
        sources = tuple(copy.path for copy in copies)
        size = sum(segment.size for segment in plan.segments)
        offsets = (plan.start_offset, plan.end_offset)
        return cls(*key, sources, plan, len(plan.segments), size, *offsets, plan.producers, wrong)

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def has_moved_start(self) -> bool:
        """Whether the log starts after the base offset of its first segment."""
        return self.plan.start_offset > self.plan.segments[0].base_offset

    @property
    def latest_epoch(self) -> int:
        return max(self.plan.latest_epoch, self.plan.epochs.latest)


class PartitionMaker:
    """Brings partitions into the log directory `data`; None for a dry run, which only looks at
    them. `link`: sealed segments that were closed cleanly become hard links. `salvage`: of logs,
    the intact batches are taken. `copied` is called with the bytes of each copied log."""

    def __init__(
        self,
        engine: Engine,
        data: WritableDirFd | None,
        copied: Callable[[int], object],
        *,
        link: bool,
        salvage: bool,
    ) -> None:
        self._engine, self._data, self._copied = engine, data, copied
        self._link, self._salvage = link, salvage

    def make(self, copies: Sequence[PartitionDir], topic_id: str) -> LoadedPartition:
        """Makes a partition of its copies in the sources, the one to serve first."""
        found = copies[0]
        target = None
        if self._data is not None:
            target = self._data.make(partition_dir(found.topic, found.partition))
            metadata = format_partition_metadata(PartitionMetadata(0, topic_id))
            target.write_atomically(PARTITION_METADATA_FILE, metadata)
        if len(copies) > 1:
            return self._merged(copies, target)
        if self._salvage:
            return self._salvaged(found, target)
        if target is not None:
            self._copy(found, target)
        return self._loaded(copies, target, is_rewritten=False)

    def _loaded(
        self,
        copies: Sequence[PartitionDir],
        target: WritableDirFd | None,
        *,
        is_rewritten: bool,
        wrong: Sequence[str] = (),
    ) -> LoadedPartition:
        """Loads what is in `target`, or what a dry run finds in the copy to serve."""
        engine, found = self._engine, copies[0]
        key = (found.topic, found.partition)
        start = min(copy.log_dir.log_start_offsets.get(key, 0) for copy in copies)
        is_clean = found.log_dir.is_clean
        recovery_point = found.log_dir.recovery_points.get(key, 0)
        if is_rewritten and target is not None:
            is_clean, recovery_point = False, 0
        plan = self._plan(found, target, start, recovery_point, is_clean=is_clean)
        faults = () if is_rewritten else plan.faults
        lines = [*wrong, *(f"truncated by recovery: {fault}" for fault in faults)]
        at_ms = engine.at_ms
        if at_ms is not None and target is not None:
            last_base, end, halves = self._cut(key, target, start, at_ms)
            plan = self._plan(found, target, min(start, end), last_base, is_clean=False)
            lines += halves
        loaded = LoadedPartition.of(key, copies, plan, lines)
        return loaded if at_ms is None or target is not None else self._as_of(loaded, at_ms)

    def _as_of(self, loaded: LoadedPartition, at_ms: int) -> LoadedPartition:
        """Returns what a dry run shows of a log that will be cut."""
        view = self._engine.log(*loaded.key).view()
        size, end = view.size, view.end_offset
        if view.ended_at_ms is not None:
            last = view.segments[-1]
            kept, end = _whole_batches(last, view)
            size += kept - last.size
        return replace(
            loaded,
            segments=len(view.segments),
            size=size,
            start_offset=view.start_offset,
            end_offset=end,
            producers=producers_of(view, at_ms, _NO_EXPIRATION),
        )

    def _plan(
        self,
        found: PartitionDir,
        target: WritableDirFd | None,
        start: int,
        recovery_point: int,
        *,
        is_clean: bool,
    ) -> RecoveryPlan:
        """Plans a load, and applies it if there is a target."""
        engine = self._engine
        plan = LogLoader(
            found.directory if target is None else target,
            recovery_point,
            start,
            is_clean,
            engine.topic_config(found.topic).config,
            engine.clock.now_ms(),
            engine.context.limits,
            _NO_EXPIRATION,
        ).plan()
        if target is not None:
            plan.apply(target)
        return plan

    def _cut(
        self, key: TopicPartition, target: WritableDirFd, start: int, at_ms: int
    ) -> tuple[int, int, list[str]]:
        """Removes all batches with a record that is later than `at_ms`, and those after them; a
        batch is appended as a whole. Returns the base offset of the last segment, the end, and
        which transactions lose records although they were committed by then, a line each."""
        context = self._engine.context
        try:
            view = Log(target, *key, lambda: start, context, at_ms).view()
            if view.ended_at_ms is None:
                last_base = view.segments[-1].base_offset if view.segments else 0
                return last_base, view.end_offset, []
            last = view.segments[-1]
            size, end = _whole_batches(last, view)
            whole = Log(target, *key, lambda: start, context).view()
            halves = list(_half_transactions(whole, end, at_ms))
        finally:
            context.files.drop(target)
        for entry in target.list():
            parsed = parse_segment_file(entry.name)
            if parsed is None:
                continue
            is_later = parsed.base_offset > last.base_offset
            if parsed.kind is FileKind.SNAPSHOT:
                is_later = parsed.base_offset > end
            is_index = parsed.kind in INDEXES and parsed.base_offset == last.base_offset
            if is_later or is_index:
                target.remove(entry.name)
        # A new file: the old one may be a link.
        name = _log_name(last.base_offset)
        with new_log(target, last.base_offset, last.mtime_ns) as log:
            log.copy_from(target.open(name), size)
        return last.base_offset, end, halves

    # -- as it is ----------------------------------------------------------------------------------

    def _copy(self, found: PartitionDir, target: WritableDirFd) -> None:
        directory = found.directory
        kept = [entry for entry in directory.list() if entry.is_file and _is_kept(entry)]
        can_link = self._link and found.log_dir.is_clean and directory.is_local
        sealed = _sealed(kept) if can_link else frozenset()
        source = WritableDirFd(found.log_dir.path).child(found.name)
        for entry in kept:
            is_linkable = entry.name in sealed and not directory.is_remote(entry.name)
            if not is_linkable or not target.link(entry.name, source, entry.name):
                size = _copy_file(directory, entry.name, target)
                self._copied(size if entry.name.endswith(FileKind.LOG) else 0)
        target.sync()

    # -- its intact batches ------------------------------------------------------------------------

    def _salvaged(self, found: PartitionDir, target: WritableDirFd | None) -> LoadedPartition:
        rows: list[Row] = []
        segments = size = end = 0
        for unit in segments_to_salvage(self._engine, (found.topic, found.partition)):
            if target is None:
                result, after = survey_segment(self._engine, unit)
                end = max(end, after)
            else:
                with new_log(target, unit.base_offset, unit.mtime_ns) as log:
                    result = salvage_segment(self._engine, unit, log)
                if is_useless(unit, result):
                    target.remove(_log_name(unit.base_offset))
            segments += not is_useless(unit, result)
            size += result.bytes
            rows += result.lost
        wrong = [f"lost: {line}" for line in map(_lost_line, rows)]
        loaded = self._loaded([found], target, is_rewritten=True, wrong=wrong)
        if target is not None or self._engine.at_ms is not None:
            return loaded
        end = max(end, loaded.start_offset)
        return replace(loaded, segments=segments, size=size, end_offset=end)

    def _merged(
        self, copies: Sequence[PartitionDir], target: WritableDirFd | None
    ) -> LoadedPartition:
        """Merges the copies one after another; all but the last result are temporary."""
        found = copies[0]
        limit = self._engine.context.limits.max_batch_bytes
        config = self._engine.topic_config(found.topic).config
        merged, name = Replica(found.directory, limit), found.path
        wrong: list[str] = []
        for number, copy in enumerate(copies[1:], 1):
            is_last = number == len(copies) - 1
            place = target if is_last else self._temporary(number)
            replicas = (merged, Replica(copy.directory, limit))
            names = (printable(name), printable(copy.path))
            _, rows = merge_logs(
                (found.topic, found.partition),
                replicas,
                COMPACT in config.cleanup_policy,
                place,
                names,
            )
            wrong += (str(row["what"]) for row in rows)
            if place is not None and not is_last:
                latest = max((replica.epochs() for replica in replicas), key=lambda e: e.latest)
                place.write_atomically(LEADER_EPOCH_FILE, format_leader_epochs(latest.entries))
                merged, name = Replica(place, limit), "the others"
        self._remove_temporary(len(copies))
        return self._loaded(copies, target, is_rewritten=True, wrong=wrong)

    def _temporary(self, number: int) -> WritableDirFd | None:
        return None if self._data is None else self._data.make(_temporary_name(number))

    def _remove_temporary(self, count: int) -> None:
        if self._data is not None:
            for number in range(1, count - 1):
                self._data.remove_directory(_temporary_name(number))


def _whole_batches(segment: Segment, view: View) -> tuple[int, int]:
    """Returns the size and the end offset of a view's last segment without the batch that is split
    by the end of the view, if one is."""
    if segment.end is None or not segment.end.is_split:
        return segment.size, view.end_offset
    size, end = 0, segment.base_offset
    for table in walk_headers(extent_from(segment, 0, view.context.limits.max_batch_bytes)):
        if isinstance(table, Fault):
            continue
        for header in table:
            if header.last_offset >= view.end_offset:
                return size, end
            size, end = header.next_position, header.last_offset + 1
    return size, end


def _half_transactions(view: View, end: int, at_ms: int) -> Iterator[str]:
    """Yields the transactions with records from the offset `end` on that were committed by `at_ms`:
    these records have later timestamps than their own commit, or follow such records."""
    limit = view.context.limits.max_batch_bytes
    begun: dict[int, int] = {}  # first offset after the end by producer id
    for segment in view.segments.from_offset(end):
        for table in walk_headers(extent_from(segment, 0, limit)):
            if isinstance(table, Fault):
                continue
            for header in table.select(table.flagged(TRANSACTIONAL_MASK)):
                if header.base_offset < end:
                    continue
                if not header.is_control:
                    begun.setdefault(header.producer_id, header.base_offset)
                    continue
                first = begun.pop(header.producer_id, None)
                if first is None or header.max_timestamp > at_ms:
                    continue
                marker = read_marker(segment.files.log(), header)
                if marker is not None and not marker.is_abort:
                    yield (
                        f"producer {header.producer_id} had committed at offset {marker.offset},"
                        f" but its records from offset {first} on follow later timestamps"
                    )


def _temporary_name(number: int) -> str:
    return f"merged.{number}"  # no name of a partition's directory


def _log_name(base_offset: int) -> str:
    return f"{base_offset:020}{FileKind.LOG}"


def _lost_line(row: Row) -> str:
    place = f"{printable(row['file'])}: position {row['position']}: {row['what']}"
    end = row["nextOffset"]
    offsets = (
        f"from {row['firstOffset']} on" if end is None else f"{row['firstOffset']} to {end - 1}"
    )
    return f"offsets {offsets} ({row['bytes']} bytes): {place}"


def _is_kept(entry: DirectoryEntry) -> bool:
    """Whether a file is copied: those of segments, and the leader epochs, but no file that is being
    deleted or replaced."""
    parsed = parse_segment_file(entry.name)
    if parsed is None:
        return entry.name == LEADER_EPOCH_FILE
    return parsed.state in _KEPT_STATES


def _sealed(kept: Sequence[DirectoryEntry]) -> frozenset[str]:
    """Returns the names of the logs that are never written to again: all but the last."""
    logs = sorted(entry.name for entry in kept if entry.name.endswith(FileKind.LOG))
    return frozenset(logs[:-1])


def _copy_file(source: Directory, name: str, target: WritableDirFd) -> int:
    """Copies a file; returns its size."""
    file = source.open(name)
    status = file.stat()
    copied = target.create(name)
    copied.copy_from(file, status.st_size)
    copied.set_mtime_ns(status.st_mtime_ns)
    copied.sync()
    return status.st_size


def selected_copies(engine: Engine, found: PartitionDir) -> list[PartitionDir]:
    """Returns the replicas that are merged, the one to serve, `found`, first. Without those that
    belong to another topic of the same name, or are not preferred."""
    return [found, *_others(engine, found)]


def _others(engine: Engine, found: PartitionDir) -> Iterator[PartitionDir]:
    if engine.log_dirs.preferred is not None:
        return
    for copy in engine.copies_of(found.topic, found.partition):
        if copy != found:
            yield copy
