"""Compares the dump of every index and snapshot in the corpora with Kafka's own dump tool.

data/dumps.json has, for each file, the number of lines that DumpLogSegments of the broker's own
version printed, and the first 16 hexadecimal digits of the SHA-256 of those lines joined by
newlines (0 if it printed none).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.messages.internal_topics import TextDecoder
from kafkafs.storage.format.primitives import decode_utf8
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.dump import dump_lines
from kafkafs.storage.segment.dump.dump import Dump, DumpOptions, RunPrinter, RunText
from kafkafs.storage.segment.dump.dump_lines import _legacy_checksums, batch_text, record_text
from kafkafs.storage.segment.extent import Extent
from kafkafs.storage.segment.offset_index import OffsetIndex
from kafkafs.storage.segment.time_index import TimeIndex
from kafkafs.storage.segment.walk import read_runs
from tests import answers
from tests.batches import any_batches
from tests.building import BatchFields, build_batch

#: What Java decodes to U+FFFD in one way or another.
NOT_UTF8 = [
    b"\x80", b"\xc1\xbf", b"\xc2", b"\xe0\x80", b"\xe2\x82", b"\xe2\x28", b"\xed\xa0\x80",
    b"\xed\xb0", b"\xed\xa0", b"\xed\x9f", b"\xf0\x80", b"\xf0\x90", b"\xf0\x90\x80",
    b"\xf4\x8f\xbf", b"\xf4\x90", b"\xf5\x80",
]  # fmt: skip
DUMPS = json.loads((answers.DATA / "dumps.json").read_text())


@pytest.mark.parametrize("name", DUMPS)
def test_files_read_as_kafka_dumps_them(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    wrong = [path for path, digest in DUMPS[name].items() if digest_of(root / path) != digest]
    assert not wrong


@pytest.mark.parametrize("name", DUMPS)
def test_every_entry_is_found_by_looking_it_up(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    for path in (path for path in DUMPS[name] if path.endswith("index")):
        directory, base = DirFd(str((root / path).parent)), int(Path(path).stem)
        if path.endswith(".index"):
            offsets = OffsetIndex.open(directory, Path(path).name, base)
            for slot, position in enumerate(offsets.entries()):
                assert offsets.lookup(position.offset) == offsets.entry(slot) == position
                assert offsets.lookup_position(position.position + 1) == position
                assert offsets.floor_slot(position.offset) == slot
        elif path.endswith(".timeindex"):
            times = TimeIndex.open(directory, Path(path).name, base)
            for slot, time in enumerate(times.entries()):
                assert times.lookup(time.timestamp) == times.entry(slot) == time
                assert times.floor_slot(time.timestamp) == slot


def test_the_text_of_a_run_survives_the_next_run(tmp_path: Path) -> None:
    """A thread decodes each run into the memory of the one before, whose text may not be printed
    yet."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(
        b"".join(
            build_batch([SimpleRecord(value=b"%d" % n)] * 10, BatchFields(base_offset=10 * n))
            for n in range(2_000)
        )
    )
    extent = Extent(DirFd(str(tmp_path)).open(path.name), 0, 0, path.stat().st_size, 1 << 20)
    printer = RunPrinter(DumpOptions(deep=True, contents=True), extent)
    runs = list(read_runs(extent, 4096, stay_valid=True))
    texts = [text for text in map(printer.text_of, runs) if isinstance(text, RunText)]
    assert len(texts) == len(runs) > 10
    assert np.concatenate([part for text in texts for part in text.offsets]).tolist() == [
        *range(20_000)
    ]
    lines = b"".join(piece for text in texts for piece in text.pieces).decode().splitlines()
    records = [line.split(" ") for line in lines if line.startswith("| ")]
    assert [int(words[2]) for words in records] == list(range(20_000))
    assert [int(words[-1]) for words in records] == [n // 10 for n in range(20_000)]


def lines_of(dump: Dump, directory: Path, name: str) -> list[str]:
    text = b"".join(dump.text(DirFd(str(directory)), name, name))
    return text.decode().split("\n")[:-1]


def digest_of(path: Path) -> int | list[int | str]:
    dump = Dump()
    dumped = lines_of(dump, path.parent, path.name)
    lines = [line for line in dumped if not line.endswith(" is empty.")]
    if "kafka28" in path.parts:
        lines = [as_by_2_8(line) for line in lines]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return [len(lines), digest] if lines else 0


def as_by_2_8(line: str) -> str:
    """Converts a line about a producer to 2.8.2's form: no timestamp, and Scala's options."""
    line = re.sub(r" lastTimestamp: \d+", "", line)
    line = re.sub(r"OptionalLong\[(\d+)\]", r"Some(\1)", line)
    return line.replace("OptionalLong.empty", "None")


@given(st.lists(any_batches(7), min_size=1, max_size=2), st.sampled_from([1, 1 << 11, 1 << 20]))
def test_records_of_any_batch_are_a_line_each(
    batches: list[tuple[bytes, list[SimpleRecord]]], piece_bytes: int
) -> None:
    """The pieces are split between lines, wherever they get too long."""
    data = b"".join(batch for batch, _ in batches)
    table, _ = scan(data, len(data), 0, BatchTable.empty(99), whole=True)
    for columns in Decoder(64 << 20).decode(memoryview(data), 0, table, ""):
        assert isinstance(columns, Columns)
        with mock.patch.object(dump_lines, "_PIECE_BYTES", piece_bytes):
            pieces = [bytes(piece) for piece in record_text(columns, TextDecoder(), True, True)]
        assert all(piece.endswith(b"\n") for piece in pieces)
        assert b"".join(pieces).decode() == "".join(printed(columns))


def printed(columns: Columns) -> Iterator[str]:
    """Yields the lines of batches and records, written out."""
    checksums = iter(_legacy_checksums(columns).tolist())
    for number, batch in enumerate(columns.batches):
        yield b"".join(batch_text(BatchTable.of(batch))).decode()
        for row in range(*columns.first_row[number : number + 2].tolist()):
            record = columns.record(row)
            line = f"| offset: {record.offset} {record.timestamp_type.kafka_name}:"
            line += f" {record.timestamp} keySize: {-1 if record.key is None else len(record.key)}"
            line += f" valueSize: {-1 if record.value is None else len(record.value)}"
            if batch.magic < 2:
                line += f" isValid: true crc: {next(checksums)}"
            else:
                names = ",".join(name for name, _ in record.headers)
                line += f" sequence: {record.sequence} headerKeys: [{names}]"
            if record.key is not None:
                line += f" key: {decode_utf8(record.key)}"
            if record.value is not None:
                line += f" payload: {decode_utf8(record.value)}"
            yield f"{line}\n"


@given(st.lists(st.sampled_from([b"a", b"\xc3\xa9", *NOT_UTF8]), max_size=5).map(b"".join))
def test_what_is_not_utf8_is_replaced_as_java_does(value: bytes) -> None:
    data = build_batch([SimpleRecord(1, None, value)])
    table, _ = scan(data, len(data), 0, BatchTable.empty(1), whole=True)
    [columns] = Decoder(64 << 20).decode(memoryview(data), 0, table, "")
    assert isinstance(columns, Columns)
    text = b"".join(record_text(columns, TextDecoder(), False, True)).decode()
    assert text.partition("\n")[2] == f"| payload: {decode_utf8(value)}\n"


@given(
    st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]),
    st.lists(st.tuples(st.floats(0, 0.999), st.binary(max_size=9)), min_size=1, max_size=4),
)
def test_damage_is_told_and_ends_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: Callable[[str], Path],
    kind: str,
    changes: list[tuple[float, bytes]],
) -> None:
    """Any bytes yield lines and complaints, and no other error."""
    directory = tmp_path_factory.mktemp("damaged")
    files = [directory / file.name for file in (corpus("kafka43-clean") / "txn-0").glob("*11.*")]
    for file in files:
        file.write_bytes((corpus("kafka43-clean") / "txn-0" / file.name).read_bytes())
    damaged = next(file for file in files if file.suffix == f".{kind}")
    data = bytearray(damaged.read_bytes())
    for at, new in changes:
        data[int(at * len(data)) : int(at * len(data)) + 1] = new
    damaged.write_bytes(data)
    for options in (DumpOptions(deep=True, contents=True), DumpOptions(is_sanity_check=True)):
        dump = Dump(options)
        found = [lines_of(dump, directory, each.name) for each in files]
        assert any(found)
        assert all(re.match(f"{directory}|[A-Z]", heading) for heading in dump.complaints)
