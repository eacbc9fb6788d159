"""A partition as one stream: `values`, `keys`, `records.jsonl`, `records.arrow`, `decoded.jsonl`,
and `follow`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from kafkafs.storage import (
    KEY_SIZE,
    KEY_START,
    SIZE,
    VALUE_SIZE,
    VALUE_START,
    Columns,
    CorruptError,
    Damage,
    Fault,
    Isolation,
    Lines,
    Segment,
    SegmentGone,
    Segments,
    StorageError,
    View,
    json_lines,
    keys_lines,
    processors,
    values_lines,
)

from ..catalog import Catalog
from ..node import FILE_MODE, STREAM_BLOCK, Attributes, File, MeasuredFile, stream_attributes
from ..partition import MountedPartition, Seen
from ..streams.following import FollowHandle
from ..streams.reported import Reported
from ..streams.sizes import StreamSize
from ..streams.stream_index import MeasuredPart, Part, StreamIndex
from ..streams.streams import StreamHandle, StreamPiece
from ..vfs.errnos import Stale
from ..vfs.handles import Data, Handle
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL
from .member import Member, changed_ns, member_inode

if TYPE_CHECKING:
    from kafkafs.storage import Decoders

Render = Callable[[Columns, str, int], Data]

# Columns with more data than this are rendered in parts: their JSON may be six times as long.
_RENDERED_AT_ONCE: Final = 4 << 20
# The same for decoded ones: a field that takes a byte of a datum has a name in JSON.
_DECODED_AT_ONCE: Final = 1 << 18
# A stream of lines uses a separate reading thread only on more processors than this: lines are made
# so fast that with two processors such a thread is in the way.
_BUSY: Final = 2


def arrow_batch(columns: Columns, topic: str, partition: int) -> Data:
    """Returns the Arrow message of a record batch."""
    from kafkafs.storage import to_message  # pyarrow is large

    return to_message(columns, topic, partition)


def arrow_schema() -> Data:
    """Returns the first message of an Arrow stream."""
    from kafkafs.storage import RECORD_SCHEMA

    return memoryview(RECORD_SCHEMA.serialize())


#: A continuation marker and a length of 0: the end of an Arrow stream.
ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class Format:
    """How records become bytes. `is_text`: pieces may be cut anywhere between records without
    changing the whole; otherwise the bytes depend on starting at a segment's beginning. `most`:
    columns with more bytes are rendered in parts. `version`: tells formats of one member apart that
    make different bytes of the same records."""

    render: Render
    is_text: bool = True
    begin: Callable[[], Data] = bytes
    end: bytes = b""
    most: int = _RENDERED_AT_ONCE
    version: int = 0


FORMATS: Final[dict[Member, Format]] = {
    Member.RECORDS_JSONL: Format(json_lines),
    Member.RECORDS_ARROW: Format(arrow_batch, False, arrow_schema, ARROW_END),
    Member.VALUES: Format(values_lines),
    Member.KEYS: Format(keys_lines),
}
#: Streams that consist of lines of one field.
FIELDS: Final = {Member.VALUES: VALUE_START, Member.KEYS: KEY_START}
FOLLOWED: Final[dict[Member, Render]] = {
    Member.FOLLOW: values_lines,
    Member.FOLLOW_JSONL: json_lines,
}


def format_of(member: Member, topic: str, decoders: Decoders | None) -> Format:
    """Returns the format of a stream. `decoders`: those of DECODED_JSONL."""
    if decoders is None:
        return FORMATS[member]
    render = decoded_render(decoders, topic)
    return Format(render, most=_DECODED_AT_ONCE, version=decoders.number)


def decoded_render(decoders: Decoders, topic: str) -> Render:
    """Returns what makes lines of records with decoded keys and values."""
    from kafkafs.storage import decoded_lines  # which few mounts need

    return partial(decoded_lines, decoder=decoders.for_topic(topic))


#: Their names in a partition's directory.
STREAM_NAMES: Final = {
    Member.RECORDS_JSONL: "records.jsonl",
    Member.RECORDS_ARROW: "records.arrow",
    Member.DECODED_JSONL: "decoded.jsonl",
    Member.VALUES: "values",
    Member.KEYS: "keys",
}


def stream_file(
    catalog: Catalog,
    partition: MountedPartition,
    member: Member,
    start: int = 0,
    reader: str | None = None,
    decoders: Decoders | None = None,
) -> StreamFile:
    """Returns the stream of what the partition serves now, from the offset `start` on. For each
    `reader`, a group, it is a file of its own, and so it is for all `decoders`, which DECODED_JSONL
    needs."""
    seen = partition.seen()
    bound = partition.bound(seen.view)
    if start > seen.view.start_offset:
        seen = replace(seen, view=replace(seen.view, start_offset=min(start, bound), _pinned=[]))
    # The key determines the bytes: every removal or replacement counts as a loss. Damage after the
    # last batch changes none, but ends the reading of them.
    is_torn = seen.view.tail is not None
    made = format_of(member, partition.topic, decoders)
    state = (seen.losses, seen.view.start_offset, bound, is_torn, made.version)
    key = (partition, member, state, reader)

    def make(inode: int, reported: Reported) -> StreamFile:
        return StreamFile(catalog, partition, member, made, seen, reported, inode)

    found = latest_file(catalog, key, Reported(f"{partition.name}/{STREAM_NAMES[member]}"), make)
    assert isinstance(found, StreamFile)
    return found


def latest_file(
    catalog: Catalog,
    key: Hashable,
    reported: Reported,
    make: Callable[[int, Reported], MeasuredFile],
) -> MeasuredFile:
    """Returns the file for `key`: the first whose reported size has not been outgrown. `make`
    creates one from an inode number and what is known of its size."""
    number = 0
    while True:
        file = catalog.contents.file((key, number), partial(_made, make, reported))
        assert isinstance(file, MeasuredFile)
        if not file.reported.is_outgrown:
            return file
        reported, number = file.reported.successor(), number + 1


def _made(
    make: Callable[[int, Reported], MeasuredFile], reported: Reported, inode: int
) -> MeasuredFile:
    return make(inode, reported)


class StreamFile(MeasuredFile):
    """A stream of what was served when its name was looked up."""

    def __init__(
        self,
        catalog: Catalog,
        partition: MountedPartition,
        member: Member,
        made: Format,
        seen: Seen,
        reported: Reported,
        inode: int,
    ) -> None:
        self.partition = partition
        self.member = member
        self.inode = inode
        self._format = made
        self.memory = 1024 + 200 * len(seen.view.segments)
        self._seen = seen
        self._catalog = catalog
        self._index = catalog.stream_index
        segments = seen.view.segments
        self._mtime_ns = segments[-1].mtime_ns if len(segments) else 0
        self._size = StreamSize(
            self._source(seen.view),
            catalog.stream_index,
            lambda: self._source(pinned(seen.view)),
            partition.note_damage,
            member,
            catalog.speeds,
            reported,
        )

    @property
    def stream_size(self) -> StreamSize:
        return self._size

    @property
    def exact(self) -> int | None:
        return self._size.look()

    @property
    def reported(self) -> Reported:
        return self._size.reported

    def attributes(self) -> Attributes:
        return measured_attributes(self.inode, self._size, self._mtime_ns)

    def check(self) -> None:
        is_current = self._catalog.is_current(self.partition)
        if not is_current or self.partition.seen().losses != self._seen.losses:
            raise Stale

    def hold(self) -> View:
        try:
            return pinned(self._seen.view)
        except SegmentGone:  # deleted since it was looked up
            raise Stale from None

    def open(self, *, waits: bool = True) -> Handle:
        source = self._source(self.hold())
        self._size.look()
        return StreamHandle(source, self.partition.note_damage, size=self._size)

    def _source(self, view: View) -> PartitionSource:
        made, versions = self._format, self._seen.versions
        key = (self.member, made.version, versions.records)
        if self.member in FIELDS:
            field = FIELDS[self.member]
            return LinesSource(self.partition, view, made, field, self._index, key)
        return PartitionSource(self.partition, view, made, self._index, key)


def measured_attributes(inode: int, size: StreamSize, mtime_ns: int) -> Attributes:
    """Returns a stream's attributes, with its size or a bound that programs will rely on."""
    bytes_ = size.report()
    attr_timeout = NOT_AT_ALL if size.exact is None else BRIEFLY
    return Attributes(inode, FILE_MODE, bytes_, mtime_ns, NOT_AT_ALL, attr_timeout, STREAM_BLOCK)


def pinned(view: View) -> View:
    """Returns the view with its segments pinned, so that it stays readable. Raises SegmentGone.

    It is a copy: the log holds on to the original, and would so keep all pinned segments.
    """
    own = replace(view, _pinned=[])
    own.pin()
    return own


class Records(Protocol):
    """A view, or a compacted view."""

    def bound(self, isolation: Isolation) -> int: ...
    @property
    def segments(self) -> Segments: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def tail(self) -> Fault | None: ...
    def scan(
        self, start: int | None, end: int | None, isolation: Isolation, *, ahead: bool
    ) -> Iterator[Columns | Damage]: ...


class PartitionSource:
    """The records of a view, rendered a run at a time. Parts rendered from beginning to end are
    measured on the way."""

    def __init__(
        self,
        partition: MountedPartition,
        view: Records,
        made: Format,
        index: StreamIndex | None = None,
        key: Hashable = None,
    ) -> None:
        """`index`: stores the measurements; `key`: determines the bytes of a part, together with
        its segment."""
        self._view = view
        self._isolation = partition.isolation
        self._format = made
        self._render = partial(_rendered, made, partition.topic, partition.number)
        self._index = index
        self.head = bytes(made.begin())
        self.tail = made.end
        end = view.bound(partition.isolation)
        segments = view.segments.from_offset(view.start_offset)
        # Damage after the last whole batch belongs to the last part, whatever that has beside it.
        is_torn = view.tail is not None
        self.parts = [self._part(segment, (key, is_torn), end) for segment in segments]

    def _part(self, segment: Segment, key: tuple[Hashable, bool], end: int) -> Part:
        begin = max(self._view.start_offset, segment.base_offset)
        if segment.next_base >= 0:
            end = min(end, segment.next_base)
        end = max(begin, end)
        key_of_all, is_torn = key
        is_last = segment.next_base < 0
        what: Hashable = (segment.files, key_of_all, begin, is_last and is_torn)
        if not is_last or not self._format.is_text:
            what = (what, segment.state, end)
        is_empty = begin == end and not (is_last and is_torn)
        return Part(what, begin, end, segment.size, is_empty)

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        if restart < 0:
            yield StreamPiece(self.head)
        start = self._view.start_offset if restart < 0 else restart
        first = max(bisect_right(self.parts, start, key=lambda part: part.begin) - 1, 0)
        for part in self.parts[first:]:
            begin = max(start, part.begin)
            pieces = self.part_pieces(part, begin)
            yield from self._measured(part, pieces) if begin == part.begin else pieces
        if self.tail:
            yield StreamPiece(self.tail)

    def _measured(
        self, part: Part, pieces: Iterator[StreamPiece | CorruptError]
    ) -> Iterator[StreamPiece | CorruptError]:
        measured = MeasuredPart(part.end)
        for piece in pieces:
            if isinstance(piece, CorruptError):
                measured.note_damage()
            else:
                measured.add(memoryview(piece.data).nbytes, piece.restart)
            yield piece
        if self._index is not None:
            self._index.keep(part, measured)

    def part_pieces(self, part: Part, begin: int) -> Iterator[StreamPiece | CorruptError]:
        return self.pieces_between(begin, self._scan_end(part))

    def pieces_between(self, begin: int, end: int | None) -> Iterator[StreamPiece | CorruptError]:
        """Yields the records with `begin` <= offset < `end`; None means the end of the log."""
        restart = begin
        for found in self._found(begin, end):
            if isinstance(found, Damage):
                yield found.error
                continue
            if isinstance(found, Lines):
                yield StreamPiece(found.data, found.first_offset)
                continue
            if self._format.is_text:
                restart = int(found.offsets[0])
            for data in self._render(found):
                yield StreamPiece(data, restart)
                restart = -1

    def _scan_end(self, part: Part) -> int | None:
        """Returns None for the last part, as it includes damage after the last record."""
        return None if part is self.parts[-1] else part.end

    def _found(self, begin: int, end: int | None) -> Iterator[Lines | Columns | Damage]:
        return self._view.scan(begin, end, self._isolation, ahead=True)

    def sample(self, part: Part, begin: int) -> float | None:
        for found in self._view.scan(begin, part.end, self._isolation, ahead=False):
            if isinstance(found, Columns):
                taken = int(found.batches.column(SIZE).sum())
                made = sum(memoryview(data).nbytes for data in self._render(found))
                return made / max(taken, 1)
        return None


class LinesSource(PartitionSource):
    """Lines of one field (KEY_START, VALUE_START), mostly made without reading other fields."""

    def __init__(
        self,
        partition: MountedPartition,
        view: View,
        made: Format,
        field: int,
        index: StreamIndex | None = None,
        key: Hashable = None,
    ) -> None:
        super().__init__(partition, view, made, index, key)
        self._lines = partial(view.lines, field)

    def _found(self, begin: int, end: int | None) -> Iterator[Lines | Columns | Damage]:
        return self._lines(begin, end, self._isolation, ahead=processors() > _BUSY)


def _rendered(made: Format, topic: str, partition: int, columns: Columns) -> Iterator[Data]:
    """Yields the bytes of columns, a bounded number of rows at a time."""
    if len(columns.data) <= made.most:
        yield made.render(columns, topic, partition)
        return
    sizes = np.maximum(columns.spans[:, (KEY_SIZE, VALUE_SIZE)], 0).sum(axis=1, dtype=np.int64)
    parts = np.cumsum(sizes) // made.most
    edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(columns)]
    for low, high in pairwise(edges):
        yield made.render(columns.slice(low, high), topic, partition)


class DecodedName(File):
    """The name of `decoded.jsonl`, as it is listed: without reading the registry. It leads to a
    file that depends on the schemas of now."""

    is_fixed = False

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        self._catalog = catalog
        self._partition = partition
        self.inode = member_inode(partition, Member.DECODED_JSONL)

    def attributes(self) -> Attributes:
        mtime_ns = changed_ns(self._partition)
        return stream_attributes(self.inode, mtime_ns, entry_timeout=NOT_AT_ALL)

    def fixed(self) -> StreamFile:
        decoders = self._catalog.decoders()
        return stream_file(self._catalog, self._partition, Member.DECODED_JSONL, decoders=decoders)

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


class FollowFile(File):
    def __init__(self, catalog: Catalog, partition: MountedPartition, member: Member) -> None:
        self._catalog = catalog
        self.partition = partition
        self.member = member
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, changed_ns(self.partition))

    def open(self, *, waits: bool = True) -> Handle:
        if self.member is Member.FOLLOW_DECODED_JSONL:
            render = self._decoded(self._catalog.decoders())
        else:
            render = FOLLOWED[self.member]
        topic, number = self.partition.topic, self.partition.number
        return FollowHandle(
            self.partition,
            lambda columns: render(columns, topic, number),
            self._catalog.is_current,
            waits=waits,
        )

    def _decoded(self, decoders: Decoders) -> Render:
        """Returns what decodes records with the schemas of the moment when they are read, which are
        registered before the records are written."""

        def render(columns: Columns, topic: str, partition: int) -> Data:
            nonlocal decoders
            with suppress(StorageError, OSError):  # the registry cannot be read now
                decoders = self._catalog.decoders()
            return decoded_render(decoders, topic)(columns, topic, partition)

        return render
