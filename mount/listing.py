"""An open directory: where a listing is, and how it goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyfuse3
import trio

from .entries import SECTOR, Owner
from .nodes.node import Directory, Row, Run

_DOT, _DOT_DOT = 1, 2


class Lister:
    """Lists one directory. The kernel asks for one piece at a time, nearly always the next.

    Only the run in hand is in memory. `_rows` is what is left of it, `_next_start` where the first
    of them belongs. When names may have gone since the run was made it is made again, so that the
    kernel is never told of a name after it was told to forget it.
    """

    def __init__(self, directory: Directory, owner: Owner) -> None:
        self.directory = directory
        self._owner = owner
        self._entry = owner.entry(directory.attributes())
        self._runs: Iterator[Run] = iter(())
        self._rows: Iterator[Row] = iter(())
        self._next_start = -1
        self._losses = directory.losses()

    async def reply(self, start: int, token: pyfuse3.ReaddirToken) -> None:
        """Hand names from `start` on to the kernel, until it has no room for another."""
        if start < _DOT_DOT:
            if not self._reply_dots(start, token):
                return
            start = _DOT_DOT
        if start != self._next_start or self._losses != self.directory.losses():
            self._restart(start)
        while self._reply_rows(token):
            run = await trio.to_thread.run_sync(next, self._runs, None)
            if self._losses != self.directory.losses():
                self._restart(self._next_start)
                continue
            if run is None:
                return
            self._owner.set_shared(self._entry, run)
            self._rows = iter(run.rows)

    def _restart(self, start: int) -> None:
        self._runs = self.directory.runs(start)
        self._rows = iter(())
        self._next_start = start
        self._losses = self.directory.losses()

    def _reply_dots(self, start: int, token: pyfuse3.ReaddirToken) -> bool:
        entry = self._owner.entry(self.directory.attributes())
        if start < _DOT and not pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b"."), entry, _DOT):
            return False
        entry.st_ino = pyfuse3.InodeT(self.directory.parent_inode)
        return pyfuse3.readdir_reply(token, pyfuse3.FileNameT(b".."), entry, _DOT_DOT)

    def _reply_rows(self, token: pyfuse3.ReaddirToken) -> bool:
        """False when the kernel has no room left. This loop runs once for each record listed."""
        entry = self._entry
        reply = pyfuse3.readdir_reply
        for row in self._rows:
            name, entry.st_ino, size, mtime_ns, next_start = row
            entry.st_size = size
            entry.st_blocks = (size + SECTOR - 1) // SECTOR
            entry.st_mtime_ns = entry.st_ctime_ns = entry.st_atime_ns = mtime_ns
            if not reply(token, name, entry, next_start):
                self._rows = itertools.chain((row,), self._rows)
                return False
            self._next_start = next_start
        return True

    def close(self) -> None:
        self._runs = iter(())
