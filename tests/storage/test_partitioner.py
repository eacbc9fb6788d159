"""Tests of the partitioner, and of selecting rows by partition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.records.record_columns import (
    Field,
    RecordColumns,
    SimpleRecord,
    key_hashes,
    partitions_of,
)

#: From Kafka's own test of Utils.murmur2, as signed numbers.
HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes_are_those_of_kafkas_own_test() -> None:
    found = key_hashes(Field.of([*HASHES, None]), len(HASHES) + 1)
    assert found.tolist() == [number & 0xFFFFFFFF for number in HASHES.values()] + [-1]


def test_partitions_of_keys_and_turns_of_those_without() -> None:
    keys = [*HASHES, None, None, None]
    wanted = [(number & 0x7FFFFFFF) % 3 for number in HASHES.values()]
    assert partitions_of(Field.of(keys), len(keys), 3, turn=1).tolist() == [*wanted, 1, 2, 0]
    assert partitions_of(Field.nulls(), 8, 3, turn=2).tolist() == [2, 2, 2, 0, 0, 0, 1, 1]


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 100))
def test_records_without_keys_are_dealt_out_evenly(rows: int, count: int, turn: int) -> None:
    found = partitions_of(Field.nulls(), rows, count, turn)
    sizes = np.bincount(found, minlength=count)
    assert len(found) == rows
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1
    assert np.count_nonzero(np.diff(found)) == max(min(rows, count) - 1, 0)  # in runs
    if rows:
        assert found[0] == turn % count


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.data())
def test_rows_taken_are_those_rows(keys: list[bytes | None], data: st.DataObject) -> None:
    headers = [[(f"h{i}", key)] * (i % 3) for i, key in enumerate(keys)]
    records = [
        SimpleRecord(i, key, b"v", tuple(each))
        for i, (key, each) in enumerate(zip(keys, headers, strict=True))
    ]
    rows = data.draw(st.lists(st.integers(0, len(keys) - 1))) if keys else []
    columns = RecordColumns.from_records(records)
    taken = columns.take(np.array(rows, dtype=np.int64))
    wanted = RecordColumns.from_records([records[row] for row in rows])
    assert taken.timestamps.tolist() == wanted.timestamps.tolist()
    assert _texts(taken.keys, len(rows)) == _texts(wanted.keys, len(rows))
    assert [len(part) for part in (taken.headers.spans,)] == [len(wanted.headers.spans)]
    assert np.diff(taken.headers.bounds).tolist() == (
        np.diff(wanted.headers.bounds).tolist()
        if len(wanted.headers.bounds)
        else [0] * len(np.diff(taken.headers.bounds))
    )


def _texts(field: Field, rows: int) -> list[bytes | None]:
    filled = field.filled(rows)
    return [
        None if size < 0 else bytes(memoryview(filled.data)[start : start + size])
        for start, size in zip(filled.starts.tolist(), filled.sizes.tolist(), strict=True)
    ]
