"""Delays a signal's KeyboardInterrupt until the main thread has finished a change in progress.

A signal handler runs between any two bytecodes of the main thread, and an exception raised there
leaves a change half done; a log that is interrupted so accepts no more writes, because its memory
and the disk may differ (`Health.note_interruption`). A program whose handler calls `interrupt`
completes the change first. The idea of protecting code from Ctrl-C comes from trio.

Python swallows an exception that is raised while a finaliser runs (`__del__`, the callback of a
weak reference), and only mentions it on stderr. `delivering` raises such an interrupt again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

# How long after it was swallowed an interrupt is raised again.
_AGAIN_SECONDS: Final = 0.01


class _Uninterrupted:
    """A reentrant context manager for any thread: the exception of `interrupt` is delayed until the
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
    """Raises KeyboardInterrupt in the main thread as soon as that has left `uninterrupted`. To be
    called by a signal handler."""
    uninterrupted.interrupt()


@contextmanager
def delivering() -> Iterator[None]:
    """Makes every `interrupt` arrive in the block, which the main thread must enter: one that is
    swallowed is raised again shortly after. Takes SIGALRM; where that does not exist (Windows), it
    has no effect."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    hook = sys.unraisablehook

    def swallowed(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is KeyboardInterrupt and _is_main():
            # Not raised here, where it would be swallowed as well.
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        else:
            hook(what)

    before = signal.signal(signal.SIGALRM, lambda number, frame: interrupt())
    sys.unraisablehook = swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        signal.signal(signal.SIGALRM, before)
