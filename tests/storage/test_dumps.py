"""Every index and snapshot in the corpora reads as Kafka's own dump tool read it.

data/dumps.json has, for each file, the number of lines that DumpLogSegments of the broker's own
version printed, and the first 16 hexadecimal digits of the SHA-256 of those lines joined by
newlines (0: it printed none).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.storage.disk import Directory
from kafkafs.storage.format.names import FileKind, parse_segment_file
from kafkafs.storage.format.snapshot import parse_producer_snapshot
from kafkafs.storage.segment.offset_index import OffsetIndex
from kafkafs.storage.segment.time_index import TimeIndex
from kafkafs.storage.segment.txn_index import TransactionIndex
from tests import answers

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
        directory, base = Directory(str((root / path).parent)), int(Path(path).stem)
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


def digest_of(path: Path) -> int | list[int | str]:
    lines = list(dump(path))
    if "kafka28" in path.parts:
        lines = [as_by_2_8(line) for line in lines]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return [len(lines), digest] if lines else 0


def as_by_2_8(line: str) -> str:
    """What 2.8.2 prints of a producer: no time of its own, and Scala's options."""
    line = re.sub(r" lastTimestamp: \d+", "", line)
    line = re.sub(r"OptionalLong\[(\d+)\]", r"Some(\1)", line)
    return line.replace("OptionalLong.empty", "None")


def dump(path: Path) -> Iterator[str]:
    directory, name = Directory(str(path.parent)), parse_segment_file(path.name)
    assert name is not None
    match name.kind:
        case FileKind.INDEX:
            for at in OffsetIndex.open(directory, path.name, name.base_offset).entries():
                yield f"offset: {at.offset} position: {at.position}"
        case FileKind.TIMEINDEX:
            for time in TimeIndex.open(directory, path.name, name.base_offset).entries():
                yield f"timestamp: {time.timestamp} offset: {time.offset}"
        case FileKind.TXNINDEX:
            for txn in TransactionIndex.open(directory, path.name).entries():
                yield (
                    f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
                    f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
                )
        case FileKind.SNAPSHOT:
            yield from dump_snapshot(path.read_bytes())


def dump_snapshot(data: bytes) -> Iterator[str]:
    for entry in parse_producer_snapshot(data):
        first = entry.current_txn_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: "
            f"{f'OptionalLong[{first}]' if first >= 0 else 'OptionalLong.empty'} "
            f"lastTimestamp: {entry.timestamp}"
        )
        if entry.has_batch:
            line += (
                f" firstSequence: {entry.last_sequence - entry.offset_delta} "
                f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
                f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp}"
            )
        yield line
