"""Row 36: committed offsets, from the log of `__consumer_offsets` to every group's lag.

Commits are as a coordinator writes them: in batches of a few, without metadata, of groups that read
ten partitions each. Every commit has a key of its own, or there are a hundred for each key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.groups.groups import GroupsReader
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, list_groups
from tests.bench.data import EPOCH_MS, batches, kept
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race
from tests.building import BatchFields, build_batch
from tests.group_records import commit
from tests.logs import write_log_dir, write_partition

_PARTITIONS = 10
_BATCH_COMMITS = 20
_COMMITS_A_KEY = 100
_SECONDS = 1.0


def commits(plan: Plan) -> Outcomes:
    """Row 36: reading the log and replaying it, and also listing all lags."""
    every = _log(plan.commits, plan.commits)
    few = _log(plan.commits, max(plan.commits // _COMMITS_A_KEY, _PARTITIONS))

    def read() -> float:
        started = time.perf_counter()
        image = GroupsReader(Engine(str(every))).image()
        groups = len(image.groups)
        taken = time.perf_counter() - started
        _check(groups, plan.commits // _PARTITIONS)
        return taken

    def listed() -> float:
        started = time.perf_counter()
        rows = list(list_groups(Engine(str(few)), ListGroups()))
        taken = time.perf_counter() - started
        _check(len(rows), max(plan.commits // _COMMITS_A_KEY, _PARTITIONS))
        assert all(isinstance(row, GroupOffset) and row.lag is not None for row in rows)
        return taken

    seconds = race({"read": Call(read), "listed": Call(listed)}, plan.repetitions)
    count = f"{plan.commits / 1e6:g} M commits"
    works = {
        "read": f"{count}, all keys distinct: replay",
        "listed": f"{count}, {_COMMITS_A_KEY} a key: replay and list all lags",
    }
    for name, work in works.items():
        yield Outcome(36, work, Figure(seconds[name], "s"), limit=Figure(_SECONDS, "s"))


def _check(found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"found {found} instead of {expected}")


def _log(count: int, keys: int) -> Path:
    """Returns a log directory with `count` commits of `keys` keys, and the topic that was read."""

    def make(directory: Path) -> None:
        topics = [("read", number) for number in range(_PARTITIONS)]
        for topic, number in topics:
            records = batches(count // _PARTITIONS + 1, Codec.NONE)
            write_partition(directory / f"{topic}-{number}", records)
        name = "__consumer_offsets"
        writer = write_partition(directory / f"{name}-0", _commit_batches(count, keys))
        write_log_dir(directory, {(name, 0): writer.end_offset})

    return kept(f"commits-{count}-{keys}", make)


def _commit_batches(count: int, keys: int) -> Iterator[bytes]:
    for start in range(0, count, _BATCH_COMMITS):
        numbers = range(start, min(start + _BATCH_COMMITS, count))
        yield build_batch([_commit(at, at % keys) for at in numbers], BatchFields(start))


def _commit(at: int, key: int) -> SimpleRecord:
    group, partition = divmod(key, _PARTITIONS)
    timestamp = EPOCH_MS + at
    return commit(f"billing-{group}", "read", partition, at // _PARTITIONS, timestamp=timestamp)
