"""An open directory: the state of a listing and how it continues."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Final, cast

import pyfuse3
import trio

from kafkafs.storage import StorageError

from ..node import DirectoryNode, DirEntries, DirEntry, DirEntryRun, Readdir
from .entries import SECTOR, Owner

logger = logging.getLogger(__name__)

_DOT, _DOT_DOT = 1, 2
# When fewer entries than this are left, the next run is prepared.
_FEW_ENTRIES: Final = 2048


class _WithoutNode:
    """The inode number of an entry for which the kernel must not create an inode.

    pyfuse3 converts this value twice: first to the entry's node id, then to its inode number. The
    kernel reads a node id of 0 as "no attributes given" (fuse_direntplus_link): it returns the name
    to the listing program and looks it up if a program needs more than the name. Creating an inode
    costs the kernel about ten times as much.
    """

    def __init__(self) -> None:
        self._inode = 0
        self._is_node_id = False

    def of(self, inode: pyfuse3.InodeT) -> pyfuse3.InodeT:
        self._inode, self._is_node_id = inode, True
        return cast(pyfuse3.InodeT, self)

    def __int__(self) -> int:
        if self._is_node_id:
            self._is_node_id = False
            return 0
        return self._inode

    __index__ = __int__


def _can_omit_nodes() -> bool:
    """Returns whether this pyfuse3 reads inode numbers as `_WithoutNode` expects."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = _WithoutNode().of(pyfuse3.InodeT(2))
    return entry.st_ino == 0


_CAN_OMIT_NODES: Final = _can_omit_nodes()


class Lister:
    """Lists one directory. The kernel asks for one part at a time, nearly always the next.

    Of the present run's `_entries`, the first `_sent` have been sent, up to `_readdir_offset`. The
    others are read from `_unsent`, after the entry in `_rejected`, if any, which did not fit into
    the kernel's buffer. While the kernel processes the last entries of a run, the next run is
    prepared; no more than that is in memory.

    A listing ends with the entries that existed when its first run was made: otherwise listing a
    directory that grows faster than it is read would never end.

    The first part carries attributes; few directories are larger. Then only names are sent, which
    is all that `ls` needs, until a name is looked up in the directory (`was_looked_up`): a program
    like `find -newermt` needs the attributes of every entry, so the rest carries them again.

    If names may have been deleted since a run was made, the run is made again, so that the kernel
    never gets a name after it was made to forget it.
    """

    def __init__(
        self,
        directory: DirectoryNode,
        owner: Owner,
        nursery: trio.Nursery,
        limiter: trio.CapacityLimiter | None = None,
    ) -> None:
        """`limiter`: limits the threads in which runs are made."""
        self.directory = directory
        self._limiter = limiter
        self._owner = owner
        self._nursery = nursery
        self._one = trio.Lock()  # held while a run is made
        self._entry = owner.entry(directory.attributes())
        self._size = self._mtime_ns = -1  # those in `_entry`
        self._readdir_offset = -1
        self._without_node = _WithoutNode()
        self.was_looked_up = False
        self._open = _OpenDirectory(directory)
        self._restart(0)

    def _restart(self, start: int) -> None:
        self._runs: Iterator[DirEntryRun] | None = None
        self._losses = self.directory.losses()
        self._entries = DirEntries()
        self._sent = 0
        self._unsent: Iterator[DirEntry] = iter(())
        self._rejected: tuple[DirEntry, ...] = ()
        self._upcoming: DirEntryRun | None = None
        self._readdir_offset = start

    async def reply(self, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Sends entries from readdir offset `start` on to the kernel until its buffer is full."""
        names_only = _CAN_OMIT_NODES and start >= _DOT_DOT and not self.was_looked_up
        if start < _DOT_DOT:
            self._open = _OpenDirectory(self.directory)
            self._restart(_DOT_DOT)
            if not self._reply_dots(start, token):
                return
            start = _DOT_DOT
        elif start != self._readdir_offset or self._losses != self.directory.losses():
            self._restart(start)
        while self._reply_entries(token, names_only):
            if not await self._next_run():
                return
        if self._upcoming is None and len(self._entries) - self._sent < _FEW_ENTRIES:
            self._nursery.start_soon(self._prepare)

    def _reply_dots(self, start: int, token: pyfuse3.ReaddirToken) -> bool:
        entry = self._owner.entry(self.directory.attributes())
        if start < _DOT and not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b"."), entry, _DOT):
            return False
        entry.st_ino = pyfuse3.InodeT(self.directory.parent_inode)
        return pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b".."), entry, _DOT_DOT)

    def _reply_entries(self, token: pyfuse3.ReaddirToken, names_only: bool) -> bool:
        """Sends the entries of the present run; returns False if the kernel's buffer is full.

        The loop runs once per listed name, and most of its time is spent setting attributes: so all
        entries share one object, and unchanged attributes are not set again."""
        entry, reply, sent = self._entry, pyfuse3.readdir_reply, 0
        set_size, set_mtime_ns = self._size, self._mtime_ns
        without_node = self._without_node.of
        rejected: tuple[DirEntry, ...] = ()
        try:
            for name, inode, size, mtime_ns, readdir_offset in chain(self._rejected, self._unsent):
                entry.st_ino = without_node(inode) if names_only else inode
                if size != set_size:
                    entry.st_size = set_size = size
                    entry.st_blocks = (size + SECTOR - 1) // SECTOR
                if mtime_ns != set_mtime_ns:
                    entry.st_mtime_ns = set_mtime_ns = mtime_ns
                if not reply(token, name, entry, readdir_offset):
                    rejected = ((name, inode, size, mtime_ns, readdir_offset),)
                    break
                self._readdir_offset = readdir_offset
                sent += 1
        finally:
            self._size, self._mtime_ns = set_size, set_mtime_ns
            self._rejected = rejected
            self._sent += sent
        return not rejected

    async def _next_run(self) -> bool:
        """Continues with the next run if all entries were sent; returns False at the end of the
        directory."""
        async with self._one:
            while self._sent >= len(self._entries):
                if self._losses != self.directory.losses():
                    self._restart(self._readdir_offset)
                run = self._upcoming or await self._make_run()
                self._upcoming = None
                if self._losses != self.directory.losses():
                    continue
                if run is None:
                    return False
                self._owner.set_shared(self._entry, run)
                self._entries, self._sent, self._unsent = run.entries, 0, iter(run.entries)
            return True

    async def _prepare(self) -> None:
        """Makes the next run ahead of time. An error in it occurs again when the run is needed."""
        try:
            async with self._one:
                if self._upcoming is None:
                    self._upcoming = await self._make_run()
        except (StorageError, OSError):
            self._runs = None  # a failed iterator yields no more: restart after the last entry
        except Exception:
            self._runs = None
            logger.exception("listing ahead failed")  # a bug of ours, which will occur again

    async def _make_run(self) -> DirEntryRun | None:
        if self._runs is None:
            self._runs = self._open.readdir(self._first_unread())
        runs = self._runs
        run = await trio.to_thread.run_sync(next, runs, None, limiter=self._limiter)
        return run if runs is self._runs else None

    def _first_unread(self) -> int:
        """Returns the readdir offset of the first name that is not in memory yet."""
        is_sent = self._sent >= len(self._entries)
        return self._readdir_offset if is_sent else self._entries.readdir_offsets[-1]

    def close(self) -> None:
        self._restart(self._readdir_offset)


class _OpenDirectory:
    """A listing from its beginning; it keeps its end however often it is resumed."""

    def __init__(self, directory: DirectoryNode) -> None:
        self._directory = directory
        self._readdir: Readdir | None = None

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        if self._readdir is None:
            self._readdir = self._directory.opendir()
        yield from self._readdir(start)
