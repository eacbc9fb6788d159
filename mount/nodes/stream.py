"""`values`, `keys`, `records.jsonl`, `records.arrow`, and `follow`: a partition as one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from kafkafs.storage.ahead import processors
from kafkafs.storage.errors import CorruptError, SegmentGone
from kafkafs.storage.format.columns import (
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    VALUE_START,
    Columns,
    Damage,
    Lines,
)
from kafkafs.storage.format.lines import json_lines, keys_lines, values_lines
from kafkafs.storage.log.segments import Segments
from kafkafs.storage.log.transactions import Isolation
from kafkafs.storage.log.view import View

from ..catalog import Catalog
from ..handles import Data, Handle
from ..partition import Partition
from ..reading.following import FollowHandle
from ..reading.streams import Piece, StreamHandle
from .member import Member, changed_ns, member_inode
from .node import Attributes, File, stream_attributes

Render = Callable[[Columns, str, int], Data]

# Columns with more data than this are rendered in parts: JSON can be six times as long.
_RENDERED_AT_ONCE: Final = 4 << 20
_ATTEMPTS: Final = 8
# Processors that a stream of lines keeps busy without another thread that reads: lines are made so
# fast that with two processors such a thread is in the way.
_BUSY: Final = 2


def arrow_batch(columns: Columns, topic: str, partition: int) -> Data:
    """The message of a record batch."""
    from kafkafs.storage.format.arrow import to_message  # pyarrow is large

    return to_message(columns, topic, partition)


def arrow_schema() -> Data:
    """The message that begins an Arrow stream."""
    from kafkafs.storage.format.arrow import SCHEMA

    return memoryview(SCHEMA.serialize())


# A message's continuation marker with a length of 0: the end of a stream.
_ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class Format:
    """How records become bytes. `is_text`: pieces may be cut anywhere between records, because
    joined they are the same; else they are the same only when a segment is begun at its start."""

    render: Render
    is_text: bool = True
    begin: Callable[[], Data] = bytes
    end: bytes = b""


FORMATS: Final[dict[Member, Format]] = {
    Member.RECORDS_JSONL: Format(json_lines),
    Member.RECORDS_ARROW: Format(arrow_batch, False, arrow_schema, _ARROW_END),
    Member.VALUES: Format(values_lines),
    Member.KEYS: Format(keys_lines),
}
# Streams of nothing but lines of one field.
_FIELDS: Final = {Member.VALUES: VALUE_START, Member.KEYS: KEY_START}
FOLLOWED: Final[dict[Member, Render]] = {
    Member.FOLLOW: values_lines,
    Member.FOLLOW_JSONL: json_lines,
}


class StreamFile(File):
    def __init__(self, partition: Partition, member: Member) -> None:
        self.partition = partition
        self.member = member
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, changed_ns(self.partition))

    def open(self, *, waits: bool = True) -> Handle:
        view = _pinned_view(self.partition)
        made = FORMATS[self.member]
        source = PartitionSource(self.partition, view, made)
        if self.member in _FIELDS:
            source = LinesSource(self.partition, view, made, _FIELDS[self.member])
        return StreamHandle(source, self.partition.note_damage)


def _pinned_view(partition: Partition) -> View:
    """What the partition serves now, to be read whatever is deleted meanwhile.

    A view of the handle's own: the log keeps the one that it gave, and with it all that is pinned.
    """
    for _ in range(_ATTEMPTS):
        view = replace(partition.view(), _pinned=[])
        try:
            view.pin()
        except SegmentGone:  # deleted since the view was made
            continue
        return view
    raise SegmentGone(partition.log.path)


class Records(Protocol):
    """A view, or what is left of one."""

    @property
    def segments(self) -> Segments: ...
    @property
    def start_offset(self) -> int: ...
    def scan(
        self, start: int | None, end: int | None, isolation: Isolation, *, ahead: bool
    ) -> Iterator[Columns | Damage]: ...


class PartitionSource:
    """The records of a view, rendered a run at a time."""

    def __init__(self, partition: Partition, view: Records, made: Format) -> None:
        self._view = view
        self._isolation = partition.isolation
        self._format = made
        self._render = partial(_rendered, made.render, partition.topic, partition.number)

    def pieces(self, restart: int) -> Iterator[Piece | CorruptError]:
        if restart < 0:
            yield Piece(self._format.begin())
        start = self._view.start_offset if restart < 0 else restart
        for segment in self._view.segments.from_offset(start):
            begin = max(start, segment.base_offset)
            end = segment.next_base if segment.next_base >= 0 else None
            yield from self._segment_pieces(begin, end)
        if self._format.end:
            yield Piece(self._format.end)

    def _segment_pieces(self, begin: int, end: int | None) -> Iterator[Piece | CorruptError]:
        restart = begin
        for part in self._parts(begin, end):
            if isinstance(part, Damage):
                yield part.error
                continue
            if isinstance(part, Lines):
                yield Piece(part.data, part.first_offset)
                continue
            if self._format.is_text:
                restart = int(part.offsets[0])
            for data in self._render(part):
                yield Piece(data, restart)
                restart = -1

    def _parts(self, begin: int, end: int | None) -> Iterator[Lines | Columns | Damage]:
        return self._view.scan(begin, end, self._isolation, ahead=True)


class LinesSource(PartitionSource):
    """Lines of one field (KEY_START, VALUE_START), mostly made without a look at the others."""

    def __init__(self, partition: Partition, view: View, made: Format, field: int) -> None:
        super().__init__(partition, view, made)
        self._lines = partial(view.lines, field)

    def _parts(self, begin: int, end: int | None) -> Iterator[Lines | Columns | Damage]:
        return self._lines(begin, end, self._isolation, ahead=processors() > _BUSY)


def _rendered(render: Render, topic: str, partition: int, columns: Columns) -> Iterator[Data]:
    """The bytes of columns, a bounded number of rows at a time."""
    if len(columns.data) <= _RENDERED_AT_ONCE:
        yield render(columns, topic, partition)
        return
    sizes = np.maximum(columns.spans[:, (KEY_SIZE, VALUE_SIZE)], 0).sum(axis=1, dtype=np.int64)
    parts = np.cumsum(sizes) // _RENDERED_AT_ONCE
    edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(columns)]
    for low, high in pairwise(edges):
        yield render(columns.slice(low, high), topic, partition)


class FollowFile(File):
    def __init__(self, catalog: Catalog, partition: Partition, member: Member) -> None:
        self._catalog = catalog
        self.partition = partition
        self.member = member
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, changed_ns(self.partition))

    def open(self, *, waits: bool = True) -> Handle:
        render = FOLLOWED[self.member]
        topic, number = self.partition.topic, self.partition.number
        return FollowHandle(
            self.partition,
            lambda columns: render(columns, topic, number),
            self._catalog.is_current,
            waits=waits,
        )
