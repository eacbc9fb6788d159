"""Tracks which partitions are being cleaned and which ones have their cleaning paused.

This is the LogCleaningState of Kafka's LogCleanerManager. Cleaning, and retention of a compacted
log, claim a partition and skip it if it is already claimed. Truncating, deleting or reconfiguring a
partition pauses its cleaning; a cleaning in progress is aborted first.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import CleaningAborted
from ..format.files.names import TopicPartition


class LogCleaningState:
    """The cleaning state of all partitions. All methods are thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the attributes below
        self._in_progress: set[TopicPartition] = set()
        self._pauses: Counter[TopicPartition] = Counter()
        self._is_stopped = False

    def is_idle(self, key: TopicPartition) -> bool:
        """Returns whether `in_progress` would succeed."""
        with self._changed:
            return self._is_idle(key)

    @contextmanager
    def in_progress(self, key: TopicPartition) -> Iterator[bool]:
        """Claims the partition for the duration of the block; yields whether it succeeded. The
        holder must call `check_aborted` regularly."""
        with self._changed:
            is_mine = self._is_idle(key)
            if is_mine:
                self._in_progress.add(key)
        try:
            yield is_mine
        finally:
            if is_mine:
                with self._changed:
                    self._in_progress.discard(key)
                    self._changed.notify_all()

    def check_aborted(self, key: TopicPartition) -> None:
        """Raises CleaningAborted if the holder must give the partition up."""
        with self._changed:
            if self._is_stopped:
                raise CleaningAborted("the engine is being closed")
            if self._pauses[key]:
                raise CleaningAborted("the partition is being truncated, deleted or reconfigured")

    def wait(self, key: TopicPartition, seconds: float) -> None:
        """Waits `seconds`, or less if `check_aborted` would raise."""
        end = time.monotonic() + seconds
        with self._changed:
            while not (self._is_stopped or self._pauses[key]):
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    @contextmanager
    def abort_and_pause(self, key: TopicPartition) -> Iterator[None]:
        """Keeps the partition unclaimed during the block; first aborts the current holder and waits
        for it."""
        with self._changed:
            self._pauses[key] += 1
            self._changed.notify_all()
        try:
            with self._changed:
                self._changed.wait_for(lambda: key not in self._in_progress)
            yield
        finally:
            with self._changed:
                self._pauses -= Counter((key,))

    def abort(self, key: TopicPartition) -> None:
        """Aborts the partition's holder, if there is one, and waits until it has stopped."""
        with self.abort_and_pause(key):
            pass

    def stop(self) -> None:
        """Aborts all holders and refuses every later claim."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _is_idle(self, key: TopicPartition) -> bool:
        return not (self._is_stopped or key in self._in_progress or self._pauses[key])
