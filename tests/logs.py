"""Writes whole partition directories from batches, as a broker of Kafka 4.3 does.

Batches are given as bytes (see `tests.building`); everything else follows from them and from the
topic's configs: where segments end, and the contents of the two indexes, the transaction index, the
producer snapshots and the leader epoch file. `test_logs.py` proves it by rewriting partitions of a
real broker from their batches and comparing every file.

Rules: Kafka `UnifiedLog.append`, `LogSegment.append`, `RollParams`, `ProducerStateManager`.
"""

import base64
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.producers import Producers

LOG_OVERHEAD = 12
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class Header:
    """A batch's header. Old messages have no first offset or producer (-1)."""

    position: int
    data: bytes
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int = -1
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return len(self.data)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction, as data or as its marker."""
        return bool(self.attributes & 0x10)

    @property
    def is_control(self) -> bool:
        """Whether it is a marker."""
        return bool(self.attributes & 0x20)


def walk(data: bytes) -> Iterator[Header]:
    """Yields the headers of a segment's batches, which must be whole."""
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        end = position + LOG_OVERHEAD + size
        assert end <= len(data)
        yield parse_header(data[position:end], position)
        position = end


def parse_header(batch: bytes, position: int = 0) -> Header:
    """Parses one batch's header, of any magic."""
    offset, magic = struct.unpack_from(">q", batch)[0], batch[16]
    if magic < 2:
        timestamp = struct.unpack_from(">q", batch, 18)[0] if magic == 1 else NO_TIMESTAMP
        return Header(position, batch, magic, -1, offset, timestamp)
    leader_epoch = struct.unpack_from(">i", batch, 12)[0]
    attributes, last_delta, _, max_timestamp, producer_id, epoch, sequence = struct.unpack_from(
        ">hiqqqhi", batch, 21
    )
    return Header(
        position, batch, magic, offset, offset + last_delta, max_timestamp,
        leader_epoch, attributes, producer_id, epoch, sequence,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's configs that shape its files, under Kafka's names; bytes and milliseconds."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096


@dataclass(slots=True)
class Indexes:
    """A segment's offset and time index as they grow with its batches."""

    base_offset: int
    interval: int
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    bytes_since_last: int = 0

    def add(self, header: Header) -> None:
        """Adds an appended batch, which gets an entry if it is more than `interval` bytes after the
        last."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if self.bytes_since_last > self.interval:
            self.offsets.append((header.last_offset, header.position))
            self.add_time()
            self.bytes_since_last = 0
        self.bytes_since_last += header.size

    def add_time(self) -> None:
        """Adds the greatest timestamp so far: done with every offset entry and on closing."""
        if self.max_timestamp > (self.times[-1][0] if self.times else NO_TIMESTAMP):
            self.times.append((self.max_timestamp, self.max_timestamp_offset))

    def offset_bytes(self) -> bytes:
        """Returns the `.index` file, trimmed to its entries."""
        pack = struct.Struct(">ii").pack
        return b"".join(pack(offset - self.base_offset, at) for offset, at in self.offsets)

    def time_bytes(self) -> bytes:
        """Returns the `.timeindex` file, trimmed to its entries."""
        pack = struct.Struct(">qi").pack
        return b"".join(pack(time, offset - self.base_offset) for time, offset in self.times)


def rebuild_indexes(data: bytes, base_offset: int, interval: int) -> Indexes:
    """Returns the indexes of a closed segment, rebuilt from its `.log`."""
    indexes = Indexes(base_offset, interval)
    for header in walk(data):
        indexes.add(header)
    indexes.add_time()
    return indexes


class PartitionWriter:
    """A partition that is written batch by batch, then closed cleanly or left as a crash does.

    Everything is kept in memory until `close`.
    """

    def __init__(self, directory: Path, settings: TopicSettings, base_offset: int = 0) -> None:
        self.directory = directory
        self.settings = settings
        self.end_offset = base_offset
        self.bases: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        self.producers = Producers()
        self._files: dict[str, bytes] = {}
        self._start_segment(base_offset)

    def append(self, batch: bytes) -> None:
        """Appends one batch, whose offsets must follow the existing ones."""
        header = parse_header(batch, len(self._log))
        first = self.end_offset if header.magic < 2 else header.base_offset
        assert self.end_offset <= first <= header.last_offset
        if self._must_roll(header):
            self.roll(first)
            header = parse_header(batch)
        if not self._log:
            self._first_timestamp = header.max_timestamp
        self._indexes.add(header)
        self._log += batch
        self.end_offset = header.last_offset + 1
        if header.magic == 2:
            self._note_epoch(header)
            self._aborted += self.producers.append(header)

    def roll(self, base_offset: int) -> None:
        """Closes the active segment and starts the next, with a producer snapshot."""
        self._close_segment()
        self._start_segment(base_offset)
        self._files[f"{base_offset:020}.snapshot"] = self.producers.snapshot()

    def close(self, clean: bool = True, topic_id: bytes = b"\x01" * 16) -> None:
        """Writes all files. If not `clean`, the active indexes stay preallocated and sparse."""
        if clean:
            self._close_segment()
            if self.end_offset > self.bases[-1]:
                self._files[f"{self.end_offset:020}.snapshot"] = self.producers.snapshot()
        else:
            self._store_segment()
        self.directory.mkdir(parents=True, exist_ok=True)
        for name, data in self._files.items():
            (self.directory / name).write_bytes(data)
        if not clean:
            self._preallocate()
        lines = [f"{epoch} {offset}" for epoch, offset in self.epochs or [(0, self.bases[0])]]
        write_checkpoint(self.directory / "leader-epoch-checkpoint", lines)
        identity = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        metadata = f"version: 0\ntopic_id: {identity}"
        (self.directory / "partition.metadata").write_text(metadata)

    def _must_roll(self, header: Header) -> bool:
        size = len(self._log)
        waited = header.max_timestamp - self._first_timestamp if self._first_timestamp >= 0 else 0
        return (
            (size > 0 and size + header.size > self.settings.segment_bytes)
            or (size > 0 and waited > self.settings.segment_ms)
            or len(self._indexes.offsets) >= self.settings.segment_index_bytes // 8
            or len(self._indexes.times) >= self.settings.segment_index_bytes // 12 - 1
            or header.last_offset - self.bases[-1] > 2**31 - 1
        )

    def _start_segment(self, base_offset: int) -> None:
        self.bases.append(base_offset)
        self._log = bytearray()
        self._indexes = Indexes(base_offset, self.settings.index_interval_bytes)
        self._aborted: list[bytes] = []
        self._first_timestamp = NO_TIMESTAMP

    def _close_segment(self) -> None:
        self._indexes.add_time()
        self._store_segment()

    def _store_segment(self) -> None:
        stem = f"{self.bases[-1]:020}"
        self._files[f"{stem}.log"] = bytes(self._log)
        self._files[f"{stem}.index"] = self._indexes.offset_bytes()
        self._files[f"{stem}.timeindex"] = self._indexes.time_bytes()
        if self._aborted:
            self._files[f"{stem}.txnindex"] = b"".join(self._aborted)

    def _preallocate(self) -> None:
        stem = self.directory / f"{self.bases[-1]:020}"
        for suffix, entry in ((".index", 8), (".timeindex", 12)):
            with stem.with_suffix(suffix).open("r+b") as file:
                file.truncate(self.settings.segment_index_bytes // entry * entry)

    def _note_epoch(self, header: Header) -> None:
        if header.leader_epoch >= 0 and (
            not self.epochs or header.leader_epoch > self.epochs[-1][0]
        ):
            self.epochs.append((header.leader_epoch, header.base_offset))


def write_partition(
    directory: Path,
    batches: Iterable[bytes],
    settings: TopicSettings = TopicSettings(),
    *,
    base_offset: int = 0,
    clean: bool = True,
    topic_id: bytes = b"\x01" * 16,
) -> PartitionWriter:
    """Writes a partition directory with these batches; the returned writer has `bases` and
    `end_offset`."""
    writer = PartitionWriter(directory, settings, base_offset)
    for batch in batches:
        writer.append(batch)
    writer.close(clean, topic_id)
    return writer


def write_topic(
    log_dir: Path,
    batches: Iterable[bytes],
    settings: TopicSettings = TopicSettings(),
    *,
    topic: str = "t",
    base_offset: int = 0,
) -> Path:
    """Writes a log directory with one topic, of one partition with these batches; returns it."""
    made = write_partition(log_dir / f"{topic}-0", batches, settings, base_offset=base_offset)
    write_log_dir(log_dir, {(topic, 0): made.end_offset})
    return log_dir


def write_log_dir(
    directory: Path,
    end_offsets: Mapping[tuple[str, int], int],
    *,
    start_offsets: Mapping[tuple[str, int], int] | None = None,
    clean_offsets: Mapping[tuple[str, int], int] | None = None,
    node_id: int = 1,
    cluster_id: str = "a2Fma2Fmcy10ZXN0cy4uLg",
    directory_id: str = "ZGlyZWN0b3J5LW9uZS4uLg",
    clean: bool = True,
    is_own: bool = True,
) -> None:
    """Writes the files besides the partitions: identity, four checkpoints, the clean shutdown
    marker. `is_own`: as kafkafs creates them, not as a KRaft broker, whose cluster must know the
    topics."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(
        f"#{'kafkafs' if is_own else ''}\n#Tue May 15 11:45:18 UTC 2018\n"
        f"node.id={node_id}\ndirectory.id={directory_id}\nversion=1\ncluster.id={cluster_id}\n"
    )
    for name, offsets in {
        "recovery-point-offset-checkpoint": end_offsets,
        "replication-offset-checkpoint": end_offsets,
        "log-start-offset-checkpoint": start_offsets or {},
        "cleaner-offset-checkpoint": clean_offsets or {},
    }.items():
        lines = [f"{topic} {number} {at}" for (topic, number), at in offsets.items()]
        write_checkpoint(directory / name, lines)
    if clean:
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')


def write_checkpoint(path: Path, lines: list[str]) -> None:
    """Writes a checkpoint file of version 0 with these entries."""
    path.write_text("".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]))
