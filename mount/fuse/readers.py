"""Serves reads of open files: at once where the bytes are in memory, otherwise in a thread.

While a stream's bytes are on their way to the reader, a thread produces the next ones. A reader of
`follow` sleeps until the watch sees the partition change.
"""

from __future__ import annotations

import logging
import select
from typing import Final, Protocol

import pyfuse3
import trio

from ..node import MeasuredFile, Node
from ..partition import MountedPartition
from ..streams.following import FollowHandle
from ..streams.sizes import StreamSize
from ..streams.streams import PreparedStreamHandle, StreamHandle
from ..vfs.errnos import ReadInterrupted, WouldBlock
from ..vfs.handles import IDLE_SECONDS, Data, Handle
from .measuring import Measuring
from .waiting import Waiting

logger = logging.getLogger(__name__)

_READABLE: Final = select.POLLIN | select.POLLRDNORM


# The total number of threads that read ahead. A stream that gets none is produced as it is read.
_AHEAD_THREADS: Final = 8


class AheadThreads:
    """Counts the free read-ahead threads."""

    def __init__(self) -> None:
        self._free = _AHEAD_THREADS

    def acquire(self) -> bool:
        """Takes a thread; returns False if none is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1


class Reader:
    """A file that the kernel has open. `node` is what was opened."""

    def __init__(self, node: Node, handle: Handle) -> None:
        self.node = node
        self.handle = handle

    async def read(self, position: int, size: int) -> Data:
        data = self.handle.at_hand(position, size)
        if data is None:
            data = await trio.to_thread.run_sync(self.handle.read, position, size)
        return data

    async def poll(self, poll_handle: pyfuse3.PollHandle | None) -> int:
        """Returns the present poll events. `poll_handle` is notified when there are more."""
        return _READABLE

    async def close(self) -> None:
        self.handle.close()


class StreamReader(Reader):
    """Reads a stream while a thread reads ahead."""

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
        self._progress = trio.Event()  # a new one after each awaited piece
        self._is_awaited = False  # whether a piece is; read by the thread that reads ahead
        handle.guards_page_cache = handle.direct_io

    def _begin_measuring(self) -> StreamSize | None:
        """Has the stream's size measured while it is open."""
        size = self.node.stream_size if isinstance(self.node, MeasuredFile) else None
        if size is not None:
            self._measuring.opened(size)
        return size

    async def read(self, position: int, size: int) -> Data:
        self._measuring.note_read()
        if self._measured is not None and self._stream.is_far(position):
            await self._measuring.wait(self._measured, IDLE_SECONDS)
            if self._stream.is_far(position):
                raise ReadInterrupted
        data = self._stream.at_hand(position, size)
        while data is None and self._is_kept_ahead:
            # Set this before checking again: otherwise a piece made in between would not wake us.
            self._is_awaited = True
            data = self._stream.at_hand(position, size)
            if data is None:
                await self._progress.wait()
                data = self._stream.at_hand(position, size)
        if data is None:
            data = await trio.to_thread.run_sync(self._stream.read, position, size)
        if self._stream.was_cut(position, len(data)):
            # The page cache must not take this short read for the end of the file: its next read
            # then raises the error for the damage.
            pyfuse3.invalidate_inode(pyfuse3.InodeT(self.node.inode), attr_only=True)
        if not self._is_kept_ahead and self._stream.wants_more() and self._threads.acquire():
            self._is_kept_ahead = True
            self._nursery.start_soon(self._keep_ahead)
        return data

    async def _keep_ahead(self) -> None:
        token = trio.lowlevel.current_trio_token()

        def note_progress() -> None:
            # Waking the event loop needlessly would cost more than producing a piece.
            if self._is_awaited:
                self._is_awaited = False
                token.run_sync_soon(self._note_progress, idempotent=True)

        try:
            limiter = trio.CapacityLimiter(1)  # `AheadThreads` counts these threads
            await trio.to_thread.run_sync(self._stream.keep_ahead, note_progress, limiter=limiter)
        except Exception:
            logger.exception("reading ahead failed")  # a bug of ours; the read will fail, too
        finally:
            self._threads.release()
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
    """Reads a stream after its preparations are done; until then reads return EINTR from time to
    time, as those of `follow` do."""

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
                raise ReadInterrupted
        if self._measured is None:
            self._measured = self._begin_measuring()
        return await super().read(position, size)


class ChangeSource(Protocol):
    """The source of change events: the watch."""

    def next_change(self, partition: MountedPartition) -> trio.Event:
        """Returns an event that is set when the partition changes or the mount ends."""

    @property
    def is_ending(self) -> bool: ...


class FollowReader(Reader):
    """Reads records as they arrive. Only one read or readiness check runs at a time."""

    def __init__(
        self, node: Node, handle: FollowHandle, nursery: trio.Nursery, changes: ChangeSource
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
                    data = await trio.to_thread.run_sync(self._follow.take, position, size)
                    if data is not None:
                        return data
                    if not self._follow.waits:
                        raise WouldBlock
                    await change.wait()
        raise ReadInterrupted

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
