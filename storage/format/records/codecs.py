"""Decompresses the records of batches into a reusable buffer.

A declared uncompressed size is never trusted: each codec writes to a buffer that grows in steps up
to a limit, so a decompression bomb costs at most the limit. This module implements Kafka's framing
(``CompressionType``, ``Lz4BlockInputStream``, ``SnappyInputStream`` of snappy-java); libraries do
the decompression itself.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final, cast

import cramjam
import zstandard
from isal import isal_zlib

from ...errors import CorruptError
from ..checksum import Bytes, xxh32
from ..layout import Codec

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Magic, flags, block descriptor, checksum; a content size adds eight bytes.
LZ4_HEADER_BYTES: Final = 7
LZ4_HAS_CONTENT_SIZE: Final = 0x08
LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_snappy_raw: Final = cramjam.snappy.decompress_raw_into
_snappy_raw_size: Final = cramjam.snappy.decompress_raw_len
_lz4_block: Final = cramjam.lz4.decompress_block_into
# Exceptions that the libraries raise for invalid data.
_GARBAGE: Final[tuple[type[Exception], ...]] = (
    cramjam.DecompressionError,
    zstandard.ZstdError,
    zlib.error,
    cast(type[Exception], isal_zlib.error),  # its stub declares an instance
    ValueError,
)
# How much the buffer grows at a time if the uncompressed size is unknown.
_STEP: Final = 256 * 1024
# Blocks of snappy framing and lz4 are preceded by their size in four bytes.
_SIZE_BYTES: Final = 4
# Every batch needs these, and `unpack_from` avoids the slice that `int.from_bytes` would need.
_xerial_magic: Final = struct.Struct(">8s").unpack_from
_snappy_size: Final = struct.Struct(">i").unpack_from
_lz4_header: Final = struct.Struct("<7s").unpack_from
_lz4_word: Final = struct.Struct("<I").unpack_from


class Scratch:
    """A growing buffer for decompressed records, reused from one run to the next.

    ``limit`` bounds the bytes that one batch may add; the current batch must end at or before
    ``limit_at``. ``view`` is the whole buffer, ``data`` its filled part of ``used`` bytes.
    """

    __slots__ = ("limit", "limit_at", "used", "view")

    def __init__(self, limit: int, capacity: int = 1 << 20) -> None:
        self.limit = limit
        self.used = 0
        self.view = memoryview(bytearray(capacity))
        self.limit_at = limit

    def clear(self) -> None:
        self.used = 0

    def room(self, size: int) -> memoryview:
        """Returns ``size`` writable bytes after the filled part, growing the buffer if needed.
        Raises CorruptError if they exceed the limit."""
        end = self.used + size
        if end > self.limit_at:
            raise CorruptError(
                f"batch is larger than {self.limit} bytes when decompressed "
                "(config kafkafs.max.batch.bytes)"
            )
        if end > len(self.view):
            doubled = min(2 * len(self.view), self.limit_at)
            grown = memoryview(bytearray(max(end, doubled)))
            grown[: self.used] = self.view[: self.used]
            self.view = grown
        return self.view[self.used : end]

    def room_up_to(self, size: int) -> memoryview:
        """Returns ``size`` writable bytes, or fewer near the limit. Raises CorruptError at it."""
        end = self.used + size
        if end <= self.limit_at and end <= len(self.view):
            return self.view[self.used : end]  # nearly always
        return self.room(max(1, min(size, self.limit_at - self.used)))

    def add(self, data: Bytes) -> None:
        self.room(len(data))[:] = data
        self.used += len(data)

    @property
    def capacity(self) -> int:
        return len(self.view)

    @property
    def data(self) -> memoryview:
        return self.view[: self.used]


def decompress(codec: int, data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """Decompresses one batch's records in ``data[at:end]`` and appends them to ``out``. Raises
    CorruptError (without a position) if they are malformed or exceed the limit."""
    out.limit_at = out.used + out.limit
    try:
        _DECOMPRESSORS[codec](data, at, end, magic, out)
    except _GARBAGE as error:
        name = Codec(codec).kafka_name
        raise CorruptError(f"{name} payload cannot be decompressed: {error}") from error


def _gzip(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """Decompresses RFC 1952 data of one or more members, as ``GZIPInputStream`` does."""
    rest: Bytes = data[at:end]
    while len(rest):
        member = isal_zlib.decompressobj(wbits=31)
        pending: Bytes = rest
        while True:
            piece = member.decompress(pending, _STEP)
            out.add(piece)
            if member.eof:
                break
            pending = member.unconsumed_tail
            if not piece and not pending:
                raise CorruptError("gzip payload is truncated")
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":  # Java ignores trailing bytes that are not another member
            return


def _snappy(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    if end - at < XERIAL_HEADER_BYTES or _xerial_magic(data, at)[0] != XERIAL_MAGIC:
        _snappy_block(data[at:end], out)
        return
    at += XERIAL_HEADER_BYTES  # snappy-java does not check the header's versions either
    while at < end:
        start = at + _SIZE_BYTES
        if start > end:
            raise CorruptError(f"snappy block size is truncated: only {end - at} bytes are left")
        (size,) = _snappy_size(data, at)
        stop = start + size
        if start < stop <= end:
            _snappy_block(data[start:stop], out)
            at = stop
        elif bytes(data[at : min(at + 8, end)]) == XERIAL_MAGIC:  # streams may be concatenated
            at += XERIAL_HEADER_BYTES
        else:
            raise CorruptError(f"snappy block of {size} bytes, but only {end - start} are left")


def _snappy_block(block: memoryview, out: Scratch) -> None:
    """Tries the existing buffer first, which costs less than reading the uncompressed size."""
    try:
        out.used += _snappy_raw(block, out.view[out.used : out.limit_at])
    except cramjam.DecompressionError:
        out.used += _snappy_raw(block, out.room(_snappy_raw_size(block)))


def _lz4(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """Decompresses an LZ4 frame as ``Lz4BlockInputStream`` does: blocks must be independent, the
    content checksum is ignored, and for magic 0, whose writers computed it wrongly, so is the
    header checksum."""
    if end - at < LZ4_HEADER_BYTES:
        raise CorruptError("lz4 payload does not begin with an lz4 frame")
    (header,) = _lz4_header(data, at)
    at += LZ4_HEADER_BYTES
    if header[4] & LZ4_HAS_CONTENT_SIZE:
        header += bytes(data[at : min(at + 8, end)])
        at += 8
    has_checksums, block_size = _lz4_frame(header, magic > 0)
    while True:
        start = at + _SIZE_BYTES
        if start > end:
            raise CorruptError("lz4 frame ends without an end mark")
        (word,) = _lz4_word(data, at)
        if word == 0:
            return
        size = word & 0x7FFFFFFF
        at = start + size
        if size > block_size or at > end:
            raise CorruptError(f"lz4 block of {size} bytes, but only {end - start} are left")
        block = data[start:at]
        if has_checksums:
            if data[at : min(at + 4, end)] != xxh32(block).to_bytes(4, "little"):
                raise CorruptError("lz4 block checksum is wrong")
            at += 4
        if word >> 31:
            out.add(block)
            continue
        try:
            out.used += _lz4_block(block, out.room_up_to(block_size))
        except cramjam.DecompressionError:
            out.room(block_size)  # raises if the limit made the buffer too small
            raise


@lru_cache(maxsize=64)
def _lz4_frame(header: bytes, check: bool) -> tuple[bool, int]:
    """Returns whether the blocks of a frame have checksums, and their maximum size in bytes.

    Cached, because a producer writes the same header every time.
    """
    if header[:4] != LZ4_MAGIC:
        raise CorruptError("lz4 payload does not begin with an lz4 frame")
    flags, descriptor = header[4], header[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise CorruptError(f"lz4 frame flags {flags:#04x}: not version 1 with independent blocks")
    code = descriptor >> 4
    if code < 4 or code > 7 or descriptor & 0x0F:
        raise CorruptError(f"lz4 block descriptor {descriptor:#04x} is not valid")
    if len(header) < LZ4_HEADER_BYTES + (8 if flags & LZ4_HAS_CONTENT_SIZE else 0):
        raise CorruptError("lz4 frame header is truncated")
    if check and header[-1] != (xxh32(header[4:-1]) >> 8) & 0xFF:
        raise CorruptError("lz4 header checksum is wrong")
    return bool(flags & LZ4_HAS_BLOCK_CHECKSUMS), 1 << (8 + 2 * code)


_zstd_of_thread = threading.local()


def _zstd(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """Decompresses frames as a stream: Kafka writes no content size, and a given one may lie."""
    decompressor = getattr(_zstd_of_thread, "decompressor", None)
    if decompressor is None:
        decompressor = _zstd_of_thread.decompressor = zstandard.ZstdDecompressor()
    reader = decompressor.stream_reader(data[at:end], read_across_frames=True)
    while True:
        room = out.room_up_to(_STEP)
        count = reader.readinto(room)
        out.used += count
        if count < len(room):  # only the end of the stream leaves the buffer partly filled
            return


# Keyed by int, because looking up an enum member is slower.
_DECOMPRESSORS: Final[dict[int, Callable[[memoryview, int, int, int, Scratch], None]]] = {
    int(Codec.GZIP): _gzip,
    int(Codec.SNAPPY): _snappy,
    int(Codec.LZ4): _lz4,
    int(Codec.ZSTD): _zstd,
}
