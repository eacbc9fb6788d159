"""Renders records as lines of JSON with decoded keys and values.

A line is that of `json_lines`, in which `key` and `value` are what their schemas make of them.
After `headers` follow, where they apply, `keySchemaId` and `valueSchemaId` (a GUID as text if there
is no id) and `error`, which says why a key or value is shown as it is, or what is wrong with it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Final

import numpy as np

from ..format.records.batch import Bytes, Int64s
from ..format.records.columns import Columns
from ..schemas.conventions import json_text
from ..schemas.decoding import DecodedRows, NamedSchema, TopicDecoder
from .json_output import DecodedParts, json_lines

# So many texts of two schemas are made without asking which pairs there are.
_FEW: Final = 64


def decoded_lines(
    columns: Columns, topic: str, partition: int, decoder: TopicDecoder
) -> memoryview:
    """Renders a line of JSON for every record, with its key and value decoded."""
    return json_lines(columns, topic, partition, partial(_decoded, decoder))


def _decoded(decoder: TopicDecoder, columns: Columns) -> DecodedParts | None:
    """Returns the texts of keys and values, and what follows the headers; None if all rows are as
    without schemas."""
    keys = _Texts(decoder, columns, is_key=True)
    values = _Texts(decoder, columns, is_key=False)
    if keys.is_raw and values.is_raw:
        return None
    values.places[:, 0] += keys.size
    size = keys.size + values.size
    said, place_of = _said(keys, values)
    places = np.zeros((len(said), 2), dtype=np.int64)
    for place, text in enumerate(said):
        places[place] = size, len(text)
        size += len(text)
    pieces = [*keys.pieces, *values.pieces, *said]
    after = places[place_of]
    for row in keys.errors.keys() | values.errors.keys():
        text = said[place_of[row]] + _error(values.errors.get(row), keys.errors.get(row))
        after[row] = size, len(text)
        size += len(text)
        pieces.append(text)
    return DecodedParts(b"".join(pieces), np.hstack([keys.places, values.places, after]))


def _said(keys: _Texts, values: _Texts) -> tuple[list[bytes], Int64s]:
    """Returns what lines say of the schemas of keys and values, and which of these texts each row
    has."""
    pairs = keys.names * len(values.said) + values.names
    if len(keys.said) * len(values.said) <= _FEW:
        return [key + value for key in keys.said for value in values.said], pairs
    used, place_of = np.unique(pairs, return_inverse=True)
    both = (divmod(pair, len(values.said)) for pair in used.tolist())
    return [keys.said[key] + values.said[value] for key, value in both], place_of


class _Texts:
    """The keys or values of columns. `pieces`: texts, together of `size` bytes, and `places`: where
    in them the one of each row is (int64: start, size), size -1 for one that is shown as it is.
    `names`: for each row, which of the texts `said` a line says of its schema. `errors`: by row,
    what is wrong."""

    def __init__(self, decoder: TopicDecoder, columns: Columns, *, is_key: bool) -> None:
        count = len(columns)
        self.pieces: list[Bytes] = []
        self.size = 0
        self.places: Int64s = np.zeros((count, 2), dtype=np.int64)
        self.places[:, 1] = -1
        self.names: Int64s = np.zeros(count, dtype=np.int64)
        self.said = [b""]
        self.errors: dict[int, str] = {}
        self._label = b"key" if is_key else b"value"
        for group in decoder.groups(columns, is_key=is_key):
            self._add(group)

    @property
    def is_raw(self) -> bool:
        """Whether all rows are as without schemas."""
        return not (self.errors or self.names.any() or (self.places[:, 1] >= 0).any())

    def _add(self, group: DecodedRows) -> None:
        said = self._said_of(group.named)
        if said:
            self.names[group.rows] = len(self.said)
            self.said.append(said)
        found = group.datums.texts()
        self.places[group.rows] = found.places
        self.places[group.rows, 0] += self.size
        self.pieces.append(found.data)
        self.size += len(found.data)
        if found.errors:
            rows = group.rows.tolist()
            self.errors |= {rows[place]: why for place, why in found.errors.items()}

    def _said_of(self, named: NamedSchema) -> bytes:
        number = named.schema_id
        shown = str(named.guid) if number is None and named.guid is not None else number
        text = json.dumps(shown).encode()
        return b"" if shown is None else b',"%bSchemaId":%b' % (self._label, text)


def _error(value: str | None, key: str | None) -> bytes:
    named = (("value", value), ("key", key))
    parts = "; ".join(f"{name}: {why}" for name, why in named if why is not None)
    text = json_text(parts)
    assert text is not None
    return b',"error":%b' % text
