"""The data that the page's script draws: series of numbers and boxes, capped so that a page for
thousands of partitions stays small. What is left out is summed as "others".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np

from kafkafs.storage import (
    Int64s,
    LogDirsReport,
    PartitionReport,
    SegmentReport,
    SegmentState,
    TopicReport,
    offsets_at,
    sizes_at,
    time_axis,
)

from . import highlights, tables, texts

#: Series in a chart, of which the last may be the sum of the others.
MOST_SERIES: Final = 8
#: Topics whose partitions have charts of their own.
MOST_TOPICS: Final = 40
#: Partitions in a segment map, and boxes in all of them, at least so many in each.
MOST_MAPPED: Final = 40
MOST_BOXES: Final = 480
_LEAST_BOXES: Final = 12
#: Groups in a chart of their lags.
MOST_GROUPS: Final = 20
#: Partitions in a chart of their sizes.
MOST_BARS: Final = 100
_STATES: Final = list(SegmentState)
# Times at which the forecast changes.
_MOST_STEPS: Final = 200
# The last time on it, at the end of the year 9999, and the share of bytes that may be deleted after
# its end: one record of the year 3000 would hide all others.
_LATEST_MS: Final = 253_402_300_799_999
_LATER_SHARE: Final = 0.001

Json = dict[str, Any]


def chart_data(report: LogDirsReport) -> Json:
    """Returns everything that the page's script draws, as JSON."""
    whys = _Numbers()
    return {
        "isDeep": report.is_deep,
        "uncharted": max(sum(topic.size > 0 for topic in report.topics) - MOST_TOPICS, 0),
        "all": _growth(report.topics, lambda topic: texts.shown(topic.topic)),
        "topics": [_topic(topic, whys) for topic in _charted(report)],
        "states": list(map(str, _STATES)),
        "whys": list(whys),
        "forecast": _forecast(report.partitions, report.at_ms),
        "codecs": _codecs(report),
        "lags": _lags(report),
        "gaps": _gaps(report),
    }


def _charted(report: LogDirsReport) -> Sequence[TopicReport]:
    """Returns the topics with charts of their own: skewed ones first, then the largest; Kafka's own
    last."""
    skewed = {topic.topic for topic in highlights.skewed_topics(report)}
    found = sorted(
        (topic for topic in report.topics if topic.size),
        key=lambda topic: (topic.is_internal, topic.topic not in skewed, -topic.size),
    )
    return found[:MOST_TOPICS]


class _Numbers(dict[str, int]):
    """Numbers texts as they are looked up."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _topic(topic: TopicReport, whys: _Numbers) -> Json:
    ordered = sorted(topic.partitions, key=lambda each: -each.size)
    return {
        "name": texts.shown(topic.topic),
        "skew": round(topic.skew, 2),
        "growth": _growth(ordered, lambda each: str(each.partition)),
        "bars": _bars(topic.partitions),
        "map": _map(ordered[:MOST_MAPPED], whys),
        "unmapped": max(len(ordered) - MOST_MAPPED, 0),
    }


Grown = TopicReport | PartitionReport


def _growth(found: Sequence[Grown], name: Callable[[Any], str]) -> Json:
    """Returns an axis of time, and size and offsets at each of its times for the largest, and for
    the sum of the rest."""
    axis = time_axis([each.growth for each in _partitions_of(found)])
    ordered = sorted(found, key=lambda each: -each.size)
    count = MOST_SERIES - 1 if len(ordered) > MOST_SERIES else len(ordered)
    shown, rest = ordered[:count], ordered[count:]
    shown.sort(key=lambda each: each.partition if isinstance(each, PartitionReport) else 0)
    series = [(name(each), _partitions_of([each])) for each in shown if each.size]
    if rest:
        series.append((f"{len(rest):,} others", _partitions_of(rest)))
    return {
        "begin": int(axis[0]) if len(axis) else 0,
        "width": int(axis[1] - axis[0]) if len(axis) else 0,
        "series": [
            {
                "name": label,
                "sizes": _summed(partitions, axis, sizes_at),
                "offsets": _summed(partitions, axis, offsets_at),
            }
            for label, partitions in series
            if len(axis)
        ],
    }


def _partitions_of(found: Iterable[Grown]) -> list[PartitionReport]:
    return [
        one
        for each in found
        for one in (each.partitions if isinstance(each, TopicReport) else (each,))
    ]


def _summed(
    partitions: Iterable[PartitionReport], axis: Int64s, at: Callable[..., Int64s]
) -> list[int]:
    total = np.zeros(len(axis), dtype=np.int64)
    for each in partitions:
        total += at(each.growth, axis)
    return total.tolist()


def _bars(partitions: Sequence[PartitionReport]) -> Json:
    """Returns the sizes by partition, by number or, if they are many, the largest ones."""
    shown = list(partitions)
    if len(shown) > MOST_BARS:
        shown = sorted(shown, key=lambda each: -each.size)[:MOST_BARS]
    total = sum(each.size for each in partitions)
    return {
        "partitions": [str(each.partition) for each in shown],
        "sizes": [each.size for each in shown],
        "records": [each.records for each in shown],
        "average": total / max(len(partitions), 1),
        "left": len(partitions) - len(shown),
    }


def _map(partitions: Sequence[PartitionReport], whys: _Numbers) -> list[Json]:
    """Returns the segments of partitions as boxes; see `_box`."""
    most = max(MOST_BOXES // max(len(partitions), 1), _LEAST_BOXES)
    return [
        {
            "name": str(each.partition),
            "boxes": [_box(group, whys) for group in _merged(each.segments, most)],
        }
        for each in sorted(partitions, key=lambda each: each.partition)
    ]


def _merged(segments: Sequence[SegmentReport], most: int) -> list[list[SegmentReport]]:
    """Returns groups of neighbours that share a box because they have the same state: about `most`,
    and one for each segment if these are fewer."""
    together = -(-len(segments) // most)
    groups = []
    for _, alike in groupby(segments, key=lambda each: each.state):
        found = list(alike)
        groups += [found[at : at + together] for at in range(0, len(found), together)]
    return groups


def _box(segments: Sequence[SegmentReport], whys: _Numbers) -> list[Any]:
    """Returns [bytes, bytes of removable records, number of the state, number of segments, first
    and last offset, first and largest timestamp, number of the text about the last segment, when it
    is deleted, after how many more bytes, number of removable records]; null for never."""
    first, last = segments[0], segments[-1]
    return [
        sum(each.size for each in segments),
        sum(each.removable_bytes for each in segments),
        _STATES.index(first.state),
        len(segments),
        first.base_offset,
        last.end_offset - 1,
        first.first_timestamp,
        last.largest_timestamp,
        whys[last.why],
        last.expires_at_ms,
        last.bytes_to_come,
        sum(each.removable_records for each in segments),
    ]


def _forecast(partitions: Sequence[PartitionReport], now_ms: int) -> Json | None:
    """Returns how many bytes retention leaves at which times if nothing is appended; None if it
    deletes nothing more by time."""
    deletions = sorted(
        (each.expires_at_ms, each.size)
        for one in partitions
        for each in one.segments
        if each.expires_at_ms is not None and now_ms < each.expires_at_ms <= _LATEST_MS
    )
    if not deletions:
        return None
    reached = np.cumsum([size for _, size in deletions])
    last = int(np.searchsorted(reached, (1 - _LATER_SHARE) * int(reached[-1])))
    deletions = deletions[: last + 1]
    expired = sum(each.bytes_in(SegmentState.EXPIRED) for each in partitions)
    left = sum(each.size for each in partitions)
    times, sizes = [now_ms, now_ms], [left, left - expired]
    left -= expired
    step = -(-len(deletions) // _MOST_STEPS)
    for number in range(0, len(deletions), step):
        together = deletions[number : number + step]
        left -= sum(size for _, size in together)
        times.append(together[-1][0])
        sizes.append(left)
    return {"times": times, "sizes": sizes}


def _codecs(report: LogDirsReport) -> list[Json]:
    """Returns the bytes on the disk by codec, and those of keys and values in them. Where only some
    batches were examined, the others are taken to be like them."""
    stored: defaultdict[str, float] = defaultdict(float)
    data: defaultdict[str, int] = defaultdict(int)
    for each in report.partitions:
        examined = sum(use.stored_bytes for use in each.codecs.values())
        for name, use in each.codecs.items():
            stored[name] += each.size * use.stored_bytes / max(examined, 1)
            data[name] += use.data_bytes
    return [
        {"name": name, "stored": round(stored[name]), "data": data[name]} for name in sorted(stored)
    ]


def _lags(report: LogDirsReport) -> list[Json]:
    """Returns the groups that are behind, the one with the greatest lag first."""
    found = [(tables.total_lag(rows), name) for name, rows in tables.rows_by_group(report).items()]
    found.sort(key=lambda pair: -pair[0])
    return [{"name": texts.shown(name), "lag": lag} for lag, name in found[:MOST_GROUPS] if lag > 0]


def _gaps(report: LogDirsReport) -> list[Json]:
    """Returns the longest gaps, the longest first."""
    found = [(one, gap) for one in report.partitions for gap in one.gaps]
    found.sort(key=lambda pair: -pair[1].length_ms)
    return [
        {
            "name": texts.shown(one.name),
            "from": gap.from_ms,
            "until": gap.until_ms,
            "text": texts.duration(gap.length_ms),
        }
        for one, gap in found[:MOST_MAPPED]
    ]
