"""Previews, read-only, what the background tasks of a maintained directory would delete at once.

`expire --dry-run` and `compact --dry-run` show the same deletions by segment and by log; here they
are summed by cause, to be shown before the tasks are started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from ..cleaner.plan import compacts
from ..cleaner.preview.preview import PreviewRequest
from ..config.kafka import Resolved, broker_config, config_texts
from ..errors import StorageError, UnknownPartition, UnknownTopic
from ..format.files.names import TopicPartition
from ..log.delete.retention import Rule
from ..log_dirs.engine import Engine
from ..log_dirs.purging import find_leftovers
from ..log_dirs.selection import Selection
from .compact import EXPIRED, Compact, CompactedLog, compact, is_due, preview_request
from .expire import Expire, ExpiredSegment, expire
from .request import PartitionFailed

_LEFTOVERS = "leftovers of deletions, compactions and crashes"
_DEFAULT = "Kafka's default"
_POLICY = "cleanup.policy"
# Compaction of more bytes in total is not previewed, because that would delay the mount: it takes
# about a second for this many.
_PREVIEWED_BYTES: Final = 64 << 20


@dataclass(slots=True)
class Due:
    """What is deleted for one `cause`: records at most (compaction may already have removed some of
    them), bytes, and the partitions affected. `is_estimate`: the bytes are an upper bound, too."""

    cause: str
    records: int = 0
    size: int = 0
    partitions: set[TopicPartition] = field(default_factory=set)
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class FirstPass:
    """What is deleted, by cause, the largest first; and the partitions that cannot be read, whose
    deletions are unknown."""

    dues: Sequence[Due]
    failures: Sequence[PartitionFailed]


def first_pass(engine: Engine, now_ms: int) -> FirstPass:
    """Returns what retention and compaction at `now_ms` and the removal of leftovers would delete.
    Changes nothing."""
    dues: defaultdict[str, Due] = defaultdict(lambda: Due(""))
    rows: list[ExpiredSegment] = []
    failures: list[PartitionFailed] = []
    for each in expire(engine, Expire(at_ms=now_ms, everything=True)):
        if isinstance(each, PartitionFailed):
            failures.append(each)
        else:
            rows.append(each)
    for key, segments in groupby(rows, lambda row: (row.topic, row.partition)):
        with suppress(UnknownTopic, UnknownPartition):  # deleted meanwhile
            _add_partition(dues, engine, key, list(segments))
    _add_compaction(dues, failures, engine, now_ms, rows)
    for leftover in find_leftovers(engine.log_dirs):
        _add(dues, _LEFTOVERS, (leftover.topic, leftover.partition), 0, leftover.size)
    return FirstPass(sorted(dues.values(), key=lambda due: due.size, reverse=True), failures)


def _add_compaction(
    dues: defaultdict[str, Due],
    failures: list[PartitionFailed],
    engine: Engine,
    now_ms: int,
    rows: Sequence[ExpiredSegment],
) -> None:
    """Adds what the log cleaner discards besides what retention deletes, which `rows` show."""
    due = dict(_due_logs(engine, now_ms, failures))
    if sum(segment.size for each in due.values() for segment in each.cleaned) > _PREVIEWED_BYTES:
        for key, each in due.items():
            # No record is read: of a compacted log, every cleaned offset may be discarded.
            records = each.planned.first_uncleanable - each.view.start_offset
            size = sum(segment.size for segment in each.cleaned)
            _add(dues, _compaction_cause(engine, key), key, records, size, is_estimate=True)
        return
    expired: defaultdict[TopicPartition, int] = defaultdict(int)
    for row in rows:
        expired[row.topic, row.partition] += row.size if row.is_deleted else 0
    for log in compact(engine, Compact(Selection(tuple(due)), now_ms)) if due else ():
        if isinstance(log, PartitionFailed):
            if not isinstance(log.cause, UnknownTopic | UnknownPartition):  # deleted meanwhile
                failures.append(log)
            continue
        key = (log.topic, log.partition)
        size = log.before.bytes - log.after.bytes - expired[key]
        if records := _discarded(log):
            _add(dues, _compaction_cause(engine, key), key, records, max(size, 0))


def _due_logs(
    engine: Engine, now_ms: int, failures: list[PartitionFailed]
) -> Iterator[tuple[TopicPartition, PreviewRequest]]:
    """Yields the logs that the cleaner cleans at once, without reading their records."""
    broker = broker_config(engine.configs)
    if not broker.log_cleaner_enable or broker.log_cleaner_threads == 0:
        return
    failed = {failure.where for failure in failures}
    for topic, number in Selection().partitions(engine.topics()):
        where = f"{topic}-{number}"
        try:
            if compacts(engine.topic_config(topic).config) and where not in failed:
                request = preview_request(engine, (topic, number), now_ms)
                if is_due(request.planned, force=False):
                    yield (topic, number), request
        except (UnknownTopic, UnknownPartition):  # deleted meanwhile
            continue
        except (StorageError, OSError) as error:
            failures.append(PartitionFailed.of(error, where))


def _discarded(log: CompactedLog) -> int:
    """Returns the number of records that compaction discards, without those of retention."""
    gone = sum(count for reason, count in log.gone.items() if reason != EXPIRED)
    return gone + log.markers_gone


def _compaction_cause(engine: Engine, key: TopicPartition) -> str:
    return f"compaction, {_source(_POLICY, engine.topic_config(key[0]))}"


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
    dues: defaultdict[str, Due],
    cause: str,
    key: TopicPartition,
    records: int,
    size: int,
    *,
    is_estimate: bool = False,
) -> None:
    due = dues[cause]
    due.cause = cause
    due.records += records
    due.size += size
    due.partitions.add(key)
    due.is_estimate |= is_estimate


def _cause(rule: Rule, resolved: Resolved) -> str:
    if rule is Rule.LOG_START:
        return "below the log start offset"
    if rule in (Rule.LOCAL_SIZE, Rule.LOCAL_TIME):
        return f"{_local_source(rule, resolved)}; remote storage keeps its copies"
    return _source(rule, resolved)


def _local_source(rule: Rule, resolved: Resolved) -> str:
    """Returns the limit for local segments, which is that for the whole log if it is not set."""
    if config_texts(resolved.config)[rule] != "-2":
        return _source(rule, resolved)
    return f"{rule} as {_source(rule.removeprefix('local.'), resolved)}"


def _source(name: str, resolved: Resolved) -> str:
    """Returns a config with its value and source."""
    source = resolved.sources.get(name)
    return f"{name}={config_texts(resolved.config)[name]}, {source or _DEFAULT}"
