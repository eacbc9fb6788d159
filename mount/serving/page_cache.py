"""Small files handed to the kernel before it asks.

Who opens a record reads it next, and that would be another request. The bytes are known when the
file is opened, so they are put into the kernel's page cache then and the read never comes here.

The kernel locks the pages that it is given. A page may be locked by a read that waits for an answer
from us, and then to give it pages here, in the event loop, would wait for ever. So they are given
only while nobody has the file open: every read comes from an open file, and the kernel tells of a
file's last closing only when all of them are answered.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

import pyfuse3

from ..nodes.node import Node
from ..nodes.record import RecordFile

logger = logging.getLogger(__name__)

# Files that were given before are not given again at once; if the kernel needed the memory for
# something else, it asks for them as usual.
_REMEMBERED: Final = 16384


class PageCache:
    """What the kernel was given. The event loop alone uses it."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # how often each record is open, by inode number
        self._given: OrderedDict[int, None] = OrderedDict()

    def offer(self, file: RecordFile) -> None:
        """Give the kernel the bytes of a small record that is being opened, unless it has them."""
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
        """A file was closed, perhaps one that was offered."""
        opened = self._open.get(node.inode, 0)
        if opened > 1:
            self._open[node.inode] = opened - 1
        elif opened:
            del self._open[node.inode]
