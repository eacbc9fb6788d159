"""The contents of the files of a range."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from kafkafs.storage import Columns, CorruptError, Damage, View, fresh

from ..streams.copies import CopyWriter
from ..streams.ranges import Range, RangeMember, Streamed, WrittenFile
from ..streams.streams import StreamPiece
from .member import Member
from .stream import ARROW_END, FIELDS, LinesSource, PartitionSource, format_of

if TYPE_CHECKING:  # pyarrow is large
    import pyarrow as pa

    from kafkafs.storage import DecodedColumns, Decoders, TableLimits

_PARQUET_CODEC: Final = "zstd"


class _Whole:
    """A range's records if all can be read: damage raises CorruptError."""

    def __init__(self, range_: Range, view: View) -> None:
        self.range = range_
        self.partition = range_.partition
        self._view = view

    def columns(self, start: int) -> Iterator[Columns]:
        """Yields the records from offset `start` on. Raises CorruptError."""
        begin, end = max(start, self.range.first), self.range.last + 1
        parts = self._view.scan(begin, end, self.partition.isolation, ahead=True)
        with closing(parts):  # an error must keep neither it nor its threads alive
            for part in parts:
                if isinstance(part, Damage):
                    self._fail(part.error)
                else:
                    yield part

    def lines(self, source: PartitionSource, start: int) -> Iterator[StreamPiece]:
        """Yields what `source` makes of the records. Raises CorruptError."""
        begin, end = max(start, self.range.first), self.range.last + 1
        for piece in source.pieces_between(begin, end):
            if isinstance(piece, CorruptError):
                self._fail(piece)
            else:
                yield piece

    def _fail(self, error: CorruptError) -> NoReturn:
        self.partition.note_damage(error)
        raise fresh(error)

    def tables(
        self, start: int, decoded: DecodedColumns | None, limits: TableLimits
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yields Arrow tables of the records, each with the offset of its first record. Raises
        CorruptError."""
        from kafkafs.storage import record_tables, to_record_batch  # with pyarrow

        topic, number = self.partition.topic, self.partition.number
        if decoded is None:
            to_batch = partial(to_record_batch, topic=topic, partition=number)
        else:
            to_batch = partial(decoded.record_batch, topic=topic, partition=number)
            limits = decoded.limits(limits)
        return record_tables(self.columns(start), to_batch, limits)


class TextSource:
    """Lines of a range's records, in the format of the stream `like`. `decoders`: those of
    DECODED_JSONL."""

    def __init__(
        self, range_: Range, view: View, like: Member, decoders: Decoders | None = None
    ) -> None:
        self._whole = _Whole(range_, view)
        made = format_of(like, range_.partition.topic, decoders)
        self._source = PartitionSource(range_.partition, view, made)
        if like in FIELDS:
            self._source = LinesSource(range_.partition, view, made, FIELDS[like])

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        return self._whole.lines(self._source, restart)


class ArrowSource:
    """A range's records as an Arrow stream, with the columns that are decoded, if any."""

    def __init__(self, range_: Range, view: View, decoded: DecodedColumns | None = None) -> None:
        self._whole = _Whole(range_, view)
        self._decoded = decoded

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        from kafkafs.storage import RECORD_BATCH_LIMITS

        if restart < 0:
            yield StreamPiece(memoryview(_schema(self._decoded).serialize()))
        for offset, table in self._whole.tables(restart, self._decoded, RECORD_BATCH_LIMITS):
            for batch in table.to_batches():
                yield StreamPiece(memoryview(batch.serialize()), offset)
        yield StreamPiece(ARROW_END)


def write_parquet(
    range_: Range, view: View, output: CopyWriter, decoded: DecodedColumns | None = None
) -> None:
    """Writes a range's records as a Parquet file, with the columns that are decoded, if any. Raises
    SchemaError if Parquet has no such columns."""
    import pyarrow.parquet as pq  # large

    from kafkafs.storage import ROW_GROUP_LIMITS, check_parquet

    schema = _schema(decoded)
    if decoded is not None:
        check_parquet(schema, range_.partition.topic)
    with pq.ParquetWriter(output, schema, compression=_PARQUET_CODEC) as writer:
        for _, table in _Whole(range_, view).tables(-1, decoded, ROW_GROUP_LIMITS):
            writer.write_table(table, row_group_size=ROW_GROUP_LIMITS.rows)


def _schema(decoded: DecodedColumns | None) -> pa.Schema:
    from kafkafs.storage import RECORD_SCHEMA

    return RECORD_SCHEMA if decoded is None else decoded.record_schema


#: The members that need decoders, and those of them that need a topic's schema.
DECODED: Final = frozenset(
    (RangeMember.DECODED_JSONL, RangeMember.DECODED_ARROW, RangeMember.DECODED_PARQUET)
)
TYPED: Final = DECODED - {RangeMember.DECODED_JSONL}
_LINES: Final = {
    RangeMember.VALUES: Member.VALUES,
    RangeMember.KEYS: Member.KEYS,
    RangeMember.RECORDS_JSONL: Member.RECORDS_JSONL,
    RangeMember.DECODED_JSONL: Member.DECODED_JSONL,
}
_ARROW: Final = (RangeMember.RECORDS_ARROW, RangeMember.DECODED_ARROW)


def content_of(
    member: RangeMember, decoders: Decoders | None, columns: DecodedColumns | None
) -> Streamed | WrittenFile:
    """`decoders`: those of DECODED_JSONL; `columns`: those of TYPED."""
    if member in _LINES:
        return Streamed(partial(TextSource, like=_LINES[member], decoders=decoders))
    if member in _ARROW:
        return Streamed(partial(ArrowSource, decoded=columns))
    return WrittenFile(partial(write_parquet, decoded=columns))
