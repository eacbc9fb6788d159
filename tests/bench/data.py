"""Logs to measure with, generated once by Kafka's rules and kept between runs.

A topic's records are 100-byte JSON values without keys, as Kafka's load generator sends them, in
the batches of a producer with the default `batch.size`, 16 KiB compressed. The contents repeat
after a few hundred batches, with new offsets and timestamps. In the logs to compact, a record has a
key of 16 bytes and a value of 84, and no batch is repeated.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.layout import CRC_COVERS_FROM, CRC_POSITION, Codec
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import (
    Field,
    Headers,
    RecordColumns,
    SimpleRecord,
)
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_log_dir, write_partition, write_topic

TOPIC = "records"
VALUE_BYTES = 100
#: Records in a batch, as measured with Kafka's producer 4.3 sending such values at full speed. It
#: fills 16 KiB with the output that it expects of the compressor.
BATCH_RECORDS = {
    Codec.NONE: 148,
    Codec.GZIP: 540,
    Codec.SNAPPY: 330,
    Codec.LZ4: 330,
    Codec.ZSTD: 520,
}
#: Bytes of a record's key in the logs to compact; its value is the rest of VALUE_BYTES.
KEY_BYTES = 16
# Segment sizes of these logs if they have _MANY_KEYED records. The last segment is active and stays
# as it is.
_KEYED_SEGMENT_BYTES = {Codec.NONE: 256 << 20, Codec.LZ4: 128 << 20, Codec.ZSTD: 64 << 20}
_MANY_KEYED = 8_000_000
# The least that a topic may have.
_LEAST_SEGMENT_BYTES = 1 << 20
#: Segment size of those to compact in many processes.
PART_SEGMENT_BYTES = 32 << 20
#: Timestamp of the first record in ms, and the number of records per millisecond.
EPOCH_MS = 1526384718283
_RECORDS_PER_MS = 10
_Offsets = TypeVar("_Offsets", int, NDArray[np.int64])
_DIFFERENT_BATCHES = 512

_STATES = ("created", "paid", "packed", "shipped", "delivered", "returned")
_WORDS = ("amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron", "iris", "jade")


def cache() -> Path:
    """Returns the directory of the logs; the variable KAFKAFS_BENCH_CACHE overrides it."""
    named = os.environ.get("KAFKAFS_BENCH_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(base) / "kafkafs-bench"


def made(name: str, make: Callable[[Path], None]) -> Path:
    """Returns the directory `name` of the cache, creating it atomically if it does not exist."""
    target = cache() / name
    if not target.is_dir():
        making = target.with_name(f"{name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        make(making)
        making.rename(target)
    return target


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Returns what `made` does, with all of it in the page cache except holes."""
    target = made(name, make)
    for path in target.glob("*/*"):
        _warm(path)
    return target


def evict(directory: Path) -> None:
    """Drops the cached pages of all files of partitions."""
    for path in directory.glob("*/*"):
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _warm(path: Path) -> None:
    """Reads the data of a file, after dropping its cached pages: those of an earlier run belong to
    its control group, and may be reclaimed when that is removed."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            try:
                position = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError:
                return  # only a hole is left
            end = os.lseek(file.fileno(), position, os.SEEK_HOLE)
            while position < end:
                position += len(os.pread(file.fileno(), min(1 << 20, end - position), position))


def plain_log(records: int, codec: Codec = Codec.NONE) -> Path:
    """Returns a log directory with `records` records in partition 0 of TOPIC, as after a clean
    shutdown."""

    def make(directory: Path) -> None:
        write_topic(directory, batches(records, codec), topic=TOPIC)

    return kept(f"{codec.kafka_name}-{records}", make)


def keyed_log(records: int, keys: int, codec: Codec) -> Path:
    """Returns the same with records that each have one of `keys` keys at random."""
    name = f"keyed-{codec.kafka_name}-{records}-{keys}"
    size = keyed_segment_bytes(records, codec)
    return kept(name, lambda to: _write_keyed(to, records, keys, codec, size))


def keyed_segment_bytes(records: int, codec: Codec) -> int:
    """Returns the size of the segments of a `keyed_log`: smaller logs have smaller ones."""
    return _shrunk(_KEYED_SEGMENT_BYTES[codec], records)


def _shrunk(size: int, records: int) -> int:
    return max(_LEAST_SEGMENT_BYTES, min(size, size * records // _MANY_KEYED))


def keyed_topic(records: int, keys: int, partitions: int) -> Path:
    """Returns the same, uncompressed, with records and keys spread over `partitions` partitions, in
    segments of PART_SEGMENT_BYTES if they are many."""
    size = _shrunk(PART_SEGMENT_BYTES, records)
    of_each = records // partitions, keys // partitions, Codec.NONE, size, partitions
    return kept(f"keyed-{partitions}x-{records}-{keys}", lambda to: _write_keyed(to, *of_each))


def _write_keyed(
    to: Path, records: int, keys: int, codec: Codec, segment_bytes: int, partitions: int = 1
) -> None:
    settings = TopicSettings(segment_bytes=segment_bytes)
    for number in range(partitions):
        made = _keyed_batches(records, keys, codec, number)
        write_partition(to / f"{TOPIC}-{number}", made, settings)
    write_log_dir(to, {(TOPIC, number): records for number in range(partitions)})


def _keyed_batches(records: int, keys: int, codec: Codec, seed: int) -> Iterator[bytes]:
    """Yields batches made by the encoder, which takes a minute less than the builder."""
    chance = np.random.default_rng(seed)
    size = BATCH_RECORDS[codec]
    everything = values(_DIFFERENT_BATCHES * 100)
    for base in range(0, records, size):
        count = min(size, records - base)
        rows = np.arange(count, dtype=np.int64)
        drawn = b"".join(b"key-%012d" % key for key in chance.integers(0, keys, count).tolist())
        starts = (base + rows) * VALUE_BYTES % len(everything)
        columns = RecordColumns(
            time_of(base + rows),
            Field(drawn, rows * KEY_BYTES, np.full(count, KEY_BYTES)),
            Field(everything, starts, np.full(count, VALUE_BYTES - KEY_BYTES)),
            Headers.none(),
        )
        plan = BatchPlan(base_offset=base, batch_bytes=1 << 20, codec=codec)
        yield bytes(encode(columns, plan).data)


def batches(records: int, codec: Codec = Codec.NONE) -> Iterator[bytes]:
    """Yields the batches of `records` records from offset 0 on."""
    size = BATCH_RECORDS[codec]
    count = records // size
    contents = [build(number, size, codec) for number in range(min(count, _DIFFERENT_BATCHES))]
    for index in range(count):
        yield placed(contents[index % _DIFFERENT_BATCHES], index * size)
    if rest := records % size:
        yield placed(build(0, rest, codec), records - rest)


def build(number: int, records: int, codec: Codec) -> bytes:
    """Returns a batch at offset 0 whose contents depend on `number` alone."""
    source = random.Random(number)
    return build_batch(
        [
            SimpleRecord(EPOCH_MS + row // _RECORDS_PER_MS, None, _value(source))
            for row in range(records)
        ],
        BatchFields(codec=codec),
    )


def values(records: int) -> bytes:
    """Returns the values of `records` records, concatenated."""
    source = random.Random(0)
    different = b"".join(_value(source) for _ in range(_DIFFERENT_BATCHES * 100))
    size = records * VALUE_BYTES
    return (different * (size // len(different) + 1))[:size]


def placed(batch: bytes, base_offset: int) -> bytes:
    """Returns the batch with another base offset, the timestamps of that offset and the right
    checksum."""
    moved = bytearray(batch)
    base, greatest = struct.unpack_from(">qq", batch, 27)
    timestamp = time_of(base_offset)
    struct.pack_into(">q", moved, 0, base_offset)
    struct.pack_into(">qq", moved, 27, timestamp, greatest - base + timestamp)
    struct.pack_into(">I", moved, CRC_POSITION, crc32c(memoryview(moved)[CRC_COVERS_FROM:]))
    return bytes(moved)


def rolled_logs(partition: Path) -> list[Path]:
    """Returns the `.log` files of all segments but the active one."""
    return sorted(partition.glob("*.log"))[:-1]


def time_of(base_offset: _Offsets) -> _Offsets:
    """Returns the timestamp (ms) of the first record of a batch; accepts arrays of offsets."""
    return EPOCH_MS + base_offset // _RECORDS_PER_MS


def _value(source: random.Random) -> bytes:
    text = (
        f'{{"order":{source.randrange(10**9):09d},"customer":"c{source.randrange(10**5):05d}",'
        f'"state":"{source.choice(_STATES)}","cents":{source.randrange(10**6)},"note":"'
    )
    while len(text) < VALUE_BYTES:
        text += source.choice(_WORDS) + " "
    return (text[: VALUE_BYTES - 2] + '"}').encode()
