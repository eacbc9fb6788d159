"""Signals that end the work of the main thread, between its changes and not amid one.

A signal's handler runs between any two steps of the main thread, and what it raises leaves them
half done: a log that it comes upon takes nothing more, since what is in memory may not be what is
on the disk (`Health.note_interruption`). So a program whose handler calls `interrupt` has the
change made first. Of trio comes the idea that some code is protected from Ctrl-C.
"""

from __future__ import annotations

import threading
from types import TracebackType


class _Uninterrupted:
    """For `with`, by any thread, also by one that is in it: what `interrupt` raises waits until the
    main thread has left it."""

    __slots__ = ("_depth", "_is_due")

    def __init__(self) -> None:
        self._depth = 0  # of the main thread, the only one that signals interrupt
        self._is_due = False

    def __enter__(self) -> None:
        if _is_main():
            self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if _is_main():
            self._depth -= 1
            if self._is_due and not self._depth:
                self._is_due = False
                raise KeyboardInterrupt

    def interrupt(self) -> None:
        if self._depth:
            self._is_due = True
        else:
            raise KeyboardInterrupt


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


uninterrupted = _Uninterrupted()


def interrupt() -> None:
    """For the handler of a signal: raises KeyboardInterrupt in the main thread, as soon as that has
    left what is `uninterrupted`."""
    uninterrupted.interrupt()
