"""Filters pushed down: no row is lost by them, and what Spark need not look at again is exact."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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

from kafkafs.spark.filters import push
from kafkafs.spark.planning import Wanted

Row = dict[str, object]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS = (
    EqualTo,
    EqualNullSafe,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)
OF_STRINGS = (StringStartsWith, StringEndsWith, StringContains)
OPERATORS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: lambda value, part: str(value).startswith(str(part)),
    StringEndsWith: lambda value, part: str(value).endswith(str(part)),
    StringContains: lambda value, part: str(part) in str(value),
}


def sql(of: Filter, row: Row) -> bool | None:
    """What SQL says of a filter: None where a null makes that unknown."""
    if isinstance(of, Not):
        said = sql(of.child, row)
        return None if said is None else not said
    compared: Any = of  # all others have an attribute, most of them a value, too
    value = row[compared.attribute[0]]
    if isinstance(of, IsNull | IsNotNull):
        return (value is None) is isinstance(of, IsNull)
    if isinstance(of, In):
        if value is None:
            return None
        return True if value in of.value else None if None in of.value else False
    other = compared.value
    if isinstance(of, EqualNullSafe):
        return bool(value == other)
    if value is None or other is None:
        return None
    return bool(OPERATORS[type(of)](value, other))


def instants(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


TOPICS = st.sampled_from(["a", "ab", "b"])
NUMBERS = st.integers(-2, 12)
#: Whole milliseconds for rows, microseconds for filters.
TIMES = st.integers(-1500, 12_500).map(instants)
VALUES = {"topic": TOPICS, "partition": NUMBERS, "offset": NUMBERS, "timestamp": TIMES}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    path, value = (column,), VALUES[column] | st.none()
    made: Filter = draw(
        st.one_of(
            st.builds(IsNull, st.just(path)),
            st.builds(IsNotNull, st.just(path)),
            st.builds(In, st.just(path), st.lists(value, min_size=1, max_size=4).map(tuple)),
            *(st.builds(kind, st.just(path), value) for kind in COMPARISONS),
            *(st.builds(kind, st.just(("topic",)), TOPICS) for kind in OF_STRINGS),
        )
    )
    return Not(made) if draw(st.booleans()) else made


ROWS = st.fixed_dictionaries(
    {
        "topic": TOPICS,
        "partition": st.integers(0, 12),
        "offset": st.integers(0, 12),
        "timestamp": st.none() | st.integers(0, 12).map(lambda ms: instants(ms * 1000)),
    }
)


def read(wanted: Wanted, row: Row) -> bool:
    """Whether a row is among what is read, at the least."""
    offset, timestamp = row["offset"], row["timestamp"]
    assert isinstance(offset, int)
    is_read = wanted.takes(str(row["topic"]), int(str(row["partition"])))
    is_read &= any(low <= offset < high for low, high in wanted.offsets)
    if wanted.milliseconds is not None:
        low, high = wanted.milliseconds
        if not isinstance(timestamp, datetime):
            return False
        ms = (timestamp - EPOCH) // timedelta(milliseconds=1)
        is_read &= (low is None or low <= ms) and (high is None or ms < high)
    return is_read


@given(chosen=st.lists(filters(), max_size=4), rows=st.lists(ROWS, min_size=1, max_size=20))
def test_what_filters_leave(chosen: list[Filter], rows: list[Row]) -> None:
    wanted, left = push(chosen)
    assert all(any(each is one for one in chosen) for each in left)
    for row in rows:
        is_asked = all(sql(each, row) for each in chosen)
        if is_asked:
            assert read(wanted, row)
        if read(wanted, row) and all(sql(each, row) for each in left):
            assert is_asked


@pytest.mark.parametrize(
    "done",
    [
        EqualTo(("topic",), "orders"),
        Not(In(("topic",), ("a", "b"))),
        StringStartsWith(("topic",), "ord"),
        In(("partition",), (0, 2)),
        LessThan(("partition",), 2),
        GreaterThanOrEqual(("offset",), 600),
        In(("offset",), (5, 7)),
        IsNotNull(("offset",)),
    ],
)
def test_what_is_done_here(done: Filter) -> None:
    assert push([done])[1] == []


@pytest.mark.parametrize(
    "left",
    [
        EqualTo(("key",), b"k"),
        EqualTo(("partition",), None),
        In(("offset",), tuple(range(0, 1000, 2))),
        GreaterThan(("timestamp",), EPOCH),
        EqualTo(("headers", "key"), "x"),
    ],
)
def test_what_is_left_to_spark(left: Filter) -> None:
    assert push([left])[1] == [left]


def test_few_offsets_are_ranges_and_many_are_one() -> None:
    few, _ = push([In(("offset",), (5, 900, 7))])
    assert few.offsets == ((5, 6), (7, 8), (900, 901))
    many, _ = push([In(("offset",), tuple(range(0, 1000, 2)))])
    assert many.offsets == ((0, 999),)


def test_times_are_narrowed_to_the_millisecond() -> None:
    wanted, _ = push(
        [GreaterThan(("timestamp",), instants(1500)), LessThan(("timestamp",), instants(9001))]
    )
    assert (wanted.since_us, wanted.until_us) == (1501, 9001)
    assert wanted.milliseconds == (2, 10)
