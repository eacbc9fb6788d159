"""Times in milliseconds since 1970: clocks, and conversion from and to ISO 8601.

Retention, delays, append times and expiry take the time only from a `Clock`, so that a test can run
next week's retention today.
"""

from __future__ import annotations

import operator
import re
from datetime import UTC, date, datetime, timedelta
from time import time_ns
from typing import Final, Protocol

_MAX_MS: Final = 2**63 - 1
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
# A date, optionally with a time; datetime.fromisoformat accepts more, some of it not ISO 8601.
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d([.,]\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Returns milliseconds since 1970, UTC."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time_ns() // 1_000_000


class SetClock:
    """A clock whose time changes only when it is set."""

    def __init__(self, now_ms: int) -> None:
        self.value = now_ms

    def now_ms(self) -> int:
        return self.value

    def advance(self, milliseconds: int) -> None:
        self.value += milliseconds


def parse_time(text: str) -> int | None:
    """Returns the milliseconds since 1970 of a number or an ISO 8601 time, UTC if it has no zone.

    Returns None if it is neither. Fractions of a millisecond are rounded up and times before 1970
    are 0, which does not affect "the first record at or after".
    """
    if _DIGITS.fullmatch(text):
        milliseconds = int(text)
        return milliseconds if milliseconds <= _MAX_MS else None
    if _ISO.fullmatch(text) is None:
        return None
    try:
        return max(_of_datetime(datetime.fromisoformat(text)), 0)
    except (ValueError, OverflowError):  # no such day or hour, or year 0
        return None


def not_a_time(text: str) -> str:
    """Returns the message for a `text` that `parse_time` rejects."""
    return f"{text!r} is not a time: milliseconds since 1970 or ISO 8601"


def milliseconds(time: int | str | date) -> int:
    """Returns the milliseconds since 1970 of a time in any form: a number of them, a text that
    `parse_time` accepts, a datetime, UTC if it has no zone, or a date, which begins at midnight
    UTC. Fractions of a millisecond are rounded up. Raises ValueError if a text is not a time."""
    if isinstance(time, datetime):
        return _of_datetime(time)
    if isinstance(time, date):
        return _of_datetime(datetime(time.year, time.month, time.day, tzinfo=UTC))
    if not isinstance(time, str):
        return operator.index(time)
    parsed = parse_time(time)
    if parsed is None:
        raise ValueError(not_a_time(time))
    return parsed


def time_text(milliseconds: int) -> str:
    """Formats a time so that `parse_time` accepts it, in UTC; "-" for -1, the number itself if it
    is out of the calendar's range."""
    if milliseconds == -1:
        return "-"
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _of_datetime(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return -((_EPOCH - aware) // timedelta(milliseconds=1))
