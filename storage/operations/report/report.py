"""Describes log directories as a whole, for a page to look at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import StorageError, UnknownPartition, UnknownTopic
from ...format.files.names import TopicPartition
from ...io.retry import retry_if_gone
from ...log_dirs.engine import Engine
from ...log_dirs.purging import find_leftovers
from ...segment.check.verify_index import Finding
from ..request import SILENT, PartitionFailed, PartitionsRequest, ProgressListener
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
    units = request.units(engine)
    findings = _findings(engine, request, progress) if request.deep else {}
    deleted = _deleted_bytes(engine)
    described: defaultdict[str, list[PartitionReport]] = defaultdict(list)
    unreadable: list[PartitionFailed] = []
    doing = "reading records" if request.deep else "reading batch headers"
    for number, key in enumerate(units):
        progress.check()
        progress.report(doing, number, len(units))
        try:
            config = engine.topic_config(key[0]).config
            found = retry_if_gone(
                lambda key=key, config=config: describe_partition(
                    engine, key, config, now_ms, deep=request.deep
                )
            )
        except (UnknownTopic, UnknownPartition):
            continue  # it was deleted in the meantime
        except (StorageError, OSError) as error:
            unreadable.append(PartitionFailed.of(error, "{}-{}".format(*key)))
            yield unreadable[-1]
            continue
        damage = tuple(dict.fromkeys([*found.damage, *findings.pop(key, ())]))
        described[key[0]].append(replace(found, damage=damage, deleted_bytes=deleted[key]))
    others = [each.error for rows in findings.values() for each in rows]
    yield LogDirsReport(
        now_ms,
        request.deep,
        tuple(_log_dirs(engine)),
        tuple(_topic(engine, topic, tuple(found)) for topic, found in described.items()),
        tuple(unreadable),
        tuple(dict.fromkeys([*engine.problems, *engine.config_problems, *others])),
    )


def _topic(engine: Engine, topic: str, partitions: tuple[PartitionReport, ...]) -> TopicReport:
    resolved = engine.topic_config(topic)
    configs = {name: (text, resolved.sources[name]) for name, text in resolved.changed.items()}
    return TopicReport(topic, engine.topic_id(topic), configs, tuple(resolved.problems), partitions)


def _log_dirs(engine: Engine) -> Iterator[LogDirReport]:
    for each in engine.log_dirs.dirs:
        meta = each.meta
        yield LogDirReport(each.path, meta.cluster_id, meta.node_id, each.is_clean)


def _deleted_bytes(engine: Engine) -> Counter[TopicPartition]:
    """Returns, by partition, the bytes of files that were deleted but are still on the disk."""
    sizes: Counter[TopicPartition] = Counter()
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
