"""Decodes columns by way of the bytes that they are encoded to."""

from __future__ import annotations

from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns


def decoded(data: bytes | memoryview) -> list[Columns]:
    table, _ = scan(data, len(data), 0, BatchTable.empty(64), whole=True)
    parts = list(Decoder(1 << 20).decode(memoryview(data), 0, table, "file"))
    assert all(isinstance(part, Columns) for part in parts)
    return [part for part in parts if isinstance(part, Columns)]


def records(columns: RecordColumns) -> list[tuple[int, bytes | None, bytes | None, object]]:
    """Returns the records, by way of the bytes that they are encoded to."""
    if not len(columns):
        return []
    return [
        (record.timestamp, record.key, record.value, record.headers)
        for part in decoded(encode(columns, BatchPlan()).data)
        for record in map(part.record, range(len(part)))
    ]
