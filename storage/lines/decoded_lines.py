"""Renders records as lines of JSON with decoded keys and values.

A line is that of `json_lines`, in which `key` and `value` are what their schemas make of them.
After `headers` follow, where they apply, `keySchemaId` and `valueSchemaId` (a GUID as text if there
is no id) and `error`, which says why a key or value is shown as it is, or what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from ..schemas.decoding import RAW, DecodedRows, NamedSchema, TopicDecoder
from .json_output import json_lines

_ENCODE: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode
#: What is wrong with a value that has no JSON text.
NOT_JSON: Final = "it has a value that JSON does not have, or values nested too deeply"
_NULL_KEY: Final = b'{"key":null'
# What follows a null value. In a key's text quotes are escaped, so it is found only after that.
_NULL_VALUE: Final = b',"value":null,"topic":'


def decoded_lines(
    columns: Columns, topic: str, partition: int, decoder: TopicDecoder
) -> memoryview:
    """Renders a line of JSON for every record, with its key and value decoded."""
    keys = _Texts(decoder, columns, is_key=True)
    values = _Texts(decoder, columns, is_key=False)
    if keys.is_raw and values.is_raw:
        return json_lines(columns, topic, partition)
    others = columns.with_nulls({KEY_SIZE: keys.are_texts(), VALUE_SIZE: values.are_texts()})
    lines = bytes(json_lines(others, topic, partition)).split(b"\n")
    for row, (key, value) in enumerate(zip(keys.texts, values.texts, strict=True)):
        line = lines[row]
        if value is not None:
            before, _, after = line.partition(_NULL_VALUE)
            line = b'%b,"value":%b,"topic":%b' % (before, value, after)
        if key is not None:
            line = b'{"key":%b%b' % (key, line[len(_NULL_KEY) :])
        lines[row] = line
    for row, more in _after_headers(keys, values):
        lines[row] = b"%b%b}" % (lines[row][:-1], more)
    return memoryview(b"\n".join(lines))


def _after_headers(keys: _Texts, values: _Texts) -> Iterator[tuple[int, bytes]]:
    """Yields what follows the headers in rows where something does."""
    ids = values.ids if keys.has_no_ids else list(map(bytes.__add__, keys.ids, values.ids))
    has_errors = bool(keys.errors or values.errors)
    for row, more in enumerate(ids):
        if has_errors:
            more += _error(values.errors.get(row), keys.errors.get(row))
        if more:
            yield row, more


class _Texts:
    """The keys or values of columns: by row, the text of a decoded one, None of others; what a line
    says of its schema; and of some what is wrong."""

    def __init__(self, decoder: TopicDecoder, columns: Columns, *, is_key: bool) -> None:
        count = len(columns)
        self.texts: list[bytes | None] = [None] * count
        self.ids = [b""] * count
        self.errors: dict[int, str] = {}
        self.has_no_ids = True
        self._label = b"key" if is_key else b"value"
        for group in decoder.groups(columns, is_key=is_key):
            self._add(group)

    @property
    def is_raw(self) -> bool:
        """Whether all rows are as without schemas."""
        has_none = self.has_no_ids and not self.errors
        return has_none and all(text is None for text in self.texts)

    def are_texts(self) -> NDArray[np.bool_]:
        """Returns for each row whether it has a text."""
        return np.array([text is not None for text in self.texts], dtype=np.bool_)

    def _add(self, group: DecodedRows) -> None:
        named = self._named(group.named)
        rows = group.rows.tolist()
        if named:
            self.has_no_ids = False
            for row in rows:
                self.ids[row] = named
        for row, (value, error) in zip(rows, group.outcomes, strict=True):
            if value is not RAW:
                self.texts[row] = text = json_text(value)
                error = error if text is not None else NOT_JSON
            if error is not None:
                self.errors[row] = error

    def _named(self, named: NamedSchema) -> bytes:
        number = named.schema_id
        shown = str(named.guid) if number is None and named.guid is not None else number
        text = json.dumps(shown).encode()
        return b"" if shown is None else b',"%bSchemaId":%b' % (self._label, text)


def json_text(value: Any) -> bytes | None:
    """Returns a value as JSON in UTF-8; None if it is no JSON value."""
    try:
        text = _ENCODE(value)
    except (ValueError, RecursionError):
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can show
        return json.dumps(value, check_circular=False, separators=(",", ":")).encode()


def _error(value: str | None, key: str | None) -> bytes:
    named = (("value", value), ("key", key))
    parts = "; ".join(f"{name}: {why}" for name, why in named if why is not None)
    text = json_text(parts)
    assert text is not None
    return b',"error":%b' % text if parts else b""
