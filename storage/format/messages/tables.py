"""Makes tables from schemas, by which a kernel writes messages as JSON a hundred times as fast as
`MessageSchema.read` and `to_json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from ..kernels import messages as kernel
from ..records.batch import Int32s
from ..records.buffer_pool import BUFFERS
from ..records.columns import Columns
from .message import NO_TAG, MessageSchema, SchemaField, to_json

#: Printed for a null value, which is a tombstone for the key.
DELETED: Final = "<DELETE>"
_KINDS: Final = (
    *("boolean", "int8", "int16", "uint16", "int32", "int64"),
    *("uuid", "string", "bytes", "struct", "float64"),
)
# Columns of a table of fields, and of heads; see the kernel.
_FIELD_COLUMNS: Final = 10
_HEAD_COLUMNS: Final = 5
_NO_HEAD: Final = (-1, 0, 0, 0, 0)
# The first guess at the size of a record's texts.
_ROW_BYTES: Final = 256


class MessageTables:
    """The tables for the records of a topic."""

    def __init__(
        self,
        keys: Iterable[MessageSchema],
        values: Iterable[MessageSchema],
        key_text: Callable[[MessageSchema], str],
        value_text: Callable[[MessageSchema, int], str],
    ) -> None:
        """`key_text` and `value_text` return what precedes a message; a brace follows it. Without
        `keys`, the values are those of cluster metadata."""
        self._fields: list[Sequence[int]] = []
        self._texts = bytearray(DELETED.encode())
        schemas = list(values)
        self._versions = 1 + max(schema.versions[1] for schema in schemas)
        key_heads = {schema.number: self._head(schema, 0, key_text(schema)) for schema in keys}
        value_heads = {
            schema.number * self._versions + version: self._head(
                schema, version, value_text(schema, version)
            )
            for schema in schemas
            for version in range(schema.versions[0], schema.versions[1] + 1)
        }
        self._tables = (
            np.array(self._fields, dtype=np.int32).reshape(-1, _FIELD_COLUMNS),
            *(_by_number(heads) for heads in (key_heads, value_heads)),
            self._versions,
            bytes(self._texts),
        )

    def write(self, columns: Columns) -> tuple[memoryview, Int32s, list[int]]:
        """Writes the records' keys and values. Returns the texts; for each record start and size
        of its key, then of its value in them, -1 for a key that is not printed; and the rows that
        could not be written, because they are malformed or need more than these tables."""
        spans = np.empty((len(columns), 4), dtype=np.int32)
        out = BUFFERS.acquire(_ROW_BYTES * len(columns))
        row = at = 0
        while True:
            row, at = kernel.write_messages(
                columns.data, columns.spans, row, *self._tables, spans, out, at
            )
            if row == len(columns):
                return out[:at], spans, np.flatnonzero(spans[:, 1] == kernel.LEFT).tolist()
            grown = BUFFERS.acquire(2 * len(out))
            grown[:at] = out[:at]
            out = grown

    def _head(self, schema: MessageSchema, version: int, text: str) -> Sequence[int]:
        first, count = self._add(schema.parts, version)
        return first, count, version >= schema.flexible_from, *self._text(text)

    def _add(self, parts: Sequence[SchemaField], version: int) -> tuple[int, int]:
        """Adds the fields that the version has. Returns the row of the first, and their number."""
        there = [part for part in parts if part.is_in(version)]
        first = len(self._fields)
        self._fields += [()] * len(there)
        for row, part in enumerate(there, first):
            default = "" if part.tag == NO_TAG else to_json(part.default)
            self._fields[row] = (
                _KINDS.index(part.kind), part.is_array, part.is_nullable, part.tag,
                *self._text(f'"{part.name}":'), *self._text(default),
                *self._add(part.parts, version),
            )  # fmt: skip
        return first, len(there)

    def _text(self, text: str) -> tuple[int, int]:
        """Adds a text. Returns its start and size."""
        encoded = text.encode()
        self._texts += encoded
        return len(self._texts) - len(encoded), len(encoded)


def _by_number(heads: Mapping[int, Sequence[int]]) -> Int32s:
    rows = [heads.get(number, _NO_HEAD) for number in range(max(heads, default=-1) + 1)]
    return np.array(rows, dtype=np.int32).reshape(-1, _HEAD_COLUMNS)
