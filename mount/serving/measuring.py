"""Finds the sizes of streams while they are open, or asked for, in one thread at a time.

A step of some milliseconds goes to whoever waits for a size; while nobody does, streams that are
open are measured as long as nobody reads from any. The last one who closes a stream, or gives up
waiting for its size, ends that; parts that were measured stay known.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

import trio

from kafkafs.storage.errors import StorageError

from ..reading.sizes import StreamSize

logger = logging.getLogger(__name__)

# How long the thread works before it looks who is next, in seconds.
_STEP_SECONDS: Final = 0.05
# Nobody reads from streams when nobody did for so long.
_QUIET_SECONDS: Final = 0.1
# Who asks for the size of a stream that is not open, of which there may be thousands, waits a
# shorter time than who opens one.
_BRIEF: Final = 0.05


class Measuring:
    """Sizes that are being found. The event loop alone uses it."""

    def __init__(self, nursery: trio.Nursery, most_seconds: float = 1.0) -> None:
        """`most_seconds`: who opens a stream, or asks for the size of an open one, waits if finding
        it is expected to take no longer; and no longer than that."""
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
        """Somebody reads from a stream."""
        self._last_read = trio.current_time()

    async def find(self, size: StreamSize, *, opens: bool = False) -> None:
        """Finds the size if that does not take long, else a bound. `opens`: for who opens it."""
        if size.look() is not None:
            return
        is_short = not opens and not self._open[size]
        seconds = self.most_seconds * (_BRIEF if is_short else 1.0)
        if size.needs_sample and size.seconds_left() > seconds:
            # Compressed logs may become a hundred times as large, and others smaller.
            await trio.to_thread.run_sync(_sample, size)
        if size.seconds_left() <= seconds:
            await self.wait(size, seconds)
        if size.needs_sample:
            await trio.to_thread.run_sync(_sample, size)

    async def wait(self, size: StreamSize, seconds: float) -> None:
        """Until the size is known, or so many seconds have passed, or it cannot be found."""
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
        """A stream was opened."""
        self._open[size] += 1
        self._failed.discard(size)
        self._run()

    async def closed(self, size: StreamSize) -> None:
        """It was closed, as often as that."""
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
        """What is measured next: of what somebody waits for the shortest."""
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
    """False if it cannot be found: who reads the stream will meet the reason."""
    try:
        size.measure(_STEP_SECONDS)
    except (StorageError, OSError) as error:
        logger.debug("a stream's size cannot be found: %s", error)
        return False
    except Exception:
        logger.exception("finding a stream's size failed")  # a fault of ours
        return False
    return True


def _sample(size: StreamSize) -> None:
    try:
        size.sample()
    except (StorageError, OSError) as error:
        logger.debug("a stream's size cannot be bounded: %s", error)
