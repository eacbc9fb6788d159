"""Keys and values as Arrow columns of one type: that of a reader's schema, to which the data of
each record are resolved.

The reader's schema is the newest version of the topic's subject, or one that was given, for the
topic or for this read. Records are grouped by what their frames name, and each group is decoded at
once. Whatever is wrong with a record or with the schema that it names concerns this record alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...errors import DatumError, SchemaError
from ...format.records.batch import Int64s
from ...format.records.columns import KEY_SIZE, KEY_START, VALUE_SIZE, VALUE_START, Columns
from ..avro_types import AvroType, parse_avro
from ..catalog import Schemas
from ..columns import AvroColumns
from ..framed_columns import FramedRows, framed_rows
from ..framing import UNFRAMED, Frame, Framing, decompressed
from ..resolution import arrow_type, resolve
from ..schema import Schema, SchemaType
from ..supplied import CONFIG
from .reader_schema import ReaderSchema, TopicReaders, subject_of

# Bytes that compressed data may have together when they are decompressed. What is in a log is a few
# megabytes at a time, and only hostile data grow a hundredfold.
_MAX_DECOMPRESSED: Final = 512 << 20
_TOO_LARGE: Final = f"with those before it, it has more than {_MAX_DECOMPRESSED >> 20} MiB"
_UNNAMED: Final = "its bytes name no schema"


#: The columns that decoding adds: values and why one does not fit, for values and for keys.
DECODED: Final = ("decoded", "decodeError")
DECODED_KEY: Final = ("decodedKey", "decodeKeyError")
DECODED_NAMES: Final = (*DECODED, *DECODED_KEY)


class _Decoded(NamedTuple):
    """Values of some rows, and why each does not fit, null if it does."""

    rows: Int64s
    values: pa.Array
    reasons: pa.Array


class TypedDecoder:
    """Decodes the keys or values of a topic to the Arrow type `type`. Any thread may use it."""

    def __init__(
        self,
        schemas: Schemas,
        topic: str,
        *,
        is_key: bool = False,
        reader: ReaderSchema | None = None,
    ) -> None:
        """`reader`: by default the schema of the topic. Raises SchemaError if there is none, or if
        it cannot be used."""
        self._schemas = schemas
        self._subject = subject_of(topic, is_key=is_key)
        self._is_key = is_key
        given = schemas.of_topic(topic, is_key=is_key)
        self._framing = given.framing if given is not None else None
        found = reader or ReaderSchema.of_topic(schemas, topic, is_key=is_key)
        if found is None:
            part, option = ("keys", f"{topic}:key") if is_key else ("values", topic)
            why = f"the schema of its {part} is unknown: there is no subject {self._subject}"
            how = f"name a file with it in the config {CONFIG}: {option}=FILE"
            raise SchemaError(f"topic {topic}", f"{why}; {how}")
        # What data are that name no schema, or one that nobody has: what was given, as users do
        # without a registry.
        plain = given.schema if given is not None and given.schema is not None else None
        if plain is None and found.schema.id is None:
            plain = found.schema
        self._plain = plain
        self._reader = found
        self._type, self.type = _parsed(found)
        self._writers: dict[Schema, AvroColumns | str] = {}

    def columns(self, columns: Columns) -> tuple[pa.Array, pa.Array]:
        """Returns the decoded keys or values, and a string column with why one does not fit, null
        if it does. One that does not fit is null, except that bytes may be left over. A null has
        neither value nor reason. They share no memory with `columns`."""
        column = _Spans(columns, is_key=self._is_key)
        groups = framed_rows(columns, is_key=self._is_key)
        decoded = [self._decode(column, group) for group in groups]
        return _in_order(decoded, len(columns), self.type)

    def _decode(self, column: _Spans, group: FramedRows) -> _Decoded:
        rows, frame = group.rows, group.frame
        writer = self._writer(frame)
        if isinstance(writer, str):
            return _failed(rows, self.type, writer)
        if self._framing is Framing.NONE:
            frame = UNFRAMED
        if frame.is_compressed:
            return self._decompressed(column, rows, frame.start, writer)
        values, reasons = writer.build(column.data, column.after(rows, frame.start))
        return _Decoded(rows, values, reasons)

    def _writer(self, frame: Frame) -> AvroColumns | str:
        """Returns what decodes data with this frame, or why there is nothing."""
        if self._framing is Framing.NONE:
            frame = UNFRAMED
        elif self._framing not in (None, frame.framing):
            return f"it does not begin as the framing {self._framing} does"
        if frame.fault:
            return frame.fault
        found = self._named(frame) or self._plain
        if found is None:
            if frame.framing is Framing.NONE:
                return _UNNAMED
            return self._schemas.missing(frame.schema_id, frame.guid)
        if found not in self._writers:
            self._writers[found] = self._compiled(found)
        return self._writers[found]

    def _named(self, frame: Frame) -> Schema | None:
        if frame.guid is not None:
            return self._schemas.by_guid(frame.guid)
        if frame.schema_id is not None:
            return self._schemas.by_id(frame.schema_id, self._subject)
        return None

    def _compiled(self, writer: Schema) -> AvroColumns | str:
        reader = self._reader.schema
        if writer.type != reader.type:
            return f"{writer.name} is of type {writer.type}, but {reader.name} of {reader.type}"
        try:
            referenced = self._schemas.referenced(writer)
            return resolve(parse_avro(writer, referenced), self._type)
        except SchemaError as error:
            return str(error)
        except RecursionError:
            return f"{writer.name}: its types are nested too deeply"

    def _decompressed(
        self, column: _Spans, rows: Int64s, start: int, writer: AvroColumns
    ) -> _Decoded:
        """Decodes data that are compressed, each for itself."""
        left = _MAX_DECOMPRESSED
        pieces: list[bytes] = []
        wrong: dict[int, str] = {}
        for place, (low, high) in enumerate(column.after(rows, start).tolist()):
            try:
                piece = decompressed(bytes(column.data[low:high]))
                if len(piece) > left:
                    raise DatumError(_TOO_LARGE)
            except DatumError as error:
                wrong[place], piece = error.why, b""
            left -= len(piece)
            pieces.append(piece)
        ends = np.cumsum([0, *map(len, pieces)])
        spans = np.stack([ends[:-1], ends[1:]], axis=1)
        values, reasons = writer.build(memoryview(b"".join(pieces)), spans)
        if wrong:
            texts = reasons.to_pylist()
            for place, why in wrong.items():
                texts[place] = why
            kept = [None if place in wrong else place for place in range(len(rows))]
            values = values.take(pa.array(kept, pa.int64()))
            reasons = pa.array(texts, pa.string())
        return _Decoded(rows, values, reasons)


class DecodedColumns:
    """The columns that decoding adds to those of a topic's records: `decoded` and `decodeError`,
    `decodedKey` and `decodeKeyError`, without those of what has no schema."""

    def __init__(self, values: TypedDecoder | None, keys: TypedDecoder | None = None) -> None:
        named = ((DECODED, values), (DECODED_KEY, keys))
        self._decoders = [(names, each) for names, each in named if each is not None]

    @classmethod
    def of_topic(
        cls, schemas: Schemas, topic: str, readers: TopicReaders | None = None
    ) -> DecodedColumns:
        """`readers`: by default what the topic has schemas for. Raises SchemaError if there are
        none, or one cannot be used."""
        if readers is None:
            readers = TopicReaders.of_topic(schemas, topic)
        value = key = None
        if readers.values is not None or readers.keys is None:
            value = TypedDecoder(schemas, topic, reader=readers.values)
        if readers.keys is not None:
            key = TypedDecoder(schemas, topic, is_key=True, reader=readers.keys)
        return cls(value, key)

    @property
    def schema(self) -> pa.Schema:
        fields: list[tuple[str, pa.DataType]] = []
        for (value, reason), decoder in self._decoders:
            fields += [(value, decoder.type), (reason, pa.string())]
        return pa.schema(fields)

    def arrays(self, columns: Columns, names: Collection[str]) -> dict[str, pa.Array]:
        """Returns at least the columns with these names."""
        found: dict[str, pa.Array] = {}
        for own, decoder in self._decoders:
            if not set(own).isdisjoint(names):
                found.update(zip(own, decoder.columns(columns), strict=True))
        return found


class _Spans:
    """Where the keys or values of columns are."""

    def __init__(self, columns: Columns, *, is_key: bool) -> None:
        start, size = (KEY_START, KEY_SIZE) if is_key else (VALUE_START, VALUE_SIZE)
        self.data = memoryview(columns.data)
        self._starts = columns.spans[:, start]
        self._sizes = columns.spans[:, size]

    def after(self, rows: Int64s, start: int) -> Int64s:
        """Returns where these begin, without the first bytes, and where they end: int64, shape
        (n, 2)."""
        starts = self._starts[rows].astype(np.int64)
        return np.stack([starts + start, starts + self._sizes[rows]], axis=1)


def _parsed(reader: ReaderSchema) -> tuple[AvroType, pa.DataType]:
    """Raises SchemaError."""
    schema = reader.schema
    if schema.type != SchemaType.AVRO:
        why = f"schemas of type {schema.type} cannot become columns yet, only those of Avro"
        raise SchemaError(schema.name, why)
    try:
        parsed = parse_avro(schema, reader.referenced)
        return parsed, arrow_type(parsed)
    except RecursionError:
        raise SchemaError(schema.name, "its types are nested too deeply") from None


def arrow_type_of(reader: ReaderSchema) -> pa.DataType:
    """Returns the type of what is decoded to a schema. Raises SchemaError if it cannot be used."""
    return _parsed(reader)[1]


def _failed(rows: Int64s, kind: pa.DataType, why: str) -> _Decoded:
    return _Decoded(rows, pa.nulls(len(rows), kind), pa.repeat(pa.scalar(why), len(rows)))


def _in_order(decoded: list[_Decoded], rows: int, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Returns values and reasons of all rows. Rows that are in no group are null."""
    if len(decoded) == 1 and len(decoded[0].rows) == rows:
        return decoded[0].values, decoded[0].reasons
    if not decoded:
        return pa.nulls(rows, kind), pa.nulls(rows, pa.string())
    order = np.concatenate([each.rows for each in decoded])
    places = np.zeros(rows, dtype=np.int64)
    places[order] = np.arange(len(order))
    is_null = np.ones(rows, dtype=np.bool_)
    is_null[order] = False
    taken = pa.array(places, mask=is_null)
    return (
        pa.concat_arrays([each.values for each in decoded]).take(taken),
        pa.concat_arrays([each.reasons for each in decoded]).take(taken),
    )
