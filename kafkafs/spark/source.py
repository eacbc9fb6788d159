"""The format "kafkafs" of PySpark's Python data source API."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import to_arrow_schema
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

from .options import OptionError, ReadOptions
from .read.range_reader import KafkafsReader
from .read.refused_stream import RefusedStreamReader
from .tables import declared_options, is_table, reader_options, with_options
from .write.write_options import WriteOptions

_HEADER: Final = StructType().add("key", StringType()).add("value", BinaryType())
_COLUMNS: Final[dict[str, DataType]] = {
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
        names = _LOSSES if options.losses else dict(_COLUMNS)
        if not options.losses and not options.include_headers:
            del names["headers"]
        columns = StructType([StructField(name, kind) for name, kind in names.items()])
        return with_options(columns, given) if is_table(self.options) else columns

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader. `schema` may be the user's own with only some of the columns; only
        these are then built."""
        options = ReadOptions.parse(reader_options(self.options, schema))
        _check_columns(schema, _LOSSES if options.losses else _COLUMNS)
        return KafkafsReader(options, to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Returns the stream reader, as `reader` does. It raises what is wrong, such as OptionError
        or, before PySpark 4.2, whose streams have no read limits, ImportError, on its first use."""
        try:
            from .read.stream_reader import KafkafsStreamReader

            options = ReadOptions.parse(reader_options(self.options, schema), streaming=True)
            _check_columns(schema, _LOSSES if options.losses else _COLUMNS)
            return KafkafsStreamReader(options, to_arrow_schema(schema, timezone="UTC"))
        except Exception as error:  # noqa: BLE001
            return RefusedStreamReader(error)

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
