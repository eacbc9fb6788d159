"""`key/K.history.jsonl`: all versions of a key that are still on the disk."""

from __future__ import annotations

from collections.abc import Iterator

from kafkafs.storage import CorruptError, fresh, printable

from ..catalog import Catalog
from ..node import FILE_MODE, Attributes, File, FixedFile, stream_attributes
from ..partition import MountedPartition
from ..streams.key_histories import KeyLines
from ..streams.reported import Reported
from ..streams.streams import StreamHandle, StreamPiece
from ..vfs.errnos import NoSuchName
from ..vfs.handles import BytesHandle, Handle
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL
from .member import Member, member_inode
from .record import mtime_ns


class KeyHistoryName(File):
    """The name of a key's history. It leads to a file of the versions that the disk holds now."""

    is_fixed = False

    def __init__(
        self, catalog: Catalog, partition: MountedPartition, name: str, key: bytes
    ) -> None:
        """Searches all files of the partition. Raises NoSuchName if there is no version, or
        CorruptError if that may be because of damage."""
        self.inode = member_inode(partition, Member.KEY)
        self._contents = catalog.contents
        self._partition = partition
        self._key = key
        self._found = found = catalog.histories.find(partition, key)
        if found.last_timestamp is None and found.damage:
            raise fresh(found.damage[0])
        if found.last_timestamp is None:
            why = printable(f"no record of {partition.name} on the disk has the key of {name}")
            raise NoSuchName(name, lambda: why)

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._mtime_ns, entry_timeout=NOT_AT_ALL)

    @property
    def _mtime_ns(self) -> int:
        return mtime_ns(self._found.last_timestamp or 0)

    def fixed(self) -> KeyHistory:
        # The lines are alive as long as the file made of them, so their id is unique.
        key = self._partition, self._key, id(self._found)

        def make(inode: int) -> KeyHistory:
            return KeyHistory(inode, self._mtime_ns, self._partition, self._found)

        found = self._contents.file(key, make)
        assert isinstance(found, KeyHistory)
        return found

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


class KeyHistory(FixedFile):
    """The versions of a key when the name was looked up, in JSON lines. Damage is met where it was
    found, and the rest follows."""

    shows_records = True

    def __init__(
        self, inode: int, mtime_ns: int, partition: MountedPartition, lines: KeyLines
    ) -> None:
        self.inode = inode
        self._mtime_ns = mtime_ns
        self._partition = partition
        self._lines = lines
        self._data = lines.data
        self.memory = 1024 + 2 * len(self._data)
        self.reported = Reported(f"{partition.name}/key")
        self.is_damaged = bool(lines.damage)

    @property
    def exact(self) -> int:
        """The size in bytes."""
        return len(self._data)

    def attributes(self) -> Attributes:
        return Attributes(self.inode, FILE_MODE, self.exact, self._mtime_ns, NOT_AT_ALL, BRIEFLY)

    def check(self) -> None:
        """Does nothing: it shows a past state, so it cannot become stale."""

    def open(self, *, waits: bool = True) -> Handle:
        if not self.is_damaged:
            return BytesHandle(self._data)
        return StreamHandle(self, self._partition.note_damage, size=self)

    def before(self, position: int) -> tuple[int, int]:
        """Returns where the lines can be read from: the beginning."""
        return 0, -1

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        """Yields the lines, and the damage between them."""
        return iter(self._lines.pieces)
