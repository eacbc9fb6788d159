"""A progress bar on the last line of a terminal that never mixes with other output.

While a bar is visible, anything that Python code writes to stdout or stderr clears it first. The
next progress report draws it again if the cursor is at the beginning of a line.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, TextIO

from kafkafs.storage import printable

#: Reports the work done and the total (0 if unknown); any thread may call it.
Report = Callable[[int, int], None]

_CLEAR: Final = "\r\x1b[K"
_WIDTH: Final = 40  # columns of the bar itself
_INTERVAL: Final = 0.1  # seconds between two drawings of a bar


class _Screen:
    """The state of the terminal: at most one bar, on the line of the cursor."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._has_bar = False
        self._is_line_begun = False

    def draw(self, bar: str) -> None:
        """Draws the bar, replacing the previous one, unless other output has begun the line."""
        with self._lock:
            if self._is_line_begun:
                return
            if _is_guarded(sys.stdout):
                sys.stdout.flush()  # otherwise it would appear after the bar
            self._put(f"{_CLEAR}{bar}")
            self._has_bar = True

    def clear(self) -> None:
        with self._lock:
            if self._has_bar:
                self._put(_CLEAR)
                self._has_bar = False

    def write(self, stream: BinaryIO, data: Any) -> int:
        """Writes other output, clearing the bar."""
        with self._lock:
            had_bar = self._has_bar
            self.clear()
            written = stream.write(data)
            if had_bar:
                stream.flush()  # otherwise it would appear after the next bar
            if written:
                self._is_line_begun = memoryview(data).cast("B")[written - 1] != ord("\n")
            return written

    def _put(self, text: str) -> None:
        stream = sys.stderr.buffer
        terminal = stream.stream if isinstance(stream, _Guarded) else stream
        terminal.write(text.encode(errors="backslashreplace"))
        terminal.flush()


_screen: Final = _Screen()


class _Guarded(io.BufferedIOBase):
    """A standard stream on a terminal whose output clears the bar."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    @property
    def name(self) -> str:
        return str(self.stream.name)

    def write(self, data: Any, /) -> int:
        return _screen.write(self.stream, data)

    def flush(self) -> None:
        self.stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()


def guard_output() -> None:
    """Makes stdout and stderr clear the bar from now on, if bars can be shown at all."""
    if not _can_show():
        return
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or not stream.isatty() or _is_guarded(stream):
            continue
        stream.flush()
        guarded = io.TextIOWrapper(
            _Guarded(stream.buffer),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, guarded)


def _is_guarded(stream: TextIO | None) -> bool:
    return isinstance(getattr(stream, "buffer", None), _Guarded)


def _can_show() -> bool:
    """Returns whether stderr is a terminal that can clear a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def bar(what: str) -> Iterator[Report]:
    """Shows a bar on stderr during the block, if that is a terminal."""
    if not _can_show():
        yield lambda done, total: None
        return
    guard_output()
    drawn_at = 0.0

    def report(done: int, total: int) -> None:
        nonlocal drawn_at
        now = time.monotonic()
        if now - drawn_at >= _INTERVAL:
            drawn_at = now
            _screen.draw(_line(what, done, total))

    _screen.draw(_line(what, 0, 0))
    try:
        yield report
    finally:
        _screen.clear()


def _line(what: str, done: int, total: int) -> str:
    """Returns the bar as text that fits the terminal."""
    if total <= 0:
        text = f"{printable(what)} ..."
    else:
        part = min(done / total, 1)
        text = f"{printable(what)} [{'#' * int(part * _WIDTH):{_WIDTH}}] {part:4.0%}"
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        columns = 0
    return text[: (columns or 80) - 1]
