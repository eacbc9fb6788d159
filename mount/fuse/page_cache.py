"""Stores small files in the kernel's page cache as they are opened, before they are read.

A program that opens a record reads it next, which would be another request. The bytes are known
when the file is opened, so they are stored in the page cache then, and the read never arrives here.

The kernel locks the pages that it stores. A page may already be locked by a read that waits for an
answer from us, and storing pages here, in the event loop, would then deadlock. So pages are stored
only while the file is not open elsewhere: every read belongs to an open file, and the kernel sends
a file's last release only after all its reads were answered.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

import pyfuse3

from ..node import Node
from ..nodes.record import RecordFile

logger = logging.getLogger(__name__)

# Recently stored files are not stored again; if the kernel has dropped their pages, it reads them
# as usual.
_REMEMBERED: Final = 16384


class PageCache:
    """The files stored in the kernel's page cache. Only the event loop uses it."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # how often each record is open, by inode number
        self._given: OrderedDict[int, None] = OrderedDict()

    def offer(self, file: RecordFile) -> None:
        """Stores the bytes of a small record that is being opened, unless the kernel has them."""
        inode = file.inode
        opened = self._open.get(inode, 0)
        self._open[inode] = opened + 1
        if opened or inode in self._given or not file.size:
            return
        try:
            pyfuse3.notify_store(pyfuse3.InodeT(inode), 0, file.data())
        except OSError as error:
            logger.debug("the kernel did not take %s: %s", file.name, error)
            return
        self._given[inode] = None
        if len(self._given) > _REMEMBERED:
            self._given.popitem(last=False)

    def note_closed(self, node: Node) -> None:
        """Records that a file was closed; it may or may not have been offered."""
        opened = self._open.get(node.inode, 0)
        if opened > 1:
            self._open[node.inode] = opened - 1
        elif opened:
            del self._open[node.inode]
