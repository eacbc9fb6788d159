"""The options `decodeValue` and `decodeKey`: values and keys as columns of one type, which is fixed
when a read is planned.

The driver finds the reader's schemas, and the metadata of the columns `decoded` and `decodedKey`
carry them to the readers, and into the catalog for a table. Tasks resolve what they read to them,
and look up the schemas that records name in the log directories themselves: a stream meets versions
that were registered after it had started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkafs.storage import (
    Columns,
    DecodedColumns,
    Engine,
    OffsetRange,
    Reader,
    ReaderSchema,
    ReaderUnion,
    SchemaCatalog,
    SchemaError,
    Schemas,
    SchemaSourceDirs,
    SuppliedSchemas,
    TopicReaders,
    arrow_type_of,
    reader_of_json,
    topic_readers,
)

from ..option_texts import OptionError
from ..options import ReadOptions
from .planning import assigned, check_topics, find_log_dirs, open_engine

#: The options' value for the newest version of the topic's subject; others are paths.
REGISTRY: Final = "registry"
#: The name in the metadata of the column `decoded` whose value is the reader's schema, as JSON;
#: that of keys ends with `.key`.
METADATA: Final = "kafkafs.schema"

T = TypeVar("T")

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
class DecodedPart:
    """What an option decodes: the columns that it adds, and how messages call what they have."""

    option: str
    value: str
    reason: str
    what: str
    is_key: bool = False

    def place(self, options: ReadOptions) -> str | None:
        """Returns the option's value, None if it was not given."""
        return options.decode_key if self.is_key else options.decode_value

    def reader(self, readers: TopicReaders) -> Reader | None:
        return readers.keys if self.is_key else readers.values


VALUES: Final = DecodedPart("decodeValue", "decoded", "decodeError", "values")
KEYS: Final = DecodedPart("decodeKey", "decodedKey", "decodeKeyError", "keys", is_key=True)
_BOTH: Final = (VALUES, KEYS)
#: The names of the columns.
DECODED_COLUMNS: Final = tuple(name for each in _BOTH for name in (each.value, each.reason))


@dataclass(frozen=True, slots=True)
class Decoding:
    """How values and keys are decoded, the same for all tasks of a read. `supplied`: schemas given
    as files, which workers may not have."""

    readers: TopicReaders
    supplied: SuppliedSchemas

    @classmethod
    def of(
        cls, options: ReadOptions, metadata: Iterable[Mapping[str, Any]] = ()
    ) -> Decoding | None:
        """Returns None without the options. A schema is in the `metadata` of its column, or that of
        now. Raises OptionError if there is none or it cannot be used, LogDirError or OSError if it
        cannot be read."""
        asked = [each for each in _BOTH if each.place(options) is not None]
        if not asked or options.losses:
            return None
        kept = {name: text for each in metadata for name, text in each.items()}
        found: dict[bool, Reader] = {}
        with closing(open_engine(find_log_dirs(options.paths), options)) as engine:
            schemas = _of_options(VALUES, lambda: SchemaCatalog(engine).schemas())
            for each in asked:
                find = partial(_reader, each, engine, schemas, options, kept.get(_metadata(each)))
                found[each.is_key] = _of_options(each, find)
        return cls(TopicReaders(found.get(False), found.get(True)), schemas.supplied)

    def types(self) -> dict[str, pa.DataType]:
        """Returns the Arrow type of each column, of types that Spark has. Raises OptionError if a
        schema cannot be used."""
        found: dict[str, pa.DataType] = {}
        for each in _BOTH:
            reader = each.reader(self.readers)
            if reader is not None:
                kind = _of_options(each, partial(arrow_type_of, reader))
                found |= {each.value: _for_spark(kind), each.reason: pa.string()}
        return found

    def metadata(self) -> dict[str, dict[str, str]]:
        """Returns the metadata of the columns that have any."""
        return {
            each.value: {_metadata(each): json.dumps(reader.as_json())}
            for each in _BOTH
            if (reader := each.reader(self.readers)) is not None
        }


def _metadata(of: DecodedPart) -> str:
    return f"{METADATA}.key" if of.is_key else METADATA


def _of_options(of: DecodedPart, make: Callable[[], T]) -> T:
    """Returns what `make` does; raises OptionError in place of SchemaError."""
    try:
        return make()
    except SchemaError as error:
        raise OptionError(of.option, str(error)) from None


def _reader(
    of: DecodedPart, engine: Engine, schemas: Schemas, options: ReadOptions, kept: str | None
) -> Reader:
    """Returns the schema to which keys or values are resolved; `kept`: as a table has it."""
    place = of.place(options)
    if kept is not None:
        return reader_of_json(json.loads(kept))
    if place is not None and place != REGISTRY:
        return ReaderSchema.of_file(place)
    check_topics(engine.topics(), options)
    topics = dict.fromkeys(topic for topic, _ in assigned(engine.topics(), options))
    return _common_reader(of, engine, schemas, topics)


def _common_reader(
    of: DecodedPart, engine: Engine, schemas: Schemas, topics: Iterable[str]
) -> Reader:
    """Returns the schema of these topics' keys or values. Raises OptionError if one has none, or
    another one than the others."""
    found: dict[str, Reader] = {}
    for topic in topics:
        reader = of.reader(topic_readers(engine, schemas, topic))
        if reader is None:
            why = f"no schema is known for the {of.what} of topic {topic}"
            raise OptionError(of.option, f"{why}; read other topics, or name the file of a schema")
        found[topic] = reader
    if not found:
        raise OptionError(of.option, "there is no topic to read; name the file of a schema")
    first, *others = found
    for other in others:
        if _texts(found[first]) != _texts(found[other]):
            why = f"the topics {first} and {other} have different schemas"
            raise OptionError(of.option, f"{why}; read one of them, or name the file of a schema")
    return found[first]


def _texts(reader: Reader) -> object:
    """Returns what two readers have in common that make the same columns."""
    if isinstance(reader, ReaderUnion):
        return {name: _texts(each) for name, each in reader.members.items()}
    return reader.schema.type, reader.schema.text, reader.schema.message


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


class TaskDecoder:
    """Decodes values and keys in a task."""

    def __init__(self, decoding: Decoding, source: SchemaSourceDirs, schema: pa.Schema) -> None:
        """`schema`: the columns of the read."""
        self._readers = decoding.readers
        self._source = source
        names = schema.names
        self._columns = [
            each
            for each in _BOTH
            if each.reader(decoding.readers) is not None and {each.value, each.reason} & {*names}
        ]
        needed = [each.value for each in self._columns]
        if {*needed} <= {*names}:
            self._types = {name: schema.field(name).type for name in needed}
        else:
            self._types = decoding.types()
        self._of_topic: dict[str, DecodedColumns] = {}

    def arrays(
        self, columns: Columns, ranges: Sequence[OffsetRange], rows: Sequence[int]
    ) -> dict[str, pa.Array]:
        """Returns the decoded columns of columns with so many rows of each range."""
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
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}

    def _decoded(self, topic: str, columns: Columns) -> dict[str, pa.Array]:
        if topic not in self._of_topic:
            self._of_topic[topic] = self._source.decoded_columns(topic, self._readers)
        found = self._of_topic[topic].arrays(columns, [each.value for each in self._columns])
        made: dict[str, pa.Array] = {}
        for each in self._columns:
            kind = self._types[each.value]
            fitted = _fitted(found[each.value], found[each.reason], kind)
            made |= dict(zip((each.value, each.reason), fitted, strict=True))
        return made


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
