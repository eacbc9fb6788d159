"""Which schema a key or value names, and where its datum begins.

| framing         | where     | bytes                                                         |
| --------------- | --------- | ------------------------------------------------------------- |
| prefix          | the value | 0, 4-byte id (Confluent V0; Apicurio's default since 3.0)     |
| header          | a header  | 1, 16-byte GUID (Confluent V1), or 0, 4-byte id               |
| glue            | the value | 3, compression (0 none, 5 zlib), UUID of the schema's version |
| apicurio        | the value | 0, 8-byte id                                                  |
| apicurio-header | a header  | 8-byte globalId or contentId                                  |

Numbers are big-endian, ids unsigned. A header takes precedence, as in Confluent's
DualSchemaIdDeserializer. Confluent's registries count ids from 1, so that an id of 0 with eight
bytes is the first half of an Apicurio one. Apart from the table, data has no framing ("none").

If the schema is of Protobuf, the datum is preceded by the name of its message: for prefix and
header by message indexes (MessageIndexes: the number of them, then each, as zigzag varints; 0 alone
is [0]; in a header they follow the GUID), for Glue by a varint (MessageIndexFinder: the position
among the full names of all messages, sorted), for Apicurio by a delimited message whose field 1 is
the name (Ref), or the header `apicurio.value.msgType`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from ..errors import DatumError
from ..format.primitives import read_varint
from ..format.records.columns import Header
from .schema import SchemaType

GLUE_SIZE: Final = 18
GLUE_VERSION: Final = 3
GLUE_PLAIN, GLUE_ZLIB = 0, 5
PREFIX_SIZE: Final = 5
APICURIO_SIZE: Final = 9
# The most bytes that a compressed datum may have when it is decompressed, as for a batch.
_MAX_DATUM_BYTES: Final = 128 << 20
# Messages nest at most this deep in practice: protoc refuses more.
_MAX_INDEXES: Final = 32

#: The message of a Protobuf datum: Confluent's indexes, Glue's position, or a name; None if nothing
#: names it.
MessageRef = tuple[int, ...] | int | str | None


class Framing(StrEnum):
    """How a key or value names its schema."""

    NONE = "none"
    PREFIX = "prefix"
    HEADER = "header"
    GLUE = "glue"
    APICURIO = "apicurio"
    APICURIO_HEADER = "apicurio-header"


@dataclass(frozen=True, slots=True)
class Frame:
    """What precedes a datum. `schema_id` or `guid` names the schema; for Glue, `guid` is the UUID
    of the schema's version. `start`: where the rest of the value begins. `in_header`: the bytes
    that follow the schema's name in its header, or those of Apicurio's message name; None if it is
    not in a header. `is_compressed`: the rest is compressed with zlib. `fault`: why the frame names
    no schema, "" if it does."""

    framing: Framing = Framing.NONE
    schema_id: int | None = None
    guid: UUID | None = None
    start: int = 0
    in_header: bytes | None = None
    is_compressed: bool = False
    fault: str = ""


UNFRAMED: Final = Frame()


def header_names(*, is_key: bool) -> tuple[str, str, str, str]:
    """Returns the names of the headers that name a schema: Confluent's, and Apicurio's with the
    global id, the content id and the message."""
    part = "key" if is_key else "value"
    apicurio = f"apicurio.{part}"
    ids = f"{apicurio}.globalId", f"{apicurio}.contentId"
    return f"__{part}_schema_id", *ids, f"{apicurio}.msgType"


_KEY_HEADERS: Final = header_names(is_key=True)
_VALUE_HEADERS: Final = header_names(is_key=False)


def frame(value: bytes | None, headers: Iterable[Header] = (), *, is_key: bool = False) -> Frame:
    """Returns the frame of a key or value. A null one has none."""
    if value is None:
        return UNFRAMED
    return frame_of_headers(headers, is_key=is_key) or frame_of_prefix(value)


def frame_of_headers(headers: Iterable[Header], *, is_key: bool) -> Frame | None:
    """Returns the frame that a record's headers name, None if none does. Of headers with the same
    name the last one counts (Headers.lastHeader)."""
    confluent, global_id, content_id, message = _KEY_HEADERS if is_key else _VALUE_HEADERS
    found = {name: value for name, value in headers if value is not None}
    if confluent in found:
        return _confluent_header(found[confluent], confluent)
    for name in (global_id, content_id):
        if name in found:
            return _apicurio_header(found[name], name, found.get(message))
    return None


def _confluent_header(data: bytes, name: str) -> Frame:
    if len(data) >= 17 and data[0] == 1:
        return Frame(Framing.HEADER, guid=UUID(bytes=data[1:17]), in_header=data[17:])
    if len(data) >= PREFIX_SIZE and data[0] == 0:
        number = int.from_bytes(data[1:5], "big")
        return Frame(Framing.HEADER, schema_id=number, in_header=data[5:])
    fault = f"the header {name} is neither 1 and a GUID nor 0 and an id"
    return Frame(Framing.HEADER, fault=fault)


def _apicurio_header(data: bytes, name: str, message: bytes | None) -> Frame:
    framing = Framing.APICURIO_HEADER
    if len(data) != 8:
        return Frame(framing, fault=f"the header {name} has {len(data)} bytes instead of 8")
    return Frame(framing, schema_id=int.from_bytes(data, "big"), in_header=message)


def frame_of_prefix(value: bytes) -> Frame:
    """Returns the frame that a value begins with."""
    size = len(value)
    if size >= PREFIX_SIZE and value[0] == 0:
        number = int.from_bytes(value[1:5], "big")
        if number == 0 and size >= APICURIO_SIZE:
            number = int.from_bytes(value[5:9], "big")
            return Frame(Framing.APICURIO, schema_id=number, start=APICURIO_SIZE)
        return Frame(Framing.PREFIX, schema_id=number, start=PREFIX_SIZE)
    if size >= GLUE_SIZE and value[0] == GLUE_VERSION and value[1] in (GLUE_PLAIN, GLUE_ZLIB):
        is_compressed = value[1] == GLUE_ZLIB
        guid = UUID(bytes=value[2:GLUE_SIZE])
        return Frame(Framing.GLUE, guid=guid, start=GLUE_SIZE, is_compressed=is_compressed)
    return UNFRAMED


def datum_of(found: Frame, value: bytes, schema_type: str) -> tuple[bytes, MessageRef]:
    """Returns the datum in a value, decompressed and, if the schema is of Protobuf, without the
    name of its message, which is returned beside it. Raises DatumError."""
    rest = decompressed(value[found.start :]) if found.is_compressed else value[found.start :]
    if schema_type != SchemaType.PROTOBUF:
        return rest, None
    if found.framing is Framing.PREFIX:
        indexes, at = read_message_indexes(rest)
        return rest[at:], indexes
    if found.framing is Framing.HEADER:
        return rest, header_message(found)
    if found.framing is Framing.GLUE:
        position, at = _read_unsigned(rest, 0)
        return rest[at:], position
    if found.framing in (Framing.APICURIO, Framing.APICURIO_HEADER):
        return _apicurio_message(found, rest)
    return rest, None


def header_message(found: Frame) -> tuple[int, ...]:
    """Returns the message indexes in a HEADER frame. Raises DatumError."""
    data = found.in_header or b""
    indexes, at = read_message_indexes(data)
    if at != len(data):
        raise DatumError(f"{len(data) - at} bytes follow the message indexes in the header")
    return indexes


def decompressed(data: bytes) -> bytes:
    """Returns data that Glue compressed with zlib. Raises DatumError, also for more than 128
    MiB."""
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(data, _MAX_DATUM_BYTES)
    except zlib.error as error:
        raise DatumError(f"not compressed with zlib: {error}") from None
    if not stream.eof:
        limit = f"it has more than {_MAX_DATUM_BYTES >> 20} MiB"
        cut = "its end is missing"
        raise DatumError(f"compressed with zlib: {limit if stream.unconsumed_tail else cut}")
    return out


def read_message_indexes(data: bytes, at: int = 0) -> tuple[tuple[int, ...], int]:
    """Returns the message indexes at ``data[at]`` and the position after them. Raises
    DatumError."""
    try:
        count, at = read_varint(data, at)
        if count == 0:
            return (0,), at
        if not 0 < count <= min(_MAX_INDEXES, len(data) - at):
            raise DatumError(f"{count} message indexes")
        indexes = []
        for _ in range(count):
            index, at = read_varint(data, at)
            indexes.append(index)
    except IndexError:
        raise DatumError("the message indexes are truncated") from None
    if min(indexes) < 0:
        raise DatumError(f"a negative message index in {indexes}")
    return tuple(indexes), at


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes. Raises DatumError."""
    number = 0
    for place in range(5):
        if at + place >= len(data):
            break
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise DatumError("the varint that names the message is truncated or too long")


def _apicurio_message(found: Frame, rest: bytes) -> tuple[bytes, MessageRef]:
    """Returns the datum and the name of its message, which a header or a Ref in front of the datum
    names. A serializer may leave the Ref out (ProtobufSerializer.writeRef)."""
    if found.in_header is not None:
        return rest, found.in_header.decode("utf-8", "replace")
    try:
        size, start = _read_unsigned(rest, 0)
        ref = rest[start : start + size]
        if len(ref) == size >= 2 and ref[0] == 0x0A:
            length, at = _read_unsigned(ref, 1)
            if at + length == size:
                return rest[start + size :], ref[at:].decode()
    except (DatumError, UnicodeDecodeError):
        pass  # no Ref: the datum itself
    return rest, None
