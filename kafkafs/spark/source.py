"""The format "kafkafs" of PySpark's Python data source API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .option_texts import OptionError
from .options import ReadOptions
from .read.conditions import ANYTHING, Conditions
from .read.decoding import Decoding
from .read.range_reader import KafkafsReader
from .tables import declared_options, is_table, metadata_of, reader_options
from .write.write_options import WriteOptions

_HEADER: Final = StructType().add("key", StringType()).add("value", BinaryType())
#: The columns of records, in order.
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
_LOSSES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "firstOffset": LongType(),
    "nextOffset": LongType(),
    "file": StringType(),
    "position": LongType(),
    "what": StringType(),
}


class KafkafsSource(DataSource):
    """`spark.read.format("kafkafs")` and `spark.readStream.format("kafkafs")`."""

    @classmethod
    def name(cls) -> str:
        return "kafkafs"

    def schema(self) -> StructType:
        """Returns the columns. Spark calls this in `load` and when a table is created, so wrong
        options are rejected there."""
        given = declared_options(self.options) if is_table(self.options) else self.options
        options = ReadOptions.parse(given, streaming=None)
        decoding = Decoding.of(options)
        names = known_columns(options, decoding)
        if not options.losses and not options.include_headers:
            del names["headers"]
        columns = fields_of(names, decoding)
        if is_table(self.options):
            columns[0].metadata = metadata_of(given)
        return StructType(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader. `schema` may be the user's own with only some of the columns; only
        these are then built."""
        return self.reader_of(schema, ANYTHING)

    def reader_of(self, schema: StructType, conditions: Conditions) -> DataSourceReader:
        """Returns the reader that leaves out what does not meet the conditions, where it can."""
        options = ReadOptions.parse(self._options_for(schema))
        decoding = _checked(options, schema)
        return KafkafsReader(options, to_arrow_schema(schema, timezone="UTC"), conditions, decoding)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Returns the stream reader, as `reader` does. It raises what is wrong, such as OptionError
        or, before PySpark 4.2, whose streams have no read limits, ImportError, on its first use."""
        try:
            from .read.stream_reader import KafkafsStreamReader

            options = ReadOptions.parse(self._options_for(schema), streaming=True)
            decoding = _checked(options, schema)
            return KafkafsStreamReader(options, to_arrow_schema(schema, timezone="UTC"), decoding)
        except Exception as error:  # noqa: BLE001
            return _RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer. Raises OptionError for `overwrite`, since a log is append-only, and
        LogDirLocked."""
        from .write.writer import KafkafsWriter

        _refuse_overwrite(overwrite)
        return KafkafsWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Returns the stream writer, as `writer` does."""
        from .write.writer import KafkafsStreamWriter

        _refuse_overwrite(overwrite)
        return KafkafsStreamWriter(WriteOptions.parse(self.options, streaming=True), schema)

    def _options_for(self, schema: StructType) -> Mapping[str, str]:
        return reader_options(self.options, (field.metadata for field in schema.fields))


def known_columns(options: ReadOptions, decoding: Decoding | None) -> dict[str, DataType]:
    """Returns the columns that a read has."""
    known = dict(_LOSSES if options.losses else COLUMNS)
    if decoding is not None:
        known |= {name: from_arrow_type(kind) for name, kind in decoding.types().items()}
    return known


def fields_of(columns: Mapping[str, DataType], decoding: Decoding | None) -> list[StructField]:
    """Returns the fields of these columns; the metadata of decoded ones have their schemas."""
    fields = [StructField(name, kind) for name, kind in columns.items()]
    metadata = {} if decoding is None else decoding.metadata()
    for each in fields:
        each.metadata = metadata.get(each.name, each.metadata)
    return fields


def _checked(options: ReadOptions, schema: StructType) -> Decoding | None:
    """Returns how values and keys are decoded, by the schemas in the metadata of their columns.
    Raises OptionError for unknown columns."""
    decoding = Decoding.of(options, [field.metadata for field in schema.fields])
    _check_columns(schema, known_columns(options, decoding))
    return decoding


class _RefusedStreamReader(DataSourceStreamReader):
    """Raises `error` on its first use.

    PySpark 4.1 to 4.3 hides what `DataSource.streamReader` raises: it stops the reader that it did
    not get, and reports an UnboundLocalError.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise copy(self._error)  # a raised error references the frames that it passes

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionError("mode", "overwrite is not supported; use append")


def _check_columns(schema: StructType, known: dict[str, DataType]) -> None:
    for field in schema.fields:
        if field.name not in known:
            raise OptionError("schema", f"no column {field.name}; there are {', '.join(known)}")
        kind, expected = field.dataType.simpleString(), known[field.name].simpleString()
        if kind != expected:
            raise OptionError("schema", f"{field.name} is {expected}, not {kind}")
