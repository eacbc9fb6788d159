"""A pool of descriptors for each schema, so that schemas know nothing of one another.

Every pool has the well-known types as google.protobuf itself has them, so that no schema can give
them another meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ...errors import MissingReference, SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

# The longest name of a field or enum value, in characters: JSON repeats them with every value, of
# which there may be one in each byte.
_MAX_NAME: Final = 1024
#: In an order in which each stands after those that it imports.
_NAMES: Final = (
    "any", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
    "type", "wrappers", "api",
)  # fmt: skip


@cache
def well_known() -> Mapping[str, bytes]:
    """Returns the serialized files that every pool has, by name."""
    return {
        f"google/protobuf/{name}.proto": import_module(
            f"google.protobuf.{name}_pb2"
        ).DESCRIPTOR.serialized_pb
        for name in _NAMES
    }


def make_pool(name: str, files: Mapping[str, FileDescriptorProto]) -> DescriptorPool:
    """Returns a pool with these files. Raises SchemaError, or MissingReference for an import that
    is not among them."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for data in well_known().values():
        pool.AddSerializedFile(data)
    added = set(well_known())
    for file in _sorted(name, files):
        if file.name in added:
            continue
        _check_names(name, file)
        for full_name, each in messages(file):
            fields = [(field.name, field.number) for field in each.field]
            if each.options.map_entry and sorted(fields) != [("key", 1), ("value", 2)]:
                raise SchemaError(name, f"{full_name} is no entry of a map")
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise SchemaError(name, f"{file.name or 'it'} cannot be used: {error}") from None
        added.add(file.name)
    return pool


def _check_names(name: str, file: FileDescriptorProto) -> None:
    """Raises SchemaError if a name that JSON shows is too long."""
    enums, shown = list(file.enum_type), list(file.extension)
    for _, each in messages(file):
        enums += each.enum_type
        shown += (*each.field, *each.extension)
    names = (part.name for part in (*shown, *(value for enum in enums for value in enum.value)))
    longest = max(names, key=len, default="")
    if len(longest) > _MAX_NAME:
        what = f"the name {longest[:20]}… has {len(longest):,} characters"
        raise SchemaError(name, f"{what}, more than the {_MAX_NAME:,} that are allowed")


def messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Yields all messages of a file by full name, as they stand in it."""
    prefix = f"{file.package}." if file.package else ""
    stack = [(prefix, each) for each in reversed(file.message_type)]
    while stack:
        prefix, each = stack.pop()
        name = prefix + each.name
        yield name, each
        stack += [(f"{name}.", inner) for inner in reversed(each.nested_type)]


def _sorted(name: str, files: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Returns the files, each after those that it imports. A stack of its own, since a chain of
    imports can be longer than Python's."""
    found: dict[str, FileDescriptorProto] = {}
    open_files: dict[str, None] = {}
    stack = [(each, False) for each in reversed(list(files))]
    while stack:
        each, is_done = stack.pop()
        if is_done:
            del open_files[each]
            found[each] = files[each]
            continue
        if each in found or each in well_known():
            continue
        if each in open_files:
            raise SchemaError(name, f"{each} imports itself")
        if each not in files:
            raise MissingReference(name, f"{each}, which it imports, is missing")
        open_files[each] = None
        stack.append((each, True))
        stack += [(other, False) for other in files[each].dependency]
    return list(found.values())
