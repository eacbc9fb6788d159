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
from pyspark.sql.types import StructType

from .options import OptionError, ReadOptions
from .read.range_reader import KafkafsReader
from .write.write_options import WriteOptions

_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
_LOSSES: Final = {
    "topic": "string",
    "partition": "int",
    "firstOffset": "bigint",
    "nextOffset": "bigint",
    "file": "string",
    "position": "bigint",
    "what": "string",
}


class KafkafsSource(DataSource):
    """`spark.read.format("kafkafs")` and `spark.readStream.format("kafkafs")`."""

    @classmethod
    def name(cls) -> str:
        return "kafkafs"

    def schema(self) -> str:
        """Returns the schema. Spark calls this in `load`, so wrong options are rejected there."""
        options = ReadOptions.parse(self.options, streaming=None)
        columns = _LOSSES if options.losses else dict(_COLUMNS)
        if not options.losses and not options.include_headers:
            del columns["headers"]
        return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader. `schema` may be the user's own with only some of the columns; only
        these are then built."""
        options = ReadOptions.parse(self.options)
        _check_columns(schema, _LOSSES if options.losses else _COLUMNS)
        return KafkafsReader(options, to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Returns the stream reader, as `reader` does. Raises ImportError before PySpark 4.2, whose
        streams have no read limits."""
        from .read.stream_reader import KafkafsStreamReader

        options = ReadOptions.parse(self.options, streaming=True)
        _check_columns(schema, _LOSSES if options.losses else _COLUMNS)
        return KafkafsStreamReader(options, to_arrow_schema(schema, timezone="UTC"))

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


def _check_columns(schema: StructType, known: dict[str, str]) -> None:
    for field in schema.fields:
        if field.name not in known:
            raise OptionError("schema", f"no column {field.name}; there are {', '.join(known)}")
        kind = field.dataType.simpleString()
        if kind != known[field.name]:
            raise OptionError("schema", f"{field.name} is {known[field.name]}, not {kind}")
