"""Columns of several record types: a struct with a field for each, all null but that of the datum's
type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ...errors import DatumError, SchemaError
from ...format.records.batch import Int64s
from ..avro.types import parse_avro
from ..framing import Frame, datum_of
from ..json_schema.decoder import compile_json_schema
from ..protobuf.decoder import ProtobufDecoder, compile_protobuf
from ..schema import Schema, SchemaType
from .reader_schema import Reader, ReaderUnion
from .readers import ColumnReader, Payloads, TypedRows, Writer, reader_of


def column_reader(given: Reader) -> ColumnReader:
    """Raises SchemaError if a schema cannot be used."""
    return _UnionReader(given) if isinstance(given, ReaderUnion) else reader_of(given)


class _UnionReader:
    def __init__(self, given: ReaderUnion) -> None:
        #: By type and full name of the record type, the field's name and what reads it.
        self._members = {
            _record_type(each.schema, each.referenced): (label, reader_of(each))
            for label, each in given.members.items()
        }
        self.type = pa.struct([(name, each.type) for name, each in self._members.values()])

    def writer(self, schema: Schema, referenced: Mapping[str, Schema]) -> Writer:
        if schema.type == SchemaType.PROTOBUF:
            return self._of_messages(schema, referenced)
        record = _record_type(schema, referenced)
        if record not in self._members:
            raise SchemaError(schema.name, self._other(record[1]))
        label, reader = self._members[record]
        write = reader.writer(schema, referenced)

        def decode(payloads: Payloads, rows: Int64s, frame: Frame) -> TypedRows:
            _, values, reasons = write(payloads, rows, frame)
            return TypedRows(rows, self._wrapped(label, values), reasons)

        return decode

    def _of_messages(self, schema: Schema, referenced: Mapping[str, Schema]) -> Writer:
        """Returns what decodes data of several messages, each of which names its own."""
        written = compile_protobuf(schema, referenced)
        writers = {
            name: (label, reader.writer(schema, referenced))
            for (kind, name), (label, reader) in self._members.items()
            if kind == SchemaType.PROTOBUF
        }

        def decode(payloads: Payloads, rows: Int64s, frame: Frame) -> TypedRows:
            groups: defaultdict[str, list[int]] = defaultdict(list)
            wrong: defaultdict[str, list[int]] = defaultdict(list)
            for row, (low, high) in zip(rows, payloads.after(rows, 0).tolist(), strict=True):
                try:
                    value = bytes(payloads.data[low:high])
                    names = _messages(written, frame, value)
                    name = next((each for each in names if each in writers), "")
                    if name:
                        groups[name].append(row)
                    else:
                        wrong[self._other(names[0])].append(row)
                except DatumError as error:
                    wrong[error.why].append(row)
            parts: list[TypedRows] = []
            for name, mine in groups.items():
                label, write = writers[name]
                _, values, reasons = write(payloads, np.array(mine, dtype=np.int64), frame)
                parts.append(TypedRows(np.array(mine), self._wrapped(label, values), reasons))
            for why, mine in wrong.items():
                nulls, reasons = pa.nulls(len(mine), self.type), pa.repeat(why, len(mine))
                parts.append(TypedRows(np.array(mine), nulls, reasons))
            order = pa.array(np.argsort(np.concatenate([part.rows for part in parts])))
            values = pa.concat_arrays([part.values for part in parts]).take(order)
            return TypedRows(rows, values, pa.concat_arrays([p.reasons for p in parts]).take(order))

        return decode

    def _wrapped(self, label: str, values: pa.Array) -> pa.Array:
        fields = [self.type.field(place) for place in range(self.type.num_fields)]
        arrays = [
            values if each.name == label else pa.nulls(len(values), each.type) for each in fields
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())

    def _other(self, name: str) -> str:
        known = ", ".join(label for label, _ in self._members.values())
        return f"it is a {name}, which the column, made of other records, does not have: {known}"


def _messages(written: ProtobufDecoder, frame: Frame, value: bytes) -> tuple[str, ...]:
    _, message = datum_of(frame, value, SchemaType.PROTOBUF)
    return tuple(written.message_names(message))


def _record_type(schema: Schema, referenced: Mapping[str, Schema]) -> tuple[str, str]:
    """Returns the type of a schema, and the full name of its record type, "" if it has none."""
    if schema.type == SchemaType.AVRO:
        return schema.type, parse_avro(schema, referenced).name
    if schema.type == SchemaType.JSON:
        return schema.type, compile_json_schema(schema, referenced).title
    return schema.type, schema.message
