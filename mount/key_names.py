"""Keys as file names: percent-encoded where a name needs it, cut where it would be too long.

A name is the key's own bytes, with `%XX` for `/`, `%`, control characters and what is not UTF-8. An
empty key is `%`, the keys `.` and `..` are `%2E` and `%2E%2E`. A name longer than 255 bytes is cut,
and `%~` and the key's SHA-256 stand at its end. No `%` is followed by `~`, or by nothing, in any
other name, so no two keys share one.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from .errnos import NoSuchName

#: Linux: NAME_MAX.
MAX_NAME: Final = 255
EMPTY: Final = b"%"
#: A key of fewer bytes has a name that is not cut.
MIN_CUT_BYTES: Final = MAX_NAME // 3 + 1

_PLAIN: Final = re.compile(rb"[^\x00-\x1f%/\x7f-\xff]+")
_ESCAPED: Final = re.compile("[\x00-\x1f%/\x7f\udc80-\udcff]")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})?")
_DOTS: Final = {b".": b"%2E", b"..": b"%2E%2E"}
_HASHED: Final = re.compile(rb"(.*)%~([0-9a-f]{64})", re.DOTALL)
_HASH_BYTES: Final = 2 + 64
_ESCAPES: Final = "a % must be followed by two hexadecimal digits, and % itself is %25"
# Cut names whose keys are remembered.
_REMEMBERED: Final = 16384


@dataclass(frozen=True, slots=True)
class CutName:
    """A name that tells only how the key begins, and its SHA-256."""

    begin: bytes
    digest: bytes

    def is_of(self, key: bytes) -> bool:
        return key.startswith(self.begin) and hashlib.sha256(key).digest() == self.digest


def name_of(key: bytes) -> bytes:
    """The file name of a key; not its only one, as any of its bytes may be escaped."""
    if len(key) <= MAX_NAME and _PLAIN.fullmatch(key) and key not in _DOTS:
        return key
    # of more bytes than fit no more are looked at than can be seen
    begin = key[: 4 * MAX_NAME]
    name = _DOTS.get(key) or _encoded(begin) or EMPTY
    if len(name) <= MAX_NAME and len(begin) == len(key):
        return name
    digest = hashlib.sha256(key).hexdigest().encode()
    return _cut(name, MAX_NAME - _HASH_BYTES) + b"%~" + digest


def _encoded(key: bytes) -> bytes:
    """With escapes for what a name or a terminal cannot have."""
    text = key.decode("utf-8", "surrogateescape")
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", text).encode()


def _cut(name: bytes, size: int) -> bytes:
    """At most `size` bytes of a name, ending neither in an escape nor in a character."""
    while size > 0 and (name[size] & 0xC0) == 0x80:
        size -= 1
    escape = name.rfind(b"%", max(size - 2, 0), size)
    return name[: size if escape < 0 else escape]


def key_of(name: bytes) -> bytes | CutName:
    """The key that a name says. NoSuchName when it is none."""
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
    """Where a record is with the key of a cut name, for those that were listed last. Any thread may
    use it."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()  # guards it

    def note(self, name: bytes, offset: int) -> None:
        """A name was given to the key of the record at `offset`, perhaps a cut one."""
        hashed = _HASHED.fullmatch(name)
        if hashed is None:
            return
        with self._lock:
            self._offsets[bytes.fromhex(hashed[2].decode())] = offset
            if len(self._offsets) > _REMEMBERED:
                self._offsets.popitem(last=False)

    def offset_of(self, name: CutName) -> int:
        """-1 where nothing is known."""
        with self._lock:
            return self._offsets.get(name.digest, -1)
