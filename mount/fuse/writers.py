"""Serves writes to open files: one call at a time for each file, in a thread if it may block."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import trio

from ..node import Node
from ..vfs.handles import Data
from ..vfs.write_handle import WriteHandle
from .readers import Reader

# After a write in the event loop that took longer than this, the following writes use threads for
# some time: the disk is slow, or the lines take long to parse.
_LONG_SECONDS: Final = 0.005
_SLOW_SECONDS: Final = 0.25


class Writer(Reader):
    """A file that the kernel has open for writing."""

    def __init__(self, node: Node, handle: WriteHandle) -> None:
        super().__init__(node, handle)
        self._writes = handle
        self._one = trio.Lock()  # fair: writes are done in the order of their arrival
        self._slow_until = 0.0

    async def read(self, position: int, size: int) -> Data:
        async with self._one:
            return await trio.to_thread.run_sync(self._writes.read, position, size)

    async def write(self, position: int, data: bytes, is_alone: bool = False) -> int:
        """Writes `data`. `is_alone`: no other file is open, so that a short write in the event loop
        delays hardly anything. In a thread it would take an eighth longer."""
        writes = self._writes
        if self._is_free:
            if not writes.write_may_block:
                return writes.write(position, data)
            if is_alone and perf_counter() >= self._slow_until and writes.write_is_quick(len(data)):
                return self._write_here(position, data)
        async with self._one:
            return await trio.to_thread.run_sync(writes.write, position, data)

    def _write_here(self, position: int, data: bytes) -> int:
        started = perf_counter()
        try:
            return self._writes.write(position, data)
        finally:
            ended = perf_counter()
            if ended - started > _LONG_SECONDS:
                self._slow_until = ended + _SLOW_SECONDS

    async def truncate(self, size: int) -> None:
        async with self._one:
            await trio.to_thread.run_sync(self._writes.truncate, size)

    async def flush(self) -> None:
        writes = self._writes
        if self._is_free:
            if not writes.flushes:
                return
            if not writes.flush_may_block:
                writes.flush()
                return
        async with self._one:
            if writes.flushes:
                await trio.to_thread.run_sync(writes.flush)

    async def sync(self) -> None:
        async with self._one:
            await trio.to_thread.run_sync(self._writes.sync)

    async def close(self) -> None:
        if self._is_free and not self._writes.closes:
            self._writes.close()
            return
        async with self._one:
            await trio.to_thread.run_sync(self._writes.close)

    @property
    def _is_free(self) -> bool:
        """Whether a call can be made at once: none is running or waiting."""
        return not self._one.locked()
