"""Sizes, counts, durations and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from kafkafs.storage import printable

# Characters of a name or message; a page with many longer ones would be too large.
_MOST_CHARACTERS: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB")
_DURATIONS: Final = (
    (365 * 86_400_000, "y"),
    (86_400_000, "d"),
    (3_600_000, "h"),
    (60_000, "min"),
    (1000, "s"),
    (1, "ms"),
)


def shown(text: str) -> str:
    """Returns a name or message without control characters, cut if it is very long."""
    found = printable(text[: _MOST_CHARACTERS + 1])
    return found if len(found) <= _MOST_CHARACTERS else f"{found[:_MOST_CHARACTERS]}…"


def size(count: int) -> str:
    """Formats bytes with three digits and a power of 1000, as the charts do."""
    if count < 1000:
        return f"{count} B"
    scaled, unit = count / 1000, 0
    while scaled >= 999.5 and unit + 1 < len(_UNITS):
        scaled, unit = scaled / 1000, unit + 1
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f} {_UNITS[unit]}"


def number(count: int) -> str:
    return f"{count:,}"


def counted(count: int, one: str, many: str = "") -> str:
    """Formats a number with its noun: `1 topic`, `2 topics`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """Formats a part of a whole in percent."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    return "<0.1 %" if 0 < percent < 0.1 else f"{percent:.{1 if percent < 10 else 0}f} %"


def duration(ms: int) -> str:
    """Formats a duration by its two largest units: `3 d 4 h`."""
    for index, (unit, name) in enumerate(_DURATIONS):
        if ms >= unit:
            text, rest = f"{ms // unit:,} {name}", ms % unit
            below = _DURATIONS[index + 1 : index + 2]
            if below and rest >= below[0][0] and unit > 1000:
                text += f" {rest // below[0][0]} {below[0][1]}"
            return text
    return "0 ms"


def time(ms: int | None) -> str:
    """Formats a time to the second, in UTC; "-" if there is none, the number itself if it is out of
    the calendar's range."""
    if ms is None or ms < 0:
        return "-"
    try:
        found = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return found.strftime("%Y-%m-%d %H:%M:%S")


def ago(ms: int, now_ms: int) -> str:
    """Formats a time relative to another: `in 3 d 4 h`, `3 d 4 h ago`."""
    if ms >= now_ms:
        return f"in {duration(ms - now_ms)}"
    return f"{duration(now_ms - ms)} ago"


def ratio(value: float) -> str:
    return f"{value:.2f}"
