"""The option `decodeValue`: values as a column of one type, which is fixed when a read is planned.

The driver finds the reader's schema, and the metadata of the column `decoded` carry it to the
readers, and into the catalog for a table. Tasks resolve values to it, and look up the schemas that
records name in the log directories themselves: a stream meets versions that were registered after
it had started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkafs.storage import (
    Columns,
    DecodedColumns,
    OffsetRange,
    ReaderSchema,
    SchemaCatalog,
    SchemaError,
    Schemas,
    SchemaSourceDirs,
    SuppliedSchemas,
    TopicReaders,
    arrow_type_of,
)

from ..options import OptionError, ReadOptions
from .planning import assigned, check_topics, find_log_dirs, open_engine

OPTION: Final = "decodeValue"
#: The option's value for the newest version of the topic's subject; others are paths.
REGISTRY: Final = "registry"
DECODED: Final = "decoded"
DECODE_ERROR: Final = "decodeError"
#: The name in the metadata of the column `decoded` whose value is the reader's schema, as JSON.
METADATA: Final = "kafkafs.schema"

#: Types that Spark does not have, and those that it has for their values.
_SPARK_TYPES: Final = {
    pa.null(): pa.string(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.duration("ns"): pa.duration("us"),
}
_OUTSIDE: Final = "a time or decimal is outside the range of Spark"


@dataclass(frozen=True, slots=True)
class ValueDecoding:
    """How values are decoded, the same for all tasks of a read. `supplied`: schemas given as files,
    which workers may not have."""

    reader: ReaderSchema
    supplied: SuppliedSchemas

    @classmethod
    def of(
        cls, options: ReadOptions, metadata: Iterable[Mapping[str, Any]] = ()
    ) -> ValueDecoding | None:
        """Returns None without the option. The schema is in the `metadata` of a column, or that of
        now. Raises OptionError if there is none or it cannot be used, LogDirError or OSError if it
        cannot be read."""
        if options.decode_value is None or options.losses:
            return None
        kept = next((each[METADATA] for each in metadata if METADATA in each), None)
        with closing(open_engine(find_log_dirs(options.paths), options)) as engine:
            try:
                schemas = SchemaCatalog(engine).schemas()
                if kept is not None:
                    reader = ReaderSchema.of_json(json.loads(kept))
                elif options.decode_value == REGISTRY:
                    check_topics(engine.topics(), options)
                    topics = dict.fromkeys(topic for topic, _ in assigned(engine.topics(), options))
                    reader = _common_reader(schemas, topics)
                else:
                    reader = ReaderSchema.of_file(options.decode_value)
                return cls(reader, schemas.supplied)
            except SchemaError as error:
                raise OptionError(OPTION, str(error)) from None

    def type(self) -> pa.DataType:
        """Returns the Arrow type of values, of types that Spark has. Raises OptionError if the
        schema cannot be used."""
        try:
            return _for_spark(arrow_type_of(self.reader))
        except SchemaError as error:
            raise OptionError(OPTION, str(error)) from None

    def metadata(self) -> dict[str, str]:
        return {METADATA: json.dumps(self.reader.as_json())}


def _common_reader(schemas: Schemas, topics: Iterable[str]) -> ReaderSchema:
    """Returns the schema of these topics' values. Raises OptionError if one has none, or another
    one than the others."""
    found: dict[str, ReaderSchema] = {}
    for topic in topics:
        reader = ReaderSchema.of_topic(schemas, topic)
        if reader is None:
            why = f"no schema is known for the values of topic {topic}"
            raise OptionError(OPTION, f"{why}; read other topics, or name the file of a schema")
        found[topic] = reader
    if not found:
        raise OptionError(OPTION, "there is no topic to read; name the file of a schema")
    first, *others = found
    for other in others:
        one, another = found[first].schema, found[other].schema
        if (one.type, one.text) != (another.type, another.text):
            why = f"the topics {first} and {other} have different schemas"
            raise OptionError(OPTION, f"{why}; read one of them, or name the file of a schema")
    return found[first]


def _for_spark(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Spark has for the values of a type: as its `from_avro` does, a time of
    day is a number in its unit."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_for_spark(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_for_spark(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_for_spark(kind.key_type), _for_spark(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal256(kind):
        return pa.string()
    return _SPARK_TYPES.get(kind, kind)


class ValueDecoder:
    """Decodes values in a task."""

    def __init__(
        self, decoding: ValueDecoding, source: SchemaSourceDirs, schema: pa.Schema
    ) -> None:
        """`schema`: the columns of the read."""
        self._readers = TopicReaders(decoding.reader)
        self._source = source
        self._type = schema.field(DECODED).type if DECODED in schema.names else decoding.type()
        self._of_topic: dict[str, DecodedColumns] = {}

    def arrays(
        self, columns: Columns, ranges: Sequence[OffsetRange], rows: Sequence[int]
    ) -> dict[str, pa.Array]:
        """Returns the columns `decoded` and `decodeError` of columns with so many rows of each
        range."""
        topics: list[tuple[str, int]] = []  # with the end of its rows
        for each, end in zip(ranges, np.cumsum(rows).tolist(), strict=True):
            if topics and topics[-1][0] == each.topic:
                topics.pop()
            topics.append((each.topic, end))
        start, parts = 0, []
        for topic, end in topics:
            part = columns if len(topics) == 1 else columns.slice(start, end)
            parts.append(self._decoded(topic, part))
            start = end
        names = DECODED, DECODE_ERROR
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in names}

    def _decoded(self, topic: str, columns: Columns) -> dict[str, pa.Array]:
        if topic not in self._of_topic:
            self._of_topic[topic] = self._source.decoded_columns(topic, self._readers)
        found = self._of_topic[topic].arrays(columns, (DECODED,))
        values, reasons = _fitted(found[DECODED], found[DECODE_ERROR], self._type)
        return {DECODED: values, DECODE_ERROR: reasons}


def _fitted(values: pa.Array, reasons: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Returns values and reasons with the type that Spark requires; nanoseconds are cut off. A
    value that Spark cannot have is null."""
    if values.type == kind:
        return values, reasons
    how = pc.CastOptions(kind, allow_time_truncate=True)
    try:
        return values.cast(options=how), reasons
    except pa.ArrowInvalid:
        pass
    texts, parts = reasons.to_pylist(), []
    for row in range(len(values)):
        try:
            parts.append(values.slice(row, 1).cast(options=how))
        except pa.ArrowInvalid:
            parts.append(pa.nulls(1, kind))
            texts[row] = _OUTSIDE
    return pa.concat_arrays(parts), pa.array(texts, pa.string())
