r"""Parses and formats Java's `.properties` files, as java.util.Properties does.

    # comment, also with !
    key = value         separated by =, : or blanks, with optional blanks around
    a\ key: long \
        value           a backslash at the end of a line continues it on the next line
    \u00e9 = \t \n \r \f, and any other escaped character is itself

The encoding is ISO-8859-1; all other characters are escaped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...errors import CorruptError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"((?:[^\\=: \t\f]|\\.)*)([ \t\f]*[=:]?[ \t\f]*)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES = {char: name for name, char in _NAMED.items()}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Property(NamedTuple):
    """A key and its value. `line`: the number of their first line, from 1. `is_separated`: whether
    there is a separator; without one, Java treats the line as a key with value ""."""

    line: int
    key: str
    value: str
    is_separated: bool


def parse_properties(data: bytes) -> dict[str, str]:
    """Parses a properties file; the last value of a repeated key wins.

    Raises CorruptError if a `\\u` is not followed by four hexadecimal digits.
    """
    return {each.key: each.value for each in iter_properties(data)}


def iter_properties(data: bytes) -> Iterator[Property]:
    """Yields every key and value, in file order. Raises CorruptError like `parse_properties`."""
    for number, line in _logical_lines(data.decode("latin-1")):
        key, between, value = _LINE.findall(line)[0]  # matches any line
        try:
            yield Property(number, _unescaped(key), _unescaped(value), bool(between))
        except CorruptError as error:
            raise CorruptError(f"line {number}: {error.what}") from None


def format_properties(values: Mapping[str, str], written_ms: int, comment: str = "") -> bytes:
    """Formats `values`, in their order, as a properties file stored at `written_ms` (ms since 1970)
    with a `comment` of one line. Non-ASCII characters are escaped, so that every reader gets the
    same text."""
    lines = [f"#{comment}", f"#{_java_date(written_ms)}"]
    lines += [f"{_escaped(key, ' ')}={escaped_value(value)}" for key, value in values.items()]
    return ("\n".join(lines) + "\n").encode("ascii")


def escaped_value(value: str) -> str:
    """Returns a value as it is in a properties file."""
    return _escaped(value, "")


def _java_date(milliseconds: int) -> str:
    """Formats a time like java.util.Date.toString, in UTC."""
    at = time.gmtime(milliseconds // 1000)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{day} {month} {at.tm_mday:02} {clock} UTC {at.tm_year}"


def _escaped(text: str, blanks: str) -> str:
    """Escapes `text`, including `blanks` anywhere in it and always a leading space."""
    escaped = "".join(_escape(char, blanks) for char in text)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(char: str, blanks: str) -> str:
    if char in _NAMES:
        return "\\" + _NAMES[char]
    if char in blanks or char in "\\=:#!":
        return "\\" + char
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join("\\u" + units[at : at + 4] for at in range(0, len(units), 4))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines with the number of their first line. Joins continued lines; skips comments and
    blank lines."""
    joined: list[str] = []
    first = 1
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(_BLANKS)
        if not joined:
            first = number
            if not line or line[0] in "#!":
                continue
        if _is_continued(line):
            joined.append(line[:-1])
            continue
        yield first, "".join([*joined, line])
        joined.clear()
    if joined:
        yield first, "".join(joined)


def _is_continued(line: str) -> bool:
    return len(line) - len(line.rstrip("\\")) & 1 == 1


def _unescaped(text: str) -> str:
    """Resolves escapes. Two escapes that form a surrogate pair become one character."""
    units = _ESCAPE.sub(_unescape, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "surrogatepass")


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise CorruptError("\\u without four hexadecimal digits")
    return _NAMED.get(escaped, escaped)
