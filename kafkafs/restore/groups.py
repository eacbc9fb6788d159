"""Commits the offsets of groups, translated to those that the records have in the cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from kafkafs.storage import Engine, ListGroups, PartitionFailed, list_groups

from .cluster import TargetCluster
from .state import OffsetRun, RestoredPartition, RestoreState, RestoreStateFile, read_table

# Share groups have no offset to commit: their state is a position per record.
_SHARE: Final = "Share"


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """An offset that was committed for a group: the old one, in the log directories, and the new
    one, in the cluster."""

    group: str
    topic: str
    partition: int
    target: str
    offset: int
    new_offset: int

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "topic": self.topic,
            "partition": self.partition,
            "newTopic": self.target,
            "offset": self.offset,
            "newOffset": self.new_offset,
        }


def translated(offset: int, runs: Sequence[OffsetRun], partition: RestoredPartition) -> int:
    """Returns the new offset of the first restored record at or after an old offset; after the last
    one that of the next record to be written."""
    index = bisect_right(runs, offset, key=attrgetter("first")) - 1
    if index < 0:
        return partition.target_first
    run = runs[index]
    return run.new + min(offset - run.first, run.records)


def restore_groups(
    engine: Engine,
    cluster: TargetCluster,
    file: RestoreStateFile,
    state: RestoreState,
    warn: Callable[[str], None],
) -> Iterator[TranslatedOffset]:
    """Commits for each group its offsets in the restored partitions, once: the group may go on from
    there. What cannot be translated is passed to `warn`. Raises RestoreError."""
    table = read_table(file.table_path)
    by_group: dict[str, list[tuple[TranslatedOffset, str | None]]] = {}
    for row in list_groups(engine, ListGroups()):
        if isinstance(row, PartitionFailed):
            warn(f"{row.where}: {row.error}" if row.where else row.error)
            continue
        if row.topic is None or row.partition is None or row.offset is None:
            continue
        key = (row.topic, row.partition)
        if key not in state.partitions or row.group.name in state.groups:
            continue
        if row.group.type == _SHARE:
            warn(f"{row.group.name} is a share group, whose state cannot be restored")
            continue
        new = translated(row.offset, table.get(key, ()), state.partitions[key])
        found = TranslatedOffset(row.group.name, *key, state.targets[row.topic], row.offset, new)
        by_group.setdefault(row.group.name, []).append((found, row.metadata))
    for group, rows in by_group.items():
        cluster.commit(
            group, [((each.target, each.partition), each.new_offset, text) for each, text in rows]
        )
        state.groups.append(group)
        file.save(state)
        yield from (each for each, _ in rows)
