"""Decodes every batch that a broker wrote and builds it again.

Uncompressed batches must be identical byte for byte; compressed ones must have the same header and
records, because compressors differ between versions.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.storage.format.layout import Codec, TimestampType
from kafkafs.storage.format.records.batch import BatchHeader, BatchTable, scan
from kafkafs.storage.format.records.columns import Columns, Record
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, MessageFields, build_batch, build_messages

MAX_BATCH_BYTES = 16 << 20


def batches(data: bytes) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yields each batch header of a valid segment, with its records."""
    table, walk = scan(data, len(data), 0, BatchTable.empty(len(data) // 26 + 1), whole=True)
    assert walk.end == len(data)
    for columns in Decoder(MAX_BATCH_BYTES).decode(memoryview(data), 0, table, ""):
        assert isinstance(columns, Columns)
        for index, header in enumerate(columns.batches):
            first, last = columns.first_row[index : index + 2].tolist()
            yield header, [columns.record(row) for row in range(first, last)]


def rebuilt(header: BatchHeader, records: list[Record]) -> bytes:
    simple = [
        SimpleRecord(record.timestamp, record.key, record.value, record.headers, record.offset)
        for record in records
    ]
    if header.magic < 2:
        stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return build_messages(
            simple,
            MessageFields(
                magic=header.magic,
                base_offset=records[0].offset,
                codec=header.codec,
                log_append_time=header.max_timestamp if stamped else -1,
            ),
        )
    return build_batch(
        simple,
        BatchFields(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else -1,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
        ),
    )


def content(record: Record) -> tuple[object, ...]:
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


def fields_in(batch: bytes) -> bytes:
    """Returns the header bytes that do not depend on the compressed data."""
    if batch[16] == 2:
        return batch[:8] + batch[12:17] + batch[21:61]
    return batch[:8] + batch[16 : 26 if batch[16] == 1 else 18]


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka28", "compact-after2"])
def test_batches_are_built_as_the_broker_did(name: str, corpus: Callable[[str], Path]) -> None:
    identical = alike = 0
    for log in sorted(corpus(name).glob("*/*.log")):
        data = log.read_bytes()
        for header, records in batches(data):
            original = data[header.position : header.next_position]
            ours = rebuilt(header, records)
            # Under LogAppendTime the deltas are the producer's, and readers never see them.
            stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            if header.codec is Codec.NONE and not stamped:
                assert ours == original, (log.name, header)
                identical += 1
            else:
                assert fields_in(ours) == fields_in(original), (log.name, header)
                [(_, again)] = batches(ours)
                assert [content(record) for record in again] == [
                    content(record) for record in records
                ], (log.name, header)
                alike += 1
    assert identical > 1000
    assert alike > 100
