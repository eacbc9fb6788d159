"""Records as tuples: the same as `Columns.record` finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.format.records.tuples import record_tuples
from tests.batches import logs
from tests.building import BatchFields, build_batch
from tests.columns import decoded


def expected(columns: Columns) -> list[object]:
    records = map(columns.record, range(len(columns)))
    return [(each.key, each.value, each.timestamp, each.headers or None) for each in records]


@given(logs())
def test_of_any_batches(data: bytes) -> None:
    table, _ = scan(data, len(data), 0, BatchTable.empty(64), whole=True)
    for columns in Decoder(1 << 20).decode(memoryview(data), 0, table, "file"):
        assert isinstance(columns, Columns)
        assert list(record_tuples(columns)) == expected(columns)


@given(st.sampled_from(Codec))
def test_in_parts(codec: Codec) -> None:
    """With null and empty keys, values and headers, and names of any bytes that repeat."""
    records = [
        SimpleRecord(
            number,
            (b"k", None, b"")[number % 3],
            (None, b"", b"v%d" % number)[number % 3],
            [
                (("ü", b"\xff\xed\xa0\x80")[each % 2], b"%d" % each if each else None)
                for each in range(number % 4)
            ],
        )
        for number in range(1, 1203)
    ]
    (columns,) = decoded(build_batch(records, BatchFields(codec=codec)))
    found = list(record_tuples(columns))
    assert found == expected(columns)
    assert len(found) == len(records)
