r"""Java's `.properties` text, as java.util.Properties.load reads it.

    # comment, also with !
    key = value         separated by =, : or blanks, with blanks around
    a\ key: long \
        value           a backslash before the line's end goes on in the next line
    \u00e9 = \t \n \r \f, and any other escaped character stands for itself

The bytes are ISO-8859-1; everything else is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import CorruptError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """The keys and values of a properties file; of a key given twice, the last.

    CorruptError where a `\\u` is not followed by four hexadecimal digits.
    """
    found = {}
    for line in _logical_lines(data.decode("latin-1")):
        key, value = _LINE.findall(line)[0]  # matches any line
        found[_ESCAPE.sub(_unescape, key)] = _ESCAPE.sub(_unescape, value)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, continued lines joined."""
    joined: list[str] = []
    for line in _LINE_END.split(text):
        line = line.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        if _is_continued(line):
            joined.append(line[:-1])
            continue
        yield "".join([*joined, line])
        joined.clear()
    if joined:
        yield "".join(joined)


def _is_continued(line: str) -> bool:
    return len(line) - len(line.rstrip("\\")) & 1 == 1


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise CorruptError("\\u without four hexadecimal digits")
    return _NAMED.get(escaped, escaped)
