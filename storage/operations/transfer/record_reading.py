"""Reads the files of an export, in the order of offsets."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...errors import CorruptError
from ...format.checksum import crc32c
from ...format.layout import NO_TIMESTAMP, TimestampType
from ...format.records.batch import Int64s
from ...format.records.record_columns import Field
from ...io.directory import ReadableFile
from ...lines.json_input import parse_json
from .csv_files import read_csv
from .record_files import SCHEMA

# What parsing a file raises that is malformed, or has other columns.
_MALFORMED: Final = (
    *(pa.ArrowException, KeyError, ValueError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)
_ROWS_READ: Final = 65536
_LINES_BYTES: Final = 4 << 20
_CHECKED_BYTES: Final = 1 << 20
_TYPES: Final = {kind.kafka_name: int(kind) for kind in TimestampType}
# In the lines that `json_lines` writes. Within a string every quote is escaped, so that these are
# found only where the members are.
_OFFSET: Final = re.compile(rb',"offset":([0-9]{1,19}),')
_TYPE: Final = re.compile(rb',"timestampType":"([A-Za-z]{1,20})",')


class FileSource:
    """A file that is read as pyarrow expects it of an object in Python."""

    closed = False

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._size = file.size()
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        count = self._size - self._position
        data = self._file.read(self._position, max(count if size < 0 else min(size, count), 0))
        self._position += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        start = (0, self._position, self._size)[whence]
        self._position = start + position
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: the descriptor is closed with its last reference."""


def refuse_changed(file: ReadableFile, checksum: int) -> None:
    """Raises CorruptError if the CRC-32C of a file's content is another one."""
    found = position = 0
    while data := file.read(position, _CHECKED_BYTES):
        found = crc32c(data, found)
        position += len(data)
    if found != checksum:
        advice = "remove it and repeat the export, if the log still has its records"
        raise CorruptError(f"its bytes are not those that were exported: {advice}", file.path)


@contextmanager
def malformed_as_corrupt(what: str, path: str) -> Iterator[None]:
    """Raises CorruptError for what the block raises because a file is malformed."""
    try:
        yield
    except _MALFORMED as error:
        raise CorruptError(f"{what}: {' '.join(str(error).split())}", path) from None
    except OSError as error:
        if error.errno is not None:
            raise  # of the disk; those of Arrow's parsers have no number
        raise CorruptError(f"{what}: {' '.join(str(error).split())}", path) from None


def read_ordered(files: Sequence[ReadableFile]) -> Iterator[pa.Table]:
    """Yields the records of several files, each of which is ordered by offset, ordered by offset.

    As much of each file is in memory as its format has to be read at once. Raises CorruptError.
    """
    batches = [read_file(file) for file in files]
    heads = [next(each, None) for each in batches]
    while any(head is not None for head in heads):
        # Up to here all files are read.
        last = min(_offsets(head)[-1] for head in heads if head is not None)
        parts = []
        for number, head in enumerate(heads):
            if head is None:
                continue
            count = int(_offsets(head).searchsorted(last, side="right"))
            if count:
                parts.append(head.slice(0, count))
            rest = head.slice(count)
            heads[number] = rest if len(rest) else next(batches[number], None)
        table = pa.Table.from_batches(parts, SCHEMA)
        yield table if len(parts) == 1 else table.sort_by("offset").combine_chunks()


def _offsets(batch: pa.RecordBatch) -> Int64s:
    offsets: Int64s = batch.column("offset").to_numpy()
    return offsets


def read_file(file: ReadableFile) -> Iterator[pa.RecordBatch]:
    """Yields the records of a file, with SCHEMA, none of the batches empty. Raises CorruptError if
    it is not a file of an export."""
    format = file.path.rpartition(".")[2]
    with malformed_as_corrupt("not a file of an export", file.path):
        for batch in _READERS[format](file):
            if any(batch.column(name).null_count for name in ("partition", "offset")):
                raise CorruptError("not a file of an export: a record has no offset", file.path)
            if len(batch):
                yield batch


def _read_parquet(file: ReadableFile) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq  # large

    with pq.ParquetFile(FileSource(file)) as parquet:
        for batch in parquet.iter_batches(_ROWS_READ, columns=SCHEMA.names):
            yield _cast(batch)


def _read_arrow(file: ReadableFile) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_file(pa.PythonFile(FileSource(file), mode="r")) as reader:
        for number in range(reader.num_record_batches):
            yield _cast(reader.get_batch(number))


def _cast(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)  # offsets beyond the data would be read
    columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _read_csv(file: ReadableFile) -> Iterator[pa.RecordBatch]:
    yield from read_csv(pa.PythonFile(FileSource(file), mode="r"), SCHEMA)


def _read_json_lines(file: ReadableFile) -> Iterator[pa.RecordBatch]:
    source, rest = FileSource(file), b""
    while data := source.read(_LINES_BYTES):
        lines, newline, after = data.rpartition(b"\n")
        if not newline:
            rest += data
            continue
        yield _lines(rest + lines + newline)
        rest = after
    if rest:
        yield _lines(rest)


def _lines(data: bytes) -> pa.RecordBatch:
    """Returns the records of whole lines: by the kernel if they are as `json_lines` writes them and
    have no headers."""
    offsets, kinds = _OFFSET.findall(data), _TYPE.findall(data)
    parsed = parse_json(data)
    records = parsed.records
    is_plain = parsed.error is None and len(offsets) == len(kinds) == len(records)
    if not is_plain or len(records.headers.spans):
        rows = [_row(json.loads(line)) for line in data.rstrip(b"\n").split(b"\n")]
        return pa.RecordBatch.from_pylist(rows, SCHEMA)
    partition = json.loads(data.partition(b"\n")[0])["partition"] if offsets else 0
    timestamps = pa.array(records.timestamps, mask=records.timestamps == NO_TIMESTAMP)
    columns = [
        _values(records.keys, len(records)),
        _values(records.values, len(records)),
        pa.array(np.full(len(records), partition, dtype=np.int32)),
        pa.array(np.array(offsets, dtype="S19").astype(np.int64)),
        timestamps.cast(SCHEMA.field("timestamp").type),
        pa.array([_TYPES[kind.decode()] for kind in kinds], pa.int32()),
        pa.array([[]], SCHEMA.field("headers").type).take(pa.array(np.zeros(len(records), int))),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _values(field: Field, rows: int) -> pa.Array:
    filled = field.filled(rows)
    data = field.data
    spans = zip(filled.starts.tolist(), filled.sizes.tolist(), strict=True)
    return pa.array(
        [None if size < 0 else bytes(data[start : start + size]) for start, size in spans],
        pa.binary(),
    )


def _row(line: dict[str, Any]) -> dict[str, Any]:
    timestamp = line["timestamp"]
    return {
        "key": _bytes(line["key"]),
        "value": _bytes(line["value"]),
        "partition": line["partition"],
        "offset": line["offset"],
        "timestamp": None if timestamp in (None, -1) else timestamp,
        "timestampType": _TYPES[line["timestampType"]],
        "headers": [
            {"key": header["key"], "value": _bytes(header["value"])} for header in line["headers"]
        ],
    }


def _bytes(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


_READERS: Final = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "csv": _read_csv,
    "jsonl": _read_json_lines,
}
