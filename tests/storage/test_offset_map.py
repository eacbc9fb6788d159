"""Tests the offset map against a dict, and SipHash, in both kernel forms, against its reference."""

from __future__ import annotations

import random
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from kafkafs.storage.format.records.batch import Int32s, Int64s
from tests.kernel_forms import in_use, uncompiled

BOTH = pytest.mark.parametrize(
    "kernel", [in_use("offset_map"), uncompiled("offset_map")], ids=["in use", "uncompiled"]
)
#: The reference's test vectors: outputs by input size, for key 00 01 … 0f and input 00 01 ….
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    63: "5150d1772f50834a503e069a973fbd7c",
}
Row = tuple[bytes | None, int]  # a key and its offset


def hash_of(kernel: ModuleType, data: bytes, key: bytes) -> bytes:
    low, high = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    return b"".join(word.to_bytes(8, "little") for word in kernel.siphash(data, low, high))


def plain_siphash(data: bytes, key: bytes) -> bytes:
    """Computes SipHash-2-4-128 as its paper describes it, for comparison."""
    mask = (1 << 64) - 1
    k0, k1 = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    texts = (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")
    v = [int.from_bytes(text, "big") ^ k for text, k in zip(texts, (k0, k1, k0, k1), strict=True)]
    v[1] ^= 0xEE

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, first in ((0, 1, 13), (2, 3, 16)):
                v[a] = (v[a] + v[b]) & mask
                v[b] = rotate(v[b], first) ^ v[a]
            v[0] = rotate(v[0], 32)
            for a, b, first in ((2, 1, 17), (0, 3, 21)):
                v[a] = (v[a] + v[b]) & mask
                v[b] = rotate(v[b], first) ^ v[a]
            v[2] = rotate(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return b"".join(x.to_bytes(8, "little") for x in (low, v[0] ^ v[1] ^ v[2] ^ v[3]))


@BOTH
@pytest.mark.parametrize("size", VECTORS)
def test_siphash_gives_the_vectors_of_its_reference(kernel: ModuleType, size: int) -> None:
    assert hash_of(kernel, bytes(range(size)), bytes(range(16))).hex() == VECTORS[size]


@given(st.binary(max_size=300), st.binary(min_size=16, max_size=16))
def test_siphash_is_what_plain_python_makes_of_it(data: bytes, key: bytes) -> None:
    expected = plain_siphash(data, key)
    assert hash_of(in_use("offset_map"), data, key) == expected
    assert hash_of(uncompiled("offset_map"), data, key) == expected


def laid_out(rows: list[Row]) -> tuple[bytes, Int32s, Int64s]:
    """Returns data, spans and offsets in the layout of Columns."""
    data, spans = bytearray(b"before"), np.zeros((len(rows), 6), dtype=np.int32)
    for row, (key, _) in enumerate(rows):
        spans[row, :2] = len(data), -1 if key is None else len(key)
        data += key or b""
    return bytes(data), spans, np.array([offset for _, offset in rows], dtype=np.int64)


KEYS = st.one_of(st.none(), st.binary(max_size=2), st.binary(max_size=40))
ROWS = st.lists(st.tuples(KEYS, st.integers(0, (1 << 63) - 2)), max_size=40)


@given(ROWS, st.integers(1, 60), st.sampled_from([0.5, 0.75, 0.9, 1.0]), st.integers(0, 40))
def test_a_map_holds_what_a_dict_would(rows: list[Row], slots: int, load: float, low: int) -> None:
    if int(slots * load) < 1:
        slots = 2
    offset_map = OffsetMap(slots * SLOT_BYTES, load)
    expected: dict[bytes, int] = {}
    low = min(low, len(rows))
    stop, latest = len(rows), -1
    for row in range(low, len(rows)):
        key, offset = rows[row]
        if key is None:
            continue
        if len(expected) == offset_map.capacity:
            stop = row
            break
        expected[key] = max(offset, expected.get(key, -1))
        latest = offset
    data, spans, offsets = laid_out(rows)
    assert offset_map.put(data, spans, offsets, low) == stop
    assert len(offset_map) == len(expected)
    found = offset_map.get(data, spans).tolist()
    assert found == [-1 if key is None else expected.get(key, -1) for key, _ in rows]
    if [offset for _, offset in rows] == sorted(offset for _, offset in rows):
        assert offset_map.latest_offset == latest


def test_many_blocks_of_keys_fill_a_map_and_are_all_found() -> None:
    chosen = random.Random(7)
    keys = [chosen.randbytes(chosen.randrange(1, 30)) for _ in range(5000)]
    rows: list[Row] = [(chosen.choice(keys), offset) for offset in range(20_000)]
    data, spans, offsets = laid_out(rows)
    expected = dict(rows)
    offset_map = OffsetMap(5000 * SLOT_BYTES, 1.0)
    for low in range(0, len(rows), 3001):
        high = min(low + 3001, len(rows))
        assert offset_map.put(data, spans, offsets, low, high) == high
    assert len(offset_map) == len(expected)
    assert offset_map.get(data, spans).tolist() == [expected[key] for key, _ in rows if key]
    assert offset_map.get_key(b"not there, as it is longer than all") == -1
    assert offset_map.latest_offset == len(rows) - 1


def test_a_full_map_stops_at_the_next_key_even_if_it_knows_it() -> None:
    offset_map = OffsetMap(4 * SLOT_BYTES, 0.5)
    data, spans, offsets = laid_out([(b"a", 0), (b"b", 1), (None, 2), (b"a", 3)])
    assert offset_map.put(data, spans, offsets) == 3
    assert offset_map.get_key(b"a") == 0
    assert offset_map.latest_offset == 1


def test_of_a_keys_offsets_the_greatest_stays() -> None:
    offset_map = OffsetMap(100 * SLOT_BYTES)
    for offset in (5, 9, 7):
        offset_map.put(*laid_out([(b"k", offset)]))
    assert offset_map.get_key(b"k") == 9


def test_an_empty_key_is_a_key() -> None:
    offset_map = OffsetMap(100 * SLOT_BYTES)
    offset_map.put(*laid_out([(b"", 3)]))
    assert offset_map.get_key(b"") == 3
    assert len(offset_map) == 1


def test_a_cleared_map_is_empty_and_can_be_used_again() -> None:
    offset_map = OffsetMap(100 * SLOT_BYTES)
    offset_map.put(*laid_out([(b"k", 1)]))
    offset_map.clear()
    assert (len(offset_map), offset_map.latest_offset, offset_map.get_key(b"k")) == (0, -1, -1)
    offset_map.put(*laid_out([(b"l", 2)]))
    assert (len(offset_map), offset_map.get_key(b"k"), offset_map.get_key(b"l")) == (1, -1, 2)


def test_slots_and_capacity_are_kafkas() -> None:
    offset_map = OffsetMap(1000, 0.9)
    assert (offset_map.slots, offset_map.capacity, offset_map.nbytes) == (41, 36, 984)


@pytest.mark.parametrize(("memory", "load"), [(23, 1.0), (24, 0.9), (0, 0.9), (240, 0), (240, 1.1)])
def test_memory_for_no_key_is_refused(memory: int, load: float) -> None:
    with pytest.raises(ValueError, match="too few"):
        OffsetMap(memory, load)


@BOTH
def test_a_key_outside_its_buffer_is_refused(kernel: ModuleType) -> None:
    table, scratch = np.zeros(30, dtype=np.uint64), np.zeros((5, 3), dtype=np.uint64)
    offsets, out = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for start, size in ((0, 4), (4, 1), (-1, 1), (2_000_000_000, 2_000_000_000)):
        spans = np.array([[start, size]], dtype=np.int32)
        with pytest.raises(ValueError, match="past the end"):
            kernel.put(table, 10, 1, 2, b"abc", spans, offsets, 0, 1, 9, scratch)
        with pytest.raises(ValueError, match="past the end"):
            kernel.get(table, 10, 1, 2, b"abc", spans, out, scratch)


@given(ROWS, st.integers(1, 50))
def test_both_forms_make_the_same_table(rows: list[Row], slots: int) -> None:
    data, spans, offsets = laid_out(rows)
    tables, answers = [], []
    for kernel in (in_use("offset_map"), uncompiled("offset_map")):
        table, scratch = np.zeros(3 * slots, dtype=np.uint64), np.zeros((8, 3), dtype=np.uint64)
        out = np.zeros(len(rows), dtype=np.int64)
        put = kernel.put(
            table, slots, 3, 1 << 63, data, spans, offsets, 0, len(rows), slots, scratch
        )
        kernel.get(table, slots, 3, 1 << 63, data, spans, out, scratch)
        tables.append(table.tolist())
        answers.append((put, out.tolist()))
    assert tables[0] == tables[1]
    assert answers[0] == answers[1]


@given(ROWS, st.integers(1, 20))
def test_a_map_of_another_size_has_the_same_entries(rows: list[Row], more: int) -> None:
    data, spans, offsets = laid_out(rows)
    small = OffsetMap(50 * SLOT_BYTES, 1.0)
    small.put(data, spans, offsets)
    for slots in (len(small) + more, 500):
        other = small.moved_to(slots * SLOT_BYTES)
        assert (len(other), other.latest_offset) == (len(small), small.latest_offset)
        assert other.get(data, spans).tolist() == small.get(data, spans).tolist()
    if len(small) > 1:
        with pytest.raises(ValueError, match="too few"):
            small.moved_to(SLOT_BYTES * (len(small) - 1))


def test_a_map_grows_up_to_a_bound() -> None:
    offset_map = OffsetMap(100 * SLOT_BYTES)
    assert offset_map.larger_bytes(1000 * SLOT_BYTES) == 200 * SLOT_BYTES
    assert offset_map.larger_bytes(150 * SLOT_BYTES + 5) == 150 * SLOT_BYTES + 5
    assert offset_map.larger_bytes(100 * SLOT_BYTES + 23) is None


@given(ROWS)
def test_classes_follow_from_keys_in_both_forms(rows: list[Row]) -> None:
    data, spans, _ = laid_out(rows)
    found = []
    for kernel in (in_use("offset_map"), uncompiled("offset_map")):
        out = np.full(len(rows), -1, dtype=np.int32)
        kernel.classes(5, 6, data, spans, out)
        found.append(out.tolist())
    hashes = [0 if key is None else in_use("offset_map").siphash(key, 5, 6)[0] for key, _ in rows]
    assert found == [[word & 0xFFFF for word in hashes]] * 2


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=1)), st.integers(1, 4)), min_size=1),
    st.integers(0, 30),
    st.integers(0, 40),
    st.integers(1, 40),
)
def test_what_was_put_into_it_need_not_be_looked_for(
    steps: list[tuple[bytes | None, int]], low: int, first: int, capacity: int
) -> None:
    """The log has gaps; only its rows from offset `low` on were put, as long as they fitted."""
    at = np.cumsum([gap for _, gap in steps]).tolist()
    rows = [(key, offset) for (key, _), offset in zip(steps, at, strict=True)]
    data, spans, offsets = laid_out(rows)
    offset_map = OffsetMap(capacity * SLOT_BYTES, 1.0)
    offset_map.put(data, spans, offsets, int(offsets.searchsorted(low)))
    newest = offset_map.newest(low)
    if offset_map.latest_offset < low or offset_map.latest_offset - low >= 4 * capacity:
        assert newest is None
        return
    assert newest is not None
    first = min(first, len(rows) - 1)
    found = newest.of(offsets[first:])
    if offsets[first] < low:
        assert found is None
        return
    assert found is not None
    looked_for = offset_map.get(data, spans)[first:]
    keyed = (spans[first:, 1] >= 0) & (offsets[first:] <= offset_map.latest_offset)
    is_newer = looked_for > offsets[first:]
    assert (found > offsets[first:])[keyed].tolist() == is_newer[keyed].tolist()


def test_offsets_in_front_or_twice_are_looked_for() -> None:
    data, spans, _ = laid_out([(b"a", 0), (b"b", 0), (b"c", 0)])
    for offsets in ([3, 5, 6], [5, 5, 6]):
        offset_map = OffsetMap(10 * SLOT_BYTES)
        offset_map.put(data, spans, np.array(offsets, dtype=np.int64))
        assert offset_map.newest(4) is None
    assert OffsetMap(10 * SLOT_BYTES).newest(0) is None
