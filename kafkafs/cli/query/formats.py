"""Writes results of queries in the formats of `kafkafs sql --format`, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final

import pyarrow as pa

from ..support.failures import Failure
from ..support.output import Output
from .box import box
from .cells import as_json, as_text, python_values, text_column, without_intervals

Batches = Iterable[pa.RecordBatch]
_Writer = Callable[[Batches, Output], None]


def _table(batches: Batches, out: Output) -> None:
    out.write("".join(f"{line}\n" for line in box(batches)).encode("utf-8", "backslashreplace"))


def _csv(batches: Batches, out: Output) -> None:
    import pyarrow.csv as pa_csv

    is_first = True
    for batch in batches:
        if not len(batch.schema):
            return
        columns = [text_column(column) for column in batch.columns]
        flat = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        options = pa_csv.WriteOptions(include_header=is_first, quoting_style="needed")
        buffer = pa.BufferOutputStream()
        pa_csv.write_csv(flat, buffer, options)
        out.write(memoryview(buffer.getvalue()))
        is_first = False


def _rows(batch: pa.RecordBatch) -> Iterator[str]:
    """Yields rows as JSON objects. Of columns with the same name the last is kept, as in Python."""
    names = batch.schema.names
    columns = ([as_json(value) for value in python_values(column)] for column in batch.columns)
    for row in zip(*columns, strict=True):
        found = dict(zip(names, row, strict=True))
        yield json.dumps(found, ensure_ascii=False, separators=(",", ":"))


def _jsonl(batches: Batches, out: Output) -> None:
    for batch in batches:
        text = "".join(f"{row}\n" for row in _rows(batch))
        out.write(text.encode("utf-8", "backslashreplace"))


def _json(batches: Batches, out: Output) -> None:
    before = "["
    for batch in batches:
        for row in _rows(batch):
            out.write(f"{before}{row}".encode("utf-8", "backslashreplace"))
            before = ",\n"
    out.write(b"[]\n" if before == "[" else b"]\n")


def _markdown(batches: Batches, out: Output) -> None:
    is_first = True
    for batch in batches:
        if not len(batch.schema):
            return
        lines = []
        if is_first:
            names = [_markdown_cell(name) for name in batch.schema.names]
            lines += [_markdown_row(names), _markdown_row(["---"] * len(names))]
            is_first = False
        columns = [python_values(column) for column in batch.columns]
        for row in zip(*columns, strict=True):
            cells = ["" if value is None else _markdown_cell(as_text(value)) for value in row]
            lines.append(_markdown_row(cells))
        out.write("".join(lines).encode("utf-8", "backslashreplace"))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _markdown_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def _arrow(batches: Batches, out: Output) -> None:
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    for batch in batches:
        writer = writer or pa.ipc.new_stream(_sink(out), batch.schema)
        if len(batch):
            writer.write_batch(batch)
    if writer is not None:
        writer.close()


def _parquet(batches: Batches, out: Output) -> None:
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | None = None
    for batch in map(without_intervals, batches):
        writer = writer or pq.ParquetWriter(_sink(out), batch.schema, compression="zstd")
        if len(batch):
            writer.write_batch(batch)
    if writer is not None:
        writer.close()


class _Sink:
    """Output as the file that pyarrow writes to."""

    closed = False

    def __init__(self, out: Output) -> None:
        self.write = out.write
        self.flush = out.flush

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.flush()


def _sink(out: Output) -> pa.NativeFile:
    return pa.PythonFile(_Sink(out), mode="w")


_WRITERS: Final[dict[str, _Writer]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "arrow": _arrow,
    "parquet": _parquet,
    "markdown": _markdown,
}


def write(batches: Batches, form: str, out: BinaryIO | Output) -> None:
    """Writes a result in a format. Raises Failure if the format cannot hold its types."""
    try:
        _WRITERS[form](batches, out)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        what = " ".join(str(error).split())
        raise Failure(f"--format {form}: {what}; cast such a column, as to VARCHAR") from None
