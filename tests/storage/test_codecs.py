"""Tests decompression: every framing that Kafka reads, decompression bombs, and garbage."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.codecs import Scratch, decompress
from kafkafs.storage.format.records.compress import compress, lz4_frame, snappy
from tests.batches import MUTATIONS, mutated
from tests.threads import in_threads

COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
LIMIT = 8 << 20
SAMPLES = [
    b"",
    b"\0",
    b"kafka" * 7,
    bytes(200_000),
    os.urandom(100_000),
    b"".join(b"%d " % n for n in range(60_000)),
]


def opened(codec: Codec, payload: bytes, magic: int = 2, limit: int = LIMIT) -> bytes:
    out = Scratch(limit)
    decompress(codec, memoryview(payload), 0, len(payload), magic, out)
    return bytes(out.data)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_kafka_writes_is_read(codec: Codec, data: bytes) -> None:
    assert opened(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=2000))
def test_any_bytes_come_back(codec: Codec, data: bytes) -> None:
    assert opened(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_one_scratch_takes_batch_after_batch(codec: Codec) -> None:
    out = Scratch(LIMIT, capacity=16)
    for data in SAMPLES:
        payload = b"in front" + compress(codec, data) + b"behind"
        decompress(codec, memoryview(payload), 8, len(payload) - 6, 2, out)
    assert bytes(out.data) == b"".join(SAMPLES)
    out.clear()
    assert len(out.data) == 0


# -- gzip ---------------------------------------------------------------------------------------


def test_gzip_with_name_comment_and_several_members() -> None:
    data = gzip.compress(b"one", mtime=5)
    named = b"\x1f\x8b\x08\x18" + bytes(6) + b"name\0comment\0" + data[10:]
    assert opened(Codec.GZIP, named + gzip.compress(b"two")) == b"onetwo"


@pytest.mark.parametrize("trailing", [b"\0", b"garbage", bytes(600), b"\x1f"])
def test_what_follows_the_last_member_is_ignored_as_java_does(trailing: bytes) -> None:
    assert opened(Codec.GZIP, gzip.compress(b"one") + trailing) == b"one"


def test_gzip_cut_off_or_with_a_wrong_checksum_is_refused() -> None:
    data = gzip.compress(os.urandom(300))
    for size in range(1, len(data)):
        with pytest.raises(CorruptError):
            opened(Codec.GZIP, data[:size])
    with pytest.raises(CorruptError, match="gzip payload cannot be decompressed"):
        opened(Codec.GZIP, data[:-8] + b"\1\2\3\4" + data[-4:])


# -- snappy -------------------------------------------------------------------------------------


def test_raw_snappy_without_the_framing() -> None:
    for data in (b"", b"short", bytes(100_000)):
        assert opened(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_snappy_streams_one_after_the_other() -> None:
    assert opened(Codec.SNAPPY, snappy(b"one") + snappy(b"two") + snappy(b"")) == b"onetwo"


def test_the_versions_in_a_snappy_stream_are_not_looked_at() -> None:
    stream = snappy(b"data")
    assert opened(Codec.SNAPPY, stream[:8] + b"\xff" * 8 + stream[16:]) == b"data"


@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, 1 << 20, (1 << 31) - 1])
def test_a_snappy_block_size_that_lies_is_refused(size: int) -> None:
    stream = snappy(b"data")
    with pytest.raises(CorruptError, match=f"snappy block of {size} bytes"):
        opened(Codec.SNAPPY, stream[:16] + struct.pack(">i", size) + stream[20:])


def test_an_empty_snappy_payload_is_refused() -> None:
    with pytest.raises(CorruptError):
        opened(Codec.SNAPPY, b"")


# -- lz4 ----------------------------------------------------------------------------------------


def test_the_header_checksum_is_looked_at_from_magic_1_on() -> None:
    """Clients that wrote magic 0 computed it over the wrong bytes (KAFKA-3160)."""
    data = b"kafka" * 100
    old = lz4_frame(data, 0)
    assert opened(Codec.LZ4, old, magic=0) == data
    assert opened(Codec.LZ4, lz4_frame(data, 1), magic=0) == data
    for magic in (1, 2):
        with pytest.raises(CorruptError, match="header checksum"):
            opened(Codec.LZ4, old, magic=magic)


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("checksums", [False, True])
def test_lz4_frames_of_other_writers(block_size: int, checksums: bool) -> None:
    data = b"".join(b"%d " % n for n in range(200_000))
    frame = lz4.frame.compress(
        data,
        block_size=block_size,
        block_linked=False,
        content_checksum=checksums,
        block_checksum=checksums,
        store_size=checksums,
    )
    assert opened(Codec.LZ4, frame) == data


def test_a_wrong_block_checksum_is_refused_and_a_wrong_content_checksum_is_not() -> None:
    frame = lz4.frame.compress(
        bytes(99), block_linked=False, content_checksum=True, block_checksum=True
    )
    assert opened(Codec.LZ4, frame[:-4] + b"\1\2\3\4") == bytes(99)
    with pytest.raises(CorruptError, match="block checksum"):
        opened(Codec.LZ4, frame[:-12] + b"\1\2\3\4" + frame[-8:])


def test_linked_blocks_are_not_kafkas() -> None:
    frame = lz4.frame.compress(bytes(1 << 20), block_linked=True)
    with pytest.raises(CorruptError, match="independent blocks"):
        opened(Codec.LZ4, frame)


def test_lz4_cut_off_anywhere_is_refused() -> None:
    frame = lz4_frame(os.urandom(50))
    for size in range(len(frame)):
        with pytest.raises(CorruptError, match="lz4"):
            opened(Codec.LZ4, frame[:size])
    assert opened(Codec.LZ4, frame + b"behind the end mark") == opened(Codec.LZ4, frame)


@pytest.mark.parametrize(
    ("at", "byte", "what"),
    [
        (0, 5, "does not begin with an lz4 frame"),
        (4, 0x20, "lz4 frame flags"),
        (4, 0x62, "lz4 frame flags"),
        (4, 0x61, "lz4 frame flags"),
        (5, 0x30, "lz4 block descriptor"),
        (5, 0x80, "lz4 block descriptor"),
        (5, 0x41, "lz4 block descriptor"),
        (6, 0x83, "lz4 header checksum"),
        (9, 0x7F, "lz4 block of"),
        (10, 0x7F, "lz4 block of"),
    ],
)
def test_a_byte_of_an_lz4_frame_that_is_wrong(at: int, byte: int, what: str) -> None:
    frame = bytearray(lz4_frame(bytes(1000)))
    frame[at] = byte
    with pytest.raises(CorruptError, match=what):
        opened(Codec.LZ4, bytes(frame))


# -- zstd ---------------------------------------------------------------------------------------


def test_zstd_frames_of_other_writers_and_several_of_them() -> None:
    with_size = zstandard.ZstdCompressor(write_checksum=True, level=19).compress(b"one" * 99)
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    payload = with_size + skippable + compress(Codec.ZSTD, b"two")
    assert opened(Codec.ZSTD, payload) == b"one" * 99 + b"two"


def test_a_wrong_zstd_checksum_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(b"one" * 99)
    with pytest.raises(CorruptError, match="zstd payload cannot be decompressed"):
        opened(Codec.ZSTD, frame[:-1] + bytes([frame[-1] ^ 1]))


def test_a_zstd_content_size_that_lies_allocates_nothing() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(1000))
    size = zstandard.get_frame_parameters(frame).content_size
    assert (size, frame[4] >> 6) == (1000, 1)  # a field of two bytes, holding the size less 256
    # The same frame, but its header declares 2**60 bytes in eight bytes, and a window of 2 MB.
    lying = frame[:4] + b"\xc0\x58" + (1 << 60).to_bytes(8, "little") + frame[7:]
    tracemalloc.start()
    with pytest.raises(CorruptError):
        opened(Codec.ZSTD, lying)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


# -- bombs and garbage --------------------------------------------------------------------------


def _gzip_bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), 9)


def _snappy_bomb(size: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(size)))


def _lz4_bomb(size: int) -> bytes:
    return bytes(lz4.frame.compress(bytes(size), block_size=7, block_linked=False))


def _zstd_bomb(size: int) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(bytes(size))


BOMBS: dict[Codec, Callable[[int], bytes]] = {
    Codec.GZIP: _gzip_bomb,
    Codec.SNAPPY: _snappy_bomb,
    Codec.LZ4: _lz4_bomb,
    Codec.ZSTD: _zstd_bomb,
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    payload = BOMBS[codec](256 << 20)
    assert len(payload) < 32 << 20
    tracemalloc.start()
    with pytest.raises(CorruptError, match=r"larger than 8388608 bytes when decompressed"):
        opened(codec, payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * LIMIT


@pytest.mark.parametrize("codec", BOMBS)
def test_a_batch_just_below_the_limit_is_read(codec: Codec) -> None:
    payload = BOMBS[codec](1 << 20)
    assert len(opened(codec, payload, limit=(1 << 20) + 1)) == 1 << 20
    with pytest.raises(CorruptError, match="larger than 1048575 bytes"):
        opened(codec, payload, limit=(1 << 20) - 1)


@pytest.mark.parametrize("codec", BOMBS)
def test_the_limit_counts_for_each_batch_anew(codec: Codec) -> None:
    out = Scratch(1 << 20)
    payload = memoryview(BOMBS[codec](900_000))
    for number in range(1, 4):
        decompress(codec, payload, 0, len(payload), 2, out)
        assert out.used == number * 900_000


def test_a_snappy_length_that_lies_is_refused_before_room_is_made() -> None:
    huge = b"\xff\xff\xff\xff\x0f"  # the varint of 4 GiB - 1, then nothing
    tracemalloc.start()
    with pytest.raises(CorruptError, match="larger than"):
        opened(Codec.SNAPPY, huge)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("magic", [0, 2])
@given(data=st.binary(max_size=200), mutations=MUTATIONS)
def test_garbage_is_bytes_or_an_error(
    codec: Codec, magic: int, data: bytes, mutations: list[tuple[str, int, int]]
) -> None:
    for payload in (mutated(compress(codec, data), mutations), data):
        with suppress(CorruptError):
            opened(codec, payload, magic, limit=1 << 20)


def test_threads_decompress_side_by_side() -> None:
    def work(codec: Codec, data: bytes) -> None:
        for _ in range(30):
            assert opened(codec, compress(codec, data)) == data

    in_threads(
        *[partial(work, codec, bytes([n]) * 50_000) for n in range(2) for codec in COMPRESSED]
    )


def test_the_deflate_stream_alone_is_no_gzip() -> None:
    with pytest.raises(CorruptError, match="gzip"):
        opened(Codec.GZIP, zlib.compress(b"data"))
