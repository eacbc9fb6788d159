"""Rebuilds every snapshot and transaction index of real brokers from their logs, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafkafs.storage.format.files.checkpoints import parse_offsets
from kafkafs.storage.format.layout import MIN_BATCH_BYTES
from kafkafs.storage.format.messages.control import EndTxnMarker, parse_end_txn_marker
from kafkafs.storage.format.records.batch import BatchHeader, BatchTable, scan
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.log.state.producers import ProducerAppendInfo, ProducerStateManager
from kafkafs.storage.segment.txn_index import AbortedTxn, format_aborted_txns

#: The two directories of kafka43-two-dirs are separate corpora.
CORPORA = {
    "kafka28": "kafka28",
    "kafka39": "kafka39",
    "kafka43-clean": "kafka43-clean",
    "kafka43-crash": "kafka43-crash",
    "kafka43-crash-recovered": "kafka43-crash-recovered",
    "kafka43-torn": "kafka43-torn",
    "kafka43-torn-recovered": "kafka43-torn-recovered",
    "compact-before": "compact-before",
    "compact-after": "compact-after",
    "compact-before2": "compact-before2",
    "compact-after2": "compact-after2",
    "dir1": "kafka43-two-dirs",
    "dir2": "kafka43-two-dirs",
}


@dataclass
class Segment:
    """A segment's bytes and its complete batches."""

    base_offset: int
    data: bytes
    table: BatchTable
    txn_index: bytes | None
    is_internal: bool  # a topic that coordinators write

    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        return parse_end_txn_marker(self.data[header.position : header.next_position])


@dataclass
class Partition:
    """A partition's segments and snapshots. Offsets below ``first_dirty`` were cleaned, so the
    remaining records there no longer determine the producers."""

    path: Path
    first_dirty: int
    segments: list[Segment] = field(default_factory=list)
    snapshots: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in sorted(self.path.glob("*.log")):
            data = path.read_bytes()
            capacity = len(data) // MIN_BATCH_BYTES + 1
            table, _ = scan(data, len(data), 0, BatchTable.empty(capacity), whole=True)
            index = path.with_suffix(".txnindex")
            aborted = index.read_bytes() if index.exists() else None
            is_internal = self.path.name.startswith("__")
            self.segments.append(Segment(offset_of(path), data, table, aborted, is_internal))
        for path in self.path.glob("*.snapshot"):
            self.snapshots[offset_of(path)] = path.read_bytes()


def offset_of(path: Path) -> int:
    return int(path.name.split(".")[0])


def partitions(log_dir: Path) -> Iterator[Partition]:
    cleaned = {}
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    if checkpoint.exists():
        for (topic, number), offset in parse_offsets(checkpoint.read_bytes()).items():
            cleaned[f"{topic}-{number}"] = offset
    for path in sorted(log_dir.glob("*-*/")):
        yield Partition(path, cleaned.get(path.name, 0))


@dataclass
class Counts:
    """Counts the regenerated files, so that no test passes without doing anything."""

    snapshots: int = 0
    with_producers: int = 0
    indexes: int = 0


def one_by_one(table: BatchTable) -> Iterator[BatchTable]:
    return (table.select(slice(number, number + 1)) for number in range(len(table)))


def check(partition: Partition, counts: Counts, take: Callable[..., list[AbortedTxn]]) -> None:
    """Processes the batches after the newest snapshot before the dirty part, or all of them."""
    producers = ProducerStateManager()
    start = partition.segments[0].base_offset
    if partition.first_dirty > start:
        start = max(offset for offset in partition.snapshots if offset <= partition.first_dirty)
        producers.load(partition.snapshots[start], start, now_ms=0)
    producers.map_end_offset = start
    seen: set[int] = set()
    for segment in partition.segments:
        if segment.base_offset < start:
            continue
        producers.map_end_offset = segment.base_offset
        check_snapshot(producers, partition, seen, counts)
        aborted = []
        for table in one_by_one(segment.table):
            aborted += take(producers, table, segment)
            check_snapshot(producers, partition, seen, counts)
        assert format_aborted_txns(aborted) == (segment.txn_index or b"")
        counts.indexes += segment.txn_index is not None
    assert {offset for offset in partition.snapshots if offset >= start} <= seen


def check_snapshot(
    producers: ProducerStateManager, partition: Partition, seen: set[int], counts: Counts
) -> None:
    offset = producers.map_end_offset
    if offset not in seen and offset in partition.snapshots:
        assert producers.snapshot() == partition.snapshots[offset], (partition.path, offset)
        counts.snapshots += 1
        counts.with_producers += len(producers) > 0
    seen.add(offset)


def replayed(
    producers: ProducerStateManager, table: BatchTable, segment: Segment
) -> list[AbortedTxn]:
    """Processes a batch as recovery does."""
    return producers.replay(table, segment.read_marker)


def appended(
    producers: ProducerStateManager, table: BatchTable, segment: Segment
) -> list[AbortedTxn]:
    """Processes a batch as a leader does, from a client or a coordinator. It must accept all that a
    real leader accepted."""
    update: ProducerAppendInfo = producers.begin_update()
    by_client = not (table[0].is_control or segment.is_internal)
    origin = AppendOrigin.CLIENT if by_client else AppendOrigin.COORDINATOR
    assert update.add(table, origin, segment.read_marker) is None
    update.commit()
    return update.aborted


@pytest.mark.parametrize("take", [replayed, appended])
@pytest.mark.parametrize("name", CORPORA)
def test_snapshots_and_transaction_indexes_are_those_of_the_broker(
    name: str,
    take: Callable[..., list[AbortedTxn]],
    corpus: Callable[[str], Path],
) -> None:
    path = corpus(CORPORA[name])
    counts = Counts()
    for partition in partitions(path / name if name != CORPORA[name] else path):
        check(partition, counts, take)
    assert counts.snapshots
    assert counts.with_producers or name in ("dir1", "dir2")
    assert counts.indexes or name in ("kafka28", "dir1", "dir2")
