"""Tests that Arrow tables do not depend on how a scan split the records."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.records.arrow import TableLimits, cut, record_tables, to_record_batch
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.columns import decoded

_BYTES = st.none() | st.binary(max_size=40)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3)
_RECORDS = st.lists(
    st.builds(SimpleRecord, st.integers(-1, 10**12), _BYTES, _BYTES, _HEADERS),
    min_size=1,
    max_size=60,
)
_BATCH = partial(to_record_batch, topic="t", partition=0)
_MOST = st.builds(TableLimits, st.integers(1, 30), st.integers(1, 2000))


def columns_of(records: list[SimpleRecord]) -> Columns:
    [columns] = decoded(build_batch(records, BatchFields(base_offset=1000)))
    return columns


@st.composite
def cuttings(draw: st.DrawFn, rows: int) -> list[tuple[int, int]]:
    """Draws how a scan may have split so many rows."""
    edges = draw(st.sets(st.integers(0, rows), max_size=8))
    return list(pairwise(sorted(edges | {0, rows})))


def serialized(parts: list[Columns], most: TableLimits) -> list[tuple[int, bytes]]:
    """Returns each table's first offset and its bytes, as a record batch of an Arrow stream."""
    return [
        (first, b"".join(batch.serialize().to_pybytes() for batch in table.to_batches()))
        for first, table in record_tables(parts, _BATCH, most)
    ]


@given(st.data(), _RECORDS, _MOST)
def test_any_cutting_gives_the_same_bytes(
    data: st.DataObject, records: list[SimpleRecord], most: TableLimits
) -> None:
    whole = columns_of(records)
    expected = serialized([whole], most)
    edges = data.draw(cuttings(len(whole)))
    assert serialized([whole.slice(*edge) for edge in edges], most) == expected


@given(st.data(), _RECORDS, _MOST)
def test_a_reading_may_begin_with_any_table(
    data: st.DataObject, records: list[SimpleRecord], most: TableLimits
) -> None:
    whole = columns_of(records)
    expected = serialized([whole], most)
    at = data.draw(st.integers(0, len(expected) - 1))
    rest = whole.slice(expected[at][0] - 1000, len(whole))
    assert serialized([rest], most) == expected[at:]


@given(_RECORDS, _MOST)
def test_tables_hold_all_records_and_no_more_than_they_may(
    records: list[SimpleRecord], most: TableLimits
) -> None:
    whole = columns_of(records)
    found = [table for _, table in record_tables([whole], _BATCH, most)]
    assert pa.concat_tables(found)["offset"].to_pylist() == whole.offsets.tolist()
    for table in found:
        assert table.num_rows <= most.rows
        values = [len(value or b"") for value in table["value"].to_pylist()]
        assert sum(values[:-1]) < most.size


def test_nothing() -> None:
    assert list(record_tables([], _BATCH, TableLimits(1, 1))) == []
    assert list(cut([], TableLimits(1, 1))) == []


def test_headers_count() -> None:
    """A record with a large header fills a table."""
    plain = SimpleRecord(0, None, b"v")
    heavy = SimpleRecord(0, None, b"v", [("h", bytes(5000))])
    whole = columns_of([plain, plain, heavy, plain])
    sizes = [table.num_rows for _, table in record_tables([whole], _BATCH, TableLimits(100, 4000))]
    assert sizes == [3, 1]
