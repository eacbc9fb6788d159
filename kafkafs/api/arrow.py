"""Hands records over as Arrow record batches, for `Partition.scan` and `Compacted.scan`."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkafs.storage import (
        Columns,
        Damage,
        DecodedColumns,
        Engine,
        ReaderSchema,
        RegisteredVersion,
        Schema,
        SchemaCatalog,
        Schemas,
    )

    #: Whether to decode, or with which schema: the path of a file, or one of `schemas()`. Scans
    #: that belong together share their DecodedColumns.
    Decode = bool | str | os.PathLike[str] | Schema | RegisteredVersion | DecodedColumns

READ_COMMITTED: Final = "read_committed"  # the default of every `isolation`


def decoded_columns(catalog: SchemaCatalog, topic: str, decode: Decode) -> DecodedColumns | None:
    """Returns the columns that decoding adds to those of a topic's records, None for `decode`
    False. Raises SchemaError."""
    if decode is False:
        return None
    from kafkafs.storage import DecodedColumns, TopicReaders, topic_readers

    if isinstance(decode, DecodedColumns):
        return decode
    schemas = catalog.schemas()
    if decode is True:
        readers = topic_readers(catalog.engine, schemas, topic)
    else:
        readers = TopicReaders(_reader(schemas, decode))
    return DecodedColumns.of_topic(schemas, topic, readers)


def has_schemas(engine: Engine) -> bool:
    """Returns whether there can be schemas: the topic of a registry, or any that were given. What
    decodes with them takes a tenth of a second to import."""
    from kafkafs.storage import reader_config

    config = reader_config(engine.configs)
    return bool(config.kafkafs_schemas) or config.kafkafs_schemas_topic in engine.topics()


def _reader(schemas: Schemas, given: Decode) -> ReaderSchema:
    from kafkafs.storage import ReaderSchema, Schema

    if isinstance(given, str | os.PathLike):
        return ReaderSchema.of_file(os.fspath(given))
    schema = given if isinstance(given, Schema) else getattr(given, "schema", None)
    if not isinstance(schema, Schema):
        what = f"True, the path of a file, or one of schemas(), not {given!r:.80}"
        raise TypeError(f"decode must be {what}")
    return ReaderSchema.of(schemas, schema)


class ArrowForm:
    """The record batches of a scan: its `columns`, by default all, and those that are decoded."""

    def __init__(self, columns: Sequence[str] | None, decoded: DecodedColumns | None) -> None:
        """Raises ValueError for unknown columns, or none."""
        import pyarrow as pa

        from kafkafs.storage import RECORD_SCHEMA, schema_of

        fields = [*RECORD_SCHEMA, *(() if decoded is None else decoded.schema)]
        known = {field.name: field for field in fields}
        self._names = list(known if columns is None else columns)
        if not self._names:
            raise ValueError("columns must not be empty")
        if unknown := [name for name in self._names if name not in known]:
            raise ValueError(_no_column(unknown[0], known, is_plain=decoded is None))
        self.schema = pa.schema([known[name] for name in self._names])
        self._decoded = decoded
        self._raw = [name for name in self._names if name in RECORD_SCHEMA.names]
        self._is_plain = self.schema == schema_of(self._raw)

    @property
    def batch_rows(self) -> int | None:
        """The most rows of a batch, None if the columns set no limit: if very many are decoded."""
        if self._decoded is None or {*self._names} <= {*self._raw}:
            return None
        return self._decoded.rows_at_once

    def pieces(self, parts: Generator[Columns]) -> Generator[Columns]:
        """Yields parts, or pieces of them, of each of which one batch is made."""
        most = self.batch_rows
        with closing(parts):  # or an error's traceback would keep them open
            for part in parts:
                rows = len(part) if most is None else most
                if rows >= len(part):
                    yield part
                    continue
                for low in range(0, len(part), rows):
                    yield part.slice(low, min(low + rows, len(part)))

    def batch(self, piece: Columns, topic: str, partition: int) -> pa.RecordBatch:
        """Returns the batch of a piece. Any thread may use this."""
        import pyarrow as pa

        from kafkafs.storage import to_record_batch

        if self._is_plain:
            return to_record_batch(piece, topic, partition, self._raw)
        found: dict[str, pa.Array] = {}
        if self._raw:
            batch = to_record_batch(piece, topic, partition, self._raw)
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self._decoded is not None:
            found.update(self._decoded.arrays(piece, self._names))
        arrays = [found[name] for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def batches(
        self, parts: Generator[Columns], topic: str, partition: int
    ) -> Iterator[pa.RecordBatch]:
        with closing(self.pieces(parts)) as pieces:
            for piece in pieces:
                yield self.batch(piece, topic, partition)


def _no_column(name: str, known: Iterable[str], *, is_plain: bool) -> str:
    """Returns why there is no such column; `is_plain`: nothing is decoded."""
    from kafkafs.storage import DECODED_NAMES  # with what decodes, which is slow to import

    why = f"no column {name!r}; there are {', '.join(known)}"
    return f"{why}; others with decode=True" if is_plain and name in DECODED_NAMES else why


def arrow_reader(
    parts: Generator[Columns],
    topic: str,
    partition: int,
    columns: Sequence[str] | None,
    decoded: DecodedColumns | None = None,
) -> pa.RecordBatchReader:
    """Returns records as Arrow record batches with the selected `columns`, all by default."""
    import pyarrow as pa

    form = ArrowForm(columns, decoded)
    return pa.RecordBatchReader.from_batches(form.schema, form.batches(parts, topic, partition))


def undamaged(
    parts: Generator[Columns | Damage], on_damage: Callable[[Damage], None] | None
) -> Generator[Columns]:
    """Yields the records among `parts`. Passes damage to `on_damage`, or raises it if that is
    None."""
    from kafkafs.storage import Damage, fresh

    with closing(parts):
        for part in parts:
            if not isinstance(part, Damage):
                yield part
            elif on_damage is None:
                raise fresh(part.error)
            else:
                on_damage(part)
