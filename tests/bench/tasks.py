"""Work that is timed in a separate process: `python -m tests.bench.tasks TASK ARGUMENT…`.

For every line of its standard input, a task does its work once and prints the seconds. The process
does nothing else and mostly runs on one core.
"""

from __future__ import annotations

import atexit
import importlib
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.bench.data import TOPIC, time_of
from tests.bench.sparse import targets_of

if TYPE_CHECKING:
    from kafkafs.storage.cleaner.offset_map import OffsetMap
    from kafkafs.storage.format.records.batch import Int32s, Int64s
    from kafkafs.storage.log.read.view import View

Task = Callable[[], float]
_CHUNK_BYTES = 1 << 20
_KEYS_AT_ONCE = 1_000_000
_ODD = np.uint64(0x9E3779B97F4A7C15)
_LOAD_FACTOR = 0.9
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def decode(log_dir: str) -> Task:
    """Decodes the whole partition to our columns."""
    from kafkafs.storage.log_dirs.engine import Engine

    view = Engine(log_dir).log(TOPIC, 0).view()

    def work() -> float:
        started = time.perf_counter()
        rows = sum(map(len, view.read()))
        taken = time.perf_counter() - started
        assert rows == view.end_offset
        return taken

    return work


def arrow(log_dir: str) -> Task:
    """Decodes the whole partition to our Arrow record batches, with all columns."""
    import kafkafs

    partition = kafkafs.open(log_dir)[TOPIC, 0]

    def work() -> float:
        started = time.perf_counter()
        rows = sum(batch.num_rows for batch in partition.scan())
        taken = time.perf_counter() - started
        assert rows == partition.end_offset
        return taken

    return work


def decoded(log_dir: str) -> Task:
    """Decodes the values of the whole partition to Arrow, by their schema."""
    import kafkafs

    partition = kafkafs.open(log_dir)[TOPIC, 0]

    def work() -> float:
        started = time.perf_counter()
        batches = partition.scan(columns=["decoded"], decode=True)
        rows = sum(batch.num_rows - batch["decoded"].null_count for batch in batches)
        taken = time.perf_counter() - started
        assert rows == partition.end_offset
        return taken

    return work


def decoded_lines(log_dir: str) -> Task:
    """Renders the whole partition as the lines of `decoded.jsonl`."""
    from kafkafs.storage.format.records.columns import Columns
    from kafkafs.storage.lines import decoded_lines as lines
    from kafkafs.storage.log_dirs.engine import Engine
    from kafkafs.storage.schemas.decoding import DecoderCatalog

    engine = Engine(log_dir)
    decoder = DecoderCatalog(engine).decoders().for_topic(TOPIC)

    def work() -> float:
        started = time.perf_counter()
        for columns in engine.log(TOPIC, 0).view().scan():
            assert isinstance(columns, Columns)
            lines.decoded_lines(columns, TOPIC, 0, decoder)
        return time.perf_counter() - started

    return work


def fastavro(log_dir: str, form: str = "values") -> Task:
    """Decodes the same values, which are in memory, one after another; `form`: "json" to make the
    JSON text of each, too."""
    import io

    import kafkafs
    from tests.bench.avro_values import PREFIX, SCHEMA

    library = importlib.import_module("fastavro")
    schema, read = library.parse_schema(SCHEMA), library.schemaless_reader
    values = kafkafs.open(log_dir)[TOPIC, 0].scan(columns=["value"]).read_all()["value"].to_pylist()

    def decode() -> float:
        started = time.perf_counter()
        for value in values:
            stream = io.BytesIO(value)
            stream.seek(len(PREFIX))
            read(stream, schema)
        return time.perf_counter() - started

    def decode_to_json() -> float:
        started = time.perf_counter()
        for value in values:
            stream = io.BytesIO(value)
            stream.seek(len(PREFIX))
            json.dumps(read(stream, schema))
        return time.perf_counter() - started

    return decode_to_json if form == "json" else decode


def sql(log_dir: str, query: str) -> Task:
    """Answers a query on a topic."""
    from kafkafs.api import LogDirectories
    from kafkafs.sql.session import Session
    from kafkafs.storage import Engine

    engine = Engine(log_dir)
    session = Session(LogDirectories(engine), engine)
    atexit.register(session.close)  # which removes its directory
    [statement] = session.statements(query)

    def work() -> float:
        started = time.perf_counter()
        rows = sum(batch.num_rows for batch in session.run(statement) or ())
        taken = time.perf_counter() - started
        assert rows
        return taken

    return work


def duckdb(file: str, query: str) -> Task:
    """Answers the same query on a Parquet file."""
    connection = importlib.import_module("duckdb").connect()
    connection.execute(f"CREATE VIEW {TOPIC} AS SELECT * FROM '{file}'")

    def work() -> float:
        started = time.perf_counter()
        rows = connection.execute(query).fetchall()
        taken = time.perf_counter() - started
        assert rows
        return taken

    return work


def verify(log_dir: str) -> Task:
    """Verifies the log directory."""
    from kafkafs.storage import Engine, Finding, Verify
    from kafkafs.storage import verify as findings

    engine = Engine(log_dir)

    def work() -> float:
        started = time.perf_counter()
        found = list(findings(engine, Verify()))
        taken = time.perf_counter() - started
        assert not any(isinstance(row, Finding) for row in found)
        return taken

    return work


def checksum(log_dir: str) -> Task:
    """Computes the CRC-32C of the partition's files, as they are read."""
    from kafkafs.storage.format.checksum import crc32c

    files = _log_files(log_dir)
    buffer = memoryview(bytearray(_CHUNK_BYTES))

    def work() -> float:
        started = time.perf_counter()
        for path in files:
            value = 0
            with path.open("rb", buffering=0) as file:
                while size := file.readinto(buffer):
                    value = crc32c(buffer[:size], value)
        return time.perf_counter() - started

    return work


def scan_partitions(log_dir: str, threads: str, part: str = "1/1") -> Task:
    """Scans partitions to Arrow, `threads` at a time: all, or of as many equal parts a certain one,
    as in "1/2"."""
    import kafkafs

    directories = kafkafs.open(log_dir)
    which, parts = map(int, part.split("/"))
    numbers = directories.topics[TOPIC][which - 1 :: parts]

    def scan(number: int) -> int:
        return sum(batch.num_rows for batch in directories[TOPIC, number].scan())

    def work() -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(int(threads)) as executor:
            rows = sum(executor.map(scan, numbers))
        taken = time.perf_counter() - started
        assert rows == sum(directories[TOPIC, number].end_offset for number in numbers)
        return taken

    return work


def aiokafka(log_dir: str) -> Task:
    """Decodes fetched bytes to records with aiokafka's compiled reader, checking checksums."""
    memory_records = importlib.import_module("aiokafka.record._crecords").MemoryRecords
    files = _log_files(log_dir)

    def work() -> float:
        started = time.perf_counter()
        for path in files:
            for chunk in _chunks(path):
                records = memory_records(chunk)
                while records.has_next():
                    batch = records.next_batch()
                    if not batch.validate_crc():
                        raise ValueError(f"{path}: a batch with a wrong checksum")
                    for _ in batch:
                        pass
        return time.perf_counter() - started

    return work


def _chunks(path: Path) -> Iterator[bytes]:
    """Yields the file in pieces of whole batches, as fetch responses would."""
    with path.open("rb", buffering=0) as file:
        position, chunk = 0, file.read(_CHUNK_BYTES)
        while chunk:
            end = _whole(chunk)
            yield chunk[:end] if end < len(chunk) else chunk
            position += end
            file.seek(position)
            chunk = file.read(_CHUNK_BYTES)


def _whole(data: bytes) -> int:
    """Returns the size of the whole batches at the front of `data`."""
    at = 0
    while at + 12 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if at + size > len(data):
            break
        at += size
    return at


def find(log_dir: str, records: str, count: str) -> Task:
    """Looks up the offsets of `targets_of`; no decoded batches are cached."""
    offsets = targets_of(Path(log_dir), int(records), int(count))
    return _lookups(log_dir, lambda view, offset: view.find(offset), offsets)


def find_time(log_dir: str, records: str, count: str) -> Task:
    """Does the same by time."""
    times = [time_of(offset) for offset in targets_of(Path(log_dir), int(records), int(count))]
    return _lookups(log_dir, lambda view, time: view.offset_for_time(time), times)


def _lookups(log_dir: str, look_up: Callable[[View, int], object], wanted: list[int]) -> Task:
    from kafkafs.storage.log_dirs.engine import Engine

    log = Engine(log_dir, {"kafkafs.cache.bytes": "0"}).log(TOPIC, 0)

    def work() -> float:
        started = time.perf_counter()
        for number in wanted:
            look_up(log.view(), number)
        return time.perf_counter() - started

    return work


def bare(codec: str, log_dir: str) -> Task:
    """Decompresses the payloads of all batches, from memory, with the fastest Python API of a
    library that does not need to know the decompressed size."""
    payloads = [part for path in _log_files(log_dir) for part in _payloads(path)]
    ways = [_timed(way, payloads) for way in _WAYS[codec]()]
    return min(ways, key=lambda way: min(way(), way()))


def _timed(way: Callable[[memoryview], object], payloads: list[memoryview]) -> Task:
    def work() -> float:
        started = time.perf_counter()
        for payload in payloads:
            way(payload)
        return time.perf_counter() - started

    return work


def _payloads(path: Path) -> Iterator[memoryview]:
    data = memoryview(path.read_bytes())
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at + 8)
        yield data[at + 61 : at + 12 + size]
        at += 12 + size


def _gzip_ways() -> list[Callable[[memoryview], object]]:
    import cramjam
    from isal import isal_zlib

    room = bytearray(_CHUNK_BYTES)
    return [
        lambda data: isal_zlib.decompress(data, 31),
        lambda data: zlib.decompress(data, 31),
        lambda data: cramjam.gzip.decompress_into(data, room),
    ]


def _snappy_ways() -> list[Callable[[memoryview], object]]:
    """Decompresses raw blocks; the loop has to parse the few bytes of framing around them."""
    import cramjam

    room = bytearray(_CHUNK_BYTES)
    raw = cramjam.snappy.decompress_raw_into

    def blocks(data: memoryview) -> None:
        at = 16
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            raw(data[at + 4 : at + 4 + size], room)
            at += 4 + size

    return [blocks]


def _lz4_ways() -> list[Callable[[memoryview], object]]:
    import cramjam
    import lz4.frame

    room = memoryview(bytearray(_CHUNK_BYTES))
    block = cramjam.lz4.decompress_block_into

    def blocks(data: memoryview) -> None:
        """Ignores the frame's header and checksums; a batch mostly fits into one block."""
        at = 7
        while size := int.from_bytes(data[at : at + 4], "little"):
            if size >> 31:
                room[: size & 0x7FFFFFFF] = data[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
            else:
                block(data[at + 4 : at + 4 + size], room)
            at += 4 + (size & 0x7FFFFFFF)

    return [
        blocks,
        lz4.frame.decompress,
        lambda data: cramjam.lz4.decompress_into(data, room),
    ]


def _zstd_ways() -> list[Callable[[memoryview], object]]:
    import cramjam
    import zstandard

    room = bytearray(_CHUNK_BYTES)
    library = zstandard.ZstdDecompressor()

    def stream(data: memoryview) -> None:
        with library.stream_reader(data) as reader:
            reader.readinto(room)

    return [
        lambda data: library.decompress(data, max_output_size=_CHUNK_BYTES),
        stream,
        lambda data: cramjam.zstd.decompress_into(data, room),
    ]


_WAYS: dict[str, Callable[[], list[Callable[[memoryview], object]]]] = {
    "gzip": _gzip_ways,
    "snappy": _snappy_ways,
    "lz4": _lz4_ways,
    "zstd": _zstd_ways,
}


def _log_files(log_dir: str) -> list[Path]:
    return sorted(Path(log_dir).glob(f"{TOPIC}-0/*.log"))


def map_put(keys: str) -> Task:
    """Puts `keys` different keys into an empty offset map."""
    pieces = _MapKeys(int(keys))

    def work() -> float:
        found = pieces.empty_map()
        return pieces.timed(found.put)

    return work


def map_get(keys: str) -> Task:
    """Looks up the same keys in the full map."""
    pieces = _MapKeys(int(keys))
    full = pieces.empty_map()
    pieces.timed(full.put)

    def get(data: bytes, spans: Int32s, offsets: Int64s) -> None:
        assert (full.get(data, spans) == offsets).all()

    return lambda: pieces.timed(get)


class _MapKeys:
    """Different keys of 16 bytes, a million at a time, in no order."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def empty_map(self) -> OffsetMap:
        from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap

        return OffsetMap(int(self._keys / _LOAD_FACTOR + 1) * SLOT_BYTES, _LOAD_FACTOR)

    def timed(self, use: Callable[[bytes, Int32s, Int64s], object]) -> float:
        """Returns the processor seconds that `use` takes for all keys, since it only computes; the
        time to make the keys does not count."""
        taken = 0.0
        for first in range(0, self._keys, _KEYS_AT_ONCE):
            offsets = np.arange(first, min(first + _KEYS_AT_ONCE, self._keys), dtype=np.int64)
            # Multiplying by an odd number keeps them distinct.
            words = np.stack([offsets.astype(np.uint64) * _ODD, offsets.astype(np.uint64)], axis=1)
            spans = np.zeros((len(offsets), 6), dtype=np.int32)
            spans[:, 0], spans[:, 1] = np.arange(len(offsets)) * words.itemsize * 2, 16
            data = words.tobytes()
            started = time.process_time()
            use(data, spans, offsets)
            taken += time.process_time() - started
        return taken


TASKS: dict[str, Callable[..., Task]] = {
    "decode": decode,
    "arrow": arrow,
    "aiokafka": aiokafka,
    "bare": bare,
    "decoded": decoded,
    "decoded_lines": decoded_lines,
    "fastavro": fastavro,
    "sql": sql,
    "duckdb": duckdb,
    "verify": verify,
    "checksum": checksum,
    "scan_partitions": scan_partitions,
    "find": find,
    "find_time": find_time,
    "map_put": map_put,
    "map_get": map_get,
}


def main() -> None:
    task = TASKS[sys.argv[1]](*sys.argv[2:])
    for _ in sys.stdin:
        print(task(), flush=True)


if __name__ == "__main__":
    main()
