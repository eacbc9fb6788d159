"""`compacted/`: the partition as log compaction would leave it now.

`Previews` computes what would be retained, which may take long. So nodes here report that as
`pending`, and the streams compute it at the first read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kafkafs.storage import (
    Columns,
    CorruptError,
    Damage,
    Int64s,
    OffsetNotFound,
    SegmentGone,
    StorageError,
    printable,
)

from ..catalog import Catalog
from ..node import (
    FILE_MODE,
    Attributes,
    DirEntryRun,
    File,
    FixedFile,
    Link,
    MeasuredFile,
    Node,
    entries_of,
    missing,
    stream_attributes,
)
from ..partition import MountedPartition, Seen
from ..streams.previews import Previews
from ..streams.reported import Reported
from ..streams.sizes import StreamSize
from ..streams.stream_index import StreamIndex
from ..streams.streams import PreparedStreamHandle, StreamPiece
from ..vfs import render
from ..vfs.errnos import NotPermitted, Stale
from ..vfs.handles import Handle
from ..vfs.pending import Pending
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL
from .keys import KeyDirectory
from .member import FixedDirectory, Member, MemberDirectory, changed_ns, member_inode
from .offsets import OffsetDirectory, RecordLink, parse_name
from .stream import PartitionSource, format_of, latest_file, measured_attributes, stream_file

if TYPE_CHECKING:
    from kafkafs.storage import CompactedView, Decoders

#: In listing order.
NAMES: Final = {
    "offset": Member.COMPACTED_OFFSET,
    "latest": Member.COMPACTED_LATEST,
    "records.jsonl": Member.COMPACTED_RECORDS_JSONL,
    "decoded.jsonl": Member.COMPACTED_DECODED_JSONL,
    "values": Member.COMPACTED_VALUES,
    "keys": Member.COMPACTED_KEYS,
    "summary.json": Member.COMPACTED_SUMMARY,
}
_NAMES: Final = {member: name for name, member in NAMES.items()}
#: The streams that have the same format.
_LIKE: Final = {
    Member.COMPACTED_RECORDS_JSONL: Member.RECORDS_JSONL,
    Member.COMPACTED_DECODED_JSONL: Member.DECODED_JSONL,
    Member.COMPACTED_VALUES: Member.VALUES,
    Member.COMPACTED_KEYS: Member.KEYS,
}
MEMBERS: Final = frozenset(
    {Member.COMPACTED, *NAMES.values(), Member.COMPACTED_FIRST, Member.COMPACTED_LAST}
)
# Larger than any summary: a fixed number of names with numbers, and two with short texts.
_SUMMARY_BOUND: Final = 4096
# How often a computation is restarted when segments are deleted meanwhile.
_ATTEMPTS: Final = 8


def compacted_node(catalog: Catalog, partition: MountedPartition, member: Member) -> Node:
    """Returns the node of one of `MEMBERS`."""
    previews = catalog.previews
    if member is Member.COMPACTED:
        return CompactedDirectory(catalog, partition)
    if member is Member.COMPACTED_OFFSET:
        return CompactedOffsets(catalog, partition)
    if member is Member.COMPACTED_LATEST:
        return CompactedLatest(catalog, partition)
    if member in (Member.COMPACTED_FIRST, Member.COMPACTED_LAST):
        return CompactedLink(previews, partition, member)
    return CompactedFile(catalog, partition, member)


class CompactedDirectory(FixedDirectory, MemberDirectory):
    member = Member.COMPACTED

    def child(self, name: str) -> Node:
        if name not in NAMES:
            raise missing(name, f"{self.partition.name}/compacted", NAMES)
        return compacted_node(self.catalog, self.partition, NAMES[name])

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        return entries_of(((name, self.child(name)) for name in NAMES), start)


class CompactedOffsets(OffsetDirectory):
    """The files of `offset/` whose records are retained. Names may vanish, so they are cached
    briefly."""

    member = Member.COMPACTED_OFFSET
    links: Mapping[str, Member] = {
        "first": Member.COMPACTED_FIRST,
        "last": Member.COMPACTED_LAST,
    }
    entry_timeout = BRIEFLY

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        super().__init__(catalog, partition)
        self.parent_inode = member_inode(partition, Member.COMPACTED)
        self._previews = catalog.previews

    def pending(self) -> Pending | None:
        return self._previews.pending(self.partition)

    def child(self, name: str) -> Node:
        if name in self.links:
            return super().child(name)
        offset, kind = parse_name(name)
        if not self._previews.of(self.partition).keeps(offset):
            partition = self.partition.name
            why = f"compaction leaves no record at offset {offset} of {partition}"
            raise OffsetNotFound(offset, why)
        return self.record_node(kind, offset, self.partition.entry_timeout(BRIEFLY))

    def child_may_block(self, name: str) -> bool:
        """Returns True: the log may have changed since the preview was computed."""
        return True

    def remove(self, name: str, pid: int) -> None:
        self.child(name)
        raise NotPermitted(
            f"{printable(name)} shows what compaction would leave, and is not the log"
        )

    def link(self, name: str) -> Link:
        return CompactedLink(self._previews, self.partition, self.links[name])

    def scan(self, offset: int) -> Iterator[Columns | Damage]:
        left = self._previews.of(self.partition)
        return left.scan(offset, isolation=self.partition.isolation)


class CompactedLatest(KeyDirectory):
    """The files of `key/` whose records are retained."""

    member = Member.COMPACTED_LATEST
    entry_timeout = BRIEFLY
    has_histories = False

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        super().__init__(catalog, partition)
        self.parent_inode = member_inode(partition, Member.COMPACTED)
        self._previews = catalog.previews

    def pending(self) -> Pending | None:
        return self._previews.pending(self.partition)

    def kept(self, offsets: Int64s) -> NDArray[np.bool_]:
        return self._previews.of(self.partition).mask(offsets)


class CompactedLink(RecordLink):
    """The link `first` or `last`."""

    def __init__(self, previews: Previews, partition: MountedPartition, member: Member) -> None:
        super().__init__(partition, member)
        self._previews = previews

    def pending(self) -> Pending | None:
        return self._previews.pending(self.partition)

    def end(self, *, is_last: bool) -> int | None:
        left = self._previews.of(self.partition)
        return (left.last if is_last else left.first)(self.partition.isolation)


class CompactedFile(File):
    """A name in `compacted/`, as it is listed. It leads to a file that depends on the current
    preview, if that is known."""

    is_fixed = False

    def __init__(self, catalog: Catalog, partition: MountedPartition, member: Member) -> None:
        self._catalog = catalog
        self.partition = partition
        self.member = member
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        mtime_ns = changed_ns(self.partition)
        return stream_attributes(self.inode, mtime_ns, entry_timeout=NOT_AT_ALL)

    def fixed(self) -> FixedFile:
        seen = self.partition.seen()
        is_summary = self.member is Member.COMPACTED_SUMMARY
        is_decoded = self.member is Member.COMPACTED_DECODED_JSONL
        decoders = self._catalog.decoders() if is_decoded else None
        left = self._catalog.previews.known(self.partition, in_full=is_summary)
        # The preview is alive as long as the file cached for it, so its id is unique. A stream
        # without a preview yet gets one when it is read; until then its key is unique.
        state: object = object()
        if left is not None:
            now_ms = left.request.now_ms if is_summary else 0
            state = id(left.preview), left.start_offset, now_ms
        bound = self.partition.bound(seen.view)
        version = None if decoders is None else decoders.number
        key = (self.partition, self.member, seen.losses, bound, state, version)

        def make(inode: int, reported: Reported) -> CompactedStream:
            kind = Summary if is_summary else CompactedStream
            return kind(
                self._catalog,
                self.partition,
                self.member,
                decoders,
                seen,
                left,
                reported,
                inode,
            )

        name = f"{self.partition.name}/compacted/{_NAMES[self.member]}"
        return latest_file(self._catalog, key, Reported(name), make)

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


class CompactedStream(MeasuredFile):
    """A stream of the retained records, computed at the first read if not known before."""

    def __init__(
        self,
        catalog: Catalog,
        partition: MountedPartition,
        member: Member,
        decoders: Decoders | None,
        seen: Seen,
        left: CompactedView | None,
        reported: Reported,
        inode: int,
    ) -> None:
        self.partition = partition
        self.member = member
        self.inode = inode
        self.memory = 4096 + 200 * len(seen.view.segments)
        self._catalog = catalog
        self._decoders = decoders
        self._seen = seen
        self._mtime_ns = changed_ns(partition)
        self._finding = threading.Lock()  # held while the preview is computed
        self._left: CompactedView | None = None
        self._size: StreamSize | None = None
        self._reported = reported
        if left is not None:
            self._take(left)

    def _take(self, left: CompactedView) -> None:
        self._left = left
        self._size = StreamSize(
            self.source(left),
            self._index_of(left),
            lambda: self.source(left.pinned()),
            self.partition.note_damage,
            self.member,
            self._catalog.speeds,
            self._reported,
            self._ceiling,
        )

    def _ceiling(self) -> int:
        """Returns the size of the whole partition's stream."""
        like = _LIKE[self.member]
        whole = stream_file(self._catalog, self.partition, like, decoders=self._decoders)
        return whole.stream_size.size()

    def source(self, left: CompactedView) -> PartitionSource:
        """Returns the stream of a compacted view."""
        made = format_of(_LIKE[self.member], self.partition.topic, self._decoders)
        return PartitionSource(self.partition, left, made, self._index_of(left))

    def _index_of(self, left: CompactedView) -> StreamIndex:
        """Returns the measurements of this stream, which outlive the file: once the preview is
        known, the name leads to another one."""
        kind = (self.member, None if self._decoders is None else self._decoders.number)
        return self._catalog.previews.stream_index(self.partition, left.preview, kind)

    @property
    def stream_size(self) -> StreamSize | None:
        return self._size

    @property
    def reported(self) -> Reported:
        return self._reported

    def attributes(self) -> Attributes:
        if self._size is not None:
            return measured_attributes(self.inode, self._size, self._mtime_ns)
        bound = self._reported.report(self._reported.bound_from(self._ceiling()))
        return stream_attributes(self.inode, self._mtime_ns, bound, entry_timeout=NOT_AT_ALL)

    def check(self) -> None:
        is_current = self._catalog.is_current(self.partition)
        if not is_current or self.partition.seen().losses != self._seen.losses:
            raise Stale

    def hold(self) -> CompactedView | None:
        """Pins the view, so that replaced segments cannot make it stale."""
        if not self._catalog.is_current(self.partition):
            raise Stale
        try:
            return self._left.pinned() if self._left is not None else None
        except SegmentGone:  # deleted or replaced since it was looked up
            raise Stale from None

    def open(self, *, waits: bool = True) -> Handle:
        source = _FoundSource(self, self.hold())
        if self._size is not None:
            self._size.look()
        return PreparedStreamHandle(source, self.partition.note_damage, size=self)

    # -- what the handles need to know about the size -------------------------------------------

    @property
    def exact(self) -> int | None:
        return None if self._size is None else self._size.exact

    @property
    def is_damaged(self) -> bool:
        return self._size is not None and self._size.is_damaged

    def before(self, position: int) -> tuple[int, int]:
        return (0, -1) if self._size is None else self._size.before(position)

    # -- computing the preview ------------------------------------------------------------------

    def pending(self) -> Pending | None:
        """Returns None: only the handles wait for the preview, a lookup does not."""
        return None

    def search(self) -> Pending | None:
        """Returns the work that a read has to wait for; None if the preview is known."""
        if self._left is not None:
            return None
        return self._catalog.previews.pending(self.partition, in_full=self._in_full)

    def found(self) -> None:
        """Takes the preview. Ignores a failure: the next read raises it."""
        with suppress(StorageError):
            self.pinned()

    _in_full = False

    def pinned(self) -> CompactedView:
        """Returns the compacted view with its segments pinned, the same from the first call on.
        May take long. Raises SegmentGone."""
        with self._finding:
            if self._left is not None:
                return self._left.pinned()
            for _ in range(_ATTEMPTS):
                try:
                    found = self._catalog.previews.of(self.partition, in_full=self._in_full)
                    pinned = found.pinned()
                except SegmentGone:  # deleted or replaced since the view was made
                    continue
                self._take(found)
                return pinned
        raise SegmentGone(self.partition.log.path)


class Summary(CompactedStream):
    """`summary.json`. Its size is a bound until the number of discarded records is known."""

    shows_records = False
    _in_full = True
    _text: bytes | None = None

    def _take(self, left: CompactedView) -> None:
        self._left = left
        self._text = render.status(left.summary())

    def text(self) -> bytes:
        self.pinned()
        assert self._text is not None
        return self._text

    def attributes(self) -> Attributes:
        size = _SUMMARY_BOUND if self._text is None else len(self._text)
        attr_timeout = NOT_AT_ALL if self._text is None else BRIEFLY
        return Attributes(self.inode, FILE_MODE, size, self._mtime_ns, NOT_AT_ALL, attr_timeout)

    @property
    def exact(self) -> int | None:
        return None if self._text is None else len(self._text)


class _FoundSource:
    """The content of an open file in `compacted/`."""

    def __init__(self, stream: CompactedStream, left: CompactedView | None) -> None:
        """`left`: the compacted view, pinned, if it is known."""
        self._stream = stream
        self._left = left

    def pending(self) -> Pending | None:
        return self._stream.search()

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        if self._left is None:
            self._left = self._stream.pinned()
        if isinstance(self._stream, Summary):
            yield StreamPiece(self._stream.text())
            return
        yield from self._stream.source(self._left).pieces(restart)
