"""A log with records of one person among others, in every kind of batch, for tests of erasing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.layout import RECORD_BATCH_OVERHEAD, Codec
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.codecs import Scratch, decompress
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from kafkafs.storage.operations.verifier import Verifier
from tests.building import BatchFields, build_batch
from tests.reading import UNCOMMITTED, Plain, read
from tests.writing import NOW

TOPIC = "people"
ALL = Selection.of(TOPIC)
KEY = b"person-7"
#: In every key and value of the person.
TRACE = b"person-7"
CONFIGS = {"internal.segment.bytes": "2000", "retention.ms": "-1", "index.interval.bytes": "500"}
_LEGIBLE_BYTES = 64 << 20
CODECS = (Codec.NONE, Codec.GZIP, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY)


def record(number: int, person: int, now_ms: int) -> SimpleRecord:
    """The `number`-th record, of the person of that number."""
    key = b"person-%d" % person
    value = None if number % 11 == 5 else b"%s-value-%d." % (key, number) + bytes(100)
    headers = [("trace", key), ("none", None)] if number % 3 else []
    return SimpleRecord(now_ms + number, key, value, headers)


def persons() -> Iterator[list[int]]:
    """The persons of the records of each batch: some batches have only person 7's, some none."""
    for n in range(60):
        yield [7] if n % 7 == 3 else [n % 9] if n % 2 else [n % 5, 7 if n % 4 else 8, 70, 6]


def fill(writer: LogWriter, now_ms: int = NOW) -> None:
    """Appends batches without a producer, of an idempotent one, and of transactions that commit,
    abort, or stay open."""
    number, sequences = 0, {1: 0, 2: 0, 3: 0}
    for n, those in enumerate(persons()):
        records = [record(number + at, person, now_ms) for at, person in enumerate(those)]
        number += len(those)
        producer = n % 4
        fields = BatchFields(codec=CODECS[n % len(CODECS)], leader_epoch=-1)
        if producer:
            fields = BatchFields(
                codec=CODECS[n % len(CODECS)],
                leader_epoch=-1,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                is_transactional=producer > 1,
            )
            sequences[producer] += len(those)
        writer.append(build_batch(records, fields))
        if n % 12 == 11 and n < 50:
            writer.end_transaction(2, 0, commit=True)
            writer.end_transaction(3, 0, commit=False)


def open_manager(root: Path) -> LogManager:
    return LogManager(str(root), clock=SetClock(NOW + 100_000))


def make(root: Path) -> list[Plain]:
    """Makes a log directory with the topic; returns all records that are to remain."""
    with open_manager(root) as manager:
        manager.create_topic(TOPIC, 1, CONFIGS)
        fill(manager.writer(TOPIC, 0))
    return [each for each in records_of(root) if each.key != KEY]


def records_of(root: Path) -> list[Plain]:
    """All records, also those of aborted and open transactions."""
    return read(Engine([str(root)]).log(TOPIC, 0).view(), isolation=UNCOMMITTED)


def traces(root: Path) -> list[str]:
    """The files below a directory that hold the person's bytes: as they are, or in records that are
    compressed."""
    found = [file for file in root.rglob("*") if file.is_file()]
    return [file.name for file in found if TRACE in _legible(file).replace(b"person-70", b"")]


def _legible(file: Path) -> bytes:
    """The bytes of a file, and the decompressed records of the batches at its beginning."""
    data = file.read_bytes()
    table, _ = scan(data, len(data), 0, BatchTable.empty(len(data) // 61 + 1), whole=True)
    scratch = Scratch(_LEGIBLE_BYTES)
    for batch in table:
        if batch.codec is not Codec.NONE and batch.record_count > 0:
            start, end = batch.position + RECORD_BATCH_OVERHEAD, batch.position + batch.size
            decompress(batch.codec, memoryview(data), start, end, 2, scratch)
    return data + bytes(scratch.data[: scratch.used])


def run(manager: LogManager, request: Erase) -> list[ErasedFile]:
    rows = []
    for row in erase(manager, request):
        assert isinstance(row, ErasedFile), row
        assert ErasedFile.of_json(row.as_json()) == row
        rows.append(row)
    return rows


def findings(root: Path) -> list[str]:
    verifier = Verifier(Engine([str(root)]))
    return [str(each) for key in verifier.partitions() for each in verifier.partition(key)]


def sums(root: Path) -> dict[str, str]:
    files = sorted((root / f"{TOPIC}-0").glob("*.log"))
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def snapshot(root: Path) -> dict[str, bytes]:
    found = [file for file in root.rglob("*") if file.is_file()]
    return {str(file.relative_to(root)): file.read_bytes() for file in found}


def facts(row: ErasedFile) -> tuple[str, int, bool, int, str]:
    return row.file, row.records, row.is_removed, row.size, row.sha256


def partition(root: Path) -> Path:
    return root / f"{TOPIC}-0"
