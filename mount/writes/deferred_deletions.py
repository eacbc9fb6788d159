"""Writes deletions to the disk in groups, soon after they were made.

Each removal changes the log start offset in memory; one thread writes the checkpoints and renames
the segments, once for all removals that have accumulated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from kafkafs.storage import StorageError, TopicPartition, printable

logger = logging.getLogger(__name__)

#: Seconds to collect further deletions, and seconds until a failed attempt is repeated.
SOON_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = 1.0

Keys = AbstractSet[TopicPartition]


class DeferredDeletions:
    """The deletions to be written to the disk. Any thread may call; its own thread runs only while
    there is work."""

    def __init__(self, put: Callable[[Keys], Keys]) -> None:
        """`put` writes the deletions of some partitions and returns those that must be repeated
        later. It raises StorageError or OSError on failure."""
        self._put = put
        self._one = threading.Lock()  # held during `put`
        self._lock = threading.Lock()  # guards what follows
        self._due: set[TopicPartition] = set()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        #: Why the last attempt failed; "" if it succeeded.
        self.problem = ""

    def schedule(self, key: TopicPartition) -> None:
        """Schedules writing the deletions in a partition."""
        with self._lock:
            self._due.add(key)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kafkafs-deletions", daemon=True
                )
                self._thread.start()

    def write_now(self, keys: Keys | None = None) -> None:
        """Writes the deletions in these partitions (None: in all) to the disk before it returns.
        Raises what `put` raises; the work is then retried later."""
        with self._one:
            with self._lock:
                taken = set(self._due) if keys is None else self._due & keys
                self._due -= taken
            if not taken:
                return
            left: Keys = taken
            try:
                left = self._put(taken)
                self.problem = ""
            except (StorageError, OSError) as error:
                self._note(printable(str(error)))
                raise
            finally:
                with self._lock:
                    self._due |= left

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("deletions are not on the disk yet: %s", problem)
        self.problem = problem

    def _run(self) -> None:
        """Runs until no work is left."""
        wait = SOON_SECONDS
        while not self._closing.wait(wait):
            wait = SOON_SECONDS
            try:
                self.write_now()
            except (StorageError, OSError):  # `write_now` has recorded it
                wait = AGAIN_SECONDS
            with self._lock:
                if not self._due:
                    self._thread = None
                    return

    def close(self) -> None:
        """Ends the thread and writes the remaining deletions. Raises what `put` raises."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self.write_now()
