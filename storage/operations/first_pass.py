"""Previews, read-only, what the background tasks of a maintained directory would delete at once.

`expire --dry-run` shows the same deletions by segment; here they are summed by cause, to be shown
before the tasks are started.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ..config.kafka import Resolved, texts
from ..errors import UnknownPartition, UnknownTopic
from ..format.files.names import METADATA_TOPIC
from ..log.delete.retention import Rule
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import TopicPartition
from ..log_dirs.purging import find_leftovers
from .expiring import foretell

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
    largest first. Changes nothing."""
    dues: defaultdict[str, Due] = defaultdict(lambda: Due(""))
    for topic, numbers in engine.topics().items():
        if topic == METADATA_TOPIC:
            continue  # the KRaft quorum's own log
        for number in numbers:
            try:
                _add_partition(dues, engine, (topic, number), now_ms)
            except (UnknownTopic, UnknownPartition):
                continue  # deleted meanwhile
    for each in find_leftovers(engine.log_dirs):
        _add(dues, _LEFTOVERS, (each.topic, each.partition), 0, each.size)
    return sorted(dues.values(), key=lambda due: due.size, reverse=True)


def _add_partition(
    dues: defaultdict[str, Due], engine: Engine, key: TopicPartition, now_ms: int
) -> None:
    resolved = engine.topic_config(key[0])
    futures = foretell(engine, key, now_ms)
    ends = [*(future.base_offset for future in futures[1:]), engine.log(*key).view().end_offset]
    for future, end in zip(futures, ends, strict=True):
        if future.outlook.rule is not None:
            cause = _cause(future.outlook.rule, resolved)
            _add(dues, cause, key, end - future.base_offset, future.size)


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
