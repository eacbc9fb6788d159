"""What makes columns of data: for each type of schema, a reader that knows the type of the columns,
and of it a writer for each schema with which data were written.

Avro resolves data to the reader's schema. Protobuf and JSON Schema need no resolution: the data of
all versions are read with the reader's schema, of which a Protobuf datum must be the same message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ...errors import DatumError, SchemaError
from ...format.records.batch import Int64s
from ...format.records.columns import KEY_SIZE, KEY_START, VALUE_SIZE, VALUE_START, Columns
from ..avro.resolution import resolve
from ..avro.shapes import arrow_type
from ..avro.types import parse_avro
from ..framing import Frame, MessageRef, datum_of
from ..json_schema.columns import JsonColumns
from ..json_schema.decoder import compile_json_schema
from ..protobuf.columns import ProtobufColumns
from ..protobuf.decoder import compile_protobuf
from ..schema import Schema, SchemaType
from .reader_schema import ReaderSchema

# Bytes that data may have together after they were decompressed or copied. What is in a log is a
# few megabytes at a time, and only hostile data grow a hundredfold.
_MAX_COPIED: Final = 512 << 20
_TOO_LARGE: Final = f"with those before it, it has more than {_MAX_COPIED >> 20} MiB"
_TOO_DEEP: Final = "its types are nested too deeply"


class TypedRows(NamedTuple):
    """Values of some rows, and why each does not fit, null if it does."""

    rows: Int64s
    values: pa.Array
    reasons: pa.Array


class Payloads:
    """The keys or values of columns."""

    def __init__(self, columns: Columns, *, is_key: bool) -> None:
        start, size = (KEY_START, KEY_SIZE) if is_key else (VALUE_START, VALUE_SIZE)
        self.data = memoryview(columns.data)
        self._starts = columns.spans[:, start]
        self._sizes = columns.spans[:, size]

    def after(self, rows: Int64s, start: int) -> Int64s:
        """Returns where these begin, without the first bytes, and where they end: int64, shape
        (n, 2)."""
        spans = np.empty((len(rows), 2), dtype=np.int64)
        starts = self._starts[rows]
        spans[:, 0] = starts
        spans[:, 1] = spans[:, 0] + self._sizes[rows]
        spans[:, 0] += start
        return spans


#: Decodes rows with the same frame.
Writer = Callable[[Payloads, Int64s, Frame], TypedRows]


class _Columns(Protocol):
    @property
    def type(self) -> pa.DataType: ...

    def build(self, data: memoryview, spans: Int64s) -> tuple[pa.Array, pa.Array]: ...


class ColumnReader(Protocol):
    """`type`: that of the columns."""

    type: pa.DataType

    def writer(self, schema: Schema, referenced: Mapping[str, Schema]) -> Writer:
        """Returns what decodes the data of a schema. Raises SchemaError, also if data of its type
        cannot be resolved."""


def reader_of(given: ReaderSchema) -> ColumnReader:
    """Raises SchemaError if the schema cannot be used."""
    make = _READERS.get(given.schema.type)
    if make is None:
        why = f"schemas of type {given.schema.type} are not decoded"
        raise SchemaError(given.schema.name, why)
    try:
        return make(given)
    except RecursionError:
        raise SchemaError(given.schema.name, _TOO_DEEP) from None


def _check_type(reader: Schema, writer: Schema) -> None:
    """Raises SchemaError unless both are of the same type."""
    if writer.type != reader.type:
        why = f"it is of type {writer.type}, but {reader.name} of {reader.type}"
        raise SchemaError(writer.name, why)


class _AvroReader:
    def __init__(self, given: ReaderSchema) -> None:
        self._schema = given.schema
        self._parsed = parse_avro(given.schema, given.referenced)
        self.type = arrow_type(self._parsed)

    def writer(self, schema: Schema, referenced: Mapping[str, Schema]) -> Writer:
        _check_type(self._schema, schema)
        try:
            return _writer(resolve(parse_avro(schema, referenced), self._parsed))
        except RecursionError:
            raise SchemaError(schema.name, _TOO_DEEP) from None


class _JsonReader:
    def __init__(self, given: ReaderSchema) -> None:
        self._schema = given.schema
        self._columns = JsonColumns(compile_json_schema(given.schema, given.referenced))
        self.type = self._columns.type

    def writer(self, schema: Schema, referenced: Mapping[str, Schema]) -> Writer:
        _check_type(self._schema, schema)
        return _writer(self._columns)


def _writer(columns: _Columns) -> Writer:
    """Returns what decodes data that follow their frame."""

    def decode(payloads: Payloads, rows: Int64s, frame: Frame) -> TypedRows:
        if not frame.is_compressed:
            found = columns.build(payloads.data, payloads.after(rows, frame.start))
            return TypedRows(rows, *found)
        data = _Copied()
        for low, high in payloads.after(rows, 0).tolist():
            data.add(frame, bytes(payloads.data[low:high]), SchemaType.AVRO)
        return data.built(rows, columns)

    return decode


class _Copied:
    """Data that do not lie in the log as they are."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._left = _MAX_COPIED
        self.wrong: dict[int, str] = {}

    def add(
        self, frame: Frame, value: bytes, kind: str, check: Callable[..., None] | None = None
    ) -> None:
        """Adds a datum; `check` gets it and the reference to its message, and may raise
        DatumError."""
        piece = b""
        try:
            piece, message = datum_of(frame, value, kind)
            if len(piece) > self._left:
                raise DatumError(_TOO_LARGE)
            if check is not None:
                check(piece, message)
        except DatumError as error:
            self.wrong[len(self._pieces)], piece = error.why, b""
        self._left -= len(piece)
        self._pieces.append(piece)

    def built(self, rows: Int64s, columns: _Columns) -> TypedRows:
        ends = np.cumsum([0, *map(len, self._pieces)])
        spans = np.stack([ends[:-1], ends[1:]], axis=1)
        values, reasons = columns.build(memoryview(b"".join(self._pieces)), spans)
        if not self.wrong:
            return TypedRows(rows, values, reasons)
        texts = reasons.to_pylist()
        for place, why in self.wrong.items():
            texts[place] = why
        kept = [None if place in self.wrong else place for place in range(len(rows))]
        taken = values.take(pa.array(kept, pa.int64()))
        return TypedRows(rows, taken, pa.array(texts, pa.string()))


class _ProtobufReader:
    def __init__(self, given: ReaderSchema) -> None:
        self._schema = given.schema
        decoder = compile_protobuf(given.schema, given.referenced)
        self._columns = ProtobufColumns(decoder)
        self._message = decoder.message_names()[0]
        self.type = self._columns.type

    def writer(self, schema: Schema, referenced: Mapping[str, Schema]) -> Writer:
        _check_type(self._schema, schema)
        written = compile_protobuf(schema, referenced)

        def decode(payloads: Payloads, rows: Int64s, frame: Frame) -> TypedRows:
            data = _Copied()
            for low, high in payloads.after(rows, 0).tolist():
                value = bytes(payloads.data[low:high])
                data.add(frame, value, SchemaType.PROTOBUF, check)
            return data.built(rows, self._columns)

        def check(datum: bytes, message: MessageRef) -> None:
            names = written.message_names(message)
            name = names[0]
            if len(names) > 1 and self._message in names:
                name = written.parse(datum, names).DESCRIPTOR.full_name
            if name != self._message:
                raise DatumError(f"it is a {name}, not a {self._message}")

        return decode


_READERS: Final[Mapping[str, Callable[[ReaderSchema], ColumnReader]]] = {
    SchemaType.AVRO: _AvroReader,
    SchemaType.PROTOBUF: _ProtobufReader,
    SchemaType.JSON: _JsonReader,
}
