"""Sends batches that brokers wrote again, as a producer would and as another log's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkafs.storage.format.layout import CONTROL_MASK, Codec
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns, Record
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.format.records.validate import AppendOrigin, ValidationRules, validate_batches

NOW = 1_790_000_000_000
RULES = ValidationRules(after_max_ms=(1 << 63) - 1)
FIRST = 1_000_000


def segments(log_dir: Path) -> Iterator[tuple[bytes, BatchTable]]:
    for path in sorted(log_dir.glob("*/*.log")):
        data = path.read_bytes()
        table, walk = scan(data, len(data), 0, BatchTable.empty(len(data) // 26 + 1), whole=True)
        assert walk.end == len(data)
        if len(table):
            yield data, table


def records(data: bytes | memoryview, table: BatchTable) -> list[Record]:
    found: list[Record] = []
    for columns in Decoder(16 << 20).decode(memoryview(data), 0, table, ""):
        assert isinstance(columns, Columns)
        found += [columns.record(row) for row in range(len(columns))]
    return found


def contents(found: list[Record]) -> list[tuple[object, ...]]:
    return [(record.timestamp, record.key, record.value, record.headers) for record in found]


def as_sent(data: bytes, table: BatchTable) -> tuple[bytes, BatchTable]:
    """Returns the batches that producers may have sent, as sent: those of magic 2 at offset 0."""
    counted = table.column(b.RECORD_COUNT) == (
        table.column(b.LAST_OFFSET) - table.column(b.BASE_OFFSET) + 1
    )
    chosen = (table.column(b.MAGIC) < 2) | (counted & ~table.flagged(CONTROL_MASK))
    table = table.select(chosen)
    parts = []
    for header in table:
        part = bytearray(data[header.position : header.next_position])
        if header.magic == 2:
            part[:8] = bytes(8)
        parts.append(bytes(part))
    return b"".join(parts), table


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka28"])
def test_what_a_broker_wrote_is_taken_from_a_producer(
    corpus: Callable[[str], Path], name: str
) -> None:
    taken = 0
    for data, whole in segments(corpus(name)):
        magics = whole.column(b.MAGIC)
        for magic in set(magics.tolist()):
            sent, table = as_sent(data, whole.select(magics == magic))
            if not len(table) or (table.column(b.ATTRIBUTES) & 8).any():
                continue  # a producer never sends LogAppendTime
            admitted = validate_batches(sent, RULES, AppendOrigin.CLIENT, NOW)
            admitted.place(FIRST, 5)
            found = records(admitted.data, admitted.table)
            assert [record.offset for record in found] == list(range(FIRST, FIRST + len(found)))
            assert contents(found) == contents(records(data, table))
            if magic == 2:
                assert len(admitted.data) == len(sent)
                assert (admitted.table.column(b.CRC) == table.column(b.CRC)).all()
            taken += len(found)
    assert taken > 5000


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka28", "compact-after2"])
def test_what_a_broker_wrote_is_taken_from_another_log_as_it_is(
    corpus: Callable[[str], Path], name: str
) -> None:
    taken = 0
    for data, table in segments(corpus(name)):
        admitted = validate_batches(data, RULES, AppendOrigin.REPLICATION, NOW)
        admitted.place(int(table.rows[0, b.BASE_OFFSET]), 5)
        assert bytes(admitted.data) == data
        taken += len(table)
    assert taken > 500


@pytest.mark.parametrize("codec", list(Codec))
def test_what_a_broker_wrote_comes_out_the_same_under_each_codec(
    corpus: Callable[[str], Path], codec: Codec
) -> None:
    log_dir = corpus("kafka43-clean")
    for partition in ("codec-none-0", "codec-gzip-0", "txn-0", "unordered-0"):
        for path in sorted((log_dir / partition).glob("*.log")):
            data = path.read_bytes()
            table, _ = scan(data, len(data), 0, BatchTable.empty(len(data) // 61), whole=True)
            sent, table = as_sent(data, table)
            if not len(table):
                continue
            admitted = validate_batches(sent, replace(RULES, codec=codec), AppendOrigin.CLIENT, NOW)
            assert set(admitted.table.column(b.ATTRIBUTES) & 7) == {int(codec)}
            wanted = contents(records(data, table))
            assert contents(records(admitted.data, admitted.table)) == wanted


def test_an_uncompressed_log_encoded_anew_has_the_same_bytes(
    corpus: Callable[[str], Path],
) -> None:
    """Each batch is encoded by itself, with its producer's fields."""
    for partition in ("orders-0", "codec-none-0", "unordered-0", "idem-0"):
        for path in sorted((corpus("kafka43-clean") / partition).glob("*.log")):
            data = path.read_bytes()
            table, _ = scan(data, len(data), 0, BatchTable.empty(len(data) // 61), whole=True)
            for index, header in enumerate(table):
                alone = table.select(slice(index, index + 1))
                [columns] = Decoder(16 << 20).decode(memoryview(data), 0, alone, "")
                assert isinstance(columns, Columns)
                plan = BatchPlan(
                    base_offset=header.base_offset,
                    leader_epoch=header.leader_epoch,
                    batch_bytes=1 << 30,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                    base_sequence=header.base_sequence,
                    is_transactional=header.is_transactional,
                )
                encoded = encode(RecordColumns.from_columns(columns), plan)
                assert bytes(encoded.data) == data[header.position : header.next_position]
