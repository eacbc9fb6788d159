"""Avro datums as JSON text, many at a time: written by the kernel `avro_text`, by the conventions
that `AvroDecoder` makes JSON values by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...format.kernels import avro_text as kernel
from ...format.records.batch import Bytes, Int64s
from ...format.records.buffer_pool import BUFFERS
from ..conventions import json_text
from .types import AvroType, Kind

#: The kernel's code of a datum that it leaves to its caller.
LEFT: Final = -14
# The kernel's forms; each has two numbers.
_PLAIN, _DATE, _CLOCK, _TIMESTAMP, _UUID, _DECIMAL, _OTHER = range(7)
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
# The largest precision of a decimal that the kernel writes.
_MAX_PRECISION: Final = 38
# The number of extra bytes that escaping adds to each byte, valid for printable ASCII.
_QUOTING: Final = bytes(byte in b'"\\' for byte in range(256))
# The keys of maps in each other that the kernel compares, and the powers of ten that it needs.
_MAX_KEYS: Final = 1024
_POWERS: Final = range(-292, 325)
# The least room for the texts of some datums, and what it has beside their bytes and names.
_LEAST_ROOM: Final = 4096
_MORE_PER_DATUM: Final = 32
# The most room for more than one text: what one has says little about others, nor do all names of a
# schema about those in a datum.
_MOST_ROOM: Final = 4 << 20
# Less is not worth a buffer of the pool.
_LEAST_POOLED: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class WrittenTexts:
    """`data`: the texts of some datums. `places`: for each, its start and size (int64, shape
    (n, 2)), size -1 if it has none; `status`: for each, a code of the kernel, 0 if it fits."""

    data: Bytes
    places: Int64s
    status: Int64s


@dataclass(slots=True)
class AvroTexts:
    """Writes the datums of one schema, whose tables for the kernel are `nodes` and `links`."""

    nodes: Int64s
    links: Int64s
    root: int
    most: Int64s
    forms: Int64s
    labels: Int64s
    texts: bytes
    #: The bytes of the names in a datum without unions, arrays and maps.
    _names: int = field(init=False)

    def __post_init__(self) -> None:
        self._names = int(self.labels[:, 1].sum())

    def write(self, data: Bytes, spans: Int64s) -> WrittenTexts:
        """Writes the datums whose start and end in `data` are in each row of `spans` (int64, shape
        (n, 2))."""
        spans = np.ascontiguousarray(spans)
        places = np.zeros((len(spans), 2), dtype=np.int64)
        status = np.zeros(len(spans), dtype=np.int64)
        keys = np.empty((_MAX_KEYS, 2), dtype=np.int64)
        pieces: list[memoryview] = []
        row, room, before = 0, self._room_for(spans), 0
        while row < len(spans):
            is_small = room < _LEAST_POOLED
            out = np.empty(room, dtype=np.uint8).data if is_small else BUFFERS.acquire(room)
            end, written = kernel.write_texts(
                data, spans, self.nodes, self.links, self.root, self.most, self.forms,
                self.labels, self.texts, _QUOTING, _powers(), keys, row, places, status, out,
            )  # fmt: skip
            places[row:end, 0] += before
            if end == row:  # one datum has more text than there is room
                room *= 4
                continue
            pieces.append(out[:written])
            before += written
            # As much for each of the others as one of these has.
            each = 2 * written // (end - row)
            room = min(_LEAST_ROOM + each * (len(spans) - end), _MOST_ROOM)
            row = end
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return WrittenTexts(whole, places, status)

    def _room_for(self, spans: Int64s) -> int:
        """Estimates the bytes of all texts."""
        sizes = int((spans[:, 1] - spans[:, 0]).sum())
        room = _LEAST_ROOM + 2 * sizes + len(spans) * (self._names + _MORE_PER_DATUM)
        return min(room, _MOST_ROOM)


@cache
def _powers() -> NDArray[np.uint64]:
    """Returns the table of powers of ten that the kernel needs for doubles."""
    return np.array([_power(exponent) for exponent in _POWERS], dtype=np.uint64)


def _power(exponent: int) -> tuple[int, int]:
    """Returns the upper and the lower half of a power of ten, scaled to 128 bits and rounded up."""
    if exponent >= 0:
        power = 10**exponent
        extra = power.bit_length() - 128
        scaled = power << -extra if extra <= 0 else -(-power >> extra)
    else:
        power = 10**-exponent
        scaled = -(-(1 << (127 + power.bit_length())) // power)
    return scaled >> 64, scaled & ((1 << 64) - 1)


@dataclass(slots=True)
class _Labels:
    """What is written before fields, and symbols: each text once for each place."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    texts: bytearray = field(default_factory=bytearray)

    def add(self, text: bytes) -> None:
        self.spans.append((len(self.texts), len(text)))
        self.texts += text


def text_writer(
    nodes: Int64s, links: Int64s, root: int, most: Int64s, types: list[AvroType | None]
) -> AvroTexts | None:
    """Returns what writes the datums of the type in the row `root` of the kernel's tables; `types`
    has the type in each row, None for a map's keys. None if a name has half of a surrogate pair,
    because of which all text in a value is escaped."""
    labels = _Labels()
    forms: list[tuple[int, int, int]] = []
    try:
        for of in types:
            forms.append((_PLAIN, 0, 0) if of is None else _form(of, labels))
    except UnicodeEncodeError:
        return None
    return AvroTexts(
        nodes, links, root, most,
        np.array(forms, dtype=np.int64).reshape(-1, 3),
        np.array(labels.spans, dtype=np.int64).reshape(-1, 2),
        bytes(labels.texts),
    )  # fmt: skip


def _form(of: AvroType, labels: _Labels) -> tuple[int, int, int]:
    first = len(labels.spans)
    if of.kind is Kind.RECORD:
        for place, each in enumerate(of.fields):
            labels.add((b"," if place else b"{") + _quoted(each.name) + b":")
        return _PLAIN, first, 0
    if of.kind is Kind.ENUM:
        for symbol in of.symbols:
            labels.add(_quoted(symbol))
        return _PLAIN, first, 0
    return _scalar_form(of)


def _scalar_form(of: AvroType) -> tuple[int, int, int]:
    if of.logical == "decimal":
        if of.precision > _MAX_PRECISION:
            return _OTHER, 0, 0
        return _DECIMAL, of.precision, of.scale
    if of.logical == "date":
        return _DATE, 0, 0
    if of.kind is Kind.FIXED and of.logical == "uuid":
        return _UUID, 0, 0
    per_second = _PER_SECOND.get(of.logical.rpartition("-")[2])
    if per_second is None:
        return _PLAIN, 0, 0
    if of.logical.startswith("time-"):
        return _CLOCK, per_second, 0
    return _TIMESTAMP, per_second, int(not of.logical.startswith("local-"))


def _quoted(text: Any) -> bytes:
    text.encode()  # raises UnicodeEncodeError
    found = json_text(text)
    assert found is not None
    return found
