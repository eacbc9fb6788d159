"""Writes records to files: Parquet, Arrow's IPC format, JSON lines and CSV, all without loss.

The columns are those of a read without the topic, which is in the path; a missing timestamp is
null. JSON lines are those of `records.jsonl` in a mount. For CSV, see `csv_files`.

What a record becomes in the files is a `RecordForm`: `RawForm`, with keys and values as they are,
or those of `decoded_form`. The description of an export with decoded records says so (`_job` in
`export`), because an import can restore only raw records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol

import pyarrow as pa

from ...format.checksum import crc32c
from ...format.records.arrow import TableLimits, schema_of, to_record_batch
from ...format.records.columns import Columns
from ...io.durable import Buffer, WritableFile
from ...lines.json_output import json_lines
from .csv_files import CSV_OPTIONS, CSV_SCHEMA, to_csv_batch
from .request import Format

_FIELDS: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
SCHEMA: Final[pa.Schema] = schema_of(_FIELDS)

#: Of a row group. DuckDB's have as many rows, and less would be read for a small part of a file,
#: but every row group costs a reader a few seeks.
_ROW_GROUP: Final = TableLimits(1 << 17, 64 << 20)
# Pieces are written together until they have so many bytes.
_WRITTEN_BYTES: Final = 256 << 10
# Written bytes after which the kernel is asked to begin writing them to the disk.
_BEGIN_SYNC_BYTES: Final = 8 << 20
# Columns with few different values. Dictionaries of others are given up after a megabyte, in vain.
_DICTIONARIES: Final = ["key", "partition", "timestampType", "headers.list.element.key"]
# Ascending numbers: a tenth of the bytes, and faster than zstd alone.
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
# Those by which a query can skip row groups. Values would cost as much as they gain.
_STATISTICS: Final = ["key", "partition", "offset", "timestamp", "timestampType"]


class RecordForm(Protocol):
    """What records of a partition become in the files."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of Parquet and Arrow files."""

    @property
    def csv_schema(self) -> pa.Schema:
        """The columns of CSV files."""

    def batch(self, columns: Columns) -> pa.RecordBatch:
        """Returns the records with these columns, sharing no memory with `columns`."""

    def csv_batch(self, columns: Columns) -> pa.RecordBatch:
        """Returns the records with the columns of `csv_schema`."""

    def lines(self, columns: Columns) -> Buffer:
        """Returns a line of JSON for each record."""


#: Makes the form of a partition's records.
MakeForm = Callable[[str, int], RecordForm]


class RawForm:
    """Keys and values as they are."""

    schema = SCHEMA
    csv_schema = CSV_SCHEMA

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition

    def batch(self, columns: Columns) -> pa.RecordBatch:
        return to_record_batch(columns, self._topic, self._partition, _FIELDS)

    def csv_batch(self, columns: Columns) -> pa.RecordBatch:
        return to_csv_batch(self.batch(columns))

    def lines(self, columns: Columns) -> Buffer:
        return json_lines(columns, self._topic, self._partition)


class FileWriter(Protocol):
    """A file being written: `rows` so far, of which `held` bytes are still in memory. It is
    complete after `close`, with the CRC-32C `checksum`. After an error, only `abandon` may be
    called."""

    rows: int
    held: int

    @property
    def checksum(self) -> int: ...
    def write(self, columns: Columns) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


def record_file(format: Format, file: WritableFile, form: RecordForm) -> FileWriter:
    """Begins a file of a format."""
    sink = FileSink(file)
    if format == "jsonl":
        return _JsonLinesFile(sink, form)
    if format == "csv":
        return _CsvFile(sink, form)
    return _ParquetFile(sink, form) if format == "parquet" else _ArrowFile(sink, form)


class FileSink:
    """A file that is written from the front, as pyarrow expects it of an object in Python. Small
    pieces, of which Arrow's writers make dozens for each column, are written together. `checksum`
    is the CRC-32C of what is written."""

    closed = False

    def __init__(self, file: WritableFile) -> None:
        self.checksum = 0
        self._file = file
        self._position = 0  # after all pieces
        self._written = self._begun = 0
        self._pieces: list[Buffer] = []
        self._is_abandoned = False

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        self._position += size
        is_large = self._position - self._written >= _WRITTEN_BYTES
        if size:
            # Arrow's CSV writer reuses its buffer for the next piece.
            is_lasting = is_large or isinstance(data, bytes)
            self._pieces.append(data if is_lasting else bytes(data))
        if is_large:
            self.finish()
        return size

    def finish(self) -> None:
        """Writes what is held back."""
        pieces, self._pieces = self._pieces, []
        if pieces and not self._is_abandoned:
            self._file.write(self._written, *pieces)
            for piece in pieces:
                self.checksum = crc32c(piece, self.checksum)
        self._written = self._position
        if self._written - self._begun >= _BEGIN_SYNC_BYTES and not self._is_abandoned:
            self._file.begin_sync(self._begun, self._written - self._begun)
            self._begun = self._written

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Does nothing: Arrow calls it where nothing has to be in the file yet."""

    def close(self) -> None:
        """Does nothing: the descriptor is closed with its last reference."""

    def abandon(self) -> None:
        """Ignores what is written from now on: an Arrow writer that is dropped writes an end."""
        self._is_abandoned = True
        self._pieces.clear()


class _Grouped(ABC):
    """A file that is written in groups of rows of about the same size."""

    def __init__(self, sink: FileSink, form: RecordForm) -> None:
        self.rows = self.held = 0
        self._sink = sink
        self._form = form
        self._group: list[pa.RecordBatch] = []
        self._count = 0  # rows in the group
        self._writer = self._begin()

    @abstractmethod
    def _begin(self) -> Any:
        """Returns a new writer of the format."""

    @abstractmethod
    def _put(self, table: pa.Table) -> None:
        """Writes a group of rows."""

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        return self._form.batch(columns)

    def write(self, columns: Columns) -> None:
        batch = self._batch(columns)
        self.rows += len(columns)
        while batch.num_rows:
            part = batch.slice(0, _ROW_GROUP.rows - self._count)
            batch = batch.slice(part.num_rows)
            self._group.append(part)
            self._count += part.num_rows
            self.held += part.nbytes
            if self._count == _ROW_GROUP.rows or self.held >= _ROW_GROUP.size:
                self.flush()

    def flush(self) -> None:
        """Ends a group of rows."""
        group, self._group = self._group, []
        self._count = self.held = 0
        if group:
            self._put(pa.Table.from_batches(group))

    @property
    def checksum(self) -> int:
        return self._sink.checksum

    def close(self) -> None:
        self.flush()
        self._writer.close()
        self._sink.finish()

    def abandon(self) -> None:
        self._sink.abandon()
        self._writer.close()


class _ParquetFile(_Grouped):
    """Sorted by partition and offset, with statistics and a page index for those who look for a
    part."""

    def _begin(self) -> Any:
        import pyarrow.parquet as pq  # large

        schema = self._form.schema
        numbers = [schema.get_field_index(name) for name in ("partition", "offset")]
        return pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            use_dictionary=_DICTIONARIES,
            column_encoding=_ENCODINGS,
            write_statistics=_STATISTICS,
            write_page_index=True,
            sorting_columns=[pq.SortingColumn(number) for number in numbers],
        )

    def _put(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=len(table))


class _ArrowFile(_Grouped):
    """A record batch for each group of rows."""

    def _begin(self) -> Any:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        return pa.ipc.new_file(self._sink, self._form.schema, options=options)

    def _put(self, table: pa.Table) -> None:
        self._writer.write_table(table.combine_chunks())


class _CsvFile(_Grouped):
    """Lines of comma-separated values after one with the names of the columns."""

    def _begin(self) -> Any:
        import pyarrow.csv as csv  # seldom needed

        options = csv.WriteOptions(**CSV_OPTIONS)
        return csv.CSVWriter(self._sink, self._form.csv_schema, write_options=options)

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        return self._form.csv_batch(columns)

    def _put(self, table: pa.Table) -> None:
        self._writer.write_table(table)


class _JsonLinesFile:
    held = 0

    def __init__(self, sink: FileSink, form: RecordForm) -> None:
        self.rows = 0
        self._sink = sink
        self._form = form

    def write(self, columns: Columns) -> None:
        self._sink.write(self._form.lines(columns))
        self.rows += len(columns)

    def flush(self) -> None:
        """Does nothing: nothing is held."""

    @property
    def checksum(self) -> int:
        return self._sink.checksum

    def close(self) -> None:
        self._sink.finish()

    def abandon(self) -> None:
        self._sink.abandon()
