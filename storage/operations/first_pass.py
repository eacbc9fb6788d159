"""Previews, read-only, what the background tasks of a maintained directory would delete at once.

`expire --dry-run` shows the same deletions by segment; here they are summed by cause, to be shown
before the tasks are started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import NoReturn

from ..config.kafka import Resolved, texts
from ..errors import UnknownPartition, UnknownTopic
from ..format.files.names import TopicPartition
from ..log.delete.retention import Rule
from ..log_dirs.engine import Engine
from ..log_dirs.purging import find_leftovers
from .expire import Expire, ExpiredSegment, expire
from .request import PartitionFailed

_LEFTOVERS = "leftovers of deletions, compactions and crashes"
_DEFAULT = "Kafka's default"


@dataclass(slots=True)
class Due:
    """What is deleted for one `cause`: records at most (compaction may already have removed some of
    them), bytes, and the partitions affected."""

    cause: str
    records: int = 0
    size: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)


def first_pass(engine: Engine, now_ms: int) -> list[Due]:
    """Returns what retention at `now_ms` and the removal of leftovers would delete, by cause, the
    largest first. Changes nothing. Raises CorruptError or OSError if a partition cannot be read."""
    dues: defaultdict[str, Due] = defaultdict(lambda: Due(""))
    rows = [
        each if isinstance(each, ExpiredSegment) else _raised(each)
        for each in expire(engine, Expire(at_ms=now_ms, everything=True))
    ]
    for key, segments in groupby(rows, lambda row: (row.topic, row.partition)):
        with suppress(UnknownTopic, UnknownPartition):  # deleted meanwhile
            _add_partition(dues, engine, key, list(segments))
    for each in find_leftovers(engine.log_dirs):
        _add(dues, _LEFTOVERS, (each.topic, each.partition), 0, each.size)
    return sorted(dues.values(), key=lambda due: due.size, reverse=True)


def _raised(failed: PartitionFailed) -> NoReturn:
    assert failed.cause is not None  # it happened in this process
    raise failed.cause


def _add_partition(
    dues: defaultdict[str, Due],
    engine: Engine,
    key: TopicPartition,
    segments: Sequence[ExpiredSegment],
) -> None:
    resolved = engine.topic_config(key[0])
    ends = [*(each.base_offset for each in segments[1:]), engine.log(*key).view().end_offset]
    for segment, end in zip(segments, ends, strict=True):
        if segment.outlook.rule is not None:
            cause = _cause(segment.outlook.rule, resolved)
            _add(dues, cause, key, end - segment.base_offset, segment.size)


def _add(
    dues: defaultdict[str, Due], cause: str, key: TopicPartition, records: int, size: int
) -> None:
    due = dues[cause]
    due.cause = cause
    due.records += records
    due.size += size
    due.partitions.add(key)


def _cause(rule: Rule, resolved: Resolved) -> str:
    """Returns the rule with its config's value and source."""
    if rule is Rule.LOG_START:
        return "below the log start offset"
    source = resolved.sources.get(rule)
    return f"{rule}={texts(resolved.config)[rule]}, {source or _DEFAULT}"
