r"""Java's `.properties` text, as java.util.Properties loads and stores it.

    # comment, also with !
    key = value         separated by =, : or blanks, with blanks around
    a\ key: long \
        value           a backslash before the line's end goes on in the next line
    \u00e9 = \t \n \r \f, and any other escaped character stands for itself

The bytes are ISO-8859-1; everything else is escaped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..errors import CorruptError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"((?:[^\\=: \t\f]|\\.)*)([ \t\f]*[=:]?[ \t\f]*)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES = {char: name for name, char in _NAMED.items()}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Property(NamedTuple):
    """A key and its value as they were given. `line`: the number of the line where they begin, from
    1. `is_separated`: whether anything stood between them; Java takes it for a key that has the
    value "" where nothing does."""

    line: int
    key: str
    value: str
    is_separated: bool


def parse_properties(data: bytes) -> dict[str, str]:
    """The keys and values of a properties file; of a key given twice, the last.

    CorruptError where a `\\u` is not followed by four hexadecimal digits.
    """
    return {each.key: each.value for each in iter_properties(data)}


def iter_properties(data: bytes) -> Iterator[Property]:
    """The same one by one, as they stand in the file."""
    for number, line in _logical_lines(data.decode("latin-1")):
        key, between, value = _LINE.findall(line)[0]  # matches any line
        try:
            yield Property(number, _unescaped(key), _unescaped(value), bool(between))
        except CorruptError as error:
            raise CorruptError(f"line {number}: {error.what}") from None


def format_properties(values: Mapping[str, str], written_ms: int, comment: str = "") -> bytes:
    """A properties file of `values` in their order, stored at `written_ms` since 1970 with a
    `comment` of one line. What is not ASCII is escaped, so that every reader takes it for the
    same."""
    lines = [f"#{comment}", f"#{_java_date(written_ms)}"]
    lines += [f"{_escaped(key, ' ')}={_escaped(value, '')}" for key, value in values.items()]
    return ("\n".join(lines) + "\n").encode("ascii")


def _java_date(milliseconds: int) -> str:
    """java.util.Date.toString, in UTC."""
    at = time.gmtime(milliseconds // 1000)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = f"{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}"
    return f"{day} {month} {at.tm_mday:02} {clock} UTC {at.tm_year}"


def _escaped(text: str, blanks: str) -> str:
    """`text` with escapes, also for `blanks` anywhere; a leading blank always has one."""
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
    """Lines without comments and blank ones, continued lines joined, with the number of the
    first."""
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
    """`text` without escapes. Java's two escapes of a character beyond U+FFFF are one character."""
    units = _ESCAPE.sub(_unescape, text).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "surrogatepass")


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise CorruptError("\\u without four hexadecimal digits")
    return _NAMED.get(escaped, escaped)
