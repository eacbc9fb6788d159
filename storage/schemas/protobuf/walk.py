"""What is inside a message of google.protobuf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ...errors import DatumError

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

#: A key of an object or a place in an array, in JSON.
Step = str | int
NOT_UTF8: Final = "a string is not UTF-8"


def is_map(field: FieldDescriptor) -> bool:
    """Returns whether a field is a map. Only malformed descriptors have other entries."""
    of = field.message_type
    return of is not None and field.is_repeated and of.GetOptions().map_entry


def submessages(field: FieldDescriptor, value: Any) -> Iterator[tuple[tuple[Step, ...], Message]]:
    """Yields the messages in a field, if it has messages, with the steps to each in JSON."""
    if field.message_type is None:
        return
    name = f"[{field.full_name}]" if field.is_extension else field.name
    if is_map(field):
        if field.message_type.fields_by_name["value"].message_type is None:
            return
        for key in value:
            shown = str(key).lower() if isinstance(key, bool) else str(key)
            yield (name, shown), value[key]
    elif field.is_repeated:
        for place, part in enumerate(value):
            yield (name, place), part
    else:
        yield (name,), value


def check_strings(message: Message) -> None:
    """Raises DatumError if a string is not UTF-8. The library has such strings as bytes."""
    for field, value in message.ListFields():
        for _, part in submessages(field, value):
            check_strings(part)
        if field.type == field.TYPE_STRING:
            values = value if field.is_repeated else (value,)
        elif is_map(field):
            values = (*value, *value.values())
            if field.message_type.fields_by_name["value"].type == field.TYPE_BYTES:
                values = tuple(value)
        else:
            continue
        if any(isinstance(each, bytes) for each in values):
            raise DatumError(NOT_UTF8)
