"""Random .proto files and random messages of them, for property tests."""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkafs.storage.schemas.protobuf import ProtobufDecoder, compile_protobuf
from kafkafs.storage.schemas.schema import Schema

WELL_KNOWN = ("Timestamp", "Duration", "Struct", "Value", "StringValue", "Int64Value", "BytesValue")
HEAD = "\n".join(
    (
        'syntax = "proto3";',
        "package test.of_protobuf;",
        *(
            f'import "google/protobuf/{name}.proto";'
            for name in ("timestamp", "duration", "struct", "wrappers")
        ),
        "enum Color { NONE = 0; RED = 1; BLUE = 7; }",
        "",
    )
)
SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes", "Color",
)  # fmt: skip
KEYS = ("int32", "int64", "uint64", "sint64", "bool", "string")


def decoder(text: str, message: str = "", **referenced: str) -> ProtobufDecoder:
    """Compiles a .proto file. `referenced`: other files by name, without `.proto`."""
    others = {f"{name}.proto": Schema("PROTOBUF", each) for name, each in referenced.items()}
    return compile_protobuf(Schema("PROTOBUF", text, message=message, where="it"), others)


def as_base64(file: Any) -> Schema:
    """Returns a file as Confluent's client for Python registers it."""
    text = base64.b64encode(file.SerializeToString()).decode()
    return Schema("PROTOBUF", text, where="it")


def spans_of(payloads: list[bytes]) -> tuple[memoryview, NDArray[np.int64]]:
    ends = np.cumsum([0, *map(len, payloads)])
    return memoryview(b"".join(payloads)), np.stack([ends[:-1], ends[1:]], axis=1)


@dataclass(frozen=True)
class Reference:
    """A .proto file as protoc and google.protobuf themselves have it."""

    files: FileDescriptorSet
    pool: DescriptorPool

    def message(self, name: str) -> Message:
        found = GetMessageClass(self.pool.FindMessageTypeByName(name))()
        assert isinstance(found, Message)
        return found

    def shown(self, message: Message) -> Any:
        return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self.pool)


def reference(text: str) -> Reference:
    """Compiles a file within this process."""
    include = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "it.proto").write_text(text)
        words = [f"-I{directory}", f"-I{include}", "--include_imports"]
        words += [f"--descriptor_set_out={directory}/out", "it.proto"]
        assert protoc.main(["protoc", *words]) == 0
        files = FileDescriptorSet.FromString((Path(directory) / "out").read_bytes())
    pool = DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return Reference(files, pool)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draws a file with messages that contain one another. All are inside message Top."""
    count = draw(st.integers(1, 4))
    messages = []
    for number in range(count):
        types = [*SCALARS, *(f"google.protobuf.{each}" for each in WELL_KNOWN)]
        types += [f"M{other}" for other in range(number + 1)]
        lines = []
        for place in range(1, draw(st.integers(0, 6)) + 1):
            kind = draw(st.sampled_from(types))
            label = draw(st.sampled_from(("", "", "optional ", "repeated ", "map", "oneof")))
            field = f"{kind} f{place} = {place * draw(st.sampled_from((1, 7, 100)))};"
            if label == "map":
                key = draw(st.sampled_from(KEYS))
                field = f"map<{key}, {kind}> f{place} = {place};"
            elif label == "oneof":
                field = f"oneof o{place} {{ {field} string g{place} = {1000 + place}; }}"
            else:
                field = label + field
            lines.append(field)
        messages.append(f"message M{number} {{ {_distinct(lines)} }}")
    whole = " ".join(f"M{number} m{number} = {number + 1};" for number in range(count))
    return HEAD + "\n".join([*messages, f"message Top {{ {whole} }}"])


def _distinct(lines: list[str]) -> str:
    """Numbers the fields whose number is taken again."""
    made, taken = [], set()
    for line in lines:
        head, _, tail = line.partition(" = ")
        number, _, rest = tail.partition(";")
        while number in taken:
            number = str(int(number) + 13)
        taken.add(number)
        made.append(f"{head} = {number};{rest}")
    return " ".join(made)


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from((0, 1, 7, 7, 99)),
}


def scalar(draw: st.DrawFn, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind in _INTEGERS:
        return draw(_INTEGERS[kind])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return draw(st.booleans())
    if kind == FieldDescriptor.CPPTYPE_STRING:
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        return draw(st.binary(max_size=5) if is_bytes else st.text(max_size=5))
    return draw(st.floats(width=32 if kind == FieldDescriptor.CPPTYPE_FLOAT else 64))


@st.composite
def filled(draw: st.DrawFn, message: Message, depth: int = 0) -> Message:
    """Sets random fields of a message."""
    _fill(draw, message, depth)
    return message


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    name = message.DESCRIPTOR.name
    whole: Any = message
    if name == "Timestamp":
        whole.seconds = draw(st.integers(-(9 * 10**9), 9 * 10**9))
        whole.nanos = draw(st.sampled_from((0, 5 * 10**8, 1000, 1)))
        return
    if name == "Duration":
        sign = draw(st.sampled_from((-1, 1)))
        whole.seconds = sign * draw(st.integers(0, 9 * 10**9))
        whole.nanos = sign * draw(st.sampled_from((0, 25 * 10**7, 1)))
        return
    if message.DESCRIPTOR.full_name == "google.protobuf.Value":
        whole.number_value = draw(st.floats(allow_nan=False, allow_infinity=False))
        return
    for field in message.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _set(draw, message, field, depth)


def _set(draw: st.DrawFn, message: Message, field: FieldDescriptor, depth: int) -> None:
    value = getattr(message, field.name)
    inner: Descriptor | None = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        for _ in range(draw(st.integers(0, 3))):
            key = scalar(draw, inner.fields_by_name["key"])
            if inner.fields_by_name["value"].message_type is None:
                value[key] = scalar(draw, inner.fields_by_name["value"])
            elif depth < 3:
                _fill(draw, value[key], depth + 1)
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 3))):
            if inner is None:
                value.append(scalar(draw, field))
            elif depth < 3:
                _fill(draw, value.add(), depth + 1)
    elif inner is None:
        setattr(message, field.name, scalar(draw, field))
    elif depth < 3:
        value.SetInParent()
        _fill(draw, value, depth + 1)
