"""Decodes Protobuf datums to JSON values, as google.protobuf's json_format does.

What it refuses is shown all the same: a well-known type without a form in JSON (an Any of an
unknown type, a Timestamp after the year 9999, a Value that is NaN) is an object of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...errors import DatumError, SchemaError
from ..conventions import base64_text, number
from ..framing import MessageRef
from ..schema import Schema, require_extra
from .compiler import FileSet, file_set
from .pool import make_pool, messages
from .walk import NOT_UTF8, Step, check_strings, is_map, submessages

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto
    from google.protobuf.message import Message

_WELL_KNOWN: Final = frozenset(
    f"google.protobuf.{name}"
    for name in ("Any", "Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)
#: Those that are objects in JSON with any members.
_FREE: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue")
)
TOO_DEEP: Final = "values are nested too deeply"
_VARINT: Final = 0
_DELIMITED: Final = 2
#: By FieldDescriptor.type, if not a varint. A group that has the form of a message, as editions
#: allow, is of type message.
_WIRE_TYPES: Final = {1: 1, 2: 5, 6: 1, 7: 5, 9: 2, 10: 3, 11: 2, 12: 2, 15: 5, 16: 1}
#: The highest field number whose tag is one byte.
_MAX_SHORT_NUMBER: Final = 15


def compile_protobuf(schema: Schema, referenced: Mapping[str, Schema]) -> ProtobufDecoder:
    """Returns the decoder of a schema, which imports `referenced` by name. Raises SchemaError, or
    MissingReference for an import that nobody gave."""
    require_extra(schema, "google.protobuf")
    return ProtobufDecoder(schema, file_set(schema, referenced))


@dataclass(frozen=True, slots=True)
class _Parser:
    """Parses one message. `starts`: the first bytes of data that begin with a field of it, as far
    as its number is in that byte; `failures`: what `parse` raises."""

    parse: Callable[[bytes], Message]
    starts: frozenset[int]
    failures: tuple[type[Exception], ...]


class ProtobufDecoder:
    """Decodes datums of the messages of one schema."""

    def __init__(self, schema: Schema, files: FileSet) -> None:
        """Raises SchemaError."""
        by_name = {each.name: each for each in files.others} | {files.main.name: files.main}
        self._pool = make_pool(schema.name, by_name)
        self._messages = dict(messages(files.main))
        self._main = files.main
        self._name = schema.name
        self._parsers: dict[str, _Parser] = {}
        self._with_maps: dict[str, bool] = {}
        # By indexes, as many as there are messages, or twice that.
        self._named: dict[tuple[int, ...], tuple[str, ...]] = {}
        # The library checks the strings of proto3 only.
        self._may_not_be_utf8 = any(each.syntax != "proto3" for each in by_name.values())
        if schema.message:
            try:
                self._first = self._full_name(schema.message)
            except DatumError as error:
                raise SchemaError(schema.name, error.why) from None
        elif not files.main.message_type:
            raise SchemaError(schema.name, "it has no message")
        else:
            self._first = next(iter(self._messages))

    def message_names(self, message: MessageRef = None) -> Sequence[str]:
        """Returns the full name of the message that is meant. There are two if it depends on who
        wrote the data: Confluent's serializer for Java does not count the entries of maps among
        the messages inside a message. Raises DatumError if there is no such message."""
        if message is None:
            return (self._first,)
        if isinstance(message, str):
            return (self._full_name(message),)
        if isinstance(message, int):
            return (self._at_position(message),)
        known = self._named.get(message)
        if known is None:
            found = (self._at_indexes(message, with_maps=each) for each in (True, False))
            known = tuple(dict.fromkeys(each for each in found if each is not None))
            if not known:
                raise DatumError(f"the schema has no message with the indexes {list(message)}")
            self._named[message] = known
        return known

    def descriptor(self, name: str) -> Descriptor:
        """Returns the descriptor of a message by its full name. Raises DatumError."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            raise DatumError(f"the schema has no message {name}") from None

    def parse(self, payload: bytes | memoryview, names: Sequence[str]) -> Message:
        """Returns a datum as a message of the first name; as one of the second if only then all of
        it is known. Raises DatumError if it is none, or nothing of it is known."""
        if len(names) == 1:
            return self._parsed(payload, names[0])
        parsed, why = None, None
        try:
            parsed = self._parsed(payload, names[0])
            if not _unknown(parsed):
                return parsed
        except DatumError as error:
            why = error
        try:
            other = self._parsed(payload, names[1])
            if parsed is None or not _unknown(other):
                return other
        except DatumError:
            pass
        if parsed is None:
            raise why or DatumError(f"not a message {names[0]}")
        return parsed

    def to_json(self, payload: bytes | memoryview, message: MessageRef = None) -> Any:
        """Returns a datum as JSON values. Raises DatumError if the bytes are not one."""
        try:
            return self.message_to_json(self.parse(payload, self.message_names(message)))
        except RecursionError:
            raise DatumError(TOO_DEEP) from None

    def message_to_json(self, message: Message) -> Any:
        """Returns a parsed message as JSON values."""
        try:
            return self._to_json(message)
        except _failures():
            return self._patched(message)

    def _full_name(self, name: str) -> str:
        """Returns the full name of a message that is named with or without its package, or by its
        last part only, as Apicurio does."""
        wanted = name.removeprefix(".")
        package = f"{self._main.package}." if self._main.package else ""
        for each in (wanted, package + wanted):
            if each in self._messages:
                return each
        ends = [each for each in self._messages if each.endswith(f".{wanted}")]
        if len(ends) == 1 and wanted:
            return ends[0]
        try:
            found: str = self.descriptor(wanted).full_name
        except DatumError:
            known = ", ".join(list(self._messages)[:5])
            raise DatumError(f"the schema has no message {name}, but {known}") from None
        return found

    def _at_position(self, position: int) -> str:
        """Returns the message at Glue's position (MessageIndexFinder.getAll)."""
        names = sorted(self._messages)
        if position >= len(names):
            raise DatumError(f"the schema has {len(names)} messages, and none at {position}")
        return names[position]

    def _at_indexes(self, indexes: Sequence[int], *, with_maps: bool) -> str | None:
        messages: Sequence[DescriptorProto] = self._main.message_type
        path = [self._main.package] if self._main.package else []
        is_map = False
        for index in indexes:
            counted = messages
            if not with_maps:
                counted = [each for each in messages if not each.options.map_entry]
            if not 0 <= index < len(counted):
                return None
            found = counted[index]
            path.append(found.name)
            messages, is_map = found.nested_type, found.options.map_entry
        return None if is_map else ".".join(path)

    def _parsed(self, payload: bytes | memoryview, name: str) -> Message:
        parser = self._parsers.get(name) or self._add_parser(name)
        try:
            parsed: Message = parser.parse(bytes(payload))
        except parser.failures:
            # The library does not say which.
            causes = f"it is truncated, too deep, {NOT_UTF8}, or a length in it is impossible"
            raise DatumError(f"not a message {name}: {causes}") from None
        if len(payload) and payload[0] not in parser.starts and _has_only_unknown(parsed):
            raise DatumError(f"not a message {name}: it has none of its fields")
        if self._may_not_be_utf8:
            check_strings(parsed)
        return parsed

    def _add_parser(self, name: str) -> _Parser:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        descriptor = self.descriptor(name)
        made = _Parser(
            GetMessageClass(descriptor).FromString,
            frozenset(_starts(descriptor)),
            (DecodeError,),
        )
        self._parsers[name] = made
        return made

    def _to_json(self, message: Message) -> Any:
        from google.protobuf.json_format import MessageToDict

        shown = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
        return self._in_order(message, shown) if self._has_maps(message.DESCRIPTOR) else shown

    def _has_maps(self, descriptor: Descriptor) -> bool:
        """Returns whether there may be maps in a message, or inside the messages in it."""
        known = self._with_maps.get(descriptor.full_name)
        if known is None:
            seen, stack, known = {descriptor.full_name}, [descriptor], False
            while stack and not known:
                each = stack.pop()
                known = each.full_name in _FREE or each.GetOptions().map_entry or each.is_extendable
                inner = {
                    part.message_type.full_name: part.message_type
                    for part in each.fields
                    if part.message_type is not None
                }
                stack += [part for name, part in inner.items() if name not in seen]
                seen |= inner.keys()
            self._with_maps[descriptor.full_name] = known
        return known

    def _in_order(self, message: Message, shown: Any) -> Any:
        """Returns a message's JSON with the keys of maps sorted. The library has them in an order
        that differs from process to process."""
        if message.DESCRIPTOR.full_name in _FREE:
            return _sorted(shown)
        for field, value in message.ListFields():
            if field.message_type is None or not self._has_maps(field.message_type):
                continue
            for steps, part in submessages(field, value):
                at = shown
                for step in steps[:-1]:
                    at = at[step]
                at[steps[-1]] = self._in_order(part, at[steps[-1]])
            if is_map(field):
                shown[field.name] = _sorted(shown[field.name], deep=False)
        return shown

    def _patched(self, message: Message) -> Any:
        """Returns a message with a part that json_format refuses: these parts are shown as objects
        of their fields. The message is changed."""
        if message.DESCRIPTOR.full_name in _WELL_KNOWN:
            return self._fields(message)
        holes: list[tuple[tuple[Step, ...], Any]] = []
        self._cut(message, (), holes)
        whole = self._to_json(message)
        for path, value in holes:
            at = whole
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = value
        return whole

    def _cut(
        self,
        message: Message,
        path: tuple[Step, ...],
        holes: list[tuple[tuple[Step, ...], Any]],
    ) -> None:
        """Adds the parts that json_format refuses to `holes`, with their paths, and clears them."""
        for field, value in message.ListFields():
            for steps, part in submessages(field, value):
                inner = (*path, *steps)
                if part.DESCRIPTOR.full_name not in _WELL_KNOWN:
                    self._cut(part, inner, holes)
                    continue
                try:
                    self._to_json(part)
                except _failures():
                    holes.append((inner, self._fields(part)))
                    part.Clear()

    def _fields(self, message: Message) -> dict[str, Any]:
        """Returns a well-known type as an object of its fields."""
        if message.DESCRIPTOR.full_name == "google.protobuf.Any":
            return {"@type": message.type_url, "value": base64_text(message.value)}
        found: dict[str, Any] = {}
        for field, value in message.ListFields():
            parts = {steps: self._shown(part) for steps, part in submessages(field, value)}
            if not parts:
                found[field.name] = _scalars(field, value)
            elif (field.name,) in parts:
                found[field.name] = parts[field.name,]
            elif is_map(field):
                found[field.name] = _sorted({s[1]: part for s, part in parts.items()}, deep=False)
            else:
                found[field.name] = list(parts.values())
        return found

    def _shown(self, part: Message) -> Any:
        try:
            return self._to_json(part)
        except _failures():
            return self._fields(part)


def _failures() -> tuple[type[Exception], ...]:
    """Returns what json_format raises for a value that it refuses: TypeError for an Any of an
    unknown type."""
    from google.protobuf.json_format import Error
    from google.protobuf.message import DecodeError

    return Error, DecodeError, TypeError, ValueError


def _sorted(shown: Any, *, deep: bool = True) -> Any:
    """Returns JSON with the members of objects sorted."""
    if isinstance(shown, dict):
        return {name: _sorted(shown[name]) if deep else shown[name] for name in sorted(shown)}
    return [_sorted(each) for each in shown] if isinstance(shown, list) and deep else shown


def _starts(message: Descriptor) -> Iterator[int]:
    """Yields the tags of a message's fields that are one byte."""
    for each in message.fields:
        kind = _WIRE_TYPES.get(each.type, _VARINT)
        if each.number <= _MAX_SHORT_NUMBER:
            yield each.number << 3 | kind
            if each.is_repeated and kind != _DELIMITED:
                yield each.number << 3 | _DELIMITED


def _has_only_unknown(message: Message) -> bool:
    return not message.ListFields() and _unknown(message) > 0


def _unknown(message: Message) -> int:
    """Returns the number of fields that a message, not what is inside it, does not know."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    return len(UnknownFieldSet(message))


def _scalars(field: FieldDescriptor, value: Any) -> Any:
    """Returns the scalar or scalars of a field of a well-known type. These have no maps of
    scalars, no bytes and no enums but NullValue."""
    if field.is_repeated:
        return [_scalars_of_one(field, each) for each in value]
    return _scalars_of_one(field, value)


def _scalars_of_one(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, float):
        return number(value)
    return str(value) if field.type == field.TYPE_INT64 else value
