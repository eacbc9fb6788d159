"""The tables of a report's page. Each is complete or says what it leaves out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kafkafs.storage import (
    CodecUse,
    GroupOffset,
    LogDirsReport,
    OpenTransaction,
    PartitionReport,
    SegmentState,
    TimeGap,
    TopicReport,
)

from . import texts

#: Rows of a table; the rest are summed in its note.
MOST_ROWS: Final = 200


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its text, and a number that it is sorted by; None for the text itself."""

    text: str
    order: float | None = None


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table. `columns`: name, and whether it holds numbers. `note`: what was left out."""

    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def _table(
    columns: Sequence[str],
    found: Sequence[T],
    row: Callable[[T], Sequence[Cell]],
    what: str,
) -> PageTable:
    """Returns a table with a row for each of the first of `found`, and a note that says how many
    more of `what` there are. The name of a column of numbers ends in "#"."""
    more = len(found) - MOST_ROWS
    note = f"{more:,} more {what} are not listed." if more > 0 else ""
    named = [(name.rstrip("#"), name.endswith("#")) for name in columns]
    return PageTable(named, list(map(row, found[:MOST_ROWS])), note)


def _size(count: int) -> Cell:
    return Cell(texts.size(count) if count else "-", count)


def _number(count: int) -> Cell:
    return Cell(texts.number(count), count)


def _time(ms: int | None) -> Cell:
    return Cell(texts.time(ms), -1 if ms is None else ms)


def _text(value: str) -> Cell:
    return Cell(texts.shown(value))


def topics(report: LogDirsReport) -> PageTable:
    """Returns the topics, the largest first."""
    records = "records#" if report.is_deep else "offsets#"
    columns = (
        *("topic", "partitions#", "segments#", "size#", records, "skew#", "expired#"),
        *("next deletion", "codec", "first record", "last record"),
    )
    ordered = sorted(report.topics, key=lambda each: (each.is_internal, -each.size))
    return _table(columns, ordered, lambda each: _topic(each, report), "topics")


def _topic(topic: TopicReport, report: LogDirsReport) -> list[Cell]:
    partitions = topic.partitions
    first = [int(each.growth.timestamps[0]) for each in partitions if len(each.growth)]
    last = [each.latest_ms for each in partitions if each.latest_ms is not None]
    deletions = [each.next_deletion_ms(report.at_ms) for each in partitions]
    codecs = sorted({name for each in partitions for name in each.codecs})
    return [
        _text(topic.topic),
        _number(len(partitions)),
        _number(sum(len(each.segments) for each in partitions)),
        _size(topic.size),
        _number(sum(each.records for each in partitions)),
        Cell(texts.ratio(topic.skew) if topic.size else "-", topic.skew),
        _size(sum(each.bytes_in(SegmentState.EXPIRED) for each in partitions)),
        _time(min((each for each in deletions if each is not None), default=None)),
        _text(", ".join(codecs) or "-"),
        _time(min(first, default=None)),
        _time(max(last, default=None)),
    ]


def partitions(report: LogDirsReport) -> PageTable:
    """Returns the partitions, the largest first."""
    records = "records#" if report.is_deep else "offsets#"
    is_tiered = any(map(_has_remote, report.partitions))
    columns = (
        *("partition", "segments#", "size#", "log start#", "log end#", records, "expired#"),
        *("removable#" if report.is_deep else "dirty#", "next deletion", "log directory"),
        *(("local log start#", "remote#", "not read") if is_tiered else ()),
    )
    ordered = sorted(report.partitions, key=lambda each: -each.size)

    def cells(found: PartitionReport) -> list[Cell]:
        return [*_partition(found, report), *(_places(found) if is_tiered else ())]

    return _table(columns, ordered, cells, "partitions")


def _has_remote(found: PartitionReport) -> bool:
    """Returns whether remote storage has, or had, records of a partition."""
    remote = found.remote
    return remote is not None and (remote.latest_offset >= 0 or bool(remote.unread))


def _places(found: PartitionReport) -> list[Cell]:
    """Returns where the local log begins, the bytes that are read from remote storage, and the
    offsets there that are not read."""
    assert found.remote is not None
    return [
        _number(found.remote.local_start_offset),
        _size(found.remote.size),
        _text(found.remote.unread or "-"),
    ]


def _partition(found: PartitionReport, report: LogDirsReport) -> list[Cell]:
    dirty = found.removable_bytes if report.is_deep else found.bytes_in(SegmentState.DIRTY)
    return [
        _text(found.name),
        _number(len(found.segments)),
        _size(found.size),
        _number(found.start_offset),
        _number(found.end_offset),
        _number(found.records),
        _size(found.bytes_in(SegmentState.EXPIRED)),
        _size(dirty),
        _time(found.next_deletion_ms(report.at_ms)),
        _text(found.log_dir),
    ]


def compression(report: LogDirsReport) -> PageTable:
    """Returns the codecs by topic, the most bytes first."""
    columns = ("topic", "codec", "batches#", "bytes examined#", "average batch#", "ratio#")
    found = [each for topic in report.topics for each in _codecs(topic)]
    found.sort(key=lambda each: -each[2].stored_bytes)
    return _table(columns, found, _codec, "codecs of topics")


def _codecs(topic: TopicReport) -> Iterator[tuple[str, str, CodecUse]]:
    """Yields the topic, the name of each codec in it, and the use of the codec."""
    for name in sorted({name for each in topic.partitions for name in each.codecs}):
        uses = (each.codecs[name] for each in topic.partitions if name in each.codecs)
        yield topic.topic, name, sum(uses, CodecUse())


def _codec(found: tuple[str, str, CodecUse]) -> list[Cell]:
    topic, name, use = found
    ratio = use.data_bytes / use.stored_bytes if use.stored_bytes else 0.0
    return [
        _text(topic),
        _text(name),
        _number(use.batches),
        _size(use.stored_bytes),
        _size(use.stored_bytes // max(use.batches, 1)),
        Cell(texts.ratio(ratio) if use.data_bytes else "-", ratio),
    ]


def transactions(report: LogDirsReport) -> PageTable:
    """Returns the open transactions, the one idle longest first."""
    columns = ("partition", "producer id#", "epoch#", "first offset#", "held back#", "last batch")
    found = [(one, each) for one in report.partitions for each in one.transactions]
    found.sort(key=lambda pair: pair[1].last_timestamp)
    return _table(columns, found, _transaction, "transactions")


def _transaction(found: tuple[PartitionReport, OpenTransaction]) -> list[Cell]:
    partition, transaction = found
    return [
        _text(partition.name),
        _number(transaction.producer_id),
        _number(transaction.producer_epoch),
        _number(transaction.first_offset),
        _number(partition.end_offset - transaction.first_offset),
        _time(transaction.last_timestamp),
    ]


def groups(report: LogDirsReport) -> PageTable:
    """Returns the groups, the one with the greatest lag first."""
    columns = (
        *("group", "type", "state", "partitions#", "lag#", "oldest unread#", "last commit"),
        "offsets that do not exist#",
    )
    found = sorted(rows_by_group(report).values(), key=lambda rows: -total_lag(rows))
    return _table(columns, found, _group, "groups")


def rows_by_group(report: LogDirsReport) -> dict[str, list[GroupOffset]]:
    """Returns the offsets of each group by its name."""
    found: defaultdict[str, list[GroupOffset]] = defaultdict(list)
    for row in report.groups:
        found[row.group.name].append(row)
    return found


def total_lag(rows: Iterable[GroupOffset]) -> int:
    """Returns the number of records that a group has not read."""
    return sum(max(row.lag or 0, 0) for row in rows)


def _group(rows: Sequence[GroupOffset]) -> list[Cell]:
    group = rows[0].group
    commits = [row.commit_timestamp for row in rows if row.commit_timestamp is not None]
    return [
        _text(group.name),
        _text(str(group.type)),
        _text(str(group.state)),
        _number(sum(row.topic is not None for row in rows)),
        _number(total_lag(rows)),
        _age(max((row.lag_ms for row in rows if row.lag_ms is not None), default=None)),
        _time(max(commits, default=None)),
        _number(sum(row.problem is not None for row in rows)),
    ]


def _age(ms: int | None) -> Cell:
    return Cell("-" if ms is None else texts.duration(max(ms, 0)), -1 if ms is None else ms)


def group_offsets(report: LogDirsReport) -> PageTable:
    """Returns the committed offsets, those with a problem first, then by lag."""
    columns = (
        *("group", "partition", "offset#", "log start#", "log end#", "lag#"),
        *("oldest unread#", "committed", "problem"),
    )
    found = [row for row in report.groups if row.topic is not None]
    found.sort(key=lambda row: (row.problem is None, -(row.lag or 0)))
    return _table(columns, found, _group_offset, "offsets")


def _group_offset(row: GroupOffset) -> list[Cell]:
    return [
        _text(row.group.name),
        _text(f"{row.topic}/{row.partition}"),
        *(
            Cell("-", -1) if each is None else _number(each)
            for each in (row.offset, row.log_start_offset, row.log_end_offset, row.lag)
        ),
        _age(row.lag_ms),
        _time(row.commit_timestamp),
        _text("" if row.problem is None else str(row.problem)),
    ]


def damage(report: LogDirsReport) -> PageTable:
    """Returns what is wrong, partition by partition."""
    found = [(each.where or "-", each.error) for each in report.unreadable]
    found += [(each.where or "-", each.error) for one in report.partitions for each in one.damage]
    found += [("-", problem) for problem in report.problems]
    found += [(topic.topic, problem) for topic in report.topics for problem in topic.problems]
    return _table(("where", "what"), found, _texts, "findings")


def settings(report: LogDirsReport) -> PageTable:
    """Returns the configs that are not defaults."""
    found = [
        (topic.topic, name, text, str(source))
        for topic in report.topics
        for name, (text, source) in topic.configs.items()
    ]
    return _table(("topic", "config", "value", "set by"), found, _texts, "configs")


def _texts(values: Iterable[str]) -> list[Cell]:
    return [_text(value) for value in values]


def gaps(report: LogDirsReport) -> PageTable:
    """Returns the longest times without a record."""
    columns = ("partition", "gap#", "from", "until", "next offset#")
    found = [(one, gap) for one in report.partitions for gap in one.gaps]
    found.sort(key=lambda pair: -pair[1].length_ms)
    return _table(columns, found, _gap, "gaps")


def _gap(found: tuple[PartitionReport, TimeGap]) -> list[Cell]:
    partition, gap = found
    return [
        _text(partition.name),
        Cell(texts.duration(gap.length_ms), gap.length_ms),
        _time(gap.from_ms),
        _time(gap.until_ms),
        _number(gap.offset),
    ]


def disorder(report: LogDirsReport) -> PageTable:
    """Returns the partitions whose timestamps go back, the largest step first."""
    what = "records" if report.is_deep else "batches"
    columns = (
        *("partition", "largest step back#", "at offset#", f"{what} out of order#"),
        *(f"{what} examined#", "later than the report#"),
    )
    found = [each for each in report.partitions if each.disorder.count or each.disorder.future]
    found.sort(key=lambda each: -each.disorder.largest_ms)
    return _table(columns, found, _disordered, "partitions")


def _disordered(partition: PartitionReport) -> list[Cell]:
    found = partition.disorder
    return [
        _text(partition.name),
        Cell(texts.duration(found.largest_ms) if found.count else "-", found.largest_ms),
        Cell(texts.number(found.offset) if found.count else "-", found.offset),
        _number(found.count),
        _number(found.examined),
        _number(found.future),
    ]
