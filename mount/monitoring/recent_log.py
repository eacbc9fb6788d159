"""The daemon's recent log messages, kept in memory for `.kafkafs/log`.

Each message is one line: control characters, and bytes of names that are not UTF-8, are escaped.
The time is ISO 8601 in UTC. When the log is full, its older half is discarded at once, as in a log
rotation: `tail -f` then reports that the file was truncated and starts over.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Final

from kafkafs.storage import printable

from ..vfs.handles import Data, Handle

#: The most messages and bytes that are kept, and the most characters of a message.
MAX_LINES: Final = 2000
MAX_BYTES: Final = 256 << 10
MAX_CHARACTERS: Final = 4096


class RecentLog(logging.Handler):
    """Keeps the recent log messages. Any thread may call."""

    def __init__(self) -> None:
        super().__init__()
        self._keeping = threading.Lock()
        self._lines: list[bytes] = []
        self._text = bytearray()
        self._changed_ns = time.time_ns()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = _line(record)
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)
            return
        with self._keeping:
            self._lines.append(line)
            self._text += line
            if len(self._lines) > MAX_LINES or len(self._text) > MAX_BYTES:
                del self._lines[: (len(self._lines) + 1) // 2]
                self._text = bytearray(b"".join(self._lines))
            # Always increase it: `tail -f` detects new messages by the mtime.
            self._changed_ns = max(time.time_ns(), self._changed_ns + 1)

    @property
    def size(self) -> int:
        """The number of bytes that are kept now."""
        return len(self._text)

    @property
    def changed_ns(self) -> int:
        """Time of the last message, or of creation before the first, in ns since 1970."""
        return self._changed_ns

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes of the present text from `position` on."""
        with self._keeping:
            return bytes(self._text[position : position + size])


class LogHandle(Handle):
    """An open `.kafkafs/log`. Reads always return the present text. Any thread may read."""

    direct_io = True

    def __init__(self, recent: RecentLog) -> None:
        self._recent = recent

    def read(self, position: int, size: int) -> Data:
        return self._recent.read(position, size)

    def at_hand(self, position: int, size: int) -> Data | None:
        return self._recent.read(position, size)


_TRACEBACKS: Final = logging.Formatter()


def _line(record: logging.LogRecord) -> bytes:
    when = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    text = record.getMessage()
    if record.exc_info:
        text += f"\n{_TRACEBACKS.formatException(record.exc_info)}"
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS] + "…"
    stamp = when.isoformat(timespec="milliseconds")
    return f"{stamp}Z {record.levelname} {printable(text)}\n".encode()
