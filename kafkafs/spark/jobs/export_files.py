"""The file formats of an export: Parquet, Arrow's IPC format and JSON lines, all without loss.

Parquet and Arrow files have the columns of a read without the topic, which is in the path; a
missing timestamp is null. JSON lines are those of `records.jsonl` in a mount.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator
from typing import Any, Final, Literal, Protocol

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from kafkafs.storage import (
    Columns,
    CorruptError,
    TimestampType,
    json_lines,
    schema_of,
    to_record_batch,
)

Format = Literal["parquet", "arrow", "jsonl"]
FORMATS: Final = ("parquet", "arrow", "jsonl")

#: The date of records without a timestamp, the name that Hive and Spark use for null.
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"

_FIELDS: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
SCHEMA: Final[pa.Schema] = schema_of(_FIELDS)
_ROWS_READ: Final = 65536
_TYPES: Final = {kind.kafka_name: int(kind) for kind in TimestampType}


class FileWriter(Protocol):
    """A file being written: `rows` so far. It is complete after `close`."""

    path: str
    rows: int

    def write(self, columns: Columns) -> None: ...
    def close(self) -> None: ...


def suffix_of(format: Format) -> str:
    return f".{format}"


def writer_of(format: Format, path: str, topic: str, partition: int) -> FileWriter:
    """Creates a file at `path` for records of a partition."""
    if format == "jsonl":
        return _JsonLines(path, topic, partition)
    return _Batches(format, path, topic, partition)


class _Batches:
    def __init__(self, format: Format, path: str, topic: str, partition: int) -> None:
        self.path = path
        self.rows = 0
        self._topic, self._partition = topic, partition
        self._writer: Any
        if format == "parquet":
            self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        else:
            options = ipc.IpcWriteOptions(compression="zstd")
            self._writer = ipc.new_file(path, SCHEMA, options=options)

    def write(self, columns: Columns) -> None:
        batch = to_record_batch(columns, self._topic, self._partition, _FIELDS)
        self._writer.write_batch(batch)
        self.rows += len(columns)

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    def __init__(self, path: str, topic: str, partition: int) -> None:
        self.path = path
        self.rows = 0
        self._topic, self._partition = topic, partition
        self._file = io.BufferedWriter(io.FileIO(path, "w"))

    def write(self, columns: Columns) -> None:
        self._file.write(json_lines(columns, self._topic, self._partition))
        self.rows += len(columns)

    def close(self) -> None:
        self._file.close()


def read_file(path: str) -> Iterator[pa.RecordBatch]:
    """Yields the records of a file, with SCHEMA. Raises CorruptError if it is not a file of an
    export."""
    try:
        if path.endswith(suffix_of("parquet")):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS_READ, columns=SCHEMA.names):
                    yield pa.RecordBatch.from_arrays(
                        [batch.column(name).cast(SCHEMA.field(name).type) for name in SCHEMA.names],
                        schema=SCHEMA,
                    )
        elif path.endswith(suffix_of("arrow")):
            with ipc.open_file(path) as reader:
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
        else:
            yield from _read_json_lines(path)
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise CorruptError(f"not a file of an export: {error}", os.fspath(path)) from None


def _read_json_lines(path: str) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        for line in file:
            rows.append(_row(json.loads(line)))
            if len(rows) == _ROWS_READ:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)


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
