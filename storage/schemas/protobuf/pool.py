"""A pool of descriptors for each schema, so that schemas know nothing of one another.

Every pool has the well-known types as google.protobuf itself has them, so that no schema can give
them another meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ...errors import MissingReference, SchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

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
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as error:
            raise SchemaError(name, f"{file.name or 'it'} cannot be used: {error}") from None
        added.add(file.name)
    return pool


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
