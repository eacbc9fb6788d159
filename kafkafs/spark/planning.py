"""What each task is to read: ranges of offsets, cut by bytes at entries of the sparse indexes.

This runs on the driver. Of the logs it reads what their directories list, a few index entries for
each cut, and what a look-up by time reads; how long it takes hangs on the number of segments and
tasks, not on that of records.
"""

from __future__ import annotations

import glob
import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Final

from kafkafs.storage.engine import Engine
from kafkafs.storage.errors import (
    CorruptError,
    LogDirError,
    UnknownPartition,
    UnknownTopic,
    printable,
)
from kafkafs.storage.format.names import META_PROPERTIES_FILE
from kafkafs.storage.log.view import View
from kafkafs.storage.log_dir import PartitionDir
from kafkafs.storage.segment.segment import Segment

from .options import EARLIEST, LATEST, Limit, OptionError, Options, TopicPartition

LOGGER: Final = logging.getLogger("kafkafs.spark")

#: Kafka's own topics, which are read only when they are named (Topic.isInternal, and KRaft's log).
INTERNAL_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
)

# Planning goes over all segments once, in order: to keep their indexes open would be for nothing,
# and a terabyte's, mapped, are half a gigabyte.
_OPEN_FILES: Final = {"kafkafs.open.files": "64"}


class DataLoss(Exception):
    """Records that were asked for are not there any more, and failOnDataLoss is true."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a task reads of a partition: offsets in [`start`, `end`), about `size` bytes of `.log`.

    `is_last`: the log ended at `end` when this was planned, so damage behind its last batch counts.
    `topic_id`: the id in the partition's directory at that time, "" where it had none. Offsets of a
    topic with another id are not read in its place.
    """

    topic: str
    partition: int
    start: int
    end: int
    size: int
    is_last: bool = False
    topic_id: str = ""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end - 1}"


def find_log_dirs(paths: Sequence[str]) -> list[str]:
    """The directories that the paths name, wildcards (`*`, `?`, `[…]`) resolved, in order. They are
    absolute: workers have working directories of their own.

    OptionError for wildcards that nothing matches.
    """
    found: list[str] = []
    for path in map(os.path.abspath, paths):
        if os.path.lexists(path) or not glob.has_magic(path):
            found.append(path)
            continue
        matching = [match for match in sorted(glob.glob(path)) if os.path.isdir(match)]
        if not matching:
            raise OptionError("path", f"{path}: no directory matches")
        found += matching
    return list(dict.fromkeys(found))


def refuse_within_log_dir(place: str, log_dirs: Iterable[str]) -> None:
    """LogDirError for a place that lies in one of the log directories, or in any other: a broker
    does not open one that has directories in it which are no partition's (LogManager.loadLogs)."""
    known = {os.path.realpath(path) for path in log_dirs}
    above = below = os.path.realpath(place)
    while True:
        if above in known or os.path.lexists(os.path.join(above, META_PROPERTIES_FILE)):
            why = f"would be in the log directory {printable(above)}, which no broker opens then"
            raise LogDirError(place, why)
        below, above = above, os.path.dirname(above)
        if above == below:
            return


def plan(log_dirs: Sequence[str], options: Options) -> list[OffsetRange]:
    """The ranges that together hold every record asked for once, in order of topic, partition and
    offset.

    OptionError for a topic or partition that is not there, DataLoss for offsets that are not,
    LogDirError, ConfigError.
    """
    engine = open_engine(log_dirs, options)
    try:
        check_topics(engine.topics(), options)
        chosen = assigned(engine.topics(), options)
        for limit in (options.starting, options.ending):
            check_named(limit, chosen)
        spans = [
            span
            for topic, partition in chosen
            for span in _spans(engine, topic, partition, options)
        ]
        return _ranges(spans, options)
    finally:
        engine.close()


def open_engine(log_dirs: Sequence[str], options: Options) -> Engine:
    """The directories, as planning reads them. LogDirError, ConfigError."""
    engine = Engine(log_dirs, {**_OPEN_FILES, **options.settings})
    for problem in engine.problems:
        LOGGER.warning("%s", problem)
    return engine


_READ_REST: Final = "Set the option failOnDataLoss to false to read what is there"


def report_loss(what: str, is_error: bool, remedy: str = _READ_REST) -> None:
    """DataLoss, with the advice to do `remedy`, or a warning."""
    if is_error:
        raise DataLoss(f"{what}. {remedy}")
    LOGGER.warning("%s", what)


def recreated(topic: str, known_id: str, topic_id: str) -> str:
    """What happened to a topic whose id was known, and is `topic_id` now, "" for none."""
    now = f"the topic id is {topic_id} now" if topic_id else "there is no topic id now"
    return f"topic {topic} was deleted and created again: {now}, not {known_id}"


# -- which partitions ------------------------------------------------------------------------------


def check_topics(topics: Mapping[str, list[int]], options: Options) -> None:
    """OptionError for a topic or partition that the options name and that is not there."""
    for topic, partition in options.assigned or ():
        there = topics.get(topic, ())
        if partition not in there:
            raise OptionError("assign", str(UnknownPartition(topic, partition, there)))
    for topic in options.topics or ():
        if topic not in topics:
            raise OptionError("subscribe", f"there is {UnknownTopic(topic, topics)}")


def assigned(topics: Mapping[str, list[int]], options: Options) -> list[TopicPartition]:
    """The partitions that the options ask for, as far as they are there, sorted."""
    if options.assigned is not None:
        there = (each for each in options.assigned if each[1] in topics.get(each[0], ()))
        return sorted(there)
    names = options.topics
    if names is None:
        pattern = options.topic_pattern
        names = tuple(
            topic
            for topic in topics
            if topic not in INTERNAL_TOPICS and (pattern is None or pattern.search(topic))
        )
    return [(topic, number) for topic in sorted(names) for number in topics.get(topic, ())]


def check_named(limit: Limit, chosen: Iterable[TopicPartition]) -> None:
    """OptionError unless a limit by partition names just those that are read, as Spark wants it."""
    if limit.everywhere is not None:
        return
    if differing := sorted(limit.each.keys() ^ set(chosen)):
        topic, partition = differing[0]
        is_named = differing[0] in limit.each
        why = "is named, but not read" if is_named else "is read, but not named"
        raise OptionError(limit.option, f"{topic}-{partition} {why}")


# -- which offsets ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """Offsets [`start`, `end`) of a partition that are to be read, and where their bytes are;
    `topic_id` as in OffsetRange.

    `segments` hold them; `ends[i]` is how many bytes of the span lie in segments up to `i`, of
    which the first counts from position `skipped` on.
    """

    view: View
    start: int
    end: int
    topic_id: str = ""
    segments: Sequence[Segment] = field(default=())
    ends: Sequence[int] = field(default=())
    skipped: int = 0

    @classmethod
    def of(cls, view: View, start: int, end: int, topic_id: str) -> _Span:
        segments = [s for s in view.segments.from_offset(start) if s.base_offset < end]
        skipped = _position_of(segments[0], start)
        sizes = [segment.size for segment in segments]
        sizes[-1] = min(sizes[-1], _position_of(segments[-1], end, up=True))
        sizes[0] -= skipped
        ends = list(accumulate(max(size, 0) for size in sizes))
        return cls(view, start, end, topic_id, segments, ends, skipped)

    @property
    def size(self) -> int:
        return self.ends[-1]

    def offset_at(self, byte: int) -> int:
        """An offset near the record that is `byte` bytes behind the start."""
        number = min(bisect_right(self.ends, byte), len(self.segments) - 1)
        before = self.ends[number - 1] if number else -self.skipped
        segment, position = self.segments[number], byte - before
        index = segment.offset_index()
        entry = index.lookup_position(position, segment.size) if index is not None else None
        if entry is None or not entry.position:
            return segment.base_offset
        return entry.offset + 1


def _position_of(segment: Segment, offset: int, up: bool = False) -> int:
    """About where an offset is in a segment, as its index says; with `up` rather behind it."""
    index = segment.offset_index()
    if index is None or not len(index):
        return segment.size if up else 0
    if up:
        slot = index.floor_slot(offset) + 1
        return index.entry(slot).position if slot < len(index) else segment.size
    return index.lookup(offset, segment.size).position


def _spans(engine: Engine, topic: str, partition: int, options: Options) -> Iterator[_Span]:
    """What is to be read of one partition."""
    try:
        # The id comes before the view: tasks refuse a topic that is created again in between.
        topic_id = _topic_id(engine.partition_dir(topic, partition))
        view = engine.log(topic, partition).view()
    except (UnknownTopic, UnknownPartition):
        report_loss(f"{topic}-{partition} was just deleted", options.fail_on_data_loss)
        return
    start, end = (bound(view, limit, options) for limit in (options.starting, options.ending))
    if start < end:
        yield _Span.of(view, start, end, topic_id)


def _topic_id(found: PartitionDir) -> str:
    """The topic id in a partition's directory; "" where there is none, or none that can be read: a
    batch also reads what is left of a damaged directory."""
    try:
        return found.topic_id()
    except CorruptError as error:
        LOGGER.warning("%s: not checked whether the topic is created again meanwhile", error)
        return ""


def bound(view: View, limit: Limit, options: Options) -> int:
    """The offset that a limit names, as far as it is there. DataLoss, OptionError."""
    latest = view.bound(options.isolation)
    value = limit.of((view.topic, view.partition))
    if limit.is_time:
        value = _offset_for_time(view, value, limit, options)
    value = {EARLIEST: view.start_offset, LATEST: latest}.get(value, value)
    if not view.start_offset <= value <= latest:
        there = f"offsets {view.start_offset} to {latest} are there"
        what = f"{view.topic}-{view.partition}: {limit.option} says {value}, but only {there}"
        report_loss(what, options.fail_on_data_loss)
    return min(max(value, view.start_offset), latest)


def _offset_for_time(view: View, time_ms: int, limit: Limit, options: Options) -> int:
    """The first offset at or after a time; without one, what the options say."""
    found = view.offset_for_time(time_ms, options.isolation)
    if found is not None:
        return found
    if limit is options.starting and not options.no_match_is_latest:
        why = f"{view.topic}-{view.partition} has no record at {time_ms} or later"
        raise OptionError(limit.option, f"{why}; see startingOffsetsByTimestampStrategy")
    return LATEST


# -- ranges ----------------------------------------------------------------------------------------


def cut(parts: Iterable[tuple[View, int, int, str]], options: Options) -> list[OffsetRange]:
    """Ranges of the sizes that the options ask for, of offsets [start, end) of each view, which
    has them, with the topic id of its partition."""
    return _ranges([_Span.of(*part) for part in parts if part[1] < part[2]], options)


def _ranges(spans: Sequence[_Span], options: Options) -> list[OffsetRange]:
    """The spans, cut to the sizes that the options ask for."""
    target = options.max_bytes_per_partition
    least = options.min_partitions or 0
    if least:
        target = max(min(target, sum(span.size for span in spans) // least), 1)
    ranges = [piece for span in spans for piece in _cut_by_bytes(span, target)]
    ranges = _cut_to_number(ranges, least)
    most = options.max_records_per_partition
    if most is not None:
        ranges = [part for piece in ranges for part in _divided(piece, -(-_count(piece) // most))]
    return ranges


def _cut_by_bytes(span: _Span, target: int) -> Iterator[OffsetRange]:
    """The span in pieces of about `target` bytes, cut where an index entry tells an offset."""
    parts = max(-(-span.size // target), 1)
    cuts = (span.offset_at(span.size * part // parts) for part in range(1, parts))
    inner = sorted({offset for offset in cuts if span.start < offset < span.end})
    edges = [span.start, *inner, span.end]
    view = span.view
    for low, high in pairwise(edges):
        yield OffsetRange(
            topic=view.topic,
            partition=view.partition,
            start=low,
            end=high,
            size=span.size // (len(edges) - 1),
            is_last=high == view.end_offset,
            topic_id=span.topic_id,
        )


def _cut_to_number(ranges: list[OffsetRange], least: int) -> list[OffsetRange]:
    """At least `least` ranges where there are so many offsets: where index entries are too few for
    that, the largest are divided evenly, as Spark does (KafkaOffsetRangeCalculator)."""
    missing = least - len(ranges)
    if missing <= 0 or not ranges:
        return ranges
    total = sum(map(_count, ranges))
    parts = [1 + min(missing * _count(piece) // total, _count(piece) - 1) for piece in ranges]
    by_count = sorted(range(len(ranges)), key=lambda i: -_count(ranges[i]))
    for i in by_count:
        added = min(least - sum(parts), _count(ranges[i]) - parts[i])
        if added <= 0:
            continue
        parts[i] += added
    return [part for piece, n in zip(ranges, parts, strict=True) for part in _divided(piece, n)]


def _count(piece: OffsetRange) -> int:
    """How many offsets it has, at most so many records."""
    return piece.end - piece.start


def _divided(piece: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """The piece in `parts` of as many offsets each, but for one."""
    edges = [piece.start + _count(piece) * part // parts for part in range(parts + 1)]
    for low, high in pairwise(edges):
        is_last = piece.is_last and high == piece.end
        yield replace(piece, start=low, end=high, size=piece.size // parts, is_last=is_last)
