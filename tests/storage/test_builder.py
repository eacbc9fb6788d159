"""Compares the batch builders with bytes that Kafka's own classes wrote."""

import gzip
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import Codec, ControlType, TimestampType
from kafkafs.storage.format.records.compress import compress, lz4_frame
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_end_txn_marker,
    build_messages,
    encode_varint,
    encode_varlong,
)

T = 1700000000000

COMPACTION_INPUT = [
    SimpleRecord(1000, b"a", b"1"),
    SimpleRecord(1005, b"b", None),
    SimpleRecord(1003, b"c", b"3"),
    SimpleRecord(1009, b"d", b"4"),
]

KAFKA_WROTE = {
    "two records, one with a header": (
        build_batch(
            [SimpleRecord(T, b"k", b"v", (("h", b"\x01"),)), SimpleRecord(T + 5, None, None)]
        ),
        "00000000000000000000004500000000024fcc51a50000000000010000018bcfe568000000018bcfe56805ff"
        "ffffffffffffffffffffffffff0000000218000000026b027602026802010c000a02010100",
    ),
    "commit marker": (
        build_end_txn_marker(
            ControlType.COMMIT,
            T,
            5,
            BatchFields(base_offset=7, leader_epoch=3, producer_id=1000, producer_epoch=2),
        ),
        "0000000000000007000000420000000302a7d9b82a0030000000000000018bcfe568000000018bcfe5680000"
        "000000000003e80002ffffffff000000012000000008000000010c00000000000500",
    ),
    "magic 0": (
        build_messages([SimpleRecord(key=b"k", value=b"v")], MessageFields(magic=0, base_offset=5)),
        "0000000000000005000000101fecd70a0000000000016b0000000176",
    ),
    "magic 1": (
        build_messages([SimpleRecord(123, b"k", b"v")], MessageFields(magic=1, base_offset=5)),
        "000000000000000500000018d38864190100000000000000007b000000016b0000000176",
    ),
    "emptied by the cleaner": (
        build_batch(
            [],
            BatchFields(
                base_offset=20,
                last_offset=24,
                leader_epoch=3,
                producer_id=1000,
                producer_epoch=2,
                base_sequence=10,
                max_timestamp=T,
            ),
        ),
        "00000000000000140000003100000003029fa04324000000000004ffffffffffffffff0000018bcfe5680000"
        "000000000003e800020000000a00000000",
    ),
    "before compaction": (
        build_batch(COMPACTION_INPUT, BatchFields(base_offset=50, leader_epoch=4)),
        "0000000000000032000000540000000402f34141b300000000000300000000000003e800000000000003f1ff"
        "ffffffffffffffffffffffffff000000041000000002610231000e000a020262010010000604026302330010"
        "0012060264023400",
    ),
    "after compaction, with a delete horizon": (
        build_batch(
            COMPACTION_INPUT, BatchFields(base_offset=50, leader_epoch=4, delete_horizon_ms=5100)
        ),
        "0000000000000032000000580000000402f2d23eac00400000000300000000000013ec00000000000003f1ff"
        "ffffffffffffffffffffffffff00000004120087400002610231001000fd3f02026201001200814004026302"
        "33001200f53f060264023400",
    ),
    "after compaction, one record left": (
        build_batch(
            [SimpleRecord(1003, b"c", b"3", offset=52)],
            BatchFields(base_offset=50, last_offset=53, leader_epoch=4),
        ),
        "00000000000000320000003a00000004028090419f00000000000300000000000003eb00000000000003ebff"
        "ffffffffffffffffffffffffff00000001100000040263023300",
    ),
}


@pytest.mark.parametrize("what", KAFKA_WROTE)
def test_bytes_are_those_kafka_wrote(what: str) -> None:
    built, expected = KAFKA_WROTE[what]
    assert built.hex() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints_are_those_kafka_wrote(value: int, expected: str) -> None:
    assert encode_varint(value).hex() == expected
    assert encode_varlong(value).hex() == expected


def test_the_longest_varlong() -> None:
    assert encode_varlong(-(2**63)).hex() == "ffffffffffffffffff01"


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_a_varint_refuses_more_than_32_bits(value: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        encode_varint(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_varlong_refuses_more_than_64_bits(value: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_varlong(value)


def test_abort_and_commit_markers_differ_in_their_key_only() -> None:
    fields = BatchFields(base_offset=7, producer_id=1000, producer_epoch=2)
    commit = build_end_txn_marker(ControlType.COMMIT, T, 5, fields)
    abort = build_end_txn_marker(ControlType.ABORT, T, 5, fields)
    assert len(commit) == len(abort) == 78
    assert commit[21:61] == abort[21:61]
    assert commit[61:].replace(b"\x00\x00\x00\x01\x0c", b"\x00\x00\x00\x00\x0c") == abort[61:]


def test_attribute_bits() -> None:
    fields = BatchFields(
        codec=Codec.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        is_transactional=True,
        is_control=True,
        delete_horizon_ms=1,
    )
    assert fields.attributes == 0b1111100
    assert BatchFields().attributes == 0


def test_log_append_time_leaves_base_timestamp_and_deltas() -> None:
    records = [SimpleRecord(T, b"k"), SimpleRecord(T + 5, b"k")]
    stamped = BatchFields(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=T + 999)
    batch = build_batch(records, stamped)
    assert struct.unpack_from(">qq", batch, 27) == (T, T + 999)
    assert batch[61:] == build_batch(records)[61:]


def test_offsets_run_on_after_a_given_one() -> None:
    records = [SimpleRecord(offset=53), SimpleRecord(), SimpleRecord(offset=60)]
    batch = build_batch(records, BatchFields(base_offset=50))
    deltas = [batch[61 + 7 * i + 3] >> 1 for i in range(3)]
    assert deltas == [3, 4, 10]
    assert struct.unpack_from(">i", batch, 23) == (10,)


payloads = st.binary(max_size=300) | st.builds(
    bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(0, 20000)
)


@given(payloads)
def test_gzip_round_trip(data: bytes) -> None:
    packed = compress(Codec.GZIP, data)
    assert packed[:10].hex() == "1f8b08000000000000ff"
    assert gzip.decompress(packed) == data


@given(payloads)
def test_lz4_round_trip_through_a_reader_that_checks_the_header(data: bytes) -> None:
    packed = compress(Codec.LZ4, data)
    assert packed[:7].hex() == "04224d18604082"
    assert lz4.frame.decompress(packed) == data


@given(payloads)
def test_zstd_round_trip(data: bytes) -> None:
    packed = compress(Codec.ZSTD, data)
    assert packed[:6].hex() == "28b52ffd0058"
    assert packed[-3:].hex() == "010000"
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == data


@given(payloads)
def test_snappy_round_trip(data: bytes) -> None:
    assert b"".join(_xerial_blocks(compress(Codec.SNAPPY, data))) == data


def _xerial_blocks(packed: bytes) -> list[bytes]:
    assert packed[:16].hex() == "82534e415050590000000001" + "00000001"
    blocks = []
    position = 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        position += 4 + size
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position - size : position])))
    return blocks


def test_snappy_blocks_hold_32768_bytes() -> None:
    batch = build_batch([SimpleRecord(T, b"k", bytes(70000))], BatchFields(codec=Codec.SNAPPY))
    assert [len(block) for block in _xerial_blocks(batch[61:])] == [32768, 32768, 4476]


def test_lz4_stores_what_does_not_shrink() -> None:
    incompressible = zlib.compress(bytes(range(256)) * 4)[:100]
    frame = lz4_frame(incompressible)
    assert struct.unpack_from("<I", frame, 7) == (len(incompressible) | 1 << 31,)
    assert frame[11:-4] == incompressible


def test_lz4_of_magic_0_has_the_old_header_checksum() -> None:
    data = bytes(100)
    assert lz4_frame(data, magic=0)[6] == 0x1A
    assert lz4_frame(data, magic=0)[7:] == lz4_frame(data, magic=1)[7:]


def test_a_level_changes_the_bytes_but_not_the_data() -> None:
    data = b"".join(b"order %d for customer %d\n" % (i * 7919 % 1000, i % 37) for i in range(3000))
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert compress(codec, data, level=1) != compress(codec, data)
    assert lz4.frame.decompress(lz4_frame(data, level=12)) == data


def test_zstd_levels_used_by_turns_are_those_asked_for() -> None:
    """A thread reuses its compressor, but earlier levels must not affect later output."""
    data = bytes(range(256)) * 40 + b"some more" * 99

    def fresh(level: int) -> bytes:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(compress, Codec.ZSTD, data, 2, level).result()

    by_turns = [compress(Codec.ZSTD, data, 2, level) for level in (1, 19, 1, 3, 19)]
    assert by_turns == [fresh(level) for level in (1, 19, 1, 3, 19)]
    assert len(set(by_turns)) > 1


def test_zstd_is_refused_for_old_messages() -> None:
    with pytest.raises(ValueError, match="magic 2"):
        compress(Codec.ZSTD, b"", magic=1)


def _messages(data: bytes, magic: int) -> list[tuple[int, int, int, bytes | None]]:
    """Returns (offset, attributes, timestamp, value) per message; verifies the checksums."""
    out = []
    position = 0
    while position < len(data):
        offset, size, crc, found, attributes = struct.unpack_from(">qiIBB", data, position)
        end = position + 12 + size
        assert found == magic
        assert crc == zlib.crc32(data[position + 16 : end])
        position += 18
        timestamp = struct.unpack_from(">q", data, position)[0] if magic else -1
        position += 8 * magic
        (key_size,) = struct.unpack_from(">i", data, position)
        position += 4 + max(key_size, 0)
        (value_size,) = struct.unpack_from(">i", data, position)
        value = None if value_size < 0 else data[position + 4 : position + 4 + value_size]
        assert end == position + 4 + max(value_size, 0)
        out.append((offset, attributes, timestamp, value))
        position = end
    return out


LEGACY = [SimpleRecord(T, b"k", b"v"), SimpleRecord(T - 1, None, None, offset=25)]


def test_a_wrapper_of_magic_0_has_absolute_inner_offsets() -> None:
    fields = MessageFields(magic=0, base_offset=20, codec=Codec.GZIP)
    [(offset, attributes, _, value)] = _messages(build_messages(LEGACY, fields), 0)
    assert (offset, attributes) == (25, 1)
    assert value is not None
    assert _messages(gzip.decompress(value), 0) == [(20, 0, -1, b"v"), (25, 0, -1, None)]


def test_a_wrapper_of_magic_1_has_inner_offsets_relative_to_the_first() -> None:
    fields = MessageFields(magic=1, base_offset=20, codec=Codec.LZ4)
    [(offset, attributes, timestamp, value)] = _messages(build_messages(LEGACY, fields), 1)
    assert (offset, attributes, timestamp) == (25, 3, T)
    assert value is not None
    inner = _messages(lz4.frame.decompress(value), 1)
    assert inner == [(0, 0, T, b"v"), (5, 0, T - 1, None)]


def test_log_append_time_is_on_the_wrapper_only() -> None:
    fields = MessageFields(magic=1, codec=Codec.GZIP, log_append_time=T + 7)
    [(_, attributes, timestamp, value)] = _messages(build_messages(LEGACY, fields), 1)
    assert (attributes, timestamp) == (1 | 8, T + 7)
    assert value is not None
    assert [message[1:3] for message in _messages(gzip.decompress(value), 1)] == [
        (0, T),
        (0, T - 1),
    ]


def test_log_append_time_of_single_messages() -> None:
    built = build_messages(LEGACY, MessageFields(magic=1, log_append_time=T + 7))
    assert [message[1:3] for message in _messages(built, 1)] == [(8, T + 7), (8, T + 7)]


def test_wrapper_and_inner_offsets_can_be_those_of_old_clients() -> None:
    fields = MessageFields(
        magic=1, base_offset=20, codec=Codec.GZIP, inner_absolute=True, wrapper_offset=0
    )
    [(offset, _, _, value)] = _messages(build_messages(LEGACY, fields), 1)
    assert offset == 0
    assert value is not None
    assert [message[0] for message in _messages(gzip.decompress(value), 1)] == [20, 25]
