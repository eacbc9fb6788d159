"""Writes dates and times as ISO 8601 has them."""

from __future__ import annotations

import cython

#: The first and last day since 1970 of the years 1 to 9999.
FIRST_DAY = cython.declare(cython.longlong, -719162)
LAST_DAY = cython.declare(cython.longlong, 2932896)
DAY_SECONDS = cython.declare(cython.longlong, 86400)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.longlong))
def floor_divided(value: cython.longlong, by: cython.longlong):
    """Returns the quotient, rounded down, and the remainder, as Python does."""
    quotient: cython.longlong = value // by
    rest: cython.longlong = value - quotient * by
    if rest < 0:  # C rounds to zero
        return quotient - 1, rest + by
    return quotient, rest


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_digits(
    value: cython.longlong, count: cython.int, out: cython.uchar[::1], at: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes the last ``count`` digits of a number that is not negative."""
    i: cython.int
    for i in range(count):
        out[at + count - 1 - i] = cython.cast(cython.uchar, 48 + value % 10)
        value = value // 10
    return at + count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_date(
    days: cython.longlong, out: cython.uchar[::1], at: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes a day since 1970, from FIRST_DAY to LAST_DAY, and returns the position after it."""
    # Years begin in March here, so that leap days are at their end (Howard Hinnant's
    # "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    day: cython.longlong = days + 719468
    era: cython.longlong = day // 146097
    day = day - era * 146097
    year: cython.longlong = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day = day - (365 * year + year // 4 - year // 100)
    month: cython.longlong = (5 * day + 2) // 153
    day = day - (153 * month + 2) // 5 + 1
    year = year + era * 400
    if month >= 10:
        year += 1
        month -= 12
    at = put_digits(year, 4, out, at)
    out[at] = 45
    at = put_digits(month + 3, 2, out, at + 1)
    out[at] = 45
    return put_digits(day, 2, out, at + 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_clock(
    second: cython.longlong,
    fraction: cython.longlong,
    per_second: cython.longlong,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a second of the day with its fraction, in 3, 6 or 9 digits: the fewest that lose
    nothing."""
    digits: cython.int = 3 if per_second == 1000 else 6 if per_second == 1000000 else 9
    at = put_digits(second // 3600, 2, out, at)
    out[at] = 58
    at = put_digits(second // 60 % 60, 2, out, at + 1)
    out[at] = 58
    at = put_digits(second % 60, 2, out, at + 1)
    out[at] = 46
    while digits > 3 and fraction % 1000 == 0:
        fraction = fraction // 1000
        digits -= 3
    return put_digits(fraction, digits, out, at + 1)
