"""The last messages of the daemon, kept in memory for `.kafkafs/log`.

A line each, whatever was in the message: control characters, and bytes of names that are not UTF-8,
are escaped. The time is ISO 8601, UTC. When there is too much the older half goes at once, as when
a log is rotated: `tail -f` then says that the file was truncated and begins anew.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Final

from kafkafs.storage.errors import printable

from ..handles import Data, Handle

#: Messages and bytes kept at most, and characters of one message.
MAX_LINES: Final = 2000
MAX_BYTES: Final = 256 << 10
MAX_CHARACTERS: Final = 4096


class RecentLog(logging.Handler):
    """Keeps what is logged. Any thread may call."""

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
            # Later than before in any case: by this `tail -f` knows that there is more.
            self._changed_ns = max(time.time_ns(), self._changed_ns + 1)

    @property
    def size(self) -> int:
        """Bytes kept now."""
        return len(self._text)

    @property
    def changed_ns(self) -> int:
        """When the last message came, in ns since 1970; before the first, when this was made."""
        return self._changed_ns

    def read(self, position: int, size: int) -> bytes:
        """What is kept now, from `position` on."""
        with self._keeping:
            return bytes(self._text[position : position + size])


class LogHandle(Handle):
    """`.kafkafs/log`, opened: always what is kept now. Any thread may read."""

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
