"""Bytes as text the way the JVM decodes them, as Kafka's clients and tools print them."""

from __future__ import annotations

import re
from typing import Final

# Where a sequence is malformed, Java and Python both put one U+FFFD in the place of the longest
# prefix of a character. They differ in one rule. To Java the three bytes of a surrogate are such a
# prefix, and so are the first two of them (`String.decodeUTF8`: malformed3 accepts any
# continuation after ED); to Python ED followed by A0..BF is malformed by itself.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


def decode_utf8(data: bytes) -> str:
    """`new String(data, UTF_8)`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
