"""Tests decoding batches: records equal what was built, and damage is an error of one batch."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.layout import Codec, TimestampType
from kafkafs.storage.format.records import decoder as decoder_module
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.compress import compress
from kafkafs.storage.format.records.decoder import (
    BadBatch,
    Decoder,
    checksum_error,
    checksum_is_right,
    first_bad_checksum,
)
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.batches import MUTATIONS, any_batches, mutated
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_messages,
    encode_record,
    encode_varint,
    encode_varlong,
    frame_batch,
)
from tests.kernel_forms import uncompiled
from tests.logs import walk
from tests.reading import Plain, plain, written

LIMIT = 16 << 20


def table_of(data: bytes, position: int = 0) -> BatchTable:
    table, walked = scan(
        data, len(data), position, BatchTable.empty(len(data) // 26 + 1), whole=True
    )
    assert walked.end == len(data), walked
    return table


def decode(
    data: bytes, decoder: Decoder | None = None, position: int = 0
) -> tuple[list[Plain], list[BadBatch]]:
    """Returns all records of the batches in `data`, and the batches that cannot be decoded."""
    records: list[Plain] = []
    bad: list[BadBatch] = []
    made = decoder or Decoder(LIMIT)
    for part in made.decode(memoryview(data), position, table_of(data, position), "file"):
        if isinstance(part, BadBatch):
            bad.append(part)
        else:
            records += plain(part)
    return records, bad


def refused(data: bytes) -> str:
    """Returns the reason why the only batch in `data` is rejected."""
    records, [bad] = decode(data)
    assert records == []
    assert bad.error.position == bad.batch.position == 0
    assert bad.error.what.startswith(f"batch {bad.batch.base_offset}-{bad.batch.last_offset}: ")
    return bad.error.what


@given(st.tuples(any_batches(), any_batches(100), any_batches(200), any_batches(300)))
def test_records_of_any_batches_are_read_as_they_were_written(
    batches: tuple[tuple[bytes, list[SimpleRecord]], ...],
) -> None:
    expected = [record for batch, records in batches for record in written(batch, records)]
    assert decode(b"".join(batch for batch, _ in batches), position=4096) == (expected, [])


@given(any_batches(5))
def test_uncompiled_kernels_read_the_same(batch: tuple[bytes, list[SimpleRecord]]) -> None:
    data, _ = batch
    found = decode(data)
    kernels: dict[str, ModuleType] = {}
    for name in ("records", "legacy"):
        kernels[name] = getattr(decoder_module, f"{name}_kernel")
        setattr(decoder_module, f"{name}_kernel", uncompiled(name))
    try:
        assert decode(data) == found
    finally:
        for name, module in kernels.items():
            setattr(decoder_module, f"{name}_kernel", module)


def test_one_decoder_serves_run_after_run() -> None:
    decoder = Decoder(LIMIT)
    for size in (1, 100, 20_000, 3):
        records = [SimpleRecord(n, None, b"%d" % n) for n in range(size)]
        for codec in (Codec.NONE, Codec.LZ4):
            data = build_batch(records, BatchFields(codec=codec))
            found, bad = decode(data, decoder)
            assert [record.value for record in found] == [b"%d" % n for n in range(size)]
            assert not bad
    assert decoder.nbytes > 0


def test_decompressed_batches_come_in_stretches_that_stay_in_the_cache() -> None:
    value = bytes(600_000)
    data = b"".join(
        build_batch([SimpleRecord(1, None, value)], BatchFields(base_offset=n, codec=Codec.ZSTD))
        for n in range(6)
    )
    parts = list(Decoder(LIMIT).decode(memoryview(data), 0, table_of(data), ""))
    assert [len(part) for part in parts if isinstance(part, Columns)] == [2, 2, 2]


# -- timestamps ---------------------------------------------------------------------------------


def test_small_records_come_in_pieces_that_bound_the_memory() -> None:
    sizes = [20_000] * 8 + [90_000, 1]
    bases = [sum(sizes[:number]) for number in range(len(sizes))]
    data = b"".join(
        build_batch([SimpleRecord()] * size, BatchFields(base_offset=base))
        for size, base in zip(sizes, bases, strict=True)
    )
    parts = []
    for part in Decoder(LIMIT).decode(memoryview(data), 0, table_of(data), "f"):
        assert isinstance(part, Columns)
        parts.append((len(part), int(part.offsets[0]), int(part.offsets[-1])))
    assert parts == [
        (60_000, 0, 59_999),
        (60_000, 60_000, 119_999),
        (40_000, 120_000, 159_999),
        (90_000, 160_000, 249_999),
        (1, 250_000, 250_000),
    ]


def test_deltas_are_relative_to_a_delete_horizon_too() -> None:
    records = [SimpleRecord(1000, b"a"), SimpleRecord(500, b"b")]
    found, _ = decode(build_batch(records, BatchFields(delete_horizon_ms=7000)))
    assert [record.timestamp for record in found] == [1000, 500]


def test_log_append_time_is_that_of_all_records() -> None:
    records = [SimpleRecord(1000), SimpleRecord(500)]
    fields = BatchFields(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=42)
    assert [record.timestamp for record in decode(build_batch(records, fields))[0]] == [42, 42]


def test_deltas_wrap_as_javas_do() -> None:
    body = b"\x20\0" + encode_varlong((1 << 63) - 1) + b"\0\1\1\0"
    body = encode_varint(len(body) - 1) + body[1:]
    header = struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, 1)
    [record], _ = decode(frame_batch(0, 0, header + body))
    assert record.timestamp == (1 << 63) - 1 + 5 - (1 << 64)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_timestamps_of_old_messages(codec: Codec) -> None:
    records = [SimpleRecord(1000), SimpleRecord(500)]

    def timestamps(fields: MessageFields) -> list[int]:
        return [record.timestamp for record in decode(build_messages(records, fields))[0]]

    assert timestamps(MessageFields(magic=0, codec=codec)) == [-1, -1]
    assert timestamps(MessageFields(magic=1, codec=codec)) == [1000, 500]
    assert timestamps(MessageFields(magic=1, codec=codec, log_append_time=77)) == [77, 77]


# -- offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_inside_a_wrapper_with_gaps(magic: int) -> None:
    records = [SimpleRecord(n, offset=offset) for n, offset in enumerate((100, 103, 109))]
    fields = MessageFields(magic=magic, base_offset=100, codec=Codec.SNAPPY)
    found, _ = decode(build_messages(records, fields))
    assert [record.offset for record in found] == [100, 103, 109]


def test_a_wrapper_of_an_old_librdkafka_has_offset_0() -> None:
    records = [SimpleRecord(n) for n in range(3)]
    fields = MessageFields(magic=1, codec=Codec.GZIP, wrapper_offset=0)
    assert [record.offset for record in decode(build_messages(records, fields))[0]] == [0, 1, 2]


def test_the_highest_offsets() -> None:
    base = (1 << 63) - 10
    records = [SimpleRecord(n) for n in range(9)]
    for data in (
        build_batch(records, BatchFields(base_offset=base)),
        build_messages(records, MessageFields(magic=1, base_offset=base)),
        build_messages(records, MessageFields(magic=1, base_offset=base, codec=Codec.GZIP)),
    ):
        assert [r.offset for r in decode(data)[0]] == list(range(base, base + 9))


# -- damage in a batch of magic 2 ---------------------------------------------------------------


def framed(body: bytes, count: int = 1, last_delta: int = 9, codec: Codec = Codec.NONE) -> bytes:
    """Returns a batch with a valid checksum that has these bytes in place of its records."""
    header = struct.pack(">hiqqqhii", codec, last_delta, 5, 5, -1, -1, -1, count)
    return frame_batch(3, 0, header + body)


GOOD = encode_record(SimpleRecord(key=b"k", value=b"v"), 0, 0)


@pytest.mark.parametrize(
    ("body", "count", "what"),
    [
        (b"\x7f" + GOOD[1:], 1, "a record's length is negative"),
        (b"\x7e" + GOOD[1:], 1, "a record's length is negative or extends past its batch"),
        (b"\x0a" + GOOD[1:], 1, "a record's length"),
        (b"\xff\xff\xff\xff\xff" + GOOD, 1, "a varint is too long or truncated"),
        (b"\x12\0" + b"\x80" * 10 + b"\1\1\0", 1, "a varint is too long or truncated"),
        (b"\x0e\0\0\0\x7e\1\0\0", 1, "a key extends past the end of its record"),
        (b"\x0e\0\0\0\1\x7e\0\0", 1, "a value extends past the end of its record"),
        (b"\x0e\0\0\0\1\1\x08\0", 1, "headers extend past the end of their record"),
        (b"\x0e\0\0\0\1\1\1\0", 1, "headers extend past the end of their record"),
        (b"\x10\0\0\0\1\1\2\1\1", 1, "headers extend past the end of their record"),
        (b"\x0e\0\0\0\1\1\0\0", 1, "a record's length does not match its content"),
        (GOOD + b"\0", 1, "bytes remain after the last record"),
        (GOOD + GOOD, 1, "bytes remain after the last record"),
        (GOOD + GOOD[:-1], 2, "record"),
        (GOOD + bytes(9), 2, "a record's length"),
        (GOOD + GOOD, 2, "record offsets do not ascend"),
        (encode_record(SimpleRecord(), 0, 10), 1, "leave the range of their batch"),
        (encode_record(SimpleRecord(), 0, -1), 1, "record offsets do not ascend"),
    ],
)
def test_records_that_no_producer_wrote_are_refused(body: bytes, count: int, what: str) -> None:
    assert what in refused(framed(body, count))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        assert what in refused(framed(compress(codec, body), count, codec=codec))


def test_a_count_that_the_decompressed_bytes_cannot_hold_makes_no_room() -> None:
    payload = compress(Codec.ZSTD, GOOD)
    data = framed(payload, count=2**31 - 1, last_delta=2**31 - 1, codec=Codec.ZSTD)
    tracemalloc.start()
    assert "record count is 2147483647, but there are 9 bytes" in refused(data)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_payload_of_garbage_is_refused(codec: Codec) -> None:
    assert codec.kafka_name in refused(framed(b"\x09\xdc\xba garbage", codec=codec))


def test_header_sizes_in_five_bytes_and_with_bits_that_do_not_count() -> None:
    """ByteUtils accepts encodings that are longer than necessary, and drops bits above 32."""
    name = b"\x82\x80\x80\x80\x70" + b"n"  # 1, with bits 33 to 35
    body = b"\0\0\0\1\1\2" + name + b"\x84\x80\x80\x80\0" + b"vv"
    [record], _ = decode(framed(encode_varint(len(body)) + body))
    assert record.headers == (("n", b"vv"),)


def test_the_other_batches_of_a_run_are_read() -> None:
    sound = [
        build_batch([SimpleRecord(1, None, b"%d" % n)], BatchFields(base_offset=n, codec=codec))
        for n, codec in ((0, Codec.NONE), (30, Codec.NONE), (60, Codec.ZSTD), (90, Codec.ZSTD))
    ]
    bad = framed(GOOD + b"\0")
    bad_zstd = framed(b"garbage", codec=Codec.ZSTD)
    for index, spoiled in ((1, bad), (2, bad), (3, bad_zstd), (4, bad_zstd)):
        spoiled = struct.pack(">q", index * 30 - 15) + spoiled[8:]
        parts = [*sound[:index], spoiled, *sound[index:]]
        records, [found] = decode(b"".join(parts))
        assert [record.value for record in records] == [b"0", b"30", b"60", b"90"]
        assert found.batch.base_offset == index * 30 - 15


# -- damage in old messages ---------------------------------------------------------------------


def message(
    magic: int, key: tuple[int, bytes], value: tuple[int, bytes], *, attributes: int = 0
) -> bytes:
    """Returns a message with a valid checksum; `key` and `value` are (size field, bytes)."""
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", 5) if magic else b"")
    for size, data in (key, value):
        covered += struct.pack(">i", size) + data
    return struct.pack(">qiI", 3, 4 + len(covered), zlib.crc32(covered)) + covered


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ((9, b"k"), (1, b"v"), "a key extends past the end of its message"),
        ((2**31 - 1, b"k"), (1, b"v"), "a key extends past the end of its message"),
        ((6, b"k"), (1, b"v"), "a key extends past the end of its message"),
        ((1, b"k"), (2, b"v"), "a value extends past the end of its message"),
        ((1, b"k"), (0, b"v"), "a message's size does not match its content"),
        ((0, b"k"), (-1, b"v"), "a value extends past the end of its message"),
        ((1, b"k"), (-1, b"v"), "a message's size does not match its content"),
    ],
)
def test_messages_that_no_producer_wrote_are_refused(
    magic: int, key: tuple[int, bytes], value: tuple[int, bytes], what: str
) -> None:
    assert what in refused(message(magic, key, value))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [-1, -7, -(1 << 31)])
def test_any_negative_size_is_null(magic: int, size: int) -> None:
    [record], _ = decode(message(magic, (size, b""), (size, b"")))
    assert (record.key, record.value) == (None, None)


def wrapper(magic: int, payload: bytes | None, codec: Codec = Codec.GZIP, offset: int = 3) -> bytes:
    size = -1 if payload is None else len(payload)
    data = message(magic, (-1, b""), (size, payload or b""), attributes=codec)
    return struct.pack(">q", offset) + data[8:]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_that_no_producer_wrote_are_refused(magic: int) -> None:
    inner = build_messages([SimpleRecord(5, b"k", b"v")], MessageFields(magic=magic))
    other = build_messages([SimpleRecord(5, b"k", b"v")], MessageFields(magic=1 - magic))
    for payload, what in (
        (None, "a compressed message has no value"),
        (compress(Codec.GZIP, b""), "a compressed message holds no messages"),
        (compress(Codec.GZIP, inner[:-1]), "the last is truncated"),
        (compress(Codec.GZIP, inner + b"\0"), "the last is truncated"),
        (compress(Codec.GZIP, inner + bytes(40)), "zeros where a batch should begin"),
        (compress(Codec.GZIP, other), "magic differs from the outer one"),
        (compress(Codec.GZIP, wrapper(magic, b"")), "a message is compressed"),
        (compress(Codec.GZIP, inner[:-1] + b"x"), "crc is"),
        (compress(Codec.GZIP, inner + inner), "out of order"),
        (compress(Codec.GZIP, message(magic, (9, b"k"), (1, b"v"))), "a key extends past the end"),
        (b"garbage", "gzip payload"),
    ):
        assert what in refused(wrapper(magic, payload)), what


@pytest.mark.parametrize("magic", [0, 1])
def test_inner_offsets_above_the_wrappers_are_refused(magic: int) -> None:
    records = [SimpleRecord(n, offset=n) for n in (0, 1, 90)]
    inner = build_messages(records, MessageFields(magic=magic))
    what = refused(wrapper(magic, compress(Codec.GZIP, inner), offset=50))
    assert "offset 50 is less than 90 inside it" in what


def test_old_messages_around_a_bad_one_are_read() -> None:
    good = [
        build_messages([SimpleRecord(1, None, b"%d" % n)], MessageFields(magic=1, base_offset=n))
        for n in (0, 10)
    ]
    records, [bad] = decode(good[0] + message(1, (9, b"k"), (1, b"v")) + good[1])
    assert [record.value for record in records] == [b"0", b"10"]
    assert bad.batch.last_offset == 3


# -- checksums ----------------------------------------------------------------------------------


@given(any_batches(7), st.integers(0, 1 << 30))
def test_a_checksum_covers_all_but_what_a_broker_assigns(
    batch: tuple[bytes, list[SimpleRecord]], where: int
) -> None:
    data, _ = batch
    [first, *_] = walk(data)
    data = first.data
    table = table_of(data)
    assert first_bad_checksum(memoryview(data), table, 0) == 1
    at = where % len(data)
    # Not covered: in magic 2 the base offset, length and leader epoch; before, offset, size and
    # crc.
    covered = at >= (17 if data[16] == 2 else 12)
    if at == 16 or 8 <= at < 12:  # these bytes decide where the batch ends and how to read it
        return
    changed = bytearray(data)
    changed[at] ^= 0x55
    header = table[0]
    view = memoryview(bytes(changed))
    computed = checksum_is_right(view, header, 0)
    in_crc_field = (17 if data[16] == 2 else 12) <= at < (21 if data[16] == 2 else 16)
    assert computed == (not covered or in_crc_field)


@given(st.sets(st.integers(0, 9)), st.integers(0, 3), st.integers(1, 255))
def test_the_first_of_several_bad_batches_is_told(bad: set[int], at: int, change: int) -> None:
    """Finds the first one even if several have the same damage."""
    batches = [
        build_batch([SimpleRecord(1, offset=n)], BatchFields(base_offset=n)) for n in range(10)
    ]
    data = bytearray(b"".join(batches))
    for which in bad:
        data[which * len(batches[0]) + 17 + at] ^= change
    table = table_of(bytes(data), 1000)
    assert first_bad_checksum(memoryview(data), table, 1000) == min(bad, default=10)


def test_the_error_of_a_checksum_says_both() -> None:
    data = build_batch([SimpleRecord(1)], BatchFields(base_offset=4))
    header = table_of(data, 100)[0]
    changed = memoryview(data[:-1] + b"\x01")
    error = checksum_error(changed, header, 100)
    computed = crc32c(changed[21:])
    assert error.what == f"batch 4-4: crc is {computed:08x}, its header says {header.crc:08x}"
    assert error.position == 100


# -- arbitrary bytes ----------------------------------------------------------------------------


@given(any_batches(), MUTATIONS)
def test_damage_behind_a_right_checksum_is_records_or_an_error(
    batch: tuple[bytes, list[SimpleRecord]], mutations: Sequence[tuple[str, int, int]]
) -> None:
    """A malicious producer can send any body with a valid checksum."""
    data, _ = batch
    [first, *_] = walk(data)
    if first.magic == 2:
        fields = first.data[21:61]
        changed = frame_batch(first.base_offset, 0, fields + mutated(first.data[61:], mutations))
    else:
        covered = first.data[16:26] + mutated(first.data[26:], mutations)
        size = max(len(covered), 22)
        covered = covered.ljust(size, b"\0")
        changed = struct.pack(">qiI", first.last_offset, 4 + size, zlib.crc32(covered)) + covered
    room = BatchTable.empty(9)
    table, _ = scan(changed, len(changed), 0, room, whole=True)
    for part in Decoder(1 << 20).decode(memoryview(changed), 0, table, ""):
        if isinstance(part, BadBatch):
            assert isinstance(part.error, CorruptError)
        else:
            offsets = [record.offset for record in plain(part)]
            assert offsets == sorted(set(offsets))
