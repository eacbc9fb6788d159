"""Converts single values as Kafka and the JVM do: varints, UUIDs and text."""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from typing import Final

UUID_BYTES: Final = 16
_UUID_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}")
# Java and Python both replace the longest prefix of a character in a malformed sequence with one
# U+FFFD, with one difference. In Java the three bytes of a surrogate, and the first two of them,
# are such a prefix (`String.decodeUTF8`: malformed3 accepts any continuation after ED); in Python
# ED is malformed by itself if followed by A0..BF.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


# -- varints: zigzag, then groups of seven bits, lowest first (ByteUtils.readVarint) ---------------


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Returns the varint at ``data[at]`` and the position after it. Raises IndexError if it is
    truncated; does not check its length. Kernels decode, and check, the varints of whole batches.

    Bits above 32 are dropped, as in Kafka.
    """
    return _read(data, at, 0xFFFFFFFF)


def read_varlong(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Like ``read_varint``, for 64 bits."""
    return _read(data, at, 0xFFFFFFFFFFFFFFFF)


def _read(data: bytes | bytearray | memoryview, at: int, mask: int) -> tuple[int, int]:
    unsigned = shift = 0
    while True:
        byte = data[at]
        at += 1
        unsigned |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            unsigned &= mask
            return (unsigned >> 1) ^ -(unsigned & 1), at


# -- topic and directory ids (org.apache.kafka.common.Uuid); 16 zero bytes mean none --------------


def uuid_text(data: bytes) -> str:
    """Returns the 22 characters for 16 bytes."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """Returns the 16 bytes of a `uuid_text`. Raises ValueError for any other text."""
    if _UUID_TEXT.fullmatch(text) is None:
        raise ValueError(f"not the text of a UUID: {text!r}")
    return base64.urlsafe_b64decode(text + "==")


def is_uuid_text(text: str) -> bool:
    """Returns whether `text` is the `uuid_text` of an id that is not all zeros."""
    if _UUID_TEXT.fullmatch(text) is None:
        return False
    try:
        data = base64.urlsafe_b64decode(text + "==")
    except binascii.Error:
        return False
    return any(data) and uuid_text(data) == text


def random_uuid_text() -> str:
    """Returns a new id that does not start with `-`, like an option (Uuid.randomUuid)."""
    while (text := uuid_text(uuid.uuid4().bytes)).startswith("-"):
        pass
    return text


# -- text ------------------------------------------------------------------------------------------


def decode_utf8(data: bytes) -> str:
    """Returns what Java's `new String(data, UTF_8)` would: text as Kafka's clients and tools print
    it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
