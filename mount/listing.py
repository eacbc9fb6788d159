"""An open directory: where a listing is, and how it goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

import pyfuse3
import trio

from kafkafs.storage.errors import StorageError

from .entries import SECTOR, Owner
from .nodes.node import Directory, Row, Run

logger = logging.getLogger(__name__)

_DOT, _DOT_DOT = 1, 2
# Rows made ready at a time, and how few are left when more are made. The kernel takes about two
# hundred with a request, so that is once in some requests.
_ROWS: Final = 1024
_FEW_ROWS: Final = 300


class Lister:
    """Lists one directory. The kernel asks for one piece at a time, nearly always the next.

    While it works on a piece the next one is made ready, in `_ready[_at:]`, and behind that the
    next run; more is not in memory. `_next_start` is where the first row that is ready belongs.

    When names may have gone since a run was made it is made again, so that the kernel is never told
    of a name after it was told to forget it.
    """

    def __init__(self, directory: Directory, owner: Owner, nursery: trio.Nursery) -> None:
        self.directory = directory
        self._owner = owner
        self._nursery = nursery
        self._one = trio.Lock()  # one at a time makes rows ready
        self._entry = owner.entry(directory.attributes())
        self._size = self._mtime_ns = -1  # what `_entry` says
        self._next_start = -1
        self._restart(0)

    def _restart(self, start: int) -> None:
        self._runs: Iterator[Run] | None = None
        self._losses = self.directory.losses()
        self._upcoming: Run | None = None
        self._rows: Iterator[Row] = iter(())
        self._ready: list[Row] = []
        self._at = 0
        self._next_start = start

    async def reply(self, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Hand names from `start` on to the kernel, until it has no room for another."""
        if start < _DOT_DOT:
            if not self._reply_dots(start, token):
                return
            start = _DOT_DOT
        if start != self._next_start or self._losses != self.directory.losses():
            self._restart(start)
        while self._reply_rows(token):
            if not await self._go_on():
                return
        if len(self._ready) - self._at < _FEW_ROWS:
            self._nursery.start_soon(self._prepare)

    def _reply_dots(self, start: int, token: pyfuse3.ReaddirToken) -> bool:
        entry = self._owner.entry(self.directory.attributes())
        if start < _DOT and not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b"."), entry, _DOT):
            return False
        entry.st_ino = pyfuse3.InodeT(self.directory.parent_inode)
        return pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b".."), entry, _DOT_DOT)

    def _reply_rows(self, token: pyfuse3.ReaddirToken) -> bool:
        """False when the kernel has no room left. This loop runs once for each record listed, and
        setting an attribute is the most of it: what stays the same is not set again."""
        entry, reply = self._entry, pyfuse3.readdir_reply
        size, mtime_ns = self._size, self._mtime_ns
        at, reached, has_room = self._at, self._next_start, True
        for name, inode, row_size, row_mtime_ns, next_start in islice(self._ready, self._at, None):
            entry.st_ino = inode
            if row_size != size:
                entry.st_size = size = row_size
                entry.st_blocks = (size + SECTOR - 1) // SECTOR
            if row_mtime_ns != mtime_ns:
                entry.st_mtime_ns = mtime_ns = row_mtime_ns
            if not reply(token, name, entry, next_start):
                has_room = False
                break
            reached = next_start
            at += 1
        self._at, self._next_start = at, reached
        self._size, self._mtime_ns = size, mtime_ns
        return has_room

    async def _go_on(self) -> bool:
        """Make rows ready where there are none; False at the end of the directory."""
        async with self._one:
            if self._losses != self.directory.losses():
                self._restart(self._next_start)
            if self._at < len(self._ready):
                return True
            self._ready, self._at = list(islice(self._rows, _ROWS)), 0
            if not self._ready:
                run = self._upcoming or await self._make_run()
                self._upcoming = None
                if self._losses != self.directory.losses():
                    self._restart(self._next_start)
                elif run is None:
                    return False
                else:
                    self._owner.set_shared(self._entry, run)
                    self._rows = iter(run.rows)
            return True

    async def _prepare(self) -> None:
        """Make ready what will be asked for next. An error in it is met again when it is."""
        try:
            async with self._one:
                if len(self._ready) - self._at < _FEW_ROWS:
                    more = list(islice(self._rows, _ROWS))
                    self._ready, self._at = self._ready[self._at :] + more, 0
                    if len(more) < _ROWS and self._upcoming is None:
                        self._upcoming = await self._make_run()
        except (StorageError, OSError):
            self._runs = None  # it gives nothing more; begin again behind what was made
        except Exception:
            self._runs = None
            logger.exception("listing ahead failed")  # a fault of ours, which will be met again

    async def _make_run(self) -> Run | None:
        if self._runs is None:
            self._runs = self.directory.runs(self._behind_ready())
        runs = self._runs
        run = await trio.to_thread.run_sync(next, runs, None)
        return run if runs is self._runs else None

    def _behind_ready(self) -> int:
        """Where the first name belongs that is not ready yet."""
        return self._ready[-1][-1] if self._at < len(self._ready) else self._next_start

    def close(self) -> None:
        self._restart(self._next_start)
