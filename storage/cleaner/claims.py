"""Who may work on a partition just now: one cleaning at a time, and none while it is paused.

The states of Kafka's LogCleanerManager. Cleaning and retention of a compacted log take a partition,
and leave it alone when somebody has it. What cuts, deletes or configures it pauses its cleaning:
one that is under way is given up first.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import CleaningAborted

TopicPartition = tuple[str, int]


class Claims:
    """Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards what follows
        self._taken: set[TopicPartition] = set()
        self._pauses: Counter[TopicPartition] = Counter()
        self._is_stopped = False

    def is_free(self, key: TopicPartition) -> bool:
        """Whether `take` would give it."""
        with self._changed:
            return self._is_free(key)

    @contextmanager
    def take(self, key: TopicPartition) -> Iterator[bool]:
        """Has a partition for the block, if that gets True. Whoever has it calls `check` now and
        then."""
        with self._changed:
            is_mine = self._is_free(key)
            if is_mine:
                self._taken.add(key)
        try:
            yield is_mine
        finally:
            if is_mine:
                with self._changed:
                    self._taken.discard(key)
                    self._changed.notify_all()

    def check(self, key: TopicPartition) -> None:
        """CleaningAborted when the partition is to be given back."""
        with self._changed:
            if self._is_stopped:
                raise CleaningAborted("the engine is being closed")
            if self._pauses[key]:
                raise CleaningAborted("the partition is cut, deleted or configured")

    def wait(self, key: TopicPartition, seconds: float) -> None:
        """Waits so long, or until `check` would raise."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (self._is_stopped or self._pauses[key]):
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    @contextmanager
    def paused(self, key: TopicPartition) -> Iterator[None]:
        """Nobody has the partition during the block; who had it has been made to give it back."""
        with self._changed:
            self._pauses[key] += 1
            self._changed.notify_all()
        try:
            with self._changed:
                self._changed.wait_for(lambda: key not in self._taken)
            yield
        finally:
            with self._changed:
                self._pauses -= Counter((key,))

    def abort(self, key: TopicPartition) -> None:
        """Has the partition given back, if somebody has it, and waits for that."""
        with self.paused(key):
            pass

    def stop(self) -> None:
        """Has everything given back, for good."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _is_free(self, key: TopicPartition) -> bool:
        return not (self._is_stopped or key in self._taken or self._pauses[key])
