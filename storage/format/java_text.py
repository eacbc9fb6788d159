"""Decodes bytes to text as the JVM does, and so as Kafka's clients and tools print them."""

from __future__ import annotations

import re
from typing import Final

# Java and Python both replace the longest prefix of a character in a malformed sequence with one
# U+FFFD, with one difference. In Java the three bytes of a surrogate, and the first two of them,
# are such a prefix (`String.decodeUTF8`: malformed3 accepts any continuation after ED); in Python
# ED is malformed by itself if followed by A0..BF.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


def decode_utf8(data: bytes) -> str:
    """Returns what Java's `new String(data, UTF_8)` would."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
