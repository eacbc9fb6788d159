"""Tests point lookups, which read once instead of walking, and never give another answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.layout import TimestampType
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read import lookup
from kafkafs.storage.log.read.point_lookup import LookupBuffers, point_lookup
from kafkafs.storage.log.read.view import View
from tests.building import BatchFields, build_batch
from tests.index_damage import INDEX_DAMAGE, damage_indexes
from tests.kernel_forms import in_use, uncompiled
from tests.logs import TopicSettings, write_partition
from tests.reading import COMMITTED, open_view

RECORDS = 5
BATCHES = 30
LIMIT = 1 << 20


def write(directory: Path, value_bytes: int, step: int = 1) -> bytes:
    """Writes BATCHES batches in one segment; base offsets are `step` * RECORDS apart."""
    batches = [
        build_batch(
            [SimpleRecord(1000 + number, b"k", b"v" * value_bytes) for _ in range(RECORDS)],
            BatchFields(base_offset=number * RECORDS * step),
        )
        for number in range(BATCHES)
    ]
    write_partition(directory, batches, TopicSettings(index_interval_bytes=600))
    return b"".join(batches)


@pytest.mark.parametrize("value_bytes", [10, 100, 500, 3000])
@pytest.mark.parametrize("step", [1, 3])
def test_every_offset_of_an_ordinary_log_is_seen_at_a_glance(
    tmp_path: Path, value_bytes: int, step: int
) -> None:
    write(tmp_path / "p-0", value_bytes, step)
    (segment,) = open_view(tmp_path / "p-0").segments
    for offset in range((BATCHES - 1) * RECORDS * step + RECORDS):
        seen = point_lookup(segment, offset, LookupBuffers())
        header, fault = lookup.find_batch(segment, offset, LIMIT)
        assert header is not None
        assert fault is None
        assert seen is not None
        assert seen.header[:4] == [
            header.position,
            header.size,
            header.base_offset,
            header.last_offset,
        ]
        assert len(seen.data) == header.size


def test_nothing_is_seen_behind_the_last_batch(tmp_path: Path) -> None:
    write(tmp_path / "p-0", 100)
    (segment,) = open_view(tmp_path / "p-0").segments
    assert point_lookup(segment, BATCHES * RECORDS, LookupBuffers()) is None


def test_without_an_index_there_is_no_glance(tmp_path: Path) -> None:
    write(tmp_path / "p-0", 100)
    (tmp_path / "p-0" / f"{0:020}.index").unlink()
    (segment,) = open_view(tmp_path / "p-0").segments
    assert point_lookup(segment, 7, LookupBuffers()) is None


def test_a_batch_with_a_wrong_checksum_is_left_to_the_walk(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "p-0", 100))
    data[-1] ^= 1
    (tmp_path / "p-0" / f"{0:020}.log").write_bytes(data)
    (segment,) = open_view(tmp_path / "p-0").segments
    assert point_lookup(segment, BATCHES * RECORDS - 1, LookupBuffers()) is None
    assert point_lookup(segment, (BATCHES - 1) * RECORDS - 1, LookupBuffers()) is not None


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_the_value_and_the_timestamp_alone(tmp_path: Path, kind: TimestampType) -> None:
    values = [b"one", None, b"", b"four" * 100]
    records = [SimpleRecord(1000 + row, b"k", value) for row, value in enumerate(values)]
    records[2] = SimpleRecord(1002, None, b"", [("h", b"x"), ("n", None)])
    fields = BatchFields(timestamp_type=kind, max_timestamp=7000)
    write_partition(tmp_path / "p-0", [build_batch(records, fields)])
    view = open_view(tmp_path / "p-0")
    is_appended = kind is TimestampType.LOG_APPEND_TIME
    for row, value in enumerate(values):
        assert view.value_at(row) == (7000 if is_appended else 1000 + row, value)
    assert view.value_at(-1) is view.value_at(len(values)) is None


@given(
    data=st.binary(max_size=60) | st.just(b""),
    cut=st.integers(0, 400),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    offset=st.integers(-2, 12),
)
def test_both_forms_of_the_kernels_see_the_same(
    data: bytes, cut: int, changes: list[tuple[int, int]], offset: int
) -> None:
    batches = [
        build_batch([SimpleRecord(5 + at, b"k", b"value") for at in range(3)], BatchFields(base))
        for base in (0, 4)
    ]
    spoiled = bytearray(b"".join(batches)[:cut] + data)
    for at, byte in changes:
        if at < len(spoiled):
            spoiled[at] = byte
    seen = []
    for form in (in_use, uncompiled):
        room = LookupBuffers()
        row = form("headers").find_batch(
            bytes(spoiled), 0, -1, 9, offset, len(spoiled), 100, room.headers
        )
        found: list[object] = [row]
        if row >= 0:
            begin, size = room.headers[row, :2].tolist()
            found.append(room.headers[row].tolist())
            batch = bytes(spoiled[begin : begin + size])
            found.append(
                form("records").find_record(
                    batch, room.headers, row, offset, room.offsets, room.timestamps, room.spans
                )
            )
        seen.append(found)
    assert seen[0] == seen[1]


def walk_to(view: View, offset: int) -> tuple[Columns, int]:
    """Looks up an offset like `locate`, but by the walk."""
    return view.locate_in(view.segment_of(offset, COMMITTED), offset, COMMITTED)


def answers(view: View, offset: int) -> list[object]:
    """Returns the results of `locate`, with a point lookup if possible, and by the walk."""
    found: list[object] = []
    for locate in (view.locate, partial(walk_to, view)):
        try:
            columns, row = locate(offset)
        except StorageError as error:
            found.append((type(error), str(error)))
        else:
            found.append((columns.value(row), columns.batch_of(row)))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(1, 255)), max_size=3),
    INDEX_DAMAGE,
    st.integers(0, BATCHES * RECORDS),
)
def test_a_glance_at_damaged_bytes_says_what_the_walk_says(
    flips: list[tuple[int, int]], damage: list[tuple[int, str, int]], offset: int
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        data = bytearray(write(directory, 40))
        for at, bits in flips:
            data[at % len(data)] ^= bits
        (directory / f"{0:020}.log").write_bytes(data)
        damage_indexes(directory, damage)
        view = open_view(directory)
        glanced, walked = answers(view, offset)
        assert glanced == walked
        value = view.value_at(offset)
        if value is not None:
            columns, row = walk_to(view, offset)
            assert value == (columns.timestamps[row], columns.value(row))
