"""What decoded records become in the files of an export.

In Parquet and Arrow, a topic with schemas has the columns `decoded` and `decodeError`, and for its
keys `decodedKey` and `decodeKeyError`, as a scan has them. `value` and `key` are the bytes of what
could not be decoded, or not without a fault; they are null where nothing is lost without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from ...errors import SchemaError
from ...format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from ...schemas.typed.decoder import DECODED, DECODED_KEY, DecodedColumns
from ...schemas.typed.reader_schema import TopicReaders
from ...schemas.typed.sources import SchemaSourceDirs
from .record_files import SCHEMA, RawForm, RecordForm
from .request import Format

# Where the size of what is decoded lies in the spans of records.
_SIZES: Final = ((DECODED, VALUE_SIZE), (DECODED_KEY, KEY_SIZE))
#: The formats whose files have typed columns.
TYPED_FORMATS: Final[tuple[Format, ...]] = ("parquet", "arrow")


def check_columns(schema: pa.Schema, format: Format, topic: str) -> None:
    """Raises SchemaError if the files of a format cannot have the decoded columns of a topic."""
    if format != "parquet":
        return
    import pyarrow.parquet as pq  # large

    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema).close()
    except pa.ArrowException as error:
        why = f"Parquet cannot have its columns: {error}; export it as arrow or jsonl"
        raise SchemaError(f"topic {topic}", why) from None


@dataclass(frozen=True, slots=True)
class DecodedForms:
    """Makes the forms of decoded records. `readers`: by topic, the schemas of the columns. Can be
    pickled."""

    source: SchemaSourceDirs
    readers: Mapping[str, TopicReaders] = field(default_factory=dict)

    def __call__(self, topic: str, partition: int) -> RecordForm:
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
        spans = columns.spans.copy()
        for (value, reason), size in _SIZES:
            if value in found:
                is_whole = found[value].is_valid().to_numpy(zero_copy_only=False)
                is_whole &= found[reason].is_null().to_numpy(zero_copy_only=False)
                spans[np.flatnonzero(is_whole), size] = -1
        left = Columns(
            columns.data,
            columns.offsets,
            columns.timestamps,
            spans,
            columns.batches,
            columns.first_row,
            columns.file,
        )
        raw = super().batch(left)
        return pa.RecordBatch.from_arrays(
            [*raw.columns, *(found[name] for name in names)], schema=self.schema
        )
