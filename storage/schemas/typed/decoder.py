"""Keys and values as Arrow columns of one type: that of a reader's schema, to which the data of
each record are resolved.

The reader's schema is the newest version of the topic's subject, or one that was given, for the
topic or for this read. Records are grouped by what their frames name, and each group is decoded at
once. Whatever is wrong with a record or with the schema that it names concerns this record alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import SchemaError
from ...format.records.arrow import RECORD_SCHEMA, TableLimits, to_record_batch
from ...format.records.batch import Int64s
from ...format.records.columns import Columns
from ...log_dirs.log_dirs import SCHEMAS_CONFIG
from ..catalog import Schemas
from ..framing import UNFRAMED
from ..in_chunks import in_whole_chunks, width_of
from ..named_rows import NamedRows, named_rows, subject_of
from ..schema import Schema
from .reader_schema import Reader, ReaderSchema, TopicReaders
from .readers import Payloads, TypedRows, Writer
from .union_reader import column_reader

# The values that a table has in all of its columns together, not counting items of lists.
_MAX_CELLS: Final = 1 << 22
_UNNAMED: Final = "its bytes name no schema"


#: The columns that decoding adds: values and why one does not fit, for values and for keys.
DECODED: Final = ("decoded", "decodeError")
DECODED_KEY: Final = ("decodedKey", "decodeKeyError")
DECODED_NAMES: Final = (*DECODED, *DECODED_KEY)


class TypedDecoder:
    """Decodes the keys or values of a topic to the Arrow type `type`. Any thread may use it."""

    def __init__(
        self,
        schemas: Schemas,
        topic: str,
        *,
        is_key: bool = False,
        reader: Reader | None = None,
    ) -> None:
        """`reader`: by default the schema of the topic. Raises SchemaError if there is none, or if
        it cannot be used."""
        self._schemas = schemas
        self._topic = topic
        self._is_key = is_key
        found = reader or ReaderSchema.of_topic(schemas, topic, is_key=is_key)
        if found is None:
            subject = subject_of(topic, is_key=is_key)
            part, option = ("keys", f"{topic}:key") if is_key else ("values", topic)
            why = f"the schema of its {part} is unknown: there is no subject {subject}"
            how = f"name a file with it in the config {SCHEMAS_CONFIG}: {option}=FILE"
            raise SchemaError(f"topic {topic}", f"{why}; {how}")
        # A schema that no registry knows was given for data that name none.
        given = found.schema if isinstance(found, ReaderSchema) else None
        self._for_topic = given if given is not None and given.id is None else None
        self._given = found
        self._reader = column_reader(found)
        self.type = self._reader.type
        self._writers: dict[Schema, Writer | str] = {}

    def columns(self, columns: Columns) -> tuple[pa.Array, pa.Array]:
        """Returns the decoded keys or values, and a string column with why one does not fit, null
        if it does. One that does not fit is null, except that bytes may be left over. A null has
        neither value nor reason. They share no memory with `columns`."""
        payloads = Payloads(columns, is_key=self._is_key)
        groups = named_rows(
            self._schemas, self._topic, columns, is_key=self._is_key, for_topic=self._for_topic
        )
        decoded = [self._decode(payloads, group) for group in groups]
        return _in_order(decoded, len(columns), self.type)

    def _decode(self, payloads: Payloads, group: NamedRows) -> TypedRows:
        if group.schema is None:
            return _failed(group.rows, self.type, group.why or _UNNAMED)
        if group.schema not in self._writers:
            self._writers[group.schema] = self._compiled(group.schema)
        writer = self._writers[group.schema]
        if isinstance(writer, str):
            return _failed(group.rows, self.type, writer)
        framed = writer(payloads, group.rows, group.frame)
        if not group.is_unsure or framed.reasons.null_count == len(group.rows):
            return framed
        plain = writer(payloads, group.rows, UNFRAMED)
        is_plain = _is_valid(framed.reasons) & ~_is_valid(plain.reasons)
        places = np.arange(len(is_plain)) + is_plain * len(is_plain)
        both = zip(framed[1:], plain[1:], strict=True)
        chosen = (pa.concat_arrays(each).take(pa.array(places)) for each in both)
        return TypedRows(group.rows, *chosen)

    def _compiled(self, writer: Schema) -> Writer | str:
        """Returns what decodes the data of a schema, or why they cannot be decoded."""
        given = self._given
        try:
            if isinstance(given, ReaderSchema) and writer is given.schema:
                return self._reader.writer(writer, given.referenced)
            return self._reader.writer(writer, self._schemas.referenced(writer))
        except SchemaError as error:
            return str(error)


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

    @property
    def record_schema(self) -> pa.Schema:
        """That of records, followed by these columns."""
        return pa.schema([*RECORD_SCHEMA, *self.schema])

    def record_batch(self, columns: Columns, topic: str, partition: int) -> pa.RecordBatch:
        """Returns records of `record_schema`, sharing no memory with `columns`."""
        raw = to_record_batch(columns, topic, partition)
        found = self.arrays(columns, self.schema.names)
        arrays = [*raw.columns, *(found[name] for name in self.schema.names)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.record_schema)

    @property
    def rows_at_once(self) -> int:
        """The most rows that are decoded at once: of many columns there are fewer, as a value of a
        few bytes has all of them."""
        return in_whole_chunks(max(_MAX_CELLS // sum(map(width_of, self.schema.types)), 1))

    def limits(self, limits: TableLimits) -> TableLimits:
        """Returns the limits of a table with these columns."""
        return limits._replace(rows=min(limits.rows, self.rows_at_once))

    def arrays(self, columns: Columns, names: Collection[str]) -> dict[str, pa.Array]:
        """Returns at least the columns with these names."""
        found: dict[str, pa.Array] = {}
        for own, decoder in self._decoders:
            if not set(own).isdisjoint(names):
                found.update(zip(own, decoder.columns(columns), strict=True))
        return found


def arrow_type_of(reader: Reader) -> pa.DataType:
    """Returns the type of what is decoded to a schema. Raises SchemaError if it cannot be used."""
    return column_reader(reader).type


def _is_valid(array: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _failed(rows: Int64s, kind: pa.DataType, why: str) -> TypedRows:
    return TypedRows(rows, pa.nulls(len(rows), kind), pa.repeat(pa.scalar(why), len(rows)))


def _in_order(decoded: list[TypedRows], rows: int, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
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
