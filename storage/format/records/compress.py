"""Compresses the records of a batch, with the framing of Kafka's own producers and brokers.

Each function takes the concatenated records and returns the bytes that follow the batch header.
`codecs.py` decompresses, and accepts more variants than this module writes.
"""

import struct
import threading
import zlib

import cramjam
import lz4.block
import zstandard

from ..layout import Codec

# Kafka's defaults (compression.gzip.level, .lz4.level, .zstd.level); snappy has no level.
GZIP_DEFAULT_LEVEL = -1
LZ4_DEFAULT_LEVEL = 9
ZSTD_DEFAULT_LEVEL = 3

# The operating system byte is 255 (unknown), as in JDK 16 and later (GZIPOutputStream).
_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")

# snappy-java's SnappyOutputStream: magic, version 1, compatible with version 1.
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024

# Magic, then FLG (version 1, independent blocks, no checksums) and BD (blocks of 64 KiB).
_LZ4_DESCRIPTOR = bytes.fromhex("04224d186040")
_LZ4_BLOCK_SIZE = 64 * 1024
_LZ4_STORED = 1 << 31
_LZ4_END_MARK = bytes(4)
# Second byte of xxh32 of FLG and BD. Clients that wrote magic 0 also hashed the frame's magic
# (KAFKA-3160), and brokers still do so for messages of magic 0.
_LZ4_HEADER_CHECKSUM = b"\x82"
_LZ4_HEADER_CHECKSUM_MAGIC_0 = b"\x1a"


def compress(codec: Codec, data: bytes, magic: int = 2, level: int | None = None) -> bytes:
    """Compresses `data` with `codec`, at `level` or Kafka's default level (None).

    Raises ValueError for zstd below magic 2.
    """
    if codec is Codec.NONE:
        return data
    if codec is Codec.GZIP:
        return gzip(data, GZIP_DEFAULT_LEVEL if level is None else level)
    if codec is Codec.SNAPPY:
        return snappy(data)
    if codec is Codec.LZ4:
        return lz4_frame(data, magic, LZ4_DEFAULT_LEVEL if level is None else level)
    if magic < 2:
        raise ValueError(f"zstd needs magic 2, not {magic}")
    return zstd(data, ZSTD_DEFAULT_LEVEL if level is None else level)


def gzip(data: bytes, level: int = GZIP_DEFAULT_LEVEL) -> bytes:
    """Returns one gzip member (RFC 1952), without a file name or time."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def snappy(data: bytes) -> bytes:
    """Returns raw snappy blocks of 32768 bytes in the framing of snappy-java ("xerial")."""
    out = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        out += struct.pack(">i", len(block)), block
    return b"".join(out)


def lz4_frame(data: bytes, magic: int = 2, level: int = LZ4_DEFAULT_LEVEL) -> bytes:
    """Returns an LZ4 frame of independent 64 KiB blocks (Lz4BlockOutputStream).

    As in Kafka, level 9 (the default) selects the fast compressor, any other high compression.
    """
    out = [_LZ4_DESCRIPTOR, _LZ4_HEADER_CHECKSUM if magic > 0 else _LZ4_HEADER_CHECKSUM_MAGIC_0]
    for start in range(0, len(data), _LZ4_BLOCK_SIZE):
        raw = data[start : start + _LZ4_BLOCK_SIZE]
        if level == LZ4_DEFAULT_LEVEL:
            block = lz4.block.compress(raw, mode="default", store_size=False)
        else:
            block = lz4.block.compress(
                raw, mode="high_compression", compression=level, store_size=False
            )
        if len(block) < len(raw):
            out += struct.pack("<I", len(block)), block
        else:
            out += struct.pack("<I", len(raw) | _LZ4_STORED), raw
    out.append(_LZ4_END_MARK)
    return b"".join(out)


def zstd(data: bytes, level: int = ZSTD_DEFAULT_LEVEL) -> bytes:
    """Returns one streamed zstd frame: no content size or checksum, and an empty last block."""
    stream = _zstd_compressor(level).compressobj()
    body = stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return body + stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


# Cached, because creating a compressor takes longer than compressing a batch; per thread, because
# a compressor is not thread-safe.
_zstd_of_thread = threading.local()


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """Returns this thread's compressor, which is recreated if the level changes."""
    if getattr(_zstd_of_thread, "level", None) != level:
        params = zstandard.ZstdCompressionParameters.from_level(
            level, write_content_size=False, write_checksum=False, write_dict_id=False
        )
        _zstd_of_thread.compressor = zstandard.ZstdCompressor(compression_params=params)
        _zstd_of_thread.level = level
    compressor: zstandard.ZstdCompressor = _zstd_of_thread.compressor
    return compressor
