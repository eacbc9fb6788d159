"""Open files as the event loop reads them: at once where bytes are at hand, else in a thread.

While a stream's bytes are on their way to the reader a thread makes the next ones. A reader of
`follow` sleeps until the watch sees the partition change.
"""

from __future__ import annotations

import logging
import select
from typing import Final, Protocol

import pyfuse3
import trio

from ..errnos import Idle, WouldBlock
from ..handles import IDLE_SECONDS, Data, Handle
from ..nodes.node import MeasuredFile, Node
from ..partition import Partition
from ..reading.following import FollowHandle
from ..reading.sizes import StreamSize
from ..reading.streams import PreparedStreamHandle, StreamHandle
from .measuring import Measuring
from .waiting import Waiting

logger = logging.getLogger(__name__)

_READABLE: Final = select.POLLIN | select.POLLRDNORM


# Threads that make streams ahead of their readers, all together. A stream for which there is none
# is made as it is read.
_AHEAD_THREADS: Final = 8


class AheadThreads:
    """How many of them are free."""

    def __init__(self) -> None:
        self._free = _AHEAD_THREADS

    def take(self) -> bool:
        """Take one; False when none is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1


class Reader:
    """An open file of the kernel's. `node` is what was opened."""

    def __init__(self, node: Node, handle: Handle) -> None:
        self.node = node
        self.handle = handle

    async def read(self, position: int, size: int) -> Data:
        data = self.handle.at_hand(position, size)
        if data is None:
            data = await trio.to_thread.run_sync(self.handle.read, position, size)
        return data

    async def poll(self, poll_handle: pyfuse3.PollHandle | None) -> int:
        """The events that are there now. `poll_handle` is to be told when there are more."""
        return _READABLE

    async def close(self) -> None:
        self.handle.close()


class StreamReader(Reader):
    """Reads a stream and keeps a thread busy ahead of it."""

    def __init__(
        self,
        node: Node,
        handle: StreamHandle,
        nursery: trio.Nursery,
        threads: AheadThreads,
        measuring: Measuring,
    ) -> None:
        super().__init__(node, handle)
        self._measuring = measuring
        self._measured = self._begin_measuring()
        self._stream = handle
        self._nursery = nursery
        self._threads = threads
        self._is_kept_ahead = False
        self._progress = trio.Event()  # a new one after each piece that is waited for
        self._is_awaited = False  # a piece is; the thread that makes it looks at this
        handle.guards_page_cache = handle.direct_io

    def _begin_measuring(self) -> StreamSize | None:
        """Have the stream's size found while it is open."""
        size = self.node.stream_size if isinstance(self.node, MeasuredFile) else None
        if size is not None:
            self._measuring.opened(size)
        return size

    async def read(self, position: int, size: int) -> Data:
        self._measuring.note_read()
        if self._measured is not None and self._stream.is_far(position):
            await self._measuring.wait(self._measured, IDLE_SECONDS)
            if self._stream.is_far(position):
                raise Idle
        data = self._stream.at_hand(position, size)
        while data is None and self._is_kept_ahead:
            # First this, then another look: or what comes between would not be told.
            self._is_awaited = True
            data = self._stream.at_hand(position, size)
            if data is None:
                await self._progress.wait()
                data = self._stream.at_hand(position, size)
        if data is None:
            data = await trio.to_thread.run_sync(self._stream.read, position, size)
        if self._stream.was_cut(position, len(data)):
            # If the page cache reads, it must not take this for the end of the file: its next read
            # then meets the damage.
            pyfuse3.invalidate_inode(pyfuse3.InodeT(self.node.inode), attr_only=True)
        if not self._is_kept_ahead and self._stream.wants_more() and self._threads.take():
            self._is_kept_ahead = True
            self._nursery.start_soon(self._keep_ahead)
        return data

    async def _keep_ahead(self) -> None:
        token = trio.lowlevel.current_trio_token()

        def note_progress() -> None:
            # To wake the event loop for nothing would cost more than making a piece.
            if self._is_awaited:
                self._is_awaited = False
                token.run_sync_soon(self._note_progress, idempotent=True)

        try:
            limiter = trio.CapacityLimiter(1)  # these are counted elsewhere
            await trio.to_thread.run_sync(self._stream.keep_ahead, note_progress, limiter=limiter)
        except Exception:
            logger.exception("reading ahead failed")  # a fault of ours; the read will meet it, too
        finally:
            self._threads.give_back()
            self._is_kept_ahead = False
            self._note_progress()

    def _note_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    async def close(self) -> None:
        await trio.to_thread.run_sync(self._stream.close)
        if self._measured is not None:
            await self._measuring.closed(self._measured)


class PreparedStreamReader(StreamReader):
    """Reads a stream once what it needs has been done; until then a read ends with EINTR from time
    to time, as one of `follow` does."""

    def __init__(
        self,
        node: Node,
        handle: PreparedStreamHandle,
        nursery: trio.Nursery,
        threads: AheadThreads,
        measuring: Measuring,
        waiting: Waiting,
    ) -> None:
        super().__init__(node, handle, nursery, threads, measuring)
        self._pending = handle.pending
        self._waiting = waiting

    async def read(self, position: int, size: int) -> Data:
        pending = self._pending()
        if pending is not None:
            with trio.move_on_after(IDLE_SECONDS) as scope:
                await self._waiting.wait(pending)
            if scope.cancelled_caught:
                raise Idle
        if self._measured is None:
            self._measured = self._begin_measuring()
        return await super().read(position, size)


class Changes(Protocol):
    """What tells of changes: the watch."""

    def next_change(self, partition: Partition) -> trio.Event:
        """Set when the partition has changed after this call, or the mount ends."""

    @property
    def is_ending(self) -> bool: ...


class FollowReader(Reader):
    """Reads what comes. One read, or look for something to read, at a time."""

    def __init__(
        self, node: Node, handle: FollowHandle, nursery: trio.Nursery, changes: Changes
    ) -> None:
        super().__init__(node, handle)
        self._follow = handle
        self._nursery = nursery
        self._changes = changes
        self._one = trio.Lock()
        self._poll_handle: pyfuse3.PollHandle | None = None

    async def read(self, position: int, size: int) -> Data:
        if not self._one.locked():
            data = self._follow.at_hand(position, size)
            if data is not None:
                return data
        with trio.move_on_after(IDLE_SECONDS):
            async with self._one:
                while not self._changes.is_ending:
                    change = self._changes.next_change(self._follow.partition)
                    data = await trio.to_thread.run_sync(self._follow.take, size)
                    if data is not None:
                        return data
                    if not self._follow.waits:
                        raise WouldBlock
                    await change.wait()
        raise Idle

    async def poll(self, poll_handle: pyfuse3.PollHandle | None) -> int:
        if await self._is_ready():
            return _READABLE
        if poll_handle is not None:
            if self._poll_handle is None:
                self._nursery.start_soon(self._wake_poller)
            self._poll_handle = poll_handle
        return 0

    async def _is_ready(self) -> bool:
        async with self._one:
            return await trio.to_thread.run_sync(self._follow.is_ready)

    async def _wake_poller(self) -> None:
        try:
            while self._poll_handle is not None and not self._changes.is_ending:
                change = self._changes.next_change(self._follow.partition)
                if await self._is_ready():
                    self._poll_handle.notify()
                    return
                await change.wait()
        except Exception:
            logger.exception("waking a poller failed")
        finally:
            self._poll_handle = None

    async def close(self) -> None:
        self._poll_handle = None
        async with self._one:
            self._follow.close()
