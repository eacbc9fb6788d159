"""Writes data directories as Redpanda does, from batches of Kafka's format.

Layout and rules: `model/record.h`, `model/record_utils.cc`, `storage/fs_utils.h`,
`storage/snapshot.h` and `raft/types.cc` of Redpanda, and its offline log viewer. It shares no code
with the product but the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import build_batch, encode_record, encode_varint
from tests.logs import Header, walk

RAFT_DATA, RAFT_CONFIGURATION, CHECKPOINT, TX_FENCE = 1, 2, 5, 10
ARCHIVAL_METADATA, VERSION_FENCE, PREFIX_TRUNCATE, PLACEHOLDER = 19, 23, 25, 29
PARTITION_PROPERTIES, TRANSLATION_STATE = 34, 38
#: The types whose offsets Kafka's clients do not see (`offset_translator_batch_types`).
UNSEEN = (
    RAFT_CONFIGURATION,
    ARCHIVAL_METADATA,
    VERSION_FENCE,
    PREFIX_TRUNCATE,
    PARTITION_PROPERTIES,
    TRANSLATION_STATE,
)
_KAFKA = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct("<iqbIhiqqqhii")
_COVERED = struct.Struct(">hiqqqhii")


def with_header(fields: Sequence[int], body: bytes) -> bytes:
    """A batch with the fields of a header after its checksum."""
    after = _AFTER_CRC.pack(*fields)
    return struct.pack("<I", crc32c(after)) + after + body


def data_batch(kafka: bytes, base_offset: int, kind: int = RAFT_DATA) -> bytes:
    """The batch that Redpanda stores of one of Kafka's."""
    _, length, _, magic, crc, *rest = _KAFKA.unpack_from(kafka)
    assert magic == 2
    assert length + 12 == len(kafka)
    return with_header((len(kafka), base_offset, kind, crc, *rest), kafka[_KAFKA.size :])


def other_batch(kind: int, base_offset: int, count: int = 1, body: bytes = b"inner") -> bytes:
    """A batch that no producer wrote, of `count` offsets."""
    rest = (0, count - 1, 5, 6, -1, -1, -1, count)
    crc = crc32c(body, crc32c(_COVERED.pack(*rest)))
    return with_header((61 + len(body), base_offset, kind, crc, *rest), body)


def raft_snapshot(last_offset: int, unseen: int, version: int = 64) -> bytes:
    """The file `snapshot` beside the segments, which replaces the log up to `last_offset`."""
    configuration = b"\5\1" + bytes(40)
    metadata = struct.pack("<qqb", last_offset, 1, version) + configuration
    metadata += struct.pack("<qq", 123_456, unseen)
    checked = struct.pack("<Ibi", crc32c(metadata), 1, len(metadata))
    return struct.pack("<I", crc32c(checked)) + checked + metadata


def envelope(fields: bytes) -> bytes:
    """What `serde` writes around the fields of a struct."""
    return struct.pack("<BBI", 0, 0, len(fields)) + fields


def translator_pairs(
    group: int, ranges: Sequence[tuple[int, int]], unseen: int, highest: int
) -> dict[bytes, bytes]:
    """The pairs of an offset translator: ranges of unseen offsets, each with its length, `unseen`
    up to the first one, and the last known offset."""
    found = struct.pack("<qI", unseen, len(ranges))
    found += b"".join(struct.pack("<qi", *each) for each in ranges)
    return {
        struct.pack("<bbq", 4, 0, group): envelope(found),
        struct.pack("<bbq", 4, 1, group): struct.pack("<q", highest),
    }


def placement_pair(group: int, topic: str, partition: int, revision: int) -> dict[bytes, bytes]:
    """The pair that says which partition a raft group is of."""
    names = b"".join(struct.pack("<I", len(each)) + each for each in (b"kafka", topic.encode()))
    fields = names + struct.pack("<iqqb", partition, revision, 3, 1)
    return {struct.pack("<biq", 7, 2, group): envelope(fields)}


@dataclass
class KeyValueStore:
    """A store in the making, of one core."""

    directory: Path
    next_offset: int = 0

    def put(self, pairs: Mapping[bytes, bytes | None], segment: int | None = None) -> None:
        """Appends a batch of changes; None removes a pair."""
        self.directory.mkdir(parents=True, exist_ok=True)
        start = self.next_offset if segment is None else segment
        changes = [
            SimpleRecord(
                0, key, b"\0" if value is None else struct.pack("<bi", 1, len(value)) + value
            )
            for key, value in pairs.items()
        ]
        with (self.directory / f"{start}-0-v1.log").open("ab") as file:
            file.write(data_batch(build_batch(changes), self.next_offset, 4))
        self.next_offset += len(changes)

    def snapshot(self, pairs: Mapping[bytes, bytes]) -> None:
        """Writes the snapshot of all pairs up to here."""
        self.directory.mkdir(parents=True, exist_ok=True)
        kafka = build_batch([SimpleRecord(0, *pair) for pair in pairs.items()])
        batch = data_batch(kafka, 0, 4)
        data = batch[:61] + struct.pack("<qb", 0, 0)
        for number, (key, value) in enumerate(pairs.items()):
            record = encode_record(SimpleRecord(0, key, value), 0, number)
            size = len(record) - len(encode_varint(len(record) - 1))
            while len(encode_varint(size)) + size < len(record):
                size += 1
            data += struct.pack("<Ibqi", size, 0, 0, number)
            for part in (key, value):
                data += struct.pack("<iI", len(part), len(part)) + part
            data += struct.pack("<i", 0)
        metadata = struct.pack("<q", self.next_offset - 1)
        checked = struct.pack("<Ibi", crc32c(metadata), 1, len(metadata))
        header = struct.pack("<I", crc32c(checked)) + checked + metadata
        path = self.directory / "snapshot"
        path.write_bytes(header + struct.pack("<i", len(data)) + data)


@dataclass
class RedpandaLog:
    """A partition's log in the making. `kafka`: the batches that a consumer gets, each with its
    offset as Kafka counts and the term as leader epoch."""

    directory: Path
    next_offset: int = 0
    unseen: int = 0
    term: int = 1
    kafka: bytearray = field(default_factory=bytearray)
    segment: Path | None = None

    @property
    def kafka_offset(self) -> int:
        return self.next_offset - self.unseen

    def roll(self, term: int | None = None) -> None:
        """Begins a segment, as a new leader does with a batch of its configuration."""
        self.term = self.term if term is None else term
        self.directory.mkdir(parents=True, exist_ok=True)
        self.segment = self.directory / f"{self.next_offset}-{self.term}-v1.log"
        self.segment.touch()

    def add(self, kafka: bytes, kind: int = RAFT_DATA) -> None:
        """Appends a batch of Kafka's, of which only the offset and the leader epoch change."""
        delta = struct.unpack_from(">i", kafka, 23)[0]
        self._write(data_batch(kafka, self.next_offset, kind))
        if kind == RAFT_DATA:
            self.kafka += struct.pack(">q", self.kafka_offset) + kafka[8:12]
            self.kafka += struct.pack(">i", self.term) + kafka[16:]
        self.next_offset += delta + 1

    def add_other(self, kind: int, count: int = 1, body: bytes = b"inner") -> None:
        self._write(other_batch(kind, self.next_offset, count, body))
        self.next_offset += count
        self.unseen += count if kind in UNSEEN else 0

    def skip(self, count: int) -> None:
        """Leaves out offsets, as compaction does."""
        self.next_offset += count

    def raw(self, data: bytes) -> None:
        """Appends bytes that are no batch."""
        self._write(data)

    def _write(self, data: bytes) -> None:
        if self.segment is None:
            self.roll()
        assert self.segment is not None
        with self.segment.open("ab") as file:
            file.write(data)


def convert(source: Path, target: Path, log_starts: Mapping[tuple[str, int], int]) -> None:
    """Writes what Redpanda would have of the partitions of a broker's log directory: those whose
    batches are all of magic 2. `log_starts`: their checkpointed start offsets."""
    (target / "redpanda" / "controller" / "0_0").mkdir(parents=True)
    for directory in sorted(source.iterdir()):
        topic, _, number = directory.name.rpartition("-")
        files = sorted(directory.glob("*.log")) if number.isdigit() else []
        segments = [(int(file.stem), list(walk(file.read_bytes()))) for file in files]
        if not segments or any(each.magic < 2 for _, found in segments for each in found):
            continue
        into = target / "kafka" / topic / f"{number}_{7 + int(number)}"
        _convert_log(segments, into, log_starts.get((topic, int(number)), 0))


def _convert_log(
    segments: Sequence[tuple[int, Sequence[Header]]], into: Path, log_start: int
) -> None:
    first = segments[0][0]
    unseen = 0 if first == 0 else 5  # of those that are not there any more
    log = RedpandaLog(into, first + unseen, unseen, term=0)
    # Redpanda's first offset that is still there, and the unseen ones before it.
    start = (log.next_offset, unseen)
    for base, headers in segments:
        log.roll()
        log.skip(base - log.kafka_offset)
        for number, header in enumerate(headers):
            if header.leader_epoch != log.term:
                log.roll(header.leader_epoch)
                log.add_other(RAFT_CONFIGURATION)
            elif number % 5 == 3:
                log.add_other(UNSEEN[number % len(UNSEEN)], 1 + number % 3)
            if log.kafka_offset < header.base_offset:
                log.add_other((TX_FENCE, PLACEHOLDER)[number % 2])
                log.skip(header.base_offset - log.kafka_offset)
            if header.base_offset <= log_start <= header.last_offset:
                start = (log_start + log.unseen, log.unseen)
            log.add(header.data)
    if log.kafka_offset <= log_start:
        start = (log.next_offset, log.unseen)
    if start[0] > 0:
        (into / "snapshot").write_bytes(raft_snapshot(start[0] - 1, start[1]))
