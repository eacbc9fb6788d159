"""Values of query results as text and as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkafs.storage import bytes_as_json

# What DuckDB's infinite dates and timestamps are in Arrow: the greatest number, and its opposite.
_INFINITE: Final = {
    sign * limit: name
    for sign, name in ((1, "infinity"), (-1, "-infinity"))
    for limit in (2**31 - 1, 2**63 - 1)
}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_NO_FRACTION: Final = re.compile(r"\.0+(?=Z?$)")


def python_values(column: pa.Array) -> list[Any]:
    """Returns the values of a column in Python: maps as dicts, dates and times that Python does not
    have (years beyond 9999 or before 1, nanoseconds) as text in ISO 8601."""
    try:
        if not _has(pa.types.is_map, column.type):
            values: list[Any] = column.to_pylist()
            return values
    except (OverflowError, ValueError):
        pass
    return [_python_value(each) for each in column]


def _python_value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _python_value(each) for name, each in scalar.items()}
    if pa.types.is_map(kind):
        pairs = (each.values() for each in scalar.values)
        return {as_text(_python_value(key)): _python_value(value) for key, value in pairs}
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_python_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        text = str(pc.cast(scalar, pa.string())).replace(" ", "T", 1)
        return _INFINITE.get(scalar.value) or _NO_FRACTION.sub("", text)


def as_json(value: Any) -> Any:
    """Returns a value of Arrow as one of JSON: bytes as in records.jsonl, times in ISO 8601, the
    rest as DuckDB writes it. What JSON has no form for is a string, as in decoded.jsonl."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE[str(value)]
    if isinstance(value, bytes):
        return bytes_as_json(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date | time):
        return _iso(value)
    if isinstance(value, pa.MonthDayNano):
        return interval_text(value)
    if isinstance(value, dict):
        return {_member(name): as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return str(value)


def as_text(value: Any) -> str:
    """Returns a value of Arrow that is not null as text: bytes that are UTF-8 as they are, others
    in hexadecimal; nested values as JSON."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, Decimal):
        return str(value)
    found = as_json(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def interval_text(value: pa.MonthDayNano) -> str:
    """Returns an interval as DuckDB writes it, as in `1 year 2 months 3 days 04:00:01.5`."""
    sign = -1 if value.months < 0 else 1
    years, months = divmod(abs(value.months), 12)
    parts = ((sign * years, "year"), (sign * months, "month"), (value.days, "day"))
    texts = [f"{n} {unit}{'' if abs(n) == 1 else 's'}" for n, unit in parts if n]
    seconds, nanoseconds = divmod(abs(value.nanoseconds), 10**9)
    if value.nanoseconds or not texts:
        fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
        minus = "-" if value.nanoseconds < 0 else ""
        hours, rest = divmod(seconds, 3600)
        texts.append(f"{minus}{hours:02}:{rest // 60:02}:{rest % 60:02}{fraction}")
    return " ".join(texts)


def text_column(column: pa.Array) -> pa.Array:
    """Returns a column as one of strings or numbers, nulls as nulls."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column
    if pa.types.is_binary(kind):
        try:
            return pc.cast(column, pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            pass
    texts = [None if value is None else as_text(value) for value in python_values(column)]
    return pa.array(texts, pa.string())


def without_intervals(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with intervals as text, since pyarrow cannot store them in Parquet."""
    if not any(_has(pa.types.is_interval, field.type) for field in batch.schema):
        return batch
    columns = [_without_intervals(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _has(is_such: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Returns whether a type, or one in it, is such."""
    children = (kind.field(number).type for number in range(kind.num_fields))
    return is_such(kind) or any(_has(is_such, each) for each in children)


def _without_intervals(column: pa.Array) -> pa.Array:
    kind, missing = column.type, column.is_null()
    if not _has(pa.types.is_interval, kind):
        return column
    if pa.types.is_interval(kind):
        texts = (None if each is None else interval_text(each) for each in column.to_pylist())
        return pa.array(texts, pa.string())
    if pa.types.is_struct(kind):
        parts = [_without_intervals(part) for part in column.flatten()]
        fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=missing)
    if not (pa.types.is_map(kind) or pa.types.is_list(kind)):
        return column  # which pyarrow refuses
    # A row is null if its offset is.
    mask = np.append(missing.to_numpy(zero_copy_only=False), False)
    offsets = pa.array(column.offsets.to_numpy(), mask=mask)
    if pa.types.is_map(kind):
        keys, items = map(_without_intervals, (column.keys, column.items))
        return pa.MapArray.from_arrays(offsets, keys, items)
    return pa.ListArray.from_arrays(offsets, _without_intervals(column.values))


def type_name(kind: pa.DataType) -> str:
    """Returns the name of a type, as DuckDB has it where that is shorter."""
    names: Sequence[tuple[Any, str]] = (
        (pa.types.is_binary, "blob"),
        (pa.types.is_string, "varchar"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_struct, "struct"),
        (pa.types.is_list, "list"),
        (pa.types.is_map, "map"),
        (pa.types.is_date, "date"),
        (pa.types.is_interval, "interval"),
        (pa.types.is_union, "union"),
    )
    return next((name for matches, name in names if matches(kind)), str(kind))


def _member(name: Any) -> str:
    return name if isinstance(name, str) else as_text(name)


def _iso(value: datetime | date | time) -> str:
    text = value.isoformat()
    is_utc = isinstance(value, datetime) and value.tzinfo is not None
    return text.removesuffix("+00:00") + "Z" if is_utc and text.endswith("+00:00") else text
