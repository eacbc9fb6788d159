"""Runs slow preparations in threads, each only once for all requests that wait for it."""

from __future__ import annotations

import logging
from collections.abc import Hashable

import trio

from kafkafs.storage import StorageError

from ..vfs.errnos import TreeError
from ..vfs.pending import Pending

logger = logging.getLogger(__name__)


class Waiting:
    """Preparations in threads of their own: however many requests wait for them, the threads of
    other requests stay free. Only the event loop uses it."""

    def __init__(self, nursery: trio.Nursery, threads: int = 1) -> None:
        """`threads`: how many preparations run at a time."""
        self._nursery = nursery
        self._threads = trio.CapacityLimiter(threads)
        self._done: dict[Hashable, trio.Event] = {}

    async def wait(self, pending: Pending) -> None:
        """Waits until `pending` has been attempted. Errors in it are not raised here: the node
        raises them again when it is used."""
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
            logger.exception("preparing a file's content failed")  # a bug of ours
        finally:
            del self._done[pending.key]
            done.set()
