"""Filters that Spark pushes down: which partitions, offsets and times they leave to be read.

Filters on `topic` and `partition` are decided on the driver, and those on `offset` by ranges of
offsets, both exactly. Those on `timestamp` narrow what is read, and Spark looks at them again.
Everything else is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from .planning import EVERYTHING, Wanted

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_COMPARISONS: Final = (
    *(EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual),
)
_OF_STRINGS: Final = (StringStartsWith, StringEndsWith, StringContains)
# Of so many offsets each is looked up; of more, all between the first and the last are read.
_MOST_LOOKUPS: Final = 64


def push(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What all filters together leave to be read, and those that Spark has to look at still."""
    wanted = EVERYTHING
    left: list[Filter] = []
    for each in filters:
        wanted, is_done = _narrowed(wanted, each)
        if not is_done:
            left.append(each)
    return wanted, left


def _narrowed(wanted: Wanted, of: Filter) -> tuple[Wanted, bool]:
    """`wanted` with one filter more, and whether nothing of the filter is left to be done."""
    column = _column(of)
    if column in ("topic", "partition") and _is_decidable(of, str if column == "topic" else int):
        return replace(wanted, choices=(*wanted.choices, Choice(of))), True
    if column == "offset":
        return _narrowed_offsets(wanted, of)
    if column == "timestamp":
        return _narrowed_times(wanted, of), False
    return wanted, False


def _column(of: Filter) -> str:
    """The name of the column that a filter is about, "" for a field inside one."""
    inner = of.child if isinstance(of, Not) else of
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _is_decidable(of: Filter, kind: type) -> bool:
    """Whether `_holds` says of every value of the column what SQL would: with nulls it does not."""
    match of:
        case Not(child=child):
            return _is_decidable(child, kind)
        case IsNull() | IsNotNull():
            return True
        case In(value=values):
            return all(type(value) is kind for value in values)
        case _ if isinstance(of, _COMPARISONS):
            return type(of.value) is kind
        case _:
            return kind is str and isinstance(of, _OF_STRINGS)


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter on the topic or the partition."""

    filter: Filter

    def takes(self, topic: str, partition: int) -> bool:
        return _holds(self.filter, topic if _column(self.filter) == "topic" else partition)


def _holds(of: Filter, value: str | int) -> bool:
    """Whether a decidable filter holds for a column's value, which is never null."""
    match of:
        case Not(child=child):
            return not _holds(child, value)
        case IsNull() | IsNotNull():
            return isinstance(of, IsNotNull)
        case EqualTo(value=other) | EqualNullSafe(value=other):
            return bool(value == other)
        case In(value=others):
            return value in others
        case GreaterThan(value=other):
            return bool(value > other)
        case GreaterThanOrEqual(value=other):
            return bool(value >= other)
        case LessThan(value=other):
            return bool(value < other)
        case LessThanOrEqual(value=other):
            return bool(value <= other)
        case _:
            return _holds_of_string(of, str(value))


def _holds_of_string(of: Filter, value: str) -> bool:
    match of:
        case StringStartsWith(value=part):
            return value.startswith(part)
        case StringEndsWith(value=part):
            return value.endswith(part)
        case StringContains(value=part):
            return part in value
    raise ValueError(f"not a filter on a topic: {of}")


def _narrowed_offsets(wanted: Wanted, of: Filter) -> tuple[Wanted, bool]:
    if isinstance(of, IsNotNull):
        return wanted, True
    if isinstance(of, In) and of.value and all(type(value) is int for value in of.value):
        values = sorted(set(of.value))
        if len(values) > _MOST_LOOKUPS:
            return wanted.within_offsets([(values[0], values[-1] + 1)]), False
        return wanted.within_offsets([(value, value + 1) for value in values]), True
    span = _span(of, getattr(of, "value", None))
    if span is None:
        return wanted, False
    return wanted.within_offsets([span]), True


def _narrowed_times(wanted: Wanted, of: Filter) -> Wanted:
    """Times in microseconds, as Spark's are."""
    if isinstance(of, In) and of.value:
        times = [_microseconds(value) for value in of.value]
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            return wanted
        return wanted.within_times(min(known), max(known) + 1)
    span = _span(of, _microseconds(getattr(of, "value", None)))
    return wanted if span is None else wanted.within_times(*span)


def _span(of: Filter, value: object) -> tuple[int | None, int | None] | None:
    """The numbers [low, high) for which a comparison with `value` holds, None at a side without a
    bound; None for another filter."""
    if type(value) is not int:
        return None
    match of:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + 1
    return None


def _microseconds(value: object) -> int | None:
    """Since 1970; None for what is no time in a time zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
