"""Measures the sizes of streams that are open or being looked up, in one thread at a time.

The thread works in steps of some milliseconds. Sizes that a request waits for are measured first;
otherwise open streams are measured while no stream is being read. Measuring a stream stops when its
last reader closes it and no request waits for its size; measured parts stay known.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

import trio

from kafkafs.storage import StorageError

from ..streams.sizes import StreamSize

logger = logging.getLogger(__name__)

# Seconds that the thread works on one size before it selects the next.
_STEP_SECONDS: Final = 0.05
# Seconds without a read after which streams count as not being read.
_QUIET_SECONDS: Final = 0.1
# Looking up a stream that is not open waits for this fraction of the time that opening one waits:
# there may be thousands of lookups.
_BRIEF: Final = 0.05


class Measuring:
    """Sizes that are being measured. Only the event loop uses it."""

    def __init__(self, nursery: trio.Nursery, most_seconds: float = 1.0) -> None:
        """`most_seconds`: opening a stream, or a request for the size of an open one, waits for the
        size if measuring it is expected to take no longer, and never waits longer than this."""
        self._nursery = nursery
        self.most_seconds = most_seconds
        self._one = trio.CapacityLimiter(1)
        self._open: Counter[StreamSize] = Counter()
        self._waiting: Counter[StreamSize] = Counter()
        self._failed: set[StreamSize] = set()
        self._step = trio.Event()  # a new one after each step
        self._is_running = False
        self._last_read = 0.0

    def note_read(self) -> None:
        """Records that a stream is being read."""
        self._last_read = trio.current_time()

    async def find(self, size: StreamSize, *, opens: bool = False) -> None:
        """Finds the size if that does not take long, otherwise an upper bound. `opens`: the stream
        is about to be opened."""
        if size.look() is not None:
            return
        is_short = not opens and not self._open[size]
        seconds = self.most_seconds * (_BRIEF if is_short else 1.0)
        if size.needs_sample and size.seconds_left() > seconds:
            # A compressed log may be a hundred times larger decompressed; other streams may be
            # smaller than the log.
            await trio.to_thread.run_sync(_sample, size)
        if size.seconds_left() <= seconds:
            await self.wait(size, seconds)
        if size.needs_sample:
            await trio.to_thread.run_sync(_sample, size)

    async def wait(self, size: StreamSize, seconds: float) -> None:
        """Waits until the size is known or cannot be found, for at most `seconds`."""
        self._waiting[size] += 1
        try:
            with trio.move_on_after(seconds):
                while size.look() is None and size not in self._failed:
                    self._run()
                    await self._step.wait()
        finally:
            self._waiting[size] -= 1
            await self._leave(size)

    def opened(self, size: StreamSize) -> None:
        """Records that a stream was opened, and measures it from now on."""
        self._open[size] += 1
        self._failed.discard(size)
        self._run()

    async def closed(self, size: StreamSize) -> None:
        """Records that a stream was closed; call once for each `opened`."""
        self._open[size] -= 1
        await self._leave(size)

    async def _leave(self, size: StreamSize) -> None:
        if self._open[size] or self._waiting[size]:
            return
        del self._open[size], self._waiting[size]
        self._failed.discard(size)
        if size.is_measuring:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(size.stop, limiter=self._one)

    def _run(self) -> None:
        if not self._is_running and self._next() is not None:
            self._is_running = True
            self._nursery.start_soon(self._work)

    def _next(self) -> StreamSize | None:
        """Returns the size to measure next: of the awaited ones the shortest, else an open one."""
        awaited = self._unknown(self._waiting)
        return min(awaited, key=StreamSize.seconds_left, default=None) or next(
            iter(self._unknown(self._open)), None
        )

    def _unknown(self, sizes: Counter[StreamSize]) -> list[StreamSize]:
        unknown: Iterable[StreamSize] = (each for each, count in sizes.items() if count)
        return [each for each in unknown if each not in self._failed and each.look() is None]

    async def _work(self) -> None:
        try:
            while (size := self._next()) is not None:
                quiet_at = self._last_read + _QUIET_SECONDS
                if not self._waiting[size] and trio.current_time() < quiet_at:
                    await trio.sleep_until(quiet_at)
                    continue
                if not await trio.to_thread.run_sync(_measure, size, limiter=self._one):
                    self._failed.add(size)
                self._note_step()
        finally:
            self._is_running = False
            self._note_step()

    def _note_step(self) -> None:
        self._step.set()
        self._step = trio.Event()


def _measure(size: StreamSize) -> bool:
    """Does one step; returns False if the size cannot be found. Reading the stream then raises the
    reason."""
    try:
        size.measure(_STEP_SECONDS)
    except (StorageError, OSError) as error:
        logger.debug("a stream's size cannot be found: %s", error)
        return False
    except Exception:
        logger.exception("finding a stream's size failed")  # a bug of ours
        return False
    return True


def _sample(size: StreamSize) -> None:
    try:
        size.sample()
    except (StorageError, OSError) as error:
        logger.debug("a stream's size cannot be bounded: %s", error)
