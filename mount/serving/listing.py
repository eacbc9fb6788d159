"""An open directory: where a listing is, and how it goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Final, cast

import pyfuse3
import trio

from kafkafs.storage.errors import StorageError

from ..nodes.node import Directory, Listing, Row, Rows, Run
from .entries import SECTOR, Owner

logger = logging.getLogger(__name__)

_DOT, _DOT_DOT = 1, 2
# How few rows are left when the next run is made.
_FEW_ROWS: Final = 2048


class _WithoutNode:
    """An inode number of an entry that the kernel is to keep no inode for.

    pyfuse3 takes two numbers from one value: first the entry's node id, then its inode number.
    The kernel reads a node id of 0 as "no attributes given" (fuse_direntplus_link): it hands the
    name to the program that lists, and looks it up when a program asks for more than the name. To
    make an inode costs it some ten times as much.
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
    """Whether this pyfuse3 takes its numbers as `_WithoutNode` expects."""
    entry = pyfuse3.EntryAttributes()
    entry.st_ino = _WithoutNode().of(pyfuse3.InodeT(2))
    return entry.st_ino == 0


_CAN_OMIT_NODES: Final = _can_omit_nodes()


class Lister:
    """Lists one directory. The kernel asks for one part at a time, nearly always the next.

    Of `_rows` those from `_at` on were not handed over yet, and `_next_start` is where the first of
    them belongs. They come from `_feed`, behind the one that the kernel had no room for, if there
    is one in `_refused`. While the kernel works on its last rows the next run is made; more is not
    in memory.

    A listing ends with what was there when its first run was made: what grows faster than somebody
    reads would else be listed for ever.

    The first part comes with attributes; a directory is seldom larger. From then on only names are
    handed over, which is all that `ls` wants, until a name is looked up in the directory: a program
    like `find -newermt` asks about each, so that the rest has attributes again (`was_looked_up`).

    When names may have gone since a run was made it is made again, so that the kernel is never told
    of a name after it was told to forget it.
    """

    def __init__(
        self,
        directory: Directory,
        owner: Owner,
        nursery: trio.Nursery,
        limiter: trio.CapacityLimiter | None = None,
    ) -> None:
        """`limiter`: of the threads in which runs are made."""
        self.directory = directory
        self._limiter = limiter
        self._owner = owner
        self._nursery = nursery
        self._one = trio.Lock()  # one at a time makes runs
        self._entry = owner.entry(directory.attributes())
        self._size = self._mtime_ns = -1  # what `_entry` says
        self._next_start = -1
        self._without_node = _WithoutNode()
        self.was_looked_up = False
        self._begun = _Begun(directory)
        self._restart(0)

    def _restart(self, start: int) -> None:
        self._runs: Iterator[Run] | None = None
        self._losses = self.directory.losses()
        self._rows = Rows()
        self._at = 0
        self._feed: Iterator[Row] = iter(())
        self._refused: tuple[Row, ...] = ()
        self._upcoming: Run | None = None
        self._next_start = start

    async def reply(self, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Hand names from `start` on to the kernel, until it has no room for another."""
        names_only = _CAN_OMIT_NODES and start >= _DOT_DOT and not self.was_looked_up
        if start < _DOT_DOT:
            self._begun = _Begun(self.directory)
            self._restart(_DOT_DOT)
            if not self._reply_dots(start, token):
                return
            start = _DOT_DOT
        elif start != self._next_start or self._losses != self.directory.losses():
            self._restart(start)
        while self._reply_rows(token, names_only):
            if not await self._go_on():
                return
        if self._upcoming is None and len(self._rows) - self._at < _FEW_ROWS:
            self._nursery.start_soon(self._prepare)

    def _reply_dots(self, start: int, token: pyfuse3.ReaddirToken) -> bool:
        entry = self._owner.entry(self.directory.attributes())
        if start < _DOT and not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b"."), entry, _DOT):
            return False
        entry.st_ino = pyfuse3.InodeT(self.directory.parent_inode)
        return pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b".."), entry, _DOT_DOT)

    def _reply_rows(self, token: pyfuse3.ReaddirToken, names_only: bool) -> bool:
        """False when the kernel has no room left.

        The loop runs once for each name that is listed, and setting an attribute is the most of it:
        all rows use the same object, and what stays the same is not set."""
        entry, reply, taken = self._entry, pyfuse3.readdir_reply, 0
        said_size, said_mtime_ns = self._size, self._mtime_ns
        without_node = self._without_node.of
        refused: tuple[Row, ...] = ()
        try:
            for name, inode, size, mtime_ns, next_start in chain(self._refused, self._feed):
                entry.st_ino = without_node(inode) if names_only else inode
                if size != said_size:
                    entry.st_size = said_size = size
                    entry.st_blocks = (size + SECTOR - 1) // SECTOR
                if mtime_ns != said_mtime_ns:
                    entry.st_mtime_ns = said_mtime_ns = mtime_ns
                if not reply(token, name, entry, next_start):
                    refused = ((name, inode, size, mtime_ns, next_start),)
                    break
                self._next_start = next_start
                taken += 1
        finally:
            self._size, self._mtime_ns = said_size, said_mtime_ns
            self._refused = refused
            self._at += taken
        return not refused

    async def _go_on(self) -> bool:
        """Take the next run when all rows were handed over; False at the end of the directory."""
        async with self._one:
            while self._at >= len(self._rows):
                if self._losses != self.directory.losses():
                    self._restart(self._next_start)
                run = self._upcoming or await self._make_run()
                self._upcoming = None
                if self._losses != self.directory.losses():
                    continue
                if run is None:
                    return False
                self._owner.set_shared(self._entry, run)
                self._rows, self._at, self._feed = run.rows, 0, iter(run.rows)
            return True

    async def _prepare(self) -> None:
        """Make the next run. An error in it is met again when it is asked for."""
        try:
            async with self._one:
                if self._upcoming is None:
                    self._upcoming = await self._make_run()
        except (StorageError, OSError):
            self._runs = None  # it gives nothing more; begin again behind what was made
        except Exception:
            self._runs = None
            logger.exception("listing ahead failed")  # a fault of ours, which will be met again

    async def _make_run(self) -> Run | None:
        if self._runs is None:
            self._runs = self._begun.runs(self._behind_ready())
        runs = self._runs
        run = await trio.to_thread.run_sync(next, runs, None, limiter=self._limiter)
        return run if runs is self._runs else None

    def _behind_ready(self) -> int:
        """Where the first name belongs that is not ready yet."""
        return self._rows.next_starts[-1] if self._at < len(self._rows) else self._next_start

    def close(self) -> None:
        self._restart(self._next_start)


class _Begun:
    """A listing from its beginning, however often it is taken up."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._listing: Listing | None = None

    def runs(self, start: int) -> Iterator[Run]:
        if self._listing is None:
            self._listing = self._directory.listing()
        yield from self._listing(start)
