"""What decoded records become in the files of an export.

In Parquet and Arrow, a topic with schemas has the columns `decoded` and `decodeError`, and for its
keys `decodedKey` and `decodeKeyError`, as a scan has them. `value` and `key` are the bytes of what
could not be decoded, or not without a fault; they are null where nothing is lost without them.

JSON lines are those of `decoded.jsonl` in a mount. CSV has the same four columns for all topics,
with the values as JSON text. In both, a value is that of the schema that it was written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import SchemaError
from ...format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from ...io.durable import Buffer
from ...lines.decoded_lines import decoded_lines
from ...schemas.decoding import TopicDecoder
from ...schemas.typed.decoder import DECODED, DECODED_KEY, DECODED_NAMES, DecodedColumns
from ...schemas.typed.reader_schema import TopicReaders
from ...schemas.typed.sources import SchemaSourceDirs
from .csv_files import CSV_SCHEMA
from .record_files import SCHEMA, RawForm, RecordForm
from .request import Format

# Where the size of what is decoded lies in the spans of records.
_SIZES: Final = ((DECODED, VALUE_SIZE), (DECODED_KEY, KEY_SIZE))
#: The formats whose files have typed columns.
TYPED_FORMATS: Final[tuple[Format, ...]] = ("parquet", "arrow")


def check_parquet(schema: pa.Schema, topic: str) -> None:
    """Raises SchemaError if a Parquet file cannot have the decoded columns of a topic."""
    import pyarrow.parquet as pq  # large

    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
    except pa.ArrowException as error:
        why = f"Parquet cannot have its columns: {error}; Arrow and JSON lines can"
        raise SchemaError(f"topic {topic}", why) from None


@dataclass(frozen=True, slots=True)
class DecodedForms:
    """Makes the forms of decoded records: with typed columns, or of JSON. `readers`: by topic, the
    schemas of the typed columns. Can be pickled."""

    source: SchemaSourceDirs
    is_typed: bool
    readers: Mapping[str, TopicReaders] = field(default_factory=dict)

    def __call__(self, topic: str, partition: int) -> RecordForm:
        if not self.is_typed:
            return JsonForm(topic, partition, self.source.topic_decoder(topic))
        readers = self.readers.get(topic)
        if not readers:
            return RawForm(topic, partition)
        return TypedForm(topic, partition, self.source.decoded_columns(topic, readers))


class TypedForm(RawForm):
    """Keys and values as typed columns."""

    def __init__(self, topic: str, partition: int, decoded: DecodedColumns) -> None:
        super().__init__(topic, partition)
        self._decoded = decoded
        self.schema = pa.schema([*SCHEMA, *decoded.schema])

    def batch(self, columns: Columns) -> pa.RecordBatch:
        names = self._decoded.schema.names
        found = self._decoded.arrays(columns, names)
        is_whole = {
            size: _flags(found[value].is_valid()) & _flags(found[reason].is_null())
            for (value, reason), size in _SIZES
            if value in found
        }
        raw = super().batch(columns.with_nulls(is_whole))
        return pa.RecordBatch.from_arrays(
            [*raw.columns, *(found[name] for name in names)], schema=self.schema
        )


class JsonForm(RawForm):
    """Keys and values as JSON."""

    csv_schema = pa.schema([*CSV_SCHEMA, *((name, pa.string()) for name in DECODED_NAMES)])

    def __init__(self, topic: str, partition: int, decoder: TopicDecoder) -> None:
        super().__init__(topic, partition)
        self._decoder = decoder

    def lines(self, columns: Columns) -> Buffer:
        return decoded_lines(columns, self._topic, self._partition, self._decoder)

    def csv_batch(self, columns: Columns) -> pa.RecordBatch:
        added: list[pa.Array] = []
        is_whole: dict[int, NDArray[np.bool_]] = {}
        for _, size in _SIZES:
            texts, reasons = _json_texts(self._decoder, columns, is_key=size == KEY_SIZE)
            is_whole[size] = _flags(texts.is_valid()) & _flags(reasons.is_null())
            added += [texts, reasons]
        raw = super().csv_batch(columns.with_nulls(is_whole))
        return pa.RecordBatch.from_arrays([*raw.columns, *added], schema=self.csv_schema)


def _flags(array: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return found


def _json_texts(
    decoder: TopicDecoder, columns: Columns, *, is_key: bool
) -> tuple[pa.Array, pa.Array]:
    """Returns the texts of what is decoded, null for what is not, and what is wrong."""
    texts: list[bytes | None] = [None] * len(columns)
    reasons: list[str | None] = [None] * len(columns)
    for group in decoder.groups(columns, is_key=is_key):
        found, rows = group.datums.texts(), group.rows.tolist()
        for row, (start, size) in zip(rows, found.places.tolist(), strict=True):
            if size >= 0:
                texts[row] = bytes(found.data[start : start + size])
        for place, why in found.errors.items():
            reasons[rows[place]] = why
    return pa.array(texts, pa.string()), pa.array(reasons, pa.string())
