"""How decoded values appear in JSON and in Arrow: one place for all formats.

README.md beside this file has the table. A function here turns the value that a format stores (a
number, bytes) into the one that JSON shows. A value that has no such form, for example a date after
the year 9999, is shown as the number that is stored, so that nothing is lost. The kernel
`avro_text` writes the values of most Avro types by the same rules.
"""

from __future__ import annotations

import json
import math
from binascii import b2a_base64
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from ..errors import DatumError

#: Why a decimal does not fit its schema.
TOO_MANY_DIGITS: Final = "a decimal has more digits than its precision"
#: Why a time of day does not fit its schema.
OUTSIDE_DAY: Final = "a time of day is negative, or 24 hours or more"
#: Why a datum has no column, if its items cost less than they become.
TOO_MANY_ITEMS: Final = "it has more values than a datum of its size may have"
#: What converts a stored value to one for JSON.
Converter = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1)
DAY_SECONDS: Final = 86400
_UNITS: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
#: The longest decimal that is converted, in bytes: twice what the largest precision needs.
_DECIMAL_BYTES: Final = 4096
_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode
#: What is wrong with a value that has no JSON text.
NOT_JSON: Final = "it has a value that JSON does not have, or values nested too deeply"
#: Bytes that text does not have: control characters other than tab and line ends.
_CONTROL: Final = bytes({*range(32), 127} - {9, 10, 13})


def json_text(value: Any) -> bytes | None:
    """Returns a value as JSON in UTF-8; None if it is no JSON value."""
    try:
        text = _ENCODE(value)
    except (ValueError, RecursionError):
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can show
        return json.dumps(value, check_circular=False, separators=(",", ":")).encode()


def base64_text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def number(value: float) -> float | str:
    """Returns a floating-point number, or the name of one that JSON does not have."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def raw_value(data: bytes | memoryview) -> tuple[str, str]:
    """Returns the kind and the JSON value of bytes without a schema: "text" if they are UTF-8
    without control characters (other than tabs and line ends), otherwise "binary"."""
    held = bytes(data)
    try:
        text = held.decode()
    except UnicodeDecodeError:
        return "binary", base64_text(held)
    if held.translate(None, _CONTROL) != held:
        return "binary", base64_text(held)
    return "text", text


def decimal_text(unscaled: int, scale: int) -> str:
    """Returns the decimal with exactly `scale` digits after the point, never in exponents."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    if scale == 0:
        return sign + digits
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def _decimal_of(data: bytes, precision: int, scale: int) -> str:
    """Raises DatumError if the number has more digits than the precision."""
    unscaled = int.from_bytes(data, "big", signed=True) if len(data) <= _DECIMAL_BYTES else None
    if unscaled is None or abs(unscaled) >= 10**precision:
        raise DatumError(TOO_MANY_DIGITS)
    return decimal_text(unscaled, scale)


def date_text(days: int) -> str | int:
    try:
        return (_EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        return days


def _clock_text(value: int, per_second: int) -> str:
    """Returns a time of day, with 3 digits, or as many more as it needs. Raises DatumError if it is
    outside the day, which Arrow does not have either."""
    seconds, fraction = divmod(value, per_second)
    if not 0 <= seconds < DAY_SECONDS:
        raise DatumError(OUTSIDE_DAY)
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}.{_fraction(fraction, per_second)}"


def _fraction(fraction: int, per_second: int) -> str:
    """Returns the digits of a fraction of a second: 3, 6 or 9, the fewest that lose nothing."""
    if per_second == 10**3:
        return f"{fraction:03}"
    nanos = fraction * (10**9 // per_second)
    if nanos % 10**6 == 0:
        return f"{nanos // 10**6:03}"
    return f"{nanos // 10**3:06}" if nanos % 10**3 == 0 else f"{nanos:09}"


def timestamp_text(value: int, per_second: int, zone: str = "Z") -> str | int:
    """Returns a time since 1970 in units of which a second has `per_second`, in ISO 8601."""
    seconds, fraction = divmod(value, per_second)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return value
    return f"{moment.isoformat()}.{_fraction(fraction, per_second)}{zone}"


def _uuid_text(data: bytes) -> str:
    return str(UUID(bytes=data))


def avro_converter(kind: str, logical: str, precision: int = 0, scale: int = 0) -> Converter | None:
    """Returns what converts the values of an Avro type (`kind`: "int", "bytes" …) with this logical
    type, "" for none, to JSON; None if they are JSON already."""
    if logical == "decimal":
        return partial(_decimal_of, precision=precision, scale=scale)
    if logical == "date":
        return date_text
    if logical.startswith("time-"):
        return partial(_clock_text, per_second=_UNITS[logical.rpartition("-")[2]])
    if "timestamp-" in logical:
        zone = "" if logical.startswith("local-") else "Z"
        return partial(timestamp_text, per_second=_UNITS[logical.rpartition("-")[2]], zone=zone)
    if kind == "fixed" and logical == "uuid":
        return _uuid_text
    if kind in ("bytes", "fixed"):
        return base64_text
    return number if kind in ("float", "double") else None
