"""Open files as the event loop writes them: one call at a time for each, in a thread."""

from __future__ import annotations

import trio

from ..handles import Data
from ..nodes.node import Node
from ..write_handle import WriteHandle
from .readers import Reader


class Writer(Reader):
    """An open file of the kernel's that can be written."""

    def __init__(self, node: Node, handle: WriteHandle) -> None:
        super().__init__(node, handle)
        self._writes = handle
        self._one = trio.Lock()  # fair: writes are taken in the order in which they came

    async def read(self, position: int, size: int) -> Data:
        async with self._one:
            return await trio.to_thread.run_sync(self._writes.read, position, size)

    async def write(self, position: int, data: bytes) -> int:
        async with self._one:
            if self._writes.writes_near:
                return self._writes.write(position, data)
            return await trio.to_thread.run_sync(self._writes.write, position, data)

    async def truncate(self, size: int) -> None:
        async with self._one:
            await trio.to_thread.run_sync(self._writes.truncate, size)

    async def flush(self) -> None:
        async with self._one:
            if self._writes.flushes:
                await trio.to_thread.run_sync(self._writes.flush)

    async def sync(self) -> None:
        async with self._one:
            await trio.to_thread.run_sync(self._writes.sync)

    async def close(self) -> None:
        async with self._one:
            if self._writes.closes:
                await trio.to_thread.run_sync(self._writes.close)
            else:
                self._writes.close()
