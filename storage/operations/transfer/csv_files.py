"""The CSV files of an export: RFC 4180 with a line of names, LF as line end, in UTF-8.

    key, value     text in quotes; nothing for null, "" for an empty one. Bytes that are not UTF-8,
                   that contain a NUL, or that begin as this form does, are {"base64":"…"}
    partition, offset
                   numbers
    timestamp      ms since 1970, nothing for none
    timestampType  Kafka's name for it
    headers        JSON as in `records.jsonl`, [{"key":"…","value":"…"}], nothing for none

So nothing is lost: a value that looks like the base64 of another one is written in base64 itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...format.layout import TimestampType
from ...lines.json_output import bytes_as_json

CSV_SCHEMA: Final[pa.Schema] = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestampType", pa.string()),
        ("headers", pa.string()),
    ]
)
#: Of pyarrow's WriteOptions: text in quotes, so that null and "" differ.
CSV_OPTIONS: Final[dict[str, Any]] = {"include_header": True, "quoting_style": "needed"}
_MARK: Final = '{"base64":'
_ENDING: Final = '"}'
_KINDS: Final = tuple(TimestampType)
_NAMES: Final = [kind.kafka_name for kind in _KINDS]
# What is parsed at once: more only for a larger record.
_BLOCKS: Final = (8 << 20, 256 << 20, (1 << 31) - 1)
_TOO_LARGE: Final = "straddl"  # in Arrow's error about a record larger than a block


def to_csv_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch of an export's records with the columns of CSV_SCHEMA."""
    kinds = pc.index_in(batch.column("timestampType"), pa.array(map(int, _KINDS), pa.int32()))
    columns = [
        _texts(batch.column("key")),
        _texts(batch.column("value")),
        batch.column("partition"),
        batch.column("offset"),
        batch.column("timestamp").cast(pa.int64()),
        pa.array(_NAMES, pa.string()).take(kinds),
        _header_texts(batch.column("headers")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CSV_SCHEMA)


def _texts(array: pa.Array) -> pa.Array:
    try:
        found = array.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        found = None
    if found is None or _any(pc.match_substring(found, "\0")) or _any(_is_marked(found)):
        return pa.array(map(_text, array.to_pylist()), pa.string())
    return found


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        found = value.decode()
    except UnicodeDecodeError:
        found = "\0"
    if "\0" in found or found.startswith(_MARK):
        return f'{_MARK}"{base64.b64encode(value).decode()}{_ENDING}'
    return found


def _is_marked(array: pa.Array) -> pa.Array:
    return pc.starts_with(array, _MARK)


def _any(found: pa.Array) -> bool:
    return bool(pc.any(found).as_py())


def _header_texts(array: pa.Array) -> pa.Array:
    if not len(array.flatten()):
        return pa.nulls(len(array), pa.string())
    return pa.array(map(_header_text, array.to_pylist()), pa.string())


def _header_text(headers: list[dict[str, Any]]) -> str | None:
    if not headers:
        return None
    found = [
        {
            "key": each["key"],
            "value": None if each["value"] is None else bytes_as_json(each["value"]),
        }
        for each in headers
    ]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


# -- reading ---------------------------------------------------------------------------------------


def read_csv(source: pa.NativeFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the records with the columns of an export. Raises ValueError (pa.ArrowInvalid is one),
    KeyError or TypeError if the file is not from one."""
    rows = 0
    for block in _BLOCKS:
        skipped = rows
        source.seek(0)
        try:
            for batch in _blocks(source, block):
                part = batch.slice(min(skipped, len(batch)))
                skipped -= len(batch) - len(part)
                rows += len(part)
                if len(part):
                    yield _records(part, schema)
        except pa.ArrowInvalid as error:
            if _TOO_LARGE not in str(error) or block == _BLOCKS[-1]:
                raise
        else:
            return


def _blocks(source: pa.NativeFile, block: int) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as csv  # seldom needed

    yield from csv.open_csv(
        source,
        read_options=csv.ReadOptions(block_size=block),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=CSV_SCHEMA,
            include_columns=CSV_SCHEMA.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _records(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    kinds = pc.index_in(batch.column("timestampType"), pa.array(_NAMES))
    if kinds.null_count:
        raise ValueError("timestampType is not Kafka's name of one")
    timestamps = batch.column("timestamp")
    columns = {
        "key": _values(batch.column("key")),
        "value": _values(batch.column("value")),
        "partition": batch.column("partition"),
        "offset": batch.column("offset"),
        "timestamp": timestamps.cast(schema.field("timestamp").type),
        "timestampType": pa.array(map(int, _KINDS), pa.int32()).take(kinds),
        "headers": _headers(batch.column("headers"), schema.field("headers").type),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _values(array: pa.Array) -> pa.Array:
    if _any(_is_marked(array)):
        return pa.array(map(_value, array.to_pylist()), pa.binary())
    return array.cast(pa.binary())


def _value(text: str | None) -> bytes | None:
    if text is None or not text.startswith(_MARK):
        return None if text is None else text.encode()
    return base64.b64decode(json.loads(text)["base64"], validate=True)


def _headers(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array([_header_list(text) for text in array.to_pylist()], kind)


def _header_list(text: str | None) -> list[dict[str, Any]]:
    headers = [] if text is None else json.loads(text)
    return [{"key": each["key"], "value": _json_bytes(each["value"])} for each in headers]


def _json_bytes(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)
