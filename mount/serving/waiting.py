"""What takes long is done once, while all who need it wait."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import trio

from kafkafs.storage.errors import StorageError

from ..errnos import TreeError
from ..pending import Pending

logger = logging.getLogger(__name__)


class Waiting:
    """What is being done in threads of its own: however many wait, they take none of the threads
    that others need. The event loop alone uses it."""

    def __init__(self, nursery: trio.Nursery, threads: int = 1) -> None:
        """`threads`: how many things are done at a time."""
        self._nursery = nursery
        self._threads = trio.CapacityLimiter(threads)
        self._done: dict[Hashable, trio.Event] = {}

    async def wait(self, pending: Pending) -> None:
        """Until it has been tried: an error in it is met again by who then asks the node."""
        done = self._done.get(pending.key)
        if done is None:
            done = self._done[pending.key] = trio.Event()
            self._nursery.start_soon(self._do, pending, done)
        await done.wait()

    async def _do(self, pending: Pending, done: trio.Event) -> None:
        try:
            if not await trio.to_thread.run_sync(pending.is_done):
                await trio.to_thread.run_sync(pending.work, limiter=self._threads)
        except (StorageError, TreeError, OSError):
            pass
        except Exception:
            logger.exception("what a file is made from could not be made")  # a fault of ours
        finally:
            del self._done[pending.key]
            done.set()
