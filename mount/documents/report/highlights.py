"""The summary of a report in sentences: what matters, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafkafs.storage import LogDirsReport, PartitionReport, SegmentState, TopicReport

from . import texts

# A topic is skewed if its largest partition has so many times the average of its bytes, and a share
# of all bytes that matters.
_SKEWED: Final = 1.5
_SHARE_THAT_MATTERS: Final = 0.01
# Largest step back that is not worth mentioning, in ms.
_USUAL_DISORDER_MS: Final = 60_000
_NAMED: Final = 3


class Severity(StrEnum):
    BAD = "bad"
    WARNING = "warning"
    NOTE = "note"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Highlight:
    """A sentence, and the section of the page that has the details."""

    severity: Severity
    text: str
    section: str


def highlights(report: LogDirsReport) -> list[Highlight]:
    """Returns what matters in a report, ordered by severity."""
    found = [
        *_damage(report),
        *_shutdown(report),
        *_expired(report),
        *_skew(report),
        *_lag(report),
        *_transactions(report),
        *_compaction(report),
        *_compression(report),
        *_disorder(report),
        *_gaps(report),
    ]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def skewed_topics(report: LogDirsReport) -> list[TopicReport]:
    """Returns the topics with a partition that is much larger than the average, worst first. Those
    of Kafka itself are always skewed."""
    total = sum(topic.size for topic in report.topics)
    found = [
        topic
        for topic in report.topics
        if topic.skew >= _SKEWED
        and topic.size >= _SHARE_THAT_MATTERS * total
        and not topic.is_internal
    ]
    return sorted(found, key=lambda topic: -topic.skew)


def _damage(report: LogDirsReport) -> Iterator[Highlight]:
    damaged = [each for each in report.partitions if each.damage]
    count = sum(len(each.damage) for each in damaged)
    if report.unreadable:
        what = texts.counted(len(report.unreadable), "partition")
        where = _names([each.where for each in report.unreadable])
        yield Highlight(Severity.BAD, f"{what} cannot be read: {where}.", "damage")
    if damaged:
        what = texts.counted(count, "place is", "places are")
        where = _names([each.name for each in damaged])
        yield Highlight(Severity.BAD, f"{what} damaged, in {where}.", "damage")
    if report.problems:
        what = texts.counted(len(report.problems), "problem")
        yield Highlight(
            Severity.WARNING, f"{what} with the directories or their small files.", "damage"
        )
    if not damaged and not report.unreadable:
        how = "Every batch was verified" if report.is_deep else "Only headers were read"
        yield Highlight(Severity.GOOD, f"No damage was found. {how}.", "damage")


def _shutdown(report: LogDirsReport) -> Iterator[Highlight]:
    unclean = [each.path for each in report.log_dirs if not each.is_clean]
    if unclean:
        text = f"{_names(unclean)}: in use, or not shut down cleanly."
        yield Highlight(Severity.NOTE, text, "top")


def _expired(report: LogDirsReport) -> Iterator[Highlight]:
    sizes = [(each.bytes_in(SegmentState.EXPIRED), each) for each in report.partitions]
    total = sum(size for size, _ in sizes)
    everything = sum(each.size for each in report.partitions)
    if total:
        concerned = [each for size, each in sorted(sizes, key=lambda pair: -pair[0]) if size]
        text = (
            f"{texts.size(total)} ({texts.share(total, everything)}) have expired: retention"
            f" deletes them at its next run, in {_partitions(concerned)}."
        )
        yield Highlight(Severity.WARNING, text, "segments")
    times = [each.next_deletion_ms(report.at_ms) for each in report.partitions]
    coming = min((each for each in times if each is not None), default=None)
    if coming is not None:
        text = f"Retention deletes the next segment {texts.ago(coming, report.at_ms)}"
        yield Highlight(Severity.NOTE, f"{text}, at {texts.time(coming)}.", "segments")
    left = sum(each.deleted_bytes for each in report.partitions)
    if left:
        text = f"{texts.size(left)} are in deleted files that are still on the disk."
        yield Highlight(Severity.NOTE, text, "segments")


def _skew(report: LogDirsReport) -> Iterator[Highlight]:
    for topic in skewed_topics(report)[:_NAMED]:
        largest = max(topic.partitions, key=lambda each: each.size)
        text = (
            f"{texts.shown(topic.topic)} is skewed: partition {largest.partition} has"
            f" {texts.ratio(topic.skew)} times the average of its"
            f" {len(topic.partitions)} partitions."
        )
        yield Highlight(Severity.WARNING, text, "skew")


def _lag(report: LogDirsReport) -> Iterator[Highlight]:
    broken = [row for row in report.groups if row.problem is not None]
    if broken:
        text = (
            f"{texts.counted(len(broken), 'committed offset')} no longer"
            f" {'exists' if len(broken) == 1 else 'exist'}, of"
            f" {_names([row.group.name for row in broken])}."
        )
        yield Highlight(Severity.WARNING, text, "groups")
    lags: Counter[str] = Counter()
    for row in report.groups:
        lags[row.group.name] += max(row.lag or 0, 0)
    behind = [(name, lag) for name, lag in lags.most_common() if lag > 0]
    if behind:
        name, lag = behind[0]
        ages = [row.lag_ms for row in report.groups if row.lag_ms is not None]
        verb = "has" if len(behind) == 1 else "have"
        text = f"{texts.counted(len(behind), 'group')} {verb} not read everything; the largest lag,"
        text += f" {texts.counted(lag, 'record')}, is that of {texts.shown(name)}."
        if ages:
            text += f" The oldest unread record is {texts.duration(max(ages))} old."
        yield Highlight(Severity.NOTE, text, "groups")


def _transactions(report: LogDirsReport) -> Iterator[Highlight]:
    holding = [each for each in report.partitions if each.transactions]
    if holding:
        count = sum(len(each.transactions) for each in holding)
        oldest = min(each.last_timestamp for one in holding for each in one.transactions)
        verb = "is" if count == 1 else "are"
        text = (
            f"{texts.counted(count, 'transaction')} {verb} open, in {_partitions(holding)};"
            f" the one that is idle longest wrote its last batch {texts.ago(oldest, report.at_ms)}."
            " Consumers with read_committed cannot read past it."
        )
        yield Highlight(Severity.WARNING, text, "transactions")


def _compaction(report: LogDirsReport) -> Iterator[Highlight]:
    removable = sum(each.removable_bytes for each in report.partitions)
    records = sum(each.removable_records for each in report.partitions)
    dirty = sum(each.bytes_in(SegmentState.DIRTY) for each in report.partitions)
    if removable or records:
        text = (
            f"Compaction would remove {texts.counted(records, 'record')}, about"
            f" {texts.size(removable)}."
        )
        yield Highlight(Severity.NOTE, text, "segments")
    elif dirty and not report.is_deep:
        text = (
            f"{texts.size(dirty)} are in segments that the cleaner can clean and that may have"
            " superseded records; --deep counts them."
        )
        yield Highlight(Severity.NOTE, text, "segments")


def _compression(report: LogDirsReport) -> Iterator[Highlight]:
    total = sum(use.stored_bytes for each in report.partitions for use in each.codecs.values())
    plain = sum(each.size for each in report.partitions if list(each.codecs) == ["none"])
    everything = sum(each.size for each in report.partitions)
    if total and plain > everything / 2:
        share = texts.share(plain, everything)
        text = f"{share} of all bytes are in partitions without compression."
        yield Highlight(Severity.NOTE, text, "compression")


def _disorder(report: LogDirsReport) -> Iterator[Highlight]:
    back = [each for each in report.partitions if each.disorder.largest_ms > _USUAL_DISORDER_MS]
    back.sort(key=lambda each: -each.disorder.largest_ms)
    if back:
        text = (
            f"Timestamps go back by up to {texts.duration(back[0].disorder.largest_ms)}, in"
            f" {_partitions(back)}."
        )
        yield Highlight(Severity.NOTE, text, "time")
    future = [each for each in report.partitions if each.disorder.future]
    if future:
        text = f"Some timestamps are later than this report, in {_partitions(future)}."
        yield Highlight(Severity.WARNING, text, "time")


def _gaps(report: LogDirsReport) -> Iterator[Highlight]:
    topics = [topic for topic in report.topics if not topic.is_internal]
    with_gaps = [each for topic in topics for each in topic.partitions if each.gaps]
    if with_gaps:
        worst = max(with_gaps, key=lambda each: each.gaps[0].length_ms)
        gap = worst.gaps[0]
        text = (
            f"The longest gap, {texts.duration(gap.length_ms)}, is in {texts.shown(worst.name)} and"
            f" begins at {texts.time(gap.from_ms)}."
        )
        yield Highlight(Severity.NOTE, text, "time")


def _partitions(found: list[PartitionReport]) -> str:
    return _names([each.name for each in found])


def _names(names: list[str]) -> str:
    """Joins the first names, and says how many more there are."""
    shown = [texts.shown(name) for name in dict.fromkeys(names)]
    more = len(shown) - _NAMED
    text = ", ".join(shown[:_NAMED])
    return f"{text} and {texts.number(more)} more" if more > 0 else text
