"""What the event loop remembers between requests: records, threads' last lookups, stored pages.

Only the event loop uses these caches, so they have no locks.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import Final

import pyfuse3

from kafkafs.storage import StorageError

from ..node import FixedFile, Node
from ..nodes.record import RecordFile
from ..vfs.errnos import TreeError

logger = logging.getLogger(__name__)

# How many looked-up small records are kept: a record that was looked up is usually opened next.
_MOST_RECORDS: Final = 16384
# The time between stat and open in one program is usually shorter. It delays how soon appended
# records become visible.
_LOOKUP_SECONDS: Final = 0.1
_MOST_THREADS: Final = 256
# Recently stored files are not stored again; if the kernel has dropped their pages, it reads them
# as usual.
_MOST_STORED: Final = 16384


class RecentRecords:
    """The small records looked up last, by inode number."""

    def __init__(self) -> None:
        self._records: OrderedDict[int, RecordFile] = OrderedDict()

    def find(self, inode: int) -> RecordFile | None:
        """Returns the record's file; None if it is not remembered or no longer valid."""
        record = self._records.get(inode)
        return record if record is not None and record.revalidate() else None

    def note(self, node: Node) -> None:
        """Remembers a node if it is a record's file that keeps its bytes."""
        if isinstance(node, RecordFile) and node.is_at_hand:
            self._records[node.inode] = node
            self._records.move_to_end(node.inode)
            if len(self._records) > _MOST_RECORDS:
                self._records.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What a lookup returned, and when, by `monotonic`."""

    name: tuple[int, bytes]
    file: FixedFile
    at: float


class LastLookups:
    """The last lookup of each thread, so that an open() right after it gets the same inode.

    cp and other programs stat a file, open it, and give up if the open file has another inode.
    A file whose content is different each time, such as the metrics, could therefore never be
    copied. So a thread that has looked up a name gets the same file again until it opens a file.
    """

    def __init__(self) -> None:
        self._lookups: OrderedDict[int, _Lookup] = OrderedDict()

    def note(self, pid: int, parent_inode: int, name: bytes, file: FixedFile) -> None:
        """Records that the thread's lookup returned `file`."""
        self._lookups[pid] = _Lookup((parent_inode, name), file, monotonic())
        self._lookups.move_to_end(pid)
        if len(self._lookups) > _MOST_THREADS:
            self._lookups.popitem(last=False)

    def find(self, pid: int, parent_inode: int, name: bytes) -> FixedFile | None:
        """Returns the file of the thread's last lookup; None if that was of another name, is too
        old, or its file is no longer valid."""
        lookup = self._lookups.get(pid)
        if lookup is None or lookup.name != (parent_inode, name):
            return None
        if monotonic() - lookup.at < _LOOKUP_SECONDS:
            try:
                lookup.file.check()
            except (StorageError, TreeError, OSError):
                return None
            return lookup.file
        return None

    def forget(self, pid: int) -> None:
        """Discards the thread's lookup, because it opened a file."""
        self._lookups.pop(pid, None)


class PageCache:
    """The small files stored in the kernel's page cache as they were opened, before they are read.

    A program that opens a record reads it next, which would be another request. The bytes are known
    when the file is opened, so they are stored in the page cache then, and the read never arrives
    here.

    The kernel locks the pages that it stores. A page may already be locked by a read that waits for
    an answer from us, and storing pages here, in the event loop, would then deadlock. So pages are
    stored only while the file is not open elsewhere: every read belongs to an open file, and the
    kernel sends a file's last release only after all its reads were answered.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # how often each record is open, by inode number
        self._stored: OrderedDict[int, None] = OrderedDict()

    def store(self, file: RecordFile) -> None:
        """Stores the bytes of a small record that is being opened, unless the kernel has them."""
        inode = file.inode
        opened = self._open.get(inode, 0)
        self._open[inode] = opened + 1
        if opened or inode in self._stored or not file.size:
            return
        try:
            pyfuse3.notify_store(pyfuse3.InodeT(inode), 0, file.data())
        except OSError as error:
            logger.debug("the kernel did not take %s: %s", file.name, error)
            return
        self._stored[inode] = None
        if len(self._stored) > _MOST_STORED:
            self._stored.popitem(last=False)

    def note_closed(self, node: Node) -> None:
        """Records that a file was closed; it may or may not have been stored."""
        opened = self._open.get(node.inode, 0)
        if opened > 1:
            self._open[node.inode] = opened - 1
        elif opened:
            del self._open[node.inode]
