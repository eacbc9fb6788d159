"""Decompression of a batch's records, into a buffer that is used again.

What a batch says of its size is never believed: each codec writes into room that grows in steps up
to a limit, so a bomb costs at most the limit. Framing is Kafka's (``CompressionType``,
``Lz4BlockInputStream``, ``SnappyInputStream`` of snappy-java); the compression proper is the
libraries'.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import Final, cast

import cramjam
import zstandard
from isal import isal_zlib

from ..errors import CorruptError
from .checksum import Bytes, xxh32
from .layout import Codec

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# What the libraries raise for bytes that they cannot decompress.
_GARBAGE: Final[tuple[type[Exception], ...]] = (
    cramjam.DecompressionError,
    zstandard.ZstdError,
    zlib.error,
    cast(type[Exception], isal_zlib.error),  # its stub declares an instance
    ValueError,
)
# How much more room to make when a codec does not know its size beforehand.
_STEP: Final = 256 * 1024


class Scratch:
    """Bytes that grow at the end: room for decompressed records, kept from one run to the next.

    ``limit`` bounds what one batch may add. ``data`` is the filled part.
    """

    __slots__ = ("_buffer", "_limit_at", "limit", "used")

    def __init__(self, limit: int, capacity: int = 1 << 20) -> None:
        self.limit = limit
        self.used = 0
        self._buffer = bytearray(capacity)
        self._limit_at = limit

    def clear(self) -> None:
        self.used = 0

    def begin(self) -> int:
        """Start a batch: its limit counts from here. Returns the position where it begins."""
        self._limit_at = self.used + self.limit
        return self.used

    def room(self, size: int) -> memoryview:
        """At least ``size`` writable bytes after the filled ones. CorruptError over the limit."""
        needed = self.used + size
        if needed > self._limit_at:
            raise CorruptError(
                f"batch is larger than {self.limit} bytes when decompressed "
                "(setting kafkafs.max.batch.bytes)"
            )
        if needed > len(self._buffer):
            grown = bytearray(max(needed, 2 * len(self._buffer)))
            grown[: self.used] = memoryview(self._buffer)[: self.used]
            self._buffer = grown
        return memoryview(self._buffer)[self.used :]

    def room_up_to(self, size: int) -> memoryview:
        """Room of ``size`` bytes, or what the limit leaves; CorruptError when it leaves none."""
        return self.room(max(1, min(size, self._limit_at - self.used)))

    def add(self, data: Bytes) -> None:
        self.room(len(data))[: len(data)] = data
        self.used += len(data)

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    @property
    def data(self) -> memoryview:
        return memoryview(self._buffer)[: self.used]


def decompress(codec: Codec, payload: memoryview, magic: int, out: Scratch) -> None:
    """Add the records of one batch to ``out``. CorruptError (without a position) for garbage."""
    out.begin()
    try:
        _DECOMPRESSORS[codec](payload, magic, out)
    except _GARBAGE as error:
        raise CorruptError(f"{codec.kafka_name} payload cannot be decompressed: {error}") from error


def _gzip(payload: memoryview, magic: int, out: Scratch) -> None:
    """RFC 1952, several members in a row as ``GZIPInputStream`` takes them."""
    rest: Bytes = payload
    while len(rest):
        member = isal_zlib.decompressobj(wbits=31)
        pending: Bytes = rest
        while not member.eof:
            piece = member.decompress(pending, len(out.room_up_to(_STEP)))
            out.add(piece)
            pending = member.unconsumed_tail
            if not piece and not pending and not member.eof:
                raise CorruptError("gzip payload ends in the middle")
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":  # Java ignores what follows if it is no further member
            return


def _snappy(payload: memoryview, magic: int, out: Scratch) -> None:
    if len(payload) < XERIAL_HEADER_BYTES or bytes(payload[:8]) != XERIAL_MAGIC:
        _snappy_block(payload, out)
        return
    at = XERIAL_HEADER_BYTES  # the two version numbers are not checked by snappy-java either
    while at < len(payload):
        if bytes(payload[at : at + 8]) == XERIAL_MAGIC:  # streams may be concatenated
            at += XERIAL_HEADER_BYTES
            continue
        size = int.from_bytes(payload[at : at + 4], "big", signed=True)
        at += 4
        if size <= 0 or size > len(payload) - at:
            raise CorruptError(f"snappy block of {size} bytes where {len(payload) - at} are left")
        _snappy_block(payload[at : at + size], out)
        at += size


def _snappy_block(block: memoryview, out: Scratch) -> None:
    size = cramjam.snappy.decompress_raw_len(block)
    out.used += cramjam.snappy.decompress_raw_into(block, out.room(size)[:size])


def _lz4(payload: memoryview, magic: int, out: Scratch) -> None:
    """An LZ4 frame as ``Lz4BlockInputStream`` reads it: independent blocks, content checksum
    ignored, header checksum not looked at for magic 0 (whose writers computed it wrongly)."""
    at, flags, block_size = _lz4_header(payload, check=magic > 0)
    while True:
        if at + 4 > len(payload):
            raise CorruptError("lz4 frame ends without an end mark")
        word = int.from_bytes(payload[at : at + 4], "little")
        at += 4
        if word == 0:
            return
        size = word & 0x7FFFFFFF
        block = payload[at : at + size]
        if size > block_size or len(block) < size:
            raise CorruptError(f"lz4 block of {size} bytes, {len(payload) - at} are left")
        at += size
        if flags & 0x10:
            if payload[at : at + 4] != xxh32(block).to_bytes(4, "little"):
                raise CorruptError("lz4 block checksum is wrong")
            at += 4
        if word >> 31:
            out.add(block)
        else:
            room = out.room_up_to(block_size)[:block_size]
            out.used += cramjam.lz4.decompress_block_into(block, room)


def _lz4_header(payload: memoryview, check: bool) -> tuple[int, int, int]:
    """(position of the first block, flags, most bytes of a block)."""
    if len(payload) < 7 or bytes(payload[:4]) != LZ4_MAGIC:
        raise CorruptError("lz4 payload does not begin with an lz4 frame")
    flags, descriptor = payload[4], payload[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise CorruptError(f"lz4 frame flags {flags:#04x}: not version 1 with independent blocks")
    code = descriptor >> 4
    if code < 4 or code > 7 or descriptor & 0x0F:
        raise CorruptError(f"lz4 block descriptor {descriptor:#04x} is not valid")
    end = 6 + (8 if flags & 0x08 else 0)
    if end >= len(payload):
        raise CorruptError("lz4 frame ends in its header")
    if check and payload[end] != (xxh32(payload[4:end]) >> 8) & 0xFF:
        raise CorruptError("lz4 header checksum is wrong")
    return end + 1, flags, 1 << (8 + 2 * code)


_zstd_of_thread = threading.local()


def _zstd(payload: memoryview, magic: int, out: Scratch) -> None:
    """Frames as a stream: Kafka's have no content size, and one that is there may lie."""
    decompressor = getattr(_zstd_of_thread, "decompressor", None)
    if decompressor is None:
        decompressor = _zstd_of_thread.decompressor = zstandard.ZstdDecompressor()
    with decompressor.stream_reader(payload, read_across_frames=True) as reader:
        while count := reader.readinto(out.room_up_to(_STEP)):
            out.used += count


_DECOMPRESSORS: Final[dict[Codec, Callable[[memoryview, int, Scratch], None]]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
