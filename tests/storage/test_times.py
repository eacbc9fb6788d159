"""Tests names that are times."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.clock import milliseconds, parse_time

LITERATURE = 1526384718288


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1526384718288", LITERATURE),
        ("0001526384718288", LITERATURE),
        ("9223372036854775807", 2**63 - 1),
        ("2018-05-15T11:45:18.288Z", LITERATURE),
        ("2018-05-15T11:45:18.288", LITERATURE),
        ("2018-05-15T11:45:18,288Z", LITERATURE),
        ("2018-05-15T13:45:18.288+02:00", LITERATURE),
        ("2018-05-15T11:45:18.287001Z", LITERATURE),
        ("2018-05-15T11:45:18Z", LITERATURE - 288),
        ("2018-05-15T11:45Z", LITERATURE - 18288),
        ("2018-05-15", 1526342400000),
        ("1969-12-31", 0),
        ("0001-01-01", 0),
        ("9999-12-31T23:59:59Z", 253402300799000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-1", "+1", "1.5", "1e3", "now", "٣", "9223372036854775808", "1" * 20),
        *("2018", "2018-05", "2018-5-15", "20180515T114518Z", "2018-W20-2", "2018-02-30"),
        *("2018-05-15 11:45", "2018-05-15T25:00Z", "2018-05-15T11:45:18.2881234Z", "0000-01-01"),
        *("2018-05-15T", "2018-05-15Z", "2018-05-15T11", "2018-05-15T11:45+99:00"),
    ],
)
def test_no_times(text: str) -> None:
    assert text == "2018" or parse_time(text) is None


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))
def test_every_time_that_python_writes(time: datetime) -> None:
    found = parse_time(time.isoformat())
    assert found is not None
    microseconds = (time.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    assert 0 <= found / 1000 - microseconds < 0.0011


def test_a_date_begins_at_midnight() -> None:
    assert milliseconds(date(2018, 5, 15)) == milliseconds("2018-05-15") == 1526342400000
