"""Decodes the keys and values of records to JSON, with the schemas that they name.

A record is never refused: one that does not fit appears as it is, with the reason. Rows that name
the same schema are found by column and decoded together; README.md says what the values look like.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, Final, Protocol
from uuid import UUID

import numpy as np

from ..config.kafka import reader_config
from ..errors import BytesLeft, ConfigError, DatumError, SchemaError
from ..format.records.batch import Bytes, Int64s
from ..format.records.columns import KEY_SIZE, KEY_START, VALUE_SIZE, VALUE_START, Columns
from ..log_dirs.engine import Engine
from ..log_dirs.log_dirs import SCHEMAS_CONFIG
from .avro.decoder import BYTES_LEFT, AvroDecoder, compile_avro, reason
from .avro.texts import LEFT
from .catalog import SchemaCatalog, Schemas
from .conventions import NOT_JSON, json_text, raw_value
from .framing import UNFRAMED, Frame, Framing, datum_of
from .json_schema.decoder import JsonDecoder, compile_json_schema
from .named_rows import named_rows, subject_of
from .protobuf.decoder import ProtobufDecoder, compile_protobuf
from .registry.image import empty_image
from .schema import Schema, SchemaType, SubjectVersion, context_of
from .supplied import parse_supplied

#: In place of the value of a row that is shown as it is.
RAW: Final = object()
#: The value of a row, or RAW, and what is wrong with it, None if nothing is.
Outcome = tuple[Any, str | None]


class ValueKind(StrEnum):
    """What a key or value is shown as."""

    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"
    NULL = "null"


_KINDS: Final[dict[str, ValueKind]] = {
    SchemaType.AVRO: ValueKind.AVRO,
    SchemaType.PROTOBUF: ValueKind.PROTOBUF,
    SchemaType.JSON: ValueKind.JSON,
}


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """What a key or value names. `schema_id` and `guid`: those that it names, or else those of its
    schema; None if unknown. `schema`: None if it names none, or one that is not there. `subject`:
    the version for which it was probably written, of those that are its schema; None if there is
    none. `message` and `message_index`: of Protobuf, the full name and the indexes, otherwise ""
    and ()."""

    framing: Framing = Framing.NONE
    schema_id: int | None = None
    guid: UUID | None = None
    schema: Schema | None = None
    subject: SubjectVersion | None = None
    message: str = ""
    message_index: tuple[int, ...] = ()

    @property
    def kind(self) -> ValueKind | None:
        """The kind of what fits the schema; None without a schema that can be decoded."""
        return None if self.schema is None else _KINDS.get(self.schema.type)

    def as_json(self) -> dict[str, Any]:
        """Returns what is known."""
        if self == _NOTHING:
            return {}
        found: dict[str, Any] = {"framing": str(self.framing)}
        if self.schema_id is not None:
            found["id"] = self.schema_id
        if self.guid is not None:
            found["guid"] = str(self.guid)
        if self.schema is not None:
            found["schemaType"] = str(self.schema.type)
        if self.subject is not None:
            found |= {"subject": self.subject.subject, "version": self.subject.version}
        if self.message:
            found |= {"message": self.message, "messageIndex": list(self.message_index)}
        return found


_NOTHING: Final = NamedSchema()
_NUMBERS: Final = count()
# The most combinations of frames and messages of a topic that are remembered.
_MAX_NAMED: Final = 10_000

DatumDecoder = AvroDecoder | ProtobufDecoder | JsonDecoder
_COMPILERS: Final[dict[str, Callable[[Schema, Mapping[str, Schema]], DatumDecoder]]] = {
    SchemaType.AVRO: compile_avro,
    SchemaType.PROTOBUF: compile_protobuf,
    SchemaType.JSON: compile_json_schema,
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or value. `value`: of JSON; if it is shown as it is, text or base64. `error`: why it is
    not decoded, or what is wrong although it is; None if nothing is."""

    kind: ValueKind
    value: Any
    named: NamedSchema = _NOTHING
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns what it is and what it names, without the value and the error."""
        return {"kind": str(self.kind), **self.named.as_json()}


_NULL: Final = Decoded(ValueKind.NULL, None)


@dataclass(frozen=True, slots=True)
class RowTexts:
    """Some keys or values as JSON. `data`: all texts, `places`: start and size of each (int64,
    shape (n, 2)), size -1 of one that is shown as it is. `errors`: what is wrong, by the place."""

    data: Bytes
    places: Int64s
    errors: dict[int, str]


class Datums(Protocol):
    """The keys or values of some rows."""

    def outcomes(self) -> Sequence[Outcome]:
        """Returns the outcome of each."""

    def texts(self) -> RowTexts:
        """Returns their texts."""


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows (int64) whose keys or values name the same."""

    named: NamedSchema
    rows: Int64s
    datums: Datums


@dataclass(frozen=True, slots=True)
class _Undecoded:
    """Keys or values that are shown as they are, `why`: for what reason, None for none."""

    count: int
    why: str | None = None

    def outcomes(self) -> Sequence[Outcome]:
        return [(RAW, self.why)] * self.count

    def texts(self) -> RowTexts:
        places = np.zeros((self.count, 2), dtype=np.int64)
        places[:, 1] = -1
        return RowTexts(
            b"", places, {} if self.why is None else dict.fromkeys(range(self.count), self.why)
        )


@dataclass(frozen=True, slots=True)
class _Values:
    """Keys or values that are decoded already."""

    found: Sequence[Outcome]

    def outcomes(self) -> Sequence[Outcome]:
        return self.found

    def texts(self) -> RowTexts:
        pieces: list[bytes] = []
        sizes = np.full(len(self.found), -1, dtype=np.int64)
        errors: dict[int, str] = {}
        for place, (value, error) in enumerate(self.found):
            text = None if value is RAW else json_text(value)
            if text is not None:
                sizes[place] = len(text)
                pieces.append(text)
            elif value is not RAW:
                error = NOT_JSON
            if error is not None:
                errors[place] = error
        lengths = np.maximum(sizes, 0)
        places = np.stack([np.cumsum(lengths) - lengths, sizes], axis=1)
        return RowTexts(b"".join(pieces), places, errors)


@dataclass(frozen=True, slots=True)
class _AvroDatums:
    """The datums of an Avro schema between the start and end in `data` that are in each row of
    `spans`."""

    decoder: AvroDecoder
    data: Bytes
    spans: Int64s

    def outcomes(self) -> Sequence[Outcome]:
        try:
            pairs = self.decoder.to_json_each(self.data, *self.spans.T.tolist())
        except DatumError:  # a value in one of them is impossible
            return [self._outcome(place) for place in range(len(self.spans))]
        return [
            (value, None) if not code else (value if code == BYTES_LEFT else RAW, reason(code))
            for code, value in pairs
        ]

    def _outcome(self, place: int) -> Outcome:
        start, end = self.spans[place].tolist()
        return _outcome(self.decoder.to_json, UNFRAMED, bytes(self.data[start:end]))

    def texts(self) -> RowTexts:
        if self.decoder.texts is None:
            return _Values(self.outcomes()).texts()
        written = self.decoder.texts.write(self.data, self.spans)
        if not written.status.any():
            return RowTexts(written.data, written.places, {})
        errors = {
            place: reason(int(written.status[place]))
            for place in np.flatnonzero(written.status).tolist()
            if written.status[place] != LEFT
        }
        left = np.flatnonzero(written.status == LEFT)
        others = _Values([self._outcome(place) for place in left.tolist()]).texts()
        errors |= {int(left[place]): why for place, why in others.errors.items()}
        written.places[left] = others.places
        written.places[left, 0] += len(written.data)
        return RowTexts(b"".join([written.data, others.data]), written.places, errors)


class Decoders:
    """Decoders of the schemas of one moment, each compiled when it is first needed. `number`: that
    of this moment, unique in the process. Any thread may use them."""

    def __init__(self, schemas: Schemas, before: Decoders | None = None) -> None:
        """`before`: decoders whose schemas were given as the same files."""
        self.schemas = schemas
        self.number = next(_NUMBERS)
        self._compiling = threading.Lock()
        self._compiled: dict[Schema, DatumDecoder | str] = {}
        self._topics: dict[str, TopicDecoder] = {}
        if before is not None:
            known = dict(before._compiled)
            self._compiled |= {each: known[each] for each in known if each.id is None}

    def for_topic(self, topic: str) -> TopicDecoder:
        """Returns the decoder of a topic's keys and values."""
        return self._topics.setdefault(topic, TopicDecoder(self, topic))

    def compiled(self, schema: Schema) -> DatumDecoder | str:
        """Returns the decoder of a schema, or why it cannot be used. May take a second."""
        found = self._compiled.get(schema)
        if found is None:
            with self._compiling:
                found = self._compiled.get(schema)
                if found is None:
                    found = self._compiled[schema] = self._compile(schema)
        return found

    def _compile(self, schema: Schema) -> DatumDecoder | str:
        try:
            make = _COMPILERS.get(schema.type)
            if make is not None:
                return make(schema, self.schemas.referenced(schema))
        except SchemaError as error:
            return str(error)
        return f"{schema.name}: schemas of type {schema.type} are not decoded"


class DecoderCatalog:
    """The decoders of an engine's schemas, which change with the topic of the registry. Any thread
    may use it."""

    def __init__(self, engine: Engine) -> None:
        self.schemas = SchemaCatalog(engine)
        self._lock = threading.Lock()  # guards the next
        self._last: Decoders | None = None

    @property
    def last(self) -> Decoders | None:
        """The decoders returned last; None before. Costs nothing."""
        return self._last

    def decoders(self) -> Decoders:
        """Returns the decoders as of now; the same object if no schema changed. Raises what
        `SchemaCatalog.schemas` does."""
        schemas = self.schemas.schemas()
        with self._lock:
            if self._last is None or self._last.schemas is not schemas:
                self._last = Decoders(schemas, self._last)
            return self._last


def check_supplied(engine: Engine) -> None:
    """Raises ConfigError if schemas that were given as files cannot be used. If none are given,
    this costs nothing."""
    text = reader_config(engine.configs).kafkafs_schemas
    if not text:
        return
    try:
        supplied = parse_supplied(text)
    except SchemaError as error:
        raise ConfigError(SCHEMAS_CONFIG, str(error)) from None
    decoders = Decoders(Schemas(supplied, empty_image()))
    for schema in supplied.all():
        found = decoders.compiled(schema)
        if isinstance(found, str):
            raise ConfigError(SCHEMAS_CONFIG, found)


class TopicDecoder:
    """Decodes the keys and values of a topic."""

    def __init__(self, decoders: Decoders, topic: str) -> None:
        self.topic = topic
        self._decoders = decoders
        self._schemas = decoders.schemas
        # By frame, schema, name of the record type, message indexes, and whether it is a key.
        self._named: dict[Hashable, NamedSchema] = {}

    def decoded(self, columns: Columns, *, is_key: bool = False) -> list[Decoded]:
        """Returns the keys or values of all rows."""
        found = [_NULL] * len(columns)
        value = columns.key if is_key else columns.value
        for group in self.groups(columns, is_key=is_key):
            kind, named = group.named.kind, group.named
            outcomes = group.datums.outcomes()
            for row, (datum, error) in zip(group.rows.tolist(), outcomes, strict=True):
                if datum is RAW:
                    found[row] = Decoded(*_raw(value(row)), named, error)
                else:
                    assert kind is not None
                    found[row] = Decoded(kind, datum, named, error)
        return found

    def groups(self, columns: Columns, *, is_key: bool) -> Iterator[DecodedRows]:
        """Yields all rows whose key or value is not null, those that name the same together; a row
        is in one group only."""
        for group in named_rows(self._schemas, self.topic, columns, is_key=is_key):
            frame, schema, rows = group.frame, group.schema, group.rows
            if schema is None:
                named = _unknown(frame) if group.why else _NOTHING
                yield DecodedRows(named, rows, _Undecoded(len(rows), group.why or None))
            elif group.is_unsure:
                yield from self._framed_or_not(columns, frame, schema, rows, is_key=is_key)
            else:
                yield from self._decoded_with(columns, frame, schema, rows, is_key=is_key)

    def _framed_or_not(
        self, columns: Columns, frame: Frame, schema: Schema, rows: Int64s, *, is_key: bool
    ) -> Iterator[DecodedRows]:
        """Decodes rows that begin like a frame of an unknown schema, with the schema given for the
        topic: either the schema is meant by the frame, or a datum without one begins so."""
        for row in rows:
            one = np.array([row], dtype=np.int64)
            [framed] = self._decoded_with(columns, frame, schema, one, is_key=is_key)
            if _error_of(framed) is not None:
                [plain] = self._decoded_with(columns, UNFRAMED, schema, one, is_key=is_key)
                if _error_of(plain) is None:
                    framed = plain
            yield framed

    def _decoded_with(
        self, columns: Columns, frame: Frame, schema: Schema, rows: Int64s, *, is_key: bool
    ) -> Iterator[DecodedRows]:
        decoder = self._decoders.compiled(schema)
        if isinstance(decoder, str):
            named = self._name(frame, schema, is_key=is_key)
            yield DecodedRows(named, rows, _Undecoded(len(rows), decoder))
            return
        if isinstance(decoder, AvroDecoder):
            named = self._name(frame, schema, decoder.name, is_key=is_key)
            yield DecodedRows(named, rows, _avro(decoder, columns, frame, rows, is_key=is_key))
        elif isinstance(decoder, ProtobufDecoder):
            for (message, index), found in _protobuf(
                decoder, columns, frame, rows, is_key=is_key
            ).items():
                named = self._name(frame, schema, message, index, is_key=is_key)
                places = np.array(list(found), dtype=np.int64)
                yield DecodedRows(named, places, _Values(list(found.values())))
        else:
            value = columns.key if is_key else columns.value
            named = self._name(frame, schema, decoder.title, is_key=is_key)
            outcomes = [_outcome(decoder.to_json, frame, value(row)) for row in rows.tolist()]
            yield DecodedRows(named, rows, _Values(outcomes))

    def _name(
        self,
        frame: Frame,
        schema: Schema,
        record: str = "",
        index: tuple[int, ...] = (),
        *,
        is_key: bool,
    ) -> NamedSchema:
        key = (frame, schema, record, index, is_key)
        found = self._named.get(key)
        if found is None:
            if len(self._named) >= _MAX_NAMED:
                self._named.clear()
            subjects = self._schemas.subjects_of(schema)
            found = self._named[key] = NamedSchema(
                frame.framing,
                schema.id if frame.schema_id is None else frame.schema_id,
                schema.guid if frame.guid is None else frame.guid,
                schema,
                choose_subject(subjects, self.topic, record, is_key=is_key),
                record if schema.type == SchemaType.PROTOBUF else "",
                index,
            )
        return found


def choose_subject(
    versions: Sequence[SubjectVersion], topic: str, record: str, *, is_key: bool
) -> SubjectVersion | None:
    """Returns, of the versions that are a schema, the one for which a record was probably written:
    by TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy, or of a subject that begins
    like the topic, or else the first. `record`: the full name of the record type, "" for none."""
    names = [subject_of(topic, is_key=is_key), *([record, f"{topic}-{record}"] if record else ())]

    def rank(each: SubjectVersion) -> tuple[int, bool, str, int]:
        name = context_of(each.subject)[1]
        place = names.index(name) if name in names else len(names)
        is_other = place == len(names) and not name.startswith(f"{topic}-")
        return place + is_other, each.is_deleted, each.subject, -each.version

    return min(versions, key=rank, default=None)


def _raw(data: bytes | None) -> tuple[ValueKind, str]:
    assert data is not None
    kind, text = raw_value(data)
    return ValueKind(kind), text


def _unknown(frame: Frame) -> NamedSchema:
    return NamedSchema(frame.framing, frame.schema_id, frame.guid)


def _error_of(one: DecodedRows) -> str | None:
    """Returns what is wrong with the only row."""
    [(_, error)] = one.datums.outcomes()
    return error


def _avro(
    decoder: AvroDecoder, columns: Columns, frame: Frame, rows: Int64s, *, is_key: bool
) -> Datums:
    if frame.is_compressed:
        value = columns.key if is_key else columns.value
        return _Values([_outcome(decoder.to_json, frame, value(row)) for row in rows.tolist()])
    start, size = (KEY_START, KEY_SIZE) if is_key else (VALUE_START, VALUE_SIZE)
    starts = columns.spans[rows, start].astype(np.int64)
    spans = np.stack([starts + frame.start, starts + columns.spans[rows, size]], axis=1)
    return _AvroDatums(decoder, columns.data, spans)


def _protobuf(
    decoder: ProtobufDecoder, columns: Columns, frame: Frame, rows: Int64s, *, is_key: bool
) -> Mapping[tuple[str, tuple[int, ...]], Mapping[int, Outcome]]:
    """Returns the outcome of each row, by the full name and the indexes of the message."""
    found: defaultdict[tuple[str, tuple[int, ...]], dict[int, Outcome]] = defaultdict(dict)
    value = columns.key if is_key else columns.value
    for row in rows.tolist():
        name = ""
        index: tuple[int, ...] = ()
        try:
            payload, ref = datum_of(frame, value(row) or b"", SchemaType.PROTOBUF)
            index = ref if isinstance(ref, tuple) else ()
            names = decoder.message_names(ref)
            name = names[0]
            message = decoder.parse(payload, names)
            name = message.DESCRIPTOR.full_name
            outcome: Outcome = decoder.message_to_json(message), None
        except DatumError as error:
            outcome = RAW, error.why
        except RecursionError:
            outcome = RAW, "values are nested too deeply"
        found[name, index][row] = outcome
    return found


def _outcome(decode: Callable[[bytes], Any], frame: Frame, value: bytes | None) -> Outcome:
    try:
        return decode(datum_of(frame, value or b"", SchemaType.AVRO)[0]), None
    except BytesLeft as error:
        return error.value, error.why
    except DatumError as error:
        return RAW, error.why
