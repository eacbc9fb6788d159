"""The state of a partition: whether it accepts changes, and how an error affects that."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import LogDirOffline, StorageError
from ...io.durable import SyncFailed
from ...wording import printable


class Health:
    """The state of one partition: healthy until `failed` or `closed` is set, both permanently.

    Effects of disk errors:

    - A write fails (no space, EIO): its data is truncated, and the partition stays healthy.
    - The truncation or an fsync fails: the state of the disk is unknown. `failed` is set, and
      every later operation raises it (Kafka's log directory goes offline).
    """

    def __init__(self, path: str, on_failure: Callable[[LogDirOffline], None]) -> None:
        """`path`: the partition's. `on_failure` is called, under the caller's locks, when an error
        noted here sets `failed`."""
        self._path = path
        self._on_failure = on_failure
        self.failed: LogDirOffline | None = None
        self.closed: StorageError | None = None
        self._seal: StorageError | None = None

    def check(self) -> None:
        """Raises a new exception if the partition accepts no changes."""
        error = self.closed or self.failed or self._seal
        if error is not None:
            raise type(error)(*error.args)

    def close(self, error: StorageError) -> None:
        """Makes every later operation raise `error`."""
        self.closed = error

    def seal(self, error: StorageError | None) -> None:
        """Makes operations raise `error` until this is called with None."""
        self._seal = error

    def fail(self, error: LogDirOffline) -> None:
        """Marks the log directory as offline for an outside cause."""
        self.failed = self.failed or error

    def note(self, error: Exception) -> Exception:
        """Returns the exception to raise for `error`; sets `failed` if the state of the disk is
        unknown."""
        if not isinstance(error, (SyncFailed, LogDirOffline)):
            return error
        failure = offline(self._path, error)
        if self.failed is None:
            self.failed = failure
            self._on_failure(failure)
        return failure

    def note_interruption(self, error: BaseException) -> None:
        """Fails the partition after a signal's exception: it may come between any two steps, so
        memory and disk may differ."""
        if not isinstance(error, Exception):
            self.fail(LogDirOffline(self._path, "interrupted while writing"))


def offline(path: str, error: Exception) -> LogDirOffline:
    """Returns the LogDirOffline error for the partition at `path` after an unrecoverable
    `error`."""
    if isinstance(error, LogDirOffline):
        return error
    return LogDirOffline(path, f"offline since {_described(error)}")


def _described(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{printable(str(error.filename))}: {error.strerror}"
    return str(error)
