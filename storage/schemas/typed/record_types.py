"""The schemas of a topic that its records name, where none has the topic's subject.

Serializers that name subjects by record (RecordNameStrategy, TopicRecordNameStrategy) leave no
subject `<topic>-value`. Then the first and the newest records of each partition tell which record
types the topic has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from ...errors import SchemaError, UnknownPartition
from ...format.files.names import TopicPartition
from ...format.records.columns import Columns
from ...io.retry import retry_if_gone
from ...log.read.transactions import Isolation
from ...log_dirs.engine import Engine
from ..avro.decoder import AvroDecoder
from ..catalog import Schemas
from ..decoding import DatumDecoder, Decoders, NamedSchema
from ..json_schema.decoder import JsonDecoder
from ..named_rows import WITHOUT_SCHEMAS
from ..schema import Schema, SchemaType
from .reader_schema import Reader, ReaderSchema, ReaderUnion, TopicReaders

# Records that are looked at at each end of a partition, and partitions.
_RECORDS: Final = 32
_PARTITIONS: Final = 64
# More types than this are not put into one column.
_MAX_TYPES: Final = 64

# A type of schema and the full name of a record type.
_RecordType = tuple[str, str]


def topic_readers(engine: Engine, schemas: Schemas, topic: str) -> TopicReaders:
    """Returns the schemas to which a topic's values and keys are resolved: those that were given,
    or of the topic's subjects, or else of the record types among its first and newest records, of
    several a union. Raises MissingReference or SchemaError, and what reading the log raises."""
    found = TopicReaders.of_topic(schemas, topic)
    if found or topic in WITHOUT_SCHEMAS or not schemas.registry.subjects:
        return found
    types: dict[bool, dict[_RecordType, NamedSchema]] = {False: {}, True: {}}
    decoders = Decoders(schemas)
    for columns in _samples(engine, topic):
        for is_key, known in types.items():
            _note(decoders, topic, columns, known, is_key=is_key)
    return TopicReaders(*(_reader(decoders, topic, types[is_key]) for is_key in (False, True)))


def _samples(engine: Engine, topic: str) -> Iterator[Columns]:
    for number in engine.partitions_of(topic)[:_PARTITIONS]:
        try:
            yield from retry_if_gone(partial(_ends, engine, (topic, number)))
        except UnknownPartition:  # deleted meanwhile
            continue


def _ends(engine: Engine, key: TopicPartition) -> list[Columns]:
    """Returns the first records of a partition, and those at its last offsets."""
    view = engine.log(*key).view()
    found: list[Columns] = []
    for start in dict.fromkeys((None, max(view.end_offset - _RECORDS, view.start_offset))):
        scan = view.scan(start, None, Isolation.READ_UNCOMMITTED)
        parts = (part for part in scan if isinstance(part, Columns))
        # Columns are valid until the next are requested.
        found += [part.slice(0, _RECORDS).copy() for part in islice(parts, 1)]
        scan.close()
    return found


def _note(
    decoders: Decoders,
    topic: str,
    columns: Columns,
    known: dict[_RecordType, NamedSchema],
    *,
    is_key: bool,
) -> None:
    """Adds the record types of which there is a datum that fits: a number may begin like a
    frame."""
    for group in decoders.for_topic(topic).groups(columns, is_key=is_key):
        schema = group.named.schema
        if schema is None or all(error is not None for _, error in group.datums.outcomes()):
            continue
        decoder = decoders.compiled(schema)
        if isinstance(decoder, str):
            continue
        known.setdefault((schema.type, _record_name(decoder, group.named.message)), group.named)


def _record_name(decoder: DatumDecoder, message: str = "") -> str:
    """Returns what RecordNameStrategy names the data of a schema, of Protobuf `message`; "" if they
    have no name."""
    if isinstance(decoder, AvroDecoder):
        return decoder.type.name
    return decoder.title if isinstance(decoder, JsonDecoder) else message


def _reader(decoders: Decoders, topic: str, types: dict[_RecordType, NamedSchema]) -> Reader | None:
    if len(types) > _MAX_TYPES:
        names = ", ".join(sorted(name for _, name in types)[:3])
        why = f"its records are of more than {_MAX_TYPES} types: {names} and others"
        raise SchemaError(f"topic {topic}", f"{why}; name one: --schema {topic}=FILE")
    members = {each: _newest(decoders, each, named) for each, named in types.items()}
    if len(members) < 2:
        return next(iter(members.values()), None)
    short = [name.rpartition(".")[2].lower() for _, name in members]
    union: dict[str, ReaderSchema] = {}
    for (kind, name), reader in sorted(members.items()):
        last = name.rpartition(".")[2]
        label = last if last and short.count(last.lower()) == 1 else name or kind.lower()
        union[label if label not in union else f"{kind}:{name}"] = reader
    return ReaderUnion(union)


def _newest(decoders: Decoders, record: _RecordType, named: NamedSchema) -> ReaderSchema:
    """Returns the newest schema of a record type: of the subject for which one of its records was
    written, if that is still of this type."""
    assert named.schema is not None
    kind, name = record
    schemas = decoders.schemas
    newest = None if named.subject is None else schemas.newest(named.subject.subject)
    if newest is not None and newest.type == kind:
        newest = _with_message(newest, name)
        decoder = decoders.compiled(newest)
        if not isinstance(decoder, str) and _record_name(decoder, name) == name:
            return ReaderSchema.of(schemas, newest)
    return ReaderSchema.of(schemas, _with_message(named.schema, name))


def _with_message(schema: Schema, name: str) -> Schema:
    return replace(schema, message=name) if schema.type == SchemaType.PROTOBUF else schema
