"""Keys as file names: percent-encoded where necessary, and truncated if too long.

A name is the key's own bytes, with `%XX` for `/`, `%`, control characters and invalid UTF-8. An
empty key is `%`, the keys `.` and `..` are `%2E` and `%2E%2E`. A name longer than 255 bytes is cut
and ends with `%~` and the key's SHA-256. No other name contains a `%` followed by `~` or by
nothing, so no two keys share a name. A name that ends in `.history.jsonl` is not that of a key but
of a key's history; in the name of a key that ends so, this dot is `%2E`.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .errnos import NoSuchName

#: Linux: NAME_MAX.
MAX_NAME: Final = 255
EMPTY: Final = b"%"
#: Any shorter key has a name that is not cut.
MIN_CUT_BYTES: Final = MAX_NAME // 3 + 1
#: What follows a key's name in that of its history.
HISTORY_SUFFIX: Final = b".history.jsonl"

_PLAIN: Final = re.compile(rb"[^\x00-\x1f%/\x7f-\xff]+")
_ESCAPED: Final = re.compile("[\x00-\x1f%/\x7f\udc80-\udcff]")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})?")
_DOTS: Final = {b".": b"%2E", b"..": b"%2E%2E"}
_HASHED: Final = re.compile(rb"(.*)%~([0-9a-f]{64})", re.DOTALL)
_HASH_BYTES: Final = 2 + 64
_ESCAPES: Final = "a % must be followed by two hexadecimal digits, and % itself is %25"
# Number of cut names whose keys are remembered.
_REMEMBERED: Final = 16384


@dataclass(frozen=True, slots=True)
class CutName:
    """A name that holds only the beginning of a key and its SHA-256."""

    begin: bytes
    digest: bytes

    def is_of(self, key: bytes) -> bool:
        return key.startswith(self.begin) and _sha256(key) == self.digest


def name_of(key: bytes) -> bytes:
    """Returns a key's canonical file name. Other names exist, as any byte may be escaped."""
    is_plain = len(key) <= MAX_NAME and _PLAIN.fullmatch(key) and key not in _DOTS
    if is_plain and not key.endswith(HISTORY_SUFFIX):
        return key
    # a longer beginning could not be seen in the name
    begin = key[: 4 * MAX_NAME]
    name = _DOTS.get(key) or _encoded(begin) or EMPTY
    if name.endswith(HISTORY_SUFFIX):
        name = name.removesuffix(HISTORY_SUFFIX) + HISTORY_SUFFIX.replace(b".", b"%2E", 1)
    if len(name) <= MAX_NAME and len(begin) == len(key):
        return name
    return _cut(name, MAX_NAME - _HASH_BYTES) + b"%~" + _sha256(key).hex().encode()


def name_of_text(text: str) -> str:
    """Returns the file name of what is not a key, but named like one."""
    return os.fsdecode(name_of(_utf8(text)))


def named(name: str, there: Iterable[str]) -> str | None:
    """Returns the one of the texts `there` that a file name stands for; None if there is none.
    Raises NoSuchName for a name that stands for none."""
    key = key_of(os.fsencode(name))
    if isinstance(key, CutName):
        return next((each for each in there if key.is_of(_utf8(each))), None)
    return next((each for each in there if _utf8(each) == key), None)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _sha256(data: bytes) -> bytes:
    import hashlib  # loads OpenSSL, which few keys need

    return hashlib.sha256(data).digest()


def _encoded(key: bytes) -> bytes:
    """Escapes what a name or a terminal cannot contain."""
    text = key.decode("utf-8", "surrogateescape")
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", text).encode()


def _cut(name: bytes, size: int) -> bytes:
    """Returns at most `size` bytes of a name, splitting neither an escape nor a character."""
    while size > 0 and (name[size] & 0xC0) == 0x80:
        size -= 1
    escape = name.rfind(b"%", max(size - 2, 0), size)
    return name[: size if escape < 0 else escape]


def is_history(name: bytes) -> bool:
    """Whether a name is that of a key's history."""
    return name.endswith(HISTORY_SUFFIX)


def key_of(name: bytes) -> bytes | CutName:
    """Returns the key that a name stands for. Raises NoSuchName if it is not a key's name."""
    if is_history(name):
        text = name.decode("utf-8", "surrogateescape")
        raise NoSuchName(text, lambda: f"{text!r} is the name of a key's history, not of a key")
    if name == EMPTY:
        return b""
    hashed = _HASHED.fullmatch(name)
    if hashed is not None:
        return CutName(_decoded(hashed[1], name), bytes.fromhex(hashed[2].decode()))
    return _decoded(name, name)


def _decoded(part: bytes, name: bytes) -> bytes:
    def byte(escape: re.Match[bytes]) -> bytes:
        if escape[1] is None:
            text = name.decode("utf-8", "surrogateescape")
            raise NoSuchName(text, lambda: f"{text!r} is not the name of a key: {_ESCAPES}")
        return bytes.fromhex(escape[1].decode())

    return _ESCAPE.sub(byte, part)


class CutKeys:
    """Offsets of the records whose keys have cut names, for those listed last. Any thread may use
    it."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()  # guards it

    def note(self, name: bytes, offset: int) -> None:
        """Notes that `name`, if it is a cut name, is that of the key of the record at `offset`."""
        hashed = _HASHED.fullmatch(name)
        if hashed is None:
            return
        with self._lock:
            self._offsets[bytes.fromhex(hashed[2].decode())] = offset
            if len(self._offsets) > _REMEMBERED:
                self._offsets.popitem(last=False)

    def offset_of(self, name: CutName) -> int:
        """Returns an offset, or -1 if none is known."""
        with self._lock:
            return self._offsets.get(name.digest, -1)
