"""Decompression of a batch's records, into a buffer that is used again.

What a batch says of its size is never believed: each codec writes into room that grows in steps up
to a limit, so a bomb costs at most the limit. Framing is Kafka's (``CompressionType``,
``Lz4BlockInputStream``, ``SnappyInputStream`` of snappy-java); the compression proper is the
libraries'.
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

from ..errors import CorruptError
from .checksum import Bytes, xxh32
from .layout import Codec

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Magic, flags, block descriptor, checksum; eight bytes more where the content's size is given.
LZ4_HEADER_BYTES: Final = 7
LZ4_HAS_CONTENT_SIZE: Final = 0x08
LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_snappy_raw: Final = cramjam.snappy.decompress_raw_into
_snappy_raw_size: Final = cramjam.snappy.decompress_raw_len
_lz4_block: Final = cramjam.lz4.decompress_block_into
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
# Blocks of the snappy framing and of lz4 have their size in front, in four bytes.
_SIZE_BYTES: Final = 4
# Read in place, which a slice for `int.from_bytes` is not: this is done for every batch.
_xerial_magic: Final = struct.Struct(">8s").unpack_from
_snappy_size: Final = struct.Struct(">i").unpack_from
_lz4_header: Final = struct.Struct("<7s").unpack_from
_lz4_word: Final = struct.Struct("<I").unpack_from


class Scratch:
    """Bytes that grow at the end: room for decompressed records, kept from one run to the next.

    ``limit`` bounds what one batch may add: it ends at ``limit_at`` at the latest. ``view`` is all
    the room that there is, ``data`` the filled part of it, of ``used`` bytes.
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
        """``size`` writable bytes after the filled ones. CorruptError over the limit."""
        end = self.used + size
        if end > self.limit_at:
            raise CorruptError(
                f"batch is larger than {self.limit} bytes when decompressed "
                "(setting kafkafs.max.batch.bytes)"
            )
        if end > len(self.view):
            doubled = min(2 * len(self.view), self.limit_at)
            grown = memoryview(bytearray(max(end, doubled)))
            grown[: self.used] = self.view[: self.used]
            self.view = grown
        return self.view[self.used : end]

    def room_up_to(self, size: int) -> memoryview:
        """Room of ``size`` bytes, or what the limit leaves; CorruptError when it leaves none."""
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
    """Add the records of one batch, compressed in ``data[at:end]``, to ``out``. CorruptError
    (without a position) for garbage."""
    out.limit_at = out.used + out.limit
    try:
        _DECOMPRESSORS[codec](data, at, end, magic, out)
    except _GARBAGE as error:
        name = Codec(codec).kafka_name
        raise CorruptError(f"{name} payload cannot be decompressed: {error}") from error


def _gzip(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """RFC 1952, several members in a row as ``GZIPInputStream`` takes them."""
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
                raise CorruptError("gzip payload ends in the middle")
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":  # Java ignores what follows if it is no further member
            return


def _snappy(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    if end - at < XERIAL_HEADER_BYTES or _xerial_magic(data, at)[0] != XERIAL_MAGIC:
        _snappy_block(data[at:end], out)
        return
    at += XERIAL_HEADER_BYTES  # snappy-java does not check the versions in it either
    while at < end:
        start = at + _SIZE_BYTES
        if start > end:
            raise CorruptError(f"snappy block whose size is cut off: {end - at} bytes are left")
        (size,) = _snappy_size(data, at)
        stop = start + size
        if start < stop <= end:
            _snappy_block(data[start:stop], out)
            at = stop
        elif bytes(data[at : min(at + 8, end)]) == XERIAL_MAGIC:  # streams may be concatenated
            at += XERIAL_HEADER_BYTES
        else:
            raise CorruptError(f"snappy block of {size} bytes where {end - start} are left")


def _snappy_block(block: memoryview, out: Scratch) -> None:
    """Its size is asked for only where the room that there is does not do: to try costs less."""
    try:
        out.used += _snappy_raw(block, out.view[out.used : out.limit_at])
    except cramjam.DecompressionError:
        out.used += _snappy_raw(block, out.room(_snappy_raw_size(block)))


def _lz4(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """An LZ4 frame as ``Lz4BlockInputStream`` reads it: independent blocks, content checksum
    ignored, header checksum not looked at for magic 0 (whose writers computed it wrongly)."""
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
            raise CorruptError(f"lz4 block of {size} bytes, {end - start} are left")
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
            out.room(block_size)  # if it is the room that was too small, say so
            raise


@lru_cache(maxsize=64)
def _lz4_frame(header: bytes, check: bool) -> tuple[bool, int]:
    """Whether a frame's blocks have checksums, and the most bytes of one.

    Remembered, as it is the same for all that a producer writes.
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
        raise CorruptError("lz4 frame ends in its header")
    if check and header[-1] != (xxh32(header[4:-1]) >> 8) & 0xFF:
        raise CorruptError("lz4 header checksum is wrong")
    return bool(flags & LZ4_HAS_BLOCK_CHECKSUMS), 1 << (8 + 2 * code)


_zstd_of_thread = threading.local()


def _zstd(data: memoryview, at: int, end: int, magic: int, out: Scratch) -> None:
    """Frames as a stream: Kafka's have no content size, and one that is there may lie."""
    decompressor = getattr(_zstd_of_thread, "decompressor", None)
    if decompressor is None:
        decompressor = _zstd_of_thread.decompressor = zstandard.ZstdDecompressor()
    reader = decompressor.stream_reader(data[at:end], read_across_frames=True)
    while True:
        room = out.room_up_to(_STEP)
        count = reader.readinto(room)
        out.used += count
        if count < len(room):  # it stops short of filling the room only at the end
            return


# By the number, which is found faster than a member of an enum.
_DECOMPRESSORS: Final[dict[int, Callable[[memoryview, int, int, int, Scratch], None]]] = {
    int(Codec.GZIP): _gzip,
    int(Codec.SNAPPY): _snappy,
    int(Codec.LZ4): _lz4,
    int(Codec.ZSTD): _zstd,
}
