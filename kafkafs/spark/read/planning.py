"""Splits a read into ranges of offsets, by bytes at entries of the sparse indexes, and groups them
into tasks.

This runs on the driver. It reads directory listings, a few index entries for each cut, and what
a lookup by time reads; the time depends on the number of segments and tasks, not on that of
records.
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from kafkafs.places import log_dir_around
from kafkafs.storage import (
    INTERNAL_TOPICS,
    MAX_OFFSET,
    METADATA_TOPIC,
    DataLoss,
    Engine,
    LogDirError,
    OffsetRange,
    OffsetSpan,
    Survey,
    TopicPartition,
    UnknownPartition,
    UnknownTopic,
    View,
    absolute_path,
    cut_by_bytes,
    is_directory,
    is_local,
    printable,
    unread_part,
)

from ..option_texts import OptionError
from ..options import EARLIEST, LATEST, OffsetRangeLimit, ReadOptions
from .conditions import ANYTHING, Conditions
from .forks import share

LOGGER: Final = logging.getLogger("kafkafs.spark")

#: Kafka's own topics, which are read only if they are named (Topic.isInternal, and KRaft's log).
UNASKED_TOPICS: Final = frozenset((*INTERNAL_TOPICS, METADATA_TOPIC))

# A task has at least this many bytes if there are enough, since starting one costs as much as
# reading a few MiB. Otherwise there are about this many tasks, so that all processors are busy.
_LEAST_TASK_BYTES: Final = 4 << 20
_USUAL_TASKS: Final = 32
# Opening a range costs as much as reading this many bytes.
_OPEN_BYTES: Final = 64 << 10

# Sharing the work with another process costs as much as planning some hundred partitions.
_SHARED_PARTITIONS: Final = 1000

# Planning visits all segments once, in order: keeping their indexes open would gain nothing, and
# those of a terabyte map half a gigabyte.
_OPEN_FILES: Final = {"kafkafs.open.files": "64"}


def find_log_dirs(paths: Sequence[str]) -> list[str]:
    """Returns the directories that the paths name, in order, with wildcards (`*`, `?`, `[…]`)
    expanded. They are absolute, since workers have their own working directories.

    Raises OptionError if a wildcard matches nothing.
    """
    found: list[str] = []
    for path in map(absolute_path, paths):
        if not is_local(path) or os.path.lexists(path) or not glob.has_magic(path):
            found.append(path)
            continue
        matching = [match for match in sorted(glob.glob(path)) if is_directory(match)]
        if not matching:
            raise OptionError("path", f"{path}: no directory matches")
        found += matching
    return list(dict.fromkeys(found))


def refuse_within_log_dir(place: str, log_dirs: Iterable[str]) -> None:
    """Raises LogDirError if a place is inside a log directory, of `log_dirs` or any other: a broker
    does not open one that contains directories of other kinds (LogManager.loadLogs)."""
    around = log_dir_around(place, log_dirs)
    if around is not None:
        why = f"would be in the log directory {printable(around)}, which no broker opens then"
        raise LogDirError(place, why)


def plan(
    log_dirs: Sequence[str],
    options: ReadOptions,
    conditions: Conditions = ANYTHING,
    *,
    may_fork: bool = False,
) -> list[OffsetRange]:
    """Returns ranges that together contain every requested record once that meets the conditions,
    in order of topic, partition and offset. `may_fork`: plans many partitions in several processes.

    Raises OptionError for a missing topic or partition, DataLoss for missing offsets, LogDirError
    or ConfigError.
    """
    engine = open_engine(log_dirs, options)
    try:
        check_topics(engine.topics(), options)
        selected = assigned(engine.topics(), options)
        for limit in (options.starting, options.ending):
            check_named(limit, selected)
        survey = Survey(engine)

        def ranges_of(keys: Sequence[TopicPartition]) -> list[OffsetRange]:
            spans = (
                span for key in keys for span in _spans(engine, survey, key, options, conditions)
            )
            return _ranges(spans, options)

        keys = [key for key in selected if conditions.selects(key)]
        # minPartitions makes the size of each range depend on all partitions.
        is_shared = may_fork and not options.min_partitions
        return share(ranges_of, keys, _SHARED_PARTITIONS) if is_shared else ranges_of(keys)
    finally:
        engine.close()


def open_engine(log_dirs: Sequence[str], options: ReadOptions) -> Engine:
    """Opens the directories for planning. Raises LogDirError or ConfigError."""
    engine = Engine(log_dirs, {**_OPEN_FILES, **options.configs}, options.at_ms)
    for problem in engine.problems:
        LOGGER.warning("%s", problem)
    return engine


def warn_of_unread(engine: Engine, view: View) -> None:
    """Logs a warning if a partition has offsets before its start in remote storage, where they are
    not read."""
    if line := unread_part(engine, view, "see the option kafkafs.tier"):
        LOGGER.warning("%s", line)


READ_REST: Final = "Set the option failOnDataLoss to false to read what is there"


def report_loss(what: str, is_error: bool, remedy: str = READ_REST) -> None:
    """Raises DataLoss with the advice `remedy`, or logs a warning if it is not an error."""
    if is_error:
        raise DataLoss(f"{what}. {remedy}")
    LOGGER.warning("%s", what)


def grouped(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[tuple[OffsetRange, ...]]:
    """Returns the ranges of each task, all in the given order.

    Small ranges share a task up to maxBytesPerPartition bytes and maxRecordsPerPartition offsets.
    There are at least minPartitions tasks, if there are that many ranges.
    """
    total = sum(map(_weight, ranges))
    most_bytes = min(options.max_bytes_per_partition, max(total // _USUAL_TASKS, _LEAST_TASK_BYTES))
    least = min(options.min_partitions or 1, len(ranges))
    most_bytes = min(most_bytes, total // max(least, 1))
    most = options.max_records_per_partition or MAX_OFFSET
    groups: list[list[OffsetRange]] = []
    bytes_left = offsets_left = 0
    for each in ranges:
        bytes_left -= _weight(each)
        offsets_left -= _count(each)
        if not groups or bytes_left < 0 or offsets_left < 0:
            groups.append([])
            bytes_left, offsets_left = most_bytes - _weight(each), most - _count(each)
        groups[-1].append(each)
    return [tuple(group) for group in _split_to_number(groups, least)]


def _weight(offset_range: OffsetRange) -> int:
    return offset_range.size + _OPEN_BYTES


def _split_to_number(groups: list[list[OffsetRange]], least: int) -> list[list[OffsetRange]]:
    """Returns at least `least` groups, by halving those with the most ranges: a few large ranges
    may have filled groups of their own."""
    while len(groups) < least:
        at = max(range(len(groups)), key=lambda i: len(groups[i]))
        middle = len(groups[at]) // 2
        groups[at : at + 1] = [groups[at][:middle], groups[at][middle:]]
    return groups


# -- which partitions ------------------------------------------------------------------------------


def check_topics(topics: Mapping[str, list[int]], options: ReadOptions) -> None:
    """Raises OptionError if a topic or partition that the options name does not exist."""
    for topic, partition in options.assigned or ():
        there = topics.get(topic, ())
        if partition not in there:
            raise OptionError("assign", str(UnknownPartition(topic, partition, there)))
    for topic in options.topics or ():
        if topic not in topics:
            raise OptionError("subscribe", f"there is {UnknownTopic(topic, topics)}")


def assigned(topics: Mapping[str, list[int]], options: ReadOptions) -> list[TopicPartition]:
    """Returns the existing partitions that the options select, sorted."""
    if options.assigned is not None:
        there = (each for each in options.assigned if each[1] in topics.get(each[0], ()))
        return sorted(there)
    names = options.topics
    if names is None:
        pattern = options.topic_pattern
        names = tuple(
            topic
            for topic in topics
            if topic not in UNASKED_TOPICS and (pattern is None or pattern.search(topic))
        )
    return [(topic, number) for topic in sorted(names) for number in topics.get(topic, ())]


def check_named(limit: OffsetRangeLimit, selected: Iterable[TopicPartition]) -> None:
    """Raises OptionError unless a limit per partition names exactly the partitions that are read,
    as Spark requires."""
    if limit.everywhere is not None:
        return
    if differing := sorted(limit.each.keys() ^ set(selected)):
        topic, partition = differing[0]
        is_named = differing[0] in limit.each
        why = "is named, but not read" if is_named else "is read, but not named"
        raise OptionError(limit.option, f"{topic}-{partition} {why}")


# -- which offsets ---------------------------------------------------------------------------------


def _spans(
    engine: Engine,
    survey: Survey,
    key: TopicPartition,
    options: ReadOptions,
    conditions: Conditions,
) -> Iterator[OffsetSpan]:
    """Yields the span to read of one partition, if there is any. A topic id that is unreadable
    counts as none: a batch also reads what is left of a damaged directory."""
    try:
        found = survey.look(*key)
    except (UnknownTopic, UnknownPartition):
        report_loss(f"{key[0]}-{key[1]} was just deleted", options.fail_on_data_loss)
        return
    if found.problem is not None:
        LOGGER.warning("%s: a re-creation of the topic will not be detected", found.problem)
    view = found.view
    start, end = bound(view, options.starting, options), bound(view, options.ending, options)
    if start == view.start_offset:
        warn_of_unread(engine, view)
    start, end = conditions.narrow(view, start, end, options.isolation)
    if start < end:
        yield OffsetSpan.of(view, start, end, found.topic_id)


def bound(view: View, limit: OffsetRangeLimit, options: ReadOptions) -> int:
    """Returns the offset of a limit, clamped to the existing ones. Raises DataLoss or
    OptionError."""
    latest = view.bound(options.isolation)
    value = limit.of((view.topic, view.partition))
    if limit.is_time:
        value = _offset_for_time(view, value, limit, options)
    if value == LATEST:
        return latest
    if value == EARLIEST:
        return view.start_offset
    if not view.start_offset <= value <= latest:
        there = f"offsets {view.start_offset} to {latest} exist"
        what = f"{view.topic}-{view.partition}: {limit.option} is {value}, but only {there}"
        report_loss(what, options.fail_on_data_loss)
    return min(max(value, view.start_offset), latest)


def _offset_for_time(
    view: View, time_ms: int, limit: OffsetRangeLimit, options: ReadOptions
) -> int:
    """Returns the first offset at or after a time; LATEST if there is none and the options permit
    it."""
    found = view.offset_for_time(time_ms, options.isolation)
    if found is not None:
        return found
    if limit is options.starting and not options.no_match_is_latest:
        why = f"{view.topic}-{view.partition} has no record at {time_ms} or later"
        raise OptionError(limit.option, f"{why}; see startingOffsetsByTimestampStrategy")
    return LATEST


# -- ranges ----------------------------------------------------------------------------------------


def cut(parts: Iterable[tuple[View, int, int, str]], options: ReadOptions) -> list[OffsetRange]:
    """Returns ranges of the requested sizes. Each part is a view, existing offsets [start, end) of
    it, and its partition's topic id."""
    return _ranges((OffsetSpan.of(*part) for part in parts if part[1] < part[2]), options)


def _ranges(spans: Iterable[OffsetSpan], options: ReadOptions) -> list[OffsetRange]:
    """Returns the spans cut to the sizes that the options request."""
    target = options.max_bytes_per_partition
    least = options.min_partitions or 0
    if least:
        spans = list(spans)  # otherwise each is dropped before the next is made
        target = max(min(target, sum(span.size for span in spans) // least), 1)
    isolation = options.isolation
    ranges = [each for span in spans for each in cut_by_bytes(span, target, isolation)]
    ranges = _cut_to_number(ranges, least)
    most = options.max_records_per_partition
    if most is not None:
        ranges = [part for each in ranges for part in _divided(each, -(-_count(each) // most))]
    return ranges


def _cut_to_number(ranges: list[OffsetRange], least: int) -> list[OffsetRange]:
    """Returns at least `least` ranges if there are that many offsets: if there were too few index
    entries, the largest ranges are divided evenly, as in Spark (KafkaOffsetRangeCalculator)."""
    missing = least - len(ranges)
    if missing <= 0 or not ranges:
        return ranges
    total = sum(map(_count, ranges))
    parts = [1 + min(missing * _count(each) // total, _count(each) - 1) for each in ranges]
    by_count = sorted(range(len(ranges)), key=lambda i: -_count(ranges[i]))
    for i in by_count:
        added = min(least - sum(parts), _count(ranges[i]) - parts[i])
        if added <= 0:
            continue
        parts[i] += added
    return [part for each, n in zip(ranges, parts, strict=True) for part in _divided(each, n)]


def _count(offset_range: OffsetRange) -> int:
    """Returns the number of its offsets, which is an upper bound of its records."""
    return offset_range.end - offset_range.start


def _divided(offset_range: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Yields the range in `parts` whose numbers of offsets differ by at most one."""
    edges = [offset_range.start + _count(offset_range) * part // parts for part in range(parts + 1)]
    for low, high in pairwise(edges):
        is_last = offset_range.is_last and high == offset_range.end
        yield replace(
            offset_range, start=low, end=high, size=offset_range.size // parts, is_last=is_last
        )
