"""Describes log directories as a whole, for a page to look at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...format.files.names import TopicPartition
from ...io.retry import retry_if_gone
from ...log_dirs.engine import Engine
from ...log_dirs.purging import find_leftovers
from ...log_dirs.selection import Selection
from ...segment.check.verify_index import Finding
from ..groups import GroupOffset, ListGroups, list_groups
from ..request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    per_partition,
)
from ..verify import Verify, verify
from .model import LogDirReport, LogDirsReport, PartitionReport, TopicReport
from .partition import describe_partition


@dataclass(frozen=True, slots=True)
class ReportLogDirs(PartitionsRequest):
    """Describes the selected partitions, or all, as of the engine's time. With `deep`, all records
    are read and everything is verified."""

    deep: bool = False


def report(
    engine: Engine, request: ReportLogDirs, progress: ProgressListener = SILENT
) -> Iterator[LogDirsReport | PartitionFailed]:
    """Yields the partitions that cannot be read, and then the report, which names them, too. Raises
    UnknownTopic or UnknownPartition for a selection that does not exist."""
    now_ms = engine.clock.now_ms()
    findings = _findings(engine, request, progress) if request.deep else {}
    deleted = _deleted_bytes(engine)
    topics: defaultdict[str, list[PartitionReport]] = defaultdict(list)
    unreadable: list[PartitionFailed] = []

    def describe(key: TopicPartition) -> list[PartitionReport]:
        config = engine.topic_config(key[0]).config
        listener = progress if request.deep else None
        found = retry_if_gone(lambda: describe_partition(engine, key, config, now_ms, listener))
        damage = tuple(dict.fromkeys([*found.damage, *findings.pop(key, ())]))
        return [replace(found, damage=damage, deleted_bytes=deleted[key])]

    for row in per_partition(engine, request, "reading batch headers", describe, progress):
        if isinstance(row, PartitionFailed):
            unreadable.append(row)
            yield row
        else:
            topics[row.topic].append(row)
    groups = list(_groups(engine, request, progress))
    damaged = [f"{row.where}: {row.error}" for row in groups if isinstance(row, PartitionFailed)]
    damaged += [each.error for rows in findings.values() for each in rows]
    yield LogDirsReport(
        now_ms,
        request.deep,
        tuple(_log_dirs(engine)),
        tuple(_topic(engine, topic, tuple(found)) for topic, found in topics.items()),
        tuple(unreadable),
        tuple(dict.fromkeys([*engine.problems, *engine.config_problems, *damaged])),
        tuple(row for row in groups if isinstance(row, GroupOffset)),
    )


def _groups(
    engine: Engine, request: ReportLogDirs, progress: ProgressListener
) -> Iterator[GroupOffset | PartitionFailed]:
    """Yields the offsets of groups in the selected partitions, and what of them is damaged."""
    for row in list_groups(engine, ListGroups(), progress):
        if isinstance(row, PartitionFailed) or _is_selected(row, request.selection):
            yield row


def _is_selected(row: GroupOffset, selection: Selection) -> bool:
    if not selection:
        return True
    if row.topic is None or row.partition is None:
        return False
    return selection.includes(row.topic, row.partition)


def _topic(engine: Engine, topic: str, partitions: tuple[PartitionReport, ...]) -> TopicReport:
    resolved = engine.topic_config(topic)
    configs = {name: (text, resolved.sources[name]) for name, text in resolved.changed.items()}
    return TopicReport(topic, engine.topic_id(topic), configs, tuple(resolved.problems), partitions)


def _log_dirs(engine: Engine) -> Iterator[LogDirReport]:
    for each in engine.log_dirs.dirs:
        meta = each.meta
        yield LogDirReport(each.path, meta.cluster_id, meta.node_id, each.is_clean)


def _deleted_bytes(engine: Engine) -> Counter[TopicPartition]:
    """Returns, by partition, the bytes of files that were deleted but are still on the disk; none
    as of an earlier time, when they may not have been."""
    sizes: Counter[TopicPartition] = Counter()
    if engine.at_ms is not None:
        return sizes
    for each in find_leftovers(engine.log_dirs):
        sizes[each.topic, each.partition] += each.size
    return sizes


def _findings(
    engine: Engine, request: ReportLogDirs, progress: ProgressListener
) -> dict[TopicPartition | None, list[PartitionFailed]]:
    """Returns what `verify` finds, by partition; by None what concerns the directories."""
    by_path = {each.path: key for key, each in engine.log_dirs.partitions().items()}
    found: defaultdict[TopicPartition | None, list[PartitionFailed]] = defaultdict(list)
    for row in verify(engine, Verify(request.selection), progress):
        if isinstance(row, Finding):
            directory = row.file.rpartition("/")[0]
            key = by_path.get(row.file) or by_path.get(directory)
            name = "" if key is None else "{}-{}".format(*key)
            found[key].append(PartitionFailed(str(row), "Finding", name))
    return found
