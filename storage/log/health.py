"""Whether a partition still takes changes, and what an error does to that."""

from __future__ import annotations

from collections.abc import Callable

from ..durable import SyncFailed
from ..errors import LogDirOffline, StorageError, printable


class Health:
    """Of one partition: in order until it `failed` or was `closed`, both for ever.

    What a disk does to it:

    - A write fails (no space, EIO): what it wrote is cut off again, and the partition is in order.
    - That cannot be done, or an fsync fails: nobody knows what is on the disk. `failed` is set, and
      everything raises it from then on (Kafka's log directory goes offline).
    """

    def __init__(self, path: str, on_failure: Callable[[LogDirOffline], None]) -> None:
        """`path`: of the partition. `on_failure` is called, with whatever locks the caller has,
        when an error that is noted here sets `failed`."""
        self._path = path
        self._on_failure = on_failure
        self.failed: LogDirOffline | None = None
        self.closed: StorageError | None = None
        self._seal: StorageError | None = None

    def check(self) -> None:
        """Raises what is wrong, as a new exception."""
        error = self.closed or self.failed or self._seal
        if error is not None:
            raise type(error)(*error.args)

    def close(self, error: StorageError) -> None:
        """Nothing is done any more; everything raises `error`."""
        self.closed = error

    def seal(self, error: StorageError | None) -> None:
        """The same until it is given None."""
        self._seal = error

    def fail(self, error: LogDirOffline) -> None:
        """The log directory went offline on account of something else."""
        self.failed = self.failed or error

    def note(self, error: Exception) -> Exception:
        """What to raise for `error`; when that leaves open what is on the disk, all is over."""
        if not isinstance(error, (SyncFailed, LogDirOffline)):
            return error
        failure = offline(self._path, error)
        if self.failed is None:
            self.failed = failure
            self._on_failure(failure)
        return failure

    def note_interruption(self, error: BaseException) -> None:
        """A signal's exception may come between any two steps: what is in memory may not be what is
        on the disk."""
        if not isinstance(error, Exception):
            self.fail(LogDirOffline(self._path, "interrupted while writing"))


def offline(path: str, error: Exception) -> LogDirOffline:
    """What `error` makes of the log directory of the partition at `path`, when it came where there
    is no way back."""
    if isinstance(error, LogDirOffline):
        return error
    return LogDirOffline(path, f"offline since {_told(error)}")


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{printable(str(error.filename))}: {error.strerror}"
    return str(error)
