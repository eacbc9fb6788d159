"""Tests the index entries of a segment's batches, against real brokers and a second model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.records.batch import (
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
    BatchTable,
    scan,
)
from kafkafs.storage.segment.index_builder import IndexBuilder, NewEntries
from kafkafs.storage.segment.time_index import TimestampOffset
from tests.logs import Header, Indexes
from tests.test_logs import settings_of

ROOM = 10 << 20
INT32_MAX = 2**31 - 1


def table_of(rows: list[tuple[int, int, int]]) -> BatchTable:
    """Returns a table of consecutive batches: size, last offset, greatest timestamp of each."""
    table = BatchTable(np.zeros((len(rows), BatchTable.empty().rows.shape[1]), dtype=np.int64))
    sizes = np.array([row[0] for row in rows], dtype=np.int64)
    table.rows[:, SIZE] = sizes
    table.rows[:, POSITION] = np.cumsum(sizes) - sizes
    table.rows[:, LAST_OFFSET] = [row[1] for row in rows]
    table.rows[:, MAX_TIMESTAMP] = [row[2] for row in rows]
    return table


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka39", "compact-after2"])
def test_a_brokers_indexes_are_built_from_its_batches(
    name: str, corpus: Callable[[str], Path], expected: Callable[[str], Path]
) -> None:
    entries = 0
    for log in sorted(corpus(name).glob("*-[0-9]/*.log")):
        topic = log.parent.name.rpartition("-")[0]
        if topic.startswith("__") or topic == "gone":
            continue
        data = log.read_bytes()
        table, walk = scan(data, len(data), 0, BatchTable.empty(len(data) // 61 + 1), whole=True)
        assert walk.end == len(data)
        settings = settings_of(expected(name), topic)
        builder = IndexBuilder(
            int(log.stem), settings.index_interval_bytes, settings.segment_index_bytes
        )
        added = builder.add(table)
        assert added.offsets == log.with_suffix(".index").read_bytes(), log
        assert added.times + builder.finish() == log.with_suffix(".timeindex").read_bytes(), log
        entries += builder.offset_count
    assert entries > 100


TIMES = st.one_of(st.just(-1), st.integers(0, 5), st.integers(0, 1 << 62))
ROWS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 3), TIMES), max_size=40)


@given(ROWS, st.integers(0, 100), st.integers(0, 1 << 62), st.lists(st.integers(0, 40)))
def test_batches_are_indexed_one_by_one_however_many_come_at_once(
    steps: list[tuple[int, int, int]], interval: int, base: int, cuts: list[int]
) -> None:
    rows: list[tuple[int, int, int]] = []
    plain = Indexes(base, interval)
    builder = IndexBuilder(base, interval, ROOM)
    position, offset = 0, base - 1
    for size, count, timestamp in steps:
        offset += count
        rows.append((size, offset, timestamp))
        plain.add(Header(position, bytes(size), 2, offset, offset, timestamp))
        position += size
    table = table_of(rows)
    bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    added = [builder.add(table.select(slice(first, end))) for first, end in pairwise(bounds)]
    plain.add_time()
    times = b"".join(one.times for one in added) + builder.finish()
    assert b"".join(one.offsets for one in added) == plain.offset_bytes()
    assert times == plain.time_bytes()
    assert builder.offset_count == len(plain.offsets)
    assert builder.time_count == len(plain.times)
    assert builder.largest.timestamp == plain.max_timestamp
    if plain.max_timestamp >= 0:
        assert builder.largest.offset == plain.max_timestamp_offset


def test_the_interval_must_be_exceeded_not_reached() -> None:
    builder = IndexBuilder(0, 100, ROOM)
    added = builder.add(table_of([(100, 0, 1), (1, 1, 1), (99, 2, 2), (100, 3, 2), (1, 4, 3)]))
    assert added.offsets == pack(">iiii", 2, 101, 4, 300)
    assert added.times == pack(">qiqi", 2, 2, 3, 4)


def test_an_index_without_room_is_full_and_takes_nothing_more() -> None:
    builder = IndexBuilder(10, 0, 40)  # 5 offset entries, 3 time entries, one reserved
    assert not builder.is_full
    assert builder.add(table_of([(1, 10, 10), (1, 11, 11)])).times == pack(">qi", 11, 1)
    assert not builder.is_full
    rows = [(1, 10 + number, 10 + number) for number in range(9)]
    added = builder.add(table_of(rows).select(slice(2, 9)))
    assert builder.is_full
    assert len(added.offsets) == 4 * 8
    assert added.times == pack(">qi", 12, 2)
    assert builder.finish() == pack(">qi", 18, 8)
    assert builder.finish() == b""


@pytest.mark.parametrize("room", [12, 16, 23])
def test_an_index_for_one_entry_is_full_from_the_start(room: int) -> None:
    assert IndexBuilder(0, 0, room).is_full


def test_a_segment_that_is_opened_again_counts_the_interval_from_its_end() -> None:
    builder = IndexBuilder(5, 10, ROOM)
    builder.resume(100, 7, 3, TimestampOffset(50, 8))
    table = table_of([(100, 9, 0), (11, 10, 50), (1, 11, 50), (11, 12, 60)])
    added = builder.add(table.select(slice(1, 4)))
    assert added == NewEntries(pack(">ii", 6, 111), b"")
    assert (builder.offset_count, builder.time_count) == (8, 3)
    assert builder.finish() == pack(">qi", 60, 7)


@pytest.mark.parametrize("offset", [99, 100 + 2**31])
def test_a_batch_of_another_segment_is_no_entry(offset: int) -> None:
    builder = IndexBuilder(100, 0, ROOM)
    with pytest.raises(ValueError, match=str(offset)):
        builder.add(table_of([(1, offset, 0)]))
    builder.add(table_of([(1, 100 + INT32_MAX, 0)]))
    assert builder.add(BatchTable.empty()) == NewEntries()
