"""Tests views: ranges, the cost and location of each damage, caches, times, threads."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError, OffsetNotFound
from kafkafs.storage.format.kernels import COMPILED
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.columns import KEY_START, VALUE_START, Columns, Damage, Lines
from kafkafs.storage.format.records.compress import compress
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.context import BatchCache, ReadLimits, entry_bytes
from kafkafs.storage.log.read.explain import (
    FoundStep,
    SegmentStep,
    Step,
    Verdict,
    WalkStep,
    explain_offset,
    explain_time,
)
from kafkafs.storage.log.read.view import View
from tests.batches import MUTATIONS, mutated
from tests.building import BatchFields, MessageFields, build_batch, build_messages, frame_batch, put
from tests.logs import TopicSettings, write_partition
from tests.reading import (
    COMMITTED,
    UNCOMMITTED,
    Plain,
    find,
    lines,
    lines_by_columns,
    open_view,
    read,
    scan,
    written,
)
from tests.threads import in_threads

Part = tuple[bytes, list[SimpleRecord]]


def part(base: int, count: int = 2, codec: Codec = Codec.NONE) -> Part:
    records = [
        SimpleRecord(100 + base + n, b"k", b"%04d" % (base + n), offset=base + n)
        for n in range(count)
    ]
    return build_batch(records, BatchFields(base_offset=base, codec=codec)), records


def old_part(base: int, count: int, magic: int, codec: Codec) -> Part:
    records = [SimpleRecord(100 + base + n, b"k", b"v", offset=base + n) for n in range(count)]
    return build_messages(records, MessageFields(magic, base, codec)), records


def write(directory: Path, parts: Sequence[Part], segment_bytes: int = 1 << 20) -> list[Plain]:
    """Writes a partition with these batches; returns its records."""
    settings = TopicSettings(segment_bytes=segment_bytes, index_interval_bytes=0)
    write_partition(directory, [data for data, _ in parts], settings)
    return [record for data, records in parts for record in written(data, records)]


PARTS = [part(base) for base in range(0, 40, 2)]
SIZE = len(PARTS[0][0])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Writes forty records in segments of eight: 0, 8, 16, 24, 32."""
    write(tmp_path / "p-0", PARTS, 4 * SIZE)
    return tmp_path / "p-0"


def replace_batch(directory: Path, base: int, data: bytes) -> Path:
    """Replaces the batch at offset `base` by one of any length; returns its file."""
    log = directory / f"{base // 8 * 8:020}.log"
    at = base % 8 // 2 * SIZE
    whole = log.read_bytes()
    log.write_bytes(whole[:at] + data + whole[at + SIZE :])
    past = time.time() - 60
    os.utime(log, (past, past))
    return log


def bad_batch(base: int) -> bytes:
    """Returns a batch of two offsets with a valid checksum and garbage for records."""
    fields = struct.pack(">hiqqqhii", 0, 1, 5, 5, -1, -1, -1, 2)
    return frame_batch(base, 0, fields + b"\x7f" * (SIZE - 61))


# -- ranges -------------------------------------------------------------------------------------


@given(st.integers(-5, 50), st.integers(-5, 50))
def test_any_range_gives_the_records_in_it(start: int, end: int) -> None:
    with TemporaryDirectory() as name:
        records = write(Path(name) / "p-0", PARTS, 4 * SIZE)
        view = open_view(Path(name) / "p-0")
        assert read(view, start, end) == [r for r in records if start <= r.offset < end]
        assert read(view, start) == [r for r in records if start <= r.offset]
        assert read(view, None, end) == [r for r in records if r.offset < end]


@given(st.integers(-5, 50), st.integers(-5, 50), st.sets(st.integers(0, 19), max_size=3))
def test_lines_are_those_of_the_columns(start: int, end: int, bad: set[int]) -> None:
    with TemporaryDirectory() as name:
        write(Path(name) / "p-0", PARTS, 4 * SIZE)
        for which in bad:
            replace_batch(Path(name) / "p-0", 2 * which, bad_batch(2 * which))
        view = open_view(Path(name) / "p-0")
        for field in (KEY_START, VALUE_START):
            assert lines(view, field, start, end) == lines_by_columns(view, field, start, end)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_lines_of_batches_of_every_kind(tmp_path: Path, magic: int, codec: Codec) -> None:
    bases = (0, 10, 20)
    if magic == 2:
        parts = [part(base, 10, codec) for base in bases]
    else:
        parts = [old_part(base, 10, magic, codec) for base in bases]
    records = write(tmp_path / "p-0", parts)
    view = open_view(tmp_path / "p-0")
    for start in range(31):
        values = b"".join((record.value or b"") + b"\n" for record in records[start:27])
        assert lines(view, VALUE_START, start, 27) == (values, [])


def test_short_lines_take_no_more_memory_than_they_need(tmp_path: Path) -> None:
    records = [SimpleRecord(value=bytes(1000)) for _ in range(1000)]
    write(tmp_path / "p-0", [(build_batch(records), [])])
    [keys] = open_view(tmp_path / "p-0").lines(KEY_START)
    assert isinstance(keys, Lines)
    assert keys.data == b"\n" * 1000
    assert isinstance(keys.data.obj, bytes)
    assert len(keys.data.obj) == 1000


def test_large_batches_are_rendered_in_parts(tmp_path: Path) -> None:
    write(tmp_path / "p-0", [(build_batch([SimpleRecord(value=bytes(5 << 20))]), [])])
    [whole] = open_view(tmp_path / "p-0").lines(VALUE_START)
    assert isinstance(whole, Columns)


@pytest.mark.parametrize("codec", Codec)
def test_a_range_begins_and_ends_inside_batches_of_every_codec(
    tmp_path: Path, codec: Codec
) -> None:
    records = write(tmp_path / "p-0", [part(base, 10, codec) for base in (0, 10, 20)])
    view = open_view(tmp_path / "p-0")
    for start in range(31):
        for end in (start + 1, start + 7, start + 15):
            assert read(view, start, end) == records[start:end]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_range_begins_and_ends_inside_wrappers(tmp_path: Path, magic: int) -> None:
    parts = [old_part(base, 10, magic, Codec.GZIP) for base in (0, 10, 20)]
    records = write(tmp_path / "p-0", parts)
    view = open_view(tmp_path / "p-0")
    for start in range(31):
        for end in (start + 1, start + 7, start + 15):
            assert read(view, start, end) == records[start:end]


def test_ends_of_a_log(directory: Path) -> None:
    view = open_view(directory)
    assert (view.first(), view.last(), view.size) == (0, 39, 20 * SIZE)
    assert view.max_timestamp == 139
    late = open_view(directory, 39)
    assert (late.first(), late.last()) == (39, 39)


def test_the_last_record_is_found_behind_a_long_empty_stretch(tmp_path: Path) -> None:
    parts = [part(0), (build_batch([], BatchFields(base_offset=2, last_offset=1 << 30)), [])]
    write(tmp_path / "p-0", parts)
    view = open_view(tmp_path / "p-0")
    assert view.end_offset == (1 << 30) + 1
    assert (view.first(), view.last()) == (0, 1)


def test_an_empty_batch_with_bytes_in_it_is_an_empty_batch(tmp_path: Path) -> None:
    """Kafka ignores the bytes of a batch whose count is 0."""
    fields = struct.pack(">hiqqqhii", 0, 3, 5, 5, -1, -1, -1, 0)
    odd = frame_batch(2, 0, fields + b"what is this")
    records = write(tmp_path / "p-0", [part(0), (odd, []), part(6)])
    view = open_view(tmp_path / "p-0")
    assert scan(view) == (records, [])
    for offset in range(2, 6):
        with pytest.raises(OffsetNotFound, match="compacted"):
            view.find(offset)


# -- damage -------------------------------------------------------------------------------------

DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "checksum": (lambda data: put(data, 17, ">I", 1), "batch 18-19: crc is"),
    "record": (lambda data: data[:-1] + b"\x09", "batch 18-19: crc is"),
    "magic": (lambda data: put(data, 16, ">b", 77), "magic is 77"),
    "length": (lambda data: put(data, 8, ">i", 5), "batch size field is 5"),
    "long": (lambda data: put(data, 8, ">i", 1 << 30), "cut off"),
    "count": (lambda data: put(data, 57, ">i", 1 << 30), "record count is 1073741824"),
    "zeros": (lambda data: bytes(len(data)), "zeros where a batch should begin"),
    "offset": (lambda data: put(data, 0, ">q", 3), "base offset 3"),
    "far offset": (lambda data: put(data, 0, ">q", 1 << 50), "18014398509481984"),
    "last offset": (lambda data: put(data, 23, ">i", 1 << 30), "crc is"),
    "codec": (lambda data: put(data, 22, ">b", 6), "codec 6"),
    "garbage": (lambda data: b"\x99" * 1000, "batch size field"),
    "records": (lambda data: bad_batch(18), "batch 18-19: a record's length"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGED)
def test_every_kind_of_damage_costs_its_own_offsets_alone(directory: Path, what: str) -> None:
    change, words = DAMAGED[what]
    log = replace_batch(directory, 18, change(PARTS[9][0]))
    view = open_view(directory)
    records, [damage] = scan(view)
    assert [record.offset for record in records] == [*range(18), *range(20, 40)]
    assert words in damage.error.what or what == "far offset"
    assert (damage.error.file, damage.error.position) == (str(log), SIZE)
    assert (damage.first_offset, damage.next_offset) == (18, 20)
    for offset in range(40):
        if offset in (18, 19):
            with pytest.raises(CorruptError) as raised:
                view.find(offset)
            assert (raised.value.file, raised.value.position) == (str(log), SIZE)
        else:
            assert view.find(offset).value == b"%04d" % offset
    for timestamp in (0, 117, 125, 139):
        found = view.offset_for_time(timestamp)
        assert found == max(timestamp - 100, 0)
    assert (view.first(), view.last(), view.end_offset) == (0, 39, 40)


def test_a_read_raises_what_a_scan_yields(directory: Path) -> None:
    replace_batch(directory, 18, bad_batch(18))
    view = open_view(directory)
    parts = view.read()
    before = [next(parts).offsets.tolist() for _ in range(3)]
    assert before == [list(range(8)), list(range(8, 16)), [16, 17]]
    with pytest.raises(CorruptError, match="batch 18-19"):
        next(parts)
    assert [record.offset for record in read(view, 20)] == list(range(20, 40))


@pytest.mark.parametrize("spoiled", [bad_batch(18), put(PARTS[9][0], 17, ">I", 1), bytes(SIZE)])
def test_damage_outside_a_range_is_none_of_its_business(directory: Path, spoiled: bytes) -> None:
    replace_batch(directory, 18, spoiled)
    view = open_view(directory)
    for start, end in ((0, 18), (20, 40), (20, None), (5, 9), (30, 31), (16, 18)):
        assert scan(view, start, end)[1] == [], (start, end)
    for start, end in ((0, 40), (18, 20), (18, 19), (19, 20), (17, 19), (19, 40)):
        _, [damage] = scan(view, start, end)
        assert damage.first_offset == max(18, start)
        assert damage.next_offset == min(20, end)


def test_damage_in_a_row_is_reported_one_by_one(directory: Path) -> None:
    for base in (18, 20, 22):
        replace_batch(directory, base, put(PARTS[base // 2][0], 17, ">I", base))
    records, damage = scan(open_view(directory))
    assert [record.offset for record in records] == [*range(18), *range(24, 40)]
    assert [(d.first_offset, d.next_offset) for d in damage] == [(18, 20), (20, 22), (22, 24)]
    assert [d.error.position for d in damage] == [SIZE, 2 * SIZE, 3 * SIZE]


def test_a_rolled_segment_of_which_nothing_is_left(directory: Path) -> None:
    log = directory / f"{16:020}.log"
    log.write_bytes(b"\x42" * 400)
    view = open_view(directory)
    records, [damage] = scan(view)
    assert [record.offset for record in records] == [*range(16), *range(24, 40)]
    assert (damage.first_offset, damage.next_offset) == (16, 24)
    assert damage.error.file == str(log)
    for offset in range(16, 24):
        with pytest.raises(CorruptError):
            view.find(offset)


def test_a_rolled_segment_that_lost_its_end(directory: Path) -> None:
    log = directory / f"{16:020}.log"
    os.truncate(log, 2 * SIZE + 20)
    records, [damage] = scan(open_view(directory))
    assert [record.offset for record in records] == [*range(20), *range(24, 40)]
    assert (damage.first_offset, damage.next_offset) == (20, 24)
    assert "cut off" in damage.error.what


def test_a_segment_that_reaches_into_the_next(directory: Path) -> None:
    log = directory / f"{16:020}.log"
    log.write_bytes(log.read_bytes() + part(24)[0] + part(26)[0])
    records, damage = scan(open_view(directory))
    assert [record.offset for record in records] == list(range(40))
    assert "goes past 23" in damage[0].error.what


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_damage_among_old_messages(tmp_path: Path, magic: int, codec: Codec) -> None:
    count = 1 if codec is Codec.NONE else 5
    parts = [old_part(base, count, magic, codec) for base in (0, 5, 10, 15)]
    records = write(tmp_path / "p-0", parts)
    log = tmp_path / "p-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    at = len(parts[0][0]) + len(parts[1][0])
    data[at + 13] ^= 1  # the checksum of the third
    log.write_bytes(data)
    view = open_view(tmp_path / "p-0")
    found, [damage] = scan(view)
    lost = set(range(10, 10 + count))
    assert found == [record for record in records if record.offset not in lost]
    assert damage.error.position == at
    assert damage.first_offset <= 10
    assert damage.next_offset == 15
    for record in found:
        assert find(view, record.offset) == record
    for offset in lost:
        with pytest.raises(CorruptError):
            view.find(offset)


def test_an_offset_before_a_wrapper_and_behind_damage_is_damaged(tmp_path: Path) -> None:
    """The start of a wrapper is known only once it is decompressed."""
    parts = [
        old_part(0, 5, 1, Codec.GZIP),
        old_part(5, 5, 1, Codec.GZIP),
        old_part(10, 5, 1, Codec.GZIP),
    ]
    write(tmp_path / "p-0", parts)
    log = tmp_path / "p-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    at = len(parts[0][0])
    data[at : at + len(parts[1][0])] = bytes(len(parts[1][0]))
    log.write_bytes(data)
    for name in ("index", "timeindex"):
        (tmp_path / "p-0" / f"{0:020}.{name}").unlink()
    view = open_view(tmp_path / "p-0")
    for offset in (*range(5), *range(10, 15)):
        assert view.find(offset).offset == offset
    for offset in range(5, 10):
        with pytest.raises(CorruptError, match="zeros"):
            view.find(offset)
    _, [damage] = scan(view)
    assert (damage.first_offset, damage.next_offset) == (5, 10)


def test_a_gap_of_compaction_behind_damage_is_a_gap(tmp_path: Path) -> None:
    parts = [part(0), part(2), part(4), part(20)]
    write(tmp_path / "p-0", parts)
    log = tmp_path / "p-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[SIZE : 2 * SIZE] = bytes(SIZE)
    log.write_bytes(data)
    view = open_view(tmp_path / "p-0")
    with pytest.raises(CorruptError):
        view.find(3)
    with pytest.raises(OffsetNotFound):
        view.find(10)


@given(st.integers(0, 19), MUTATIONS)
@example(which=1, mutations=[("flip", 7, 0)])  # the base offset, as if the index were an old one
def test_whatever_became_of_one_batch_nothing_else_is_lost_or_made_up(
    which: int, mutations: list[tuple[str, int, int]]
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        records = write(directory, PARTS, 4 * SIZE)
        replace_batch(directory, 2 * which, mutated(PARTS[which][0], mutations[:1]))
        view = open_view(directory)
        found, damage = scan(view)
        lost = [record for record in records if record not in found]
        # The batch itself, or its neighbour if that made up for missing bytes, or if a wrong length
        # leads exactly to the batch after it.
        assert {record.offset // 2 for record in lost} <= {which, which + 1}
        made_up = [record for record in found if record not in records]
        # Nothing reveals that the last batch's base offset is wrong, as no checksum covers it.
        assert not made_up or which == 19
        assert {record.value for record in made_up} <= {b"0038", b"0039"}
        told = [range(d.first_offset, 40 if d.next_offset < 0 else d.next_offset) for d in damage]
        assert which == 19 or all(any(r.offset in part for part in told) for r in lost)
        for record in found:
            assert find(view, record.offset) == record


@given(st.lists(st.tuples(st.integers(0, 19), MUTATIONS), min_size=1, max_size=8))
def test_any_damage_ends_in_records_and_errors(
    damage: list[tuple[int, list[tuple[str, int, int]]]],
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        write(directory, PARTS, 4 * SIZE)
        for which, mutations in damage:
            log = directory / f"{which % 5 * 8:020}.log"
            log.write_bytes(mutated(log.read_bytes(), mutations))
        view = open_view(directory)
        found, met = scan(view, isolation=UNCOMMITTED)
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        assert all(part.error.file and part.error.position >= 0 for part in met)
        for offset in range(view.start_offset, min(view.end_offset, view.start_offset + 60)):
            with suppress(OffsetNotFound, CorruptError):
                assert view.find(offset, UNCOMMITTED).offset == offset
        for timestamp in (0, 110, 120, 139, 1 << 40):
            with suppress(CorruptError):
                view.offset_for_time(timestamp, UNCOMMITTED)
        assert (view.first(), view.last()) == (view.first(), view.last())


@pytest.mark.parametrize("base", [(1 << 63) - 1, (1 << 63) - 2, (1 << 63) - (1 << 31)])
def test_segments_at_the_end_of_all_offsets(tmp_path: Path, base: int) -> None:
    directory = tmp_path / "p-0"
    directory.mkdir()
    log = directory / f"{base:020}.log"
    for data in (b"", b"\x99" * 300, PARTS[0][0], bytes(100) + PARTS[0][0]):
        log.write_bytes(data)
        os.utime(log, (1, 1))
        view = open_view(directory)
        assert (view.start_offset, view.end_offset) == (base, base)
        records, damage = scan(view)
        assert (records, bool(damage)) == ([], bool(data))
    top = base - base % 2 if base < (1 << 63) - 2 else 0
    if top:
        log.write_bytes(part(top)[0])
        assert [record.offset for record in read(open_view(directory))] == [top, top + 1]


# -- bombs and limits ---------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_damage_and_what_is_around_it_is_read(tmp_path: Path, codec: Codec) -> None:
    bomb = build_batch(
        [SimpleRecord(1, None, bytes(60 << 20))], BatchFields(base_offset=2, codec=codec)
    )
    write(tmp_path / "p-0", [part(0), (bomb, []), part(3)])
    view = open_view(tmp_path / "p-0", limits=ReadLimits(max_batch_bytes=4 << 20))
    tracemalloc.start()
    records, [damage] = scan(view)
    with pytest.raises(CorruptError, match="larger than 4194304 bytes when decompressed"):
        view.find(2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [record.offset for record in records] == [0, 1, 3, 4]
    assert (damage.first_offset, damage.next_offset) == (2, 3)
    assert "larger than 4194304 bytes when decompressed" in damage.error.what
    assert peak < 32 << 20


def test_a_batch_larger_than_the_limit_is_damage(tmp_path: Path) -> None:
    big = build_batch([SimpleRecord(1, None, os.urandom(5 << 20))], BatchFields(base_offset=2))
    write(tmp_path / "p-0", [part(0), (big, []), part(3)])
    view = open_view(tmp_path / "p-0", limits=ReadLimits(max_batch_bytes=4 << 20))
    records, [damage] = scan(view)
    assert [record.offset for record in records] == [0, 1, 3, 4]
    assert "larger than 4194304 (config kafkafs.max.batch.bytes)" in damage.error.what
    with pytest.raises(CorruptError, match=r"kafkafs\.max\.batch\.bytes"):
        view.find(2)
    assert open_view(tmp_path / "p-0").find(2).value == big[-(5 << 20) - 1 : -1]


def test_small_batches_that_claim_many_records_make_no_room_for_them(tmp_path: Path) -> None:
    fields = struct.pack(">hiqqqhii", Codec.ZSTD, 2**31 - 1, 5, 5, -1, -1, -1, 2**31 - 1)
    lying = frame_batch(2, 0, fields + compress(Codec.ZSTD, b"\x0c\0\0\0\1\1\0"))
    write(tmp_path / "p-0", [part(0), (lying, [])])
    view = open_view(tmp_path / "p-0")
    tracemalloc.start()
    records, [damage] = scan(view)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(records) == 2
    assert "record count is 2147483647" in damage.error.what
    assert peak < 24 << 20


def test_a_segment_of_bad_batches_alone_costs_no_memory_for_each(tmp_path: Path) -> None:
    count = 10_000 if COMPILED else 1_100
    write(tmp_path / "p-0", [part(0), part(2 + 2 * count)], 1)
    bad = put(part(2)[0], 17, ">I", 1)
    log = tmp_path / "p-0" / f"{0:020}.log"
    with log.open("ab") as file:
        for number in range(count):
            file.write(put(bad, 0, ">q", 2 + 2 * number))
    view = open_view(tmp_path / "p-0")
    tracemalloc.start()
    met = 0
    for piece in view.scan():
        met += isinstance(piece, Damage)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(piece, Columns)
    assert met == 1000
    assert peak < 5 << 20


# -- caches and traces --------------------------------------------------------------------------


def test_the_cache_keeps_what_was_used_last_within_its_bytes(tmp_path: Path) -> None:
    write(tmp_path / "p-0", PARTS)
    view = open_view(tmp_path / "p-0")
    columns = [view.locate(offset)[0].copy() for offset in range(0, 10, 2)]
    size = entry_bytes(columns[0])
    cache = BatchCache(3 * size)
    keys = [((1, 2), tuple(each.batches.rows[0].tolist())) for each in columns]
    for key, each in zip(keys, columns, strict=True):
        cache.put(key, each)
    assert [cache.get(key) is not None for key in keys] == [False, False, True, True, True]
    cache.get(keys[2])
    cache.put(keys[0], columns[0])
    assert cache.get(keys[2]) is not None
    assert cache.get(keys[3]) is None
    cache.put(keys[2], columns[2])  # once more, at no cost
    assert [cache.get(key) is not None for key in keys] == [True, False, True, False, True]
    small = BatchCache(size - 1)
    small.put(keys[0], columns[0])
    assert small.get(keys[0]) is None


def test_batches_of_one_record_take_no_more_than_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "p-0", [part(base, 1) for base in range(600)])
    view = open_view(tmp_path / "p-0")
    cache = view.context.batches
    for offset in range(100):
        view.locate(offset)
    tracemalloc.start()
    try:
        counted, taken = cache.nbytes, tracemalloc.get_traced_memory()[0]
        for offset in range(100, 600):
            view.locate(offset)
        counted, taken = cache.nbytes - counted, tracemalloc.get_traced_memory()[0] - taken
    finally:
        tracemalloc.stop()
    assert 0.8 * taken < counted < 1.5 * taken


def test_a_batch_is_decoded_once_for_many_lookups(directory: Path) -> None:
    view = open_view(directory)
    first, _ = view.locate(10)
    again, row = view.locate(11)
    assert first is again
    assert row == 1


def test_a_lookup_tells_its_way(directory: Path) -> None:
    view = open_view(directory)
    steps = list(explain_offset(view, 21, COMMITTED))
    assert isinstance(steps[0], SegmentStep)
    assert steps[0].base_offset == 16
    assert isinstance(steps[-2], WalkStep)
    assert (steps[-2].batch.base_offset, steps[-2].verdict) == (20, Verdict.TAKEN)
    assert steps[-1] == FoundStep(21, 121, 1)
    assert view.offset_for_time(121) == 21
    steps = list(explain_time(view, 121, COMMITTED))
    assert isinstance(steps[0], SegmentStep)
    assert (steps[0].base_offset, steps[0].largest_timestamp, steps[0].skipped) == (16, 123, 2)
    assert steps[-1] == FoundStep(21, 121, 1)


def test_a_lookup_in_vain_tells_where_it_ended(tmp_path: Path) -> None:
    write(tmp_path / "p-0", [part(0), part(10)])
    steps: list[Step] = []
    with pytest.raises(OffsetNotFound):
        steps.extend(explain_offset(open_view(tmp_path / "p-0"), 5, COMMITTED))
    assert isinstance(steps[-1], WalkStep)
    assert (steps[-1].batch.base_offset, steps[-1].verdict) == (10, Verdict.BEGINS_AFTER)


# -- threads ------------------------------------------------------------------------------------


def check(view: View, records: list[Plain]) -> None:
    assert read(view) == records
    for record in records[::5]:
        assert find(view, record.offset) == record
    assert view.offset_for_time(records[9].timestamp) == records[9].offset


def test_many_readers_of_one_view_do_not_disturb_each_other(tmp_path: Path) -> None:
    codecs = [*Codec]
    parts = [part(base, 10, codecs[base // 10 % 5]) for base in range(0, 1000, 10)]
    records = write(tmp_path / "p-0", parts, 4000)
    view = open_view(tmp_path / "p-0", limits=ReadLimits(open_files=4, cache_bytes=2000))

    def work() -> None:
        for _ in range(4 if COMPILED else 1):
            check(view, records)

    in_threads(*[work] * 8)


def test_scans_side_by_side_in_one_thread_have_buffers_of_their_own(directory: Path) -> None:
    view = open_view(directory)
    one, other = view.scan(0), view.scan(20)
    first, second = next(one), next(other)
    assert isinstance(first, Columns)
    assert isinstance(second, Columns)
    assert (first.value(0), second.value(0)) == (b"0000", b"0020")
    assert not isinstance(next(one), Damage)
    assert second.value(0) == b"0020"
