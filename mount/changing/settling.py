"""Deletions put on the disk together, soon after they were made.

Where a log begins changes in memory as each name is removed; checkpoints are written and segments
renamed by one thread, once for all that came meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from kafkafs.storage.errors import StorageError, printable
from kafkafs.storage.log_dir import TopicPartition

logger = logging.getLogger(__name__)

#: How long others are waited for; how long until what failed is tried again.
SOON_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = 1.0

Keys = AbstractSet[TopicPartition]


class Settling:
    """What is to be put on the disk. Any thread may call; its own is there while it is needed."""

    def __init__(self, put: Callable[[Keys], Keys]) -> None:
        """`put` does it for some partitions, and gives those for which it has to be done again
        later; StorageError or OSError when it could not be done."""
        self._put = put
        self._one = threading.Lock()  # held while it is done
        self._lock = threading.Lock()  # guards what follows
        self._due: set[TopicPartition] = set()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        #: Why the last attempt did not come to its end; "" while all is well.
        self.problem = ""

    def soon(self, key: TopicPartition) -> None:
        """Something was deleted in a partition."""
        with self._lock:
            self._due.add(key)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kafkafs-deletions", daemon=True
                )
                self._thread.start()

    def now(self, keys: Keys | None = None) -> None:
        """What was deleted in these partitions (None: in all) is on the disk when this returns.
        What `put` raises; it is tried again."""
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
            logger.warning("what was deleted is not on the disk yet: %s", problem)
        self.problem = problem

    def _run(self) -> None:
        """Until nothing is due."""
        wait = SOON_SECONDS
        while not self._closing.wait(wait):
            wait = SOON_SECONDS
            try:
                self.now()
            except (StorageError, OSError):  # noted
                wait = AGAIN_SECONDS
            with self._lock:
                if not self._due:
                    self._thread = None
                    return

    def close(self) -> None:
        """Puts on the disk what is due, and ends the thread. What `put` raises."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self.now()
