"""Kafka's topic and directory ids: 16 bytes, written as 22 characters of URL-safe base64.

Rule: org.apache.kafka.common.Uuid. An id of 16 zero bytes means none.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid

UUID_BYTES = 16
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_text(data: bytes) -> str:
    """Returns the 22 characters for 16 bytes."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def is_uuid_text(text: str) -> bool:
    """Returns whether `text` is the `uuid_text` of an id that is not all zeros."""
    if _TEXT.fullmatch(text) is None:
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
