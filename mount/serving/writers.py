"""Open files as the event loop writes them: one call at a time for each, in a thread if it may have
to wait for anything."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import trio

from ..handles import Data
from ..nodes.node import Node
from ..write_handle import WriteHandle
from .readers import Reader

# A write that was taken for a short one, and took longer than this, sends those behind it to
# threads for some time: the disk is slow, or the lines are such as take long to read.
_LONG_SECONDS: Final = 0.005
_SLOW_SECONDS: Final = 0.25


class Writer(Reader):
    """An open file of the kernel's that can be written."""

    def __init__(self, node: Node, handle: WriteHandle) -> None:
        super().__init__(node, handle)
        self._writes = handle
        self._one = trio.Lock()  # fair: writes are taken in the order in which they came
        self._slow_until = 0.0

    async def read(self, position: int, size: int) -> Data:
        async with self._one:
            return await trio.to_thread.run_sync(self._writes.read, position, size)

    async def write(self, position: int, data: bytes, is_alone: bool = False) -> int:
        """`is_alone`: no other file is open, so that hardly anybody waits when the event loop does
        a short write itself. To have a thread do it would take an eighth longer."""
        writes = self._writes
        if self._is_free:
            if writes.writes_near:
                return writes.write(position, data)
            if is_alone and perf_counter() >= self._slow_until and writes.writes_soon(len(data)):
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
            if writes.flushes_near:
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
        """Whether a call can be made here and now: none is under way, and none waits."""
        return not self._one.locked()
