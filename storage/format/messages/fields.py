"""Decodes Kafka's flexible encoding (KIP-482) and the classic encoding that preceded it.

A compact string is its length plus 1 (0 is null) as an unsigned varint, then UTF-8; a compact array
is its length plus 1, then its elements. A structure ends in tagged fields: their count, then the
tag, size and bytes of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any, Final, TypeVar

from ...errors import CorruptError
from ..primitives import UUID_BYTES, uuid_text

T = TypeVar("T")

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_FLOAT64: Final = Struct(">d")


class Fields:
    """Reads the fields of a message in sequence. Raises CorruptError if a field is malformed or
    truncated."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = bytes(data)
        self._position = 0

    def rest(self) -> memoryview:
        """Returns the bytes not read yet."""
        return memoryview(self._data)[self._position :]

    def numbers(self, form: Struct) -> tuple[Any, ...] | None:
        """Reads several numbers at once. Returns None, and reads nothing, if the data end before
        the last one does."""
        start, end = self._position, self._position + form.size
        if end > len(self._data):
            return None
        self._position = end
        return form.unpack_from(self._data, start)

    def unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            if self._position >= len(self._data):
                raise self._too_short("a varint", self._position)
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptError("a varint of more than 5 bytes", position=self._position)

    def int8(self) -> int:
        return self._number(_INT8, "an int8")

    def int16(self) -> int:
        return self._number(_INT16, "an int16")

    def uint16(self) -> int:
        return self._number(_UINT16, "a uint16")

    def int32(self) -> int:
        return self._number(_INT32, "an int32")

    def int64(self) -> int:
        return self._number(_INT64, "an int64")

    def float64(self) -> float:
        return float(_FLOAT64.unpack(self._take(_FLOAT64.size, "a float64"))[0])

    def _number(self, form: Struct, what: str) -> int:
        return int(form.unpack(self._take(form.size, what))[0])

    def nullable_array(self, element: Callable[[], T]) -> list[T] | None:
        start, length = self._position, self._array_length()
        if length > len(self._data) - self._position:  # each element takes at least one byte
            raise CorruptError(f"an array of {length} extends past its record", position=start)
        return None if length < 0 else [element() for _ in range(length)]

    def tags(self) -> Iterable[tuple[int, Fields]]:
        """Returns the tagged fields at the end of a structure: the tag and content of each, which
        must be read in order."""
        count = self.unsigned_varint()
        return self._tags(count) if count else ()

    def _tags(self, count: int) -> Iterator[tuple[int, Fields]]:
        for _ in range(count):
            tag = self.unsigned_varint()
            yield tag, Fields(self._take(self.unsigned_varint(), "a tagged field"))

    def uuid(self) -> str:
        return uuid_text(self._take(UUID_BYTES, "an id"))

    def string(self) -> str:
        start = self._position
        text = self.nullable_string()
        if text is None:
            raise CorruptError("null in place of a non-nullable string", position=start)
        return text

    def nullable_bytes(self) -> bytes | None:
        length = self._bytes_length()
        return None if length < 0 else self._take(length, "bytes")

    def nullable_string(self) -> str | None:
        length = self._string_length()
        if length < 0:
            return None
        start = self._position
        try:
            return self._take(length, "a string").decode("utf-8")
        except UnicodeDecodeError:
            raise CorruptError("a string that is not UTF-8", position=start) from None

    def _array_length(self) -> int:
        return self.unsigned_varint() - 1

    _bytes_length = _string_length = _array_length

    def _take(self, size: int, what: str) -> bytes:
        start, self._position = self._position, self._position + size
        if self._position > len(self._data):
            raise self._too_short(what, start)
        return self._data[start : self._position]

    def _too_short(self, what: str, start: int) -> CorruptError:
        return CorruptError(f"{what} extends past the end of its record", position=start)


class ClassicFields(Fields):
    """The classic encoding: the length of a string is an int16, of bytes and arrays an int32, -1 is
    null, and there are no tagged fields."""

    def tags(self) -> Iterable[tuple[int, Fields]]:
        return ()

    def _array_length(self) -> int:
        return self.int32()

    _bytes_length = _array_length

    def _string_length(self) -> int:
        return self.int16()
