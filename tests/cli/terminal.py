"""Runs a program on a pseudo-terminal: tests read what a user would see, and type."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from tests.waiting import PATIENCE_SECONDS

_CONTROL = re.compile(rb"\x1b\[[0-9;?>=]*[a-zA-Z]|\x1b[()=>][0-9AB]?|\x1b\][^\x07]*\x07|\x07")


class Terminal:
    """A terminal: `with Terminal([...]) as t: t.type("ls\\n"); t.wait_for("README")`."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], columns: int = 200
    ) -> None:
        self.seen = ""
        self.raw = b""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # Before the program starts: on a change of the size, nano drops a key.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            os.execvpe(arguments[0], list(arguments), dict(environment))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Waits until `text` appears in the new output; returns all output so far."""
        already = len(self.seen)
        self._read_until(lambda: text in self.seen[already:], f"new {text!r}", seconds)
        return self.seen

    def wait_for_last(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until the output ends with `text`, such as a prompt that may have come together
        with the output before it."""
        self._read_until(lambda: self.seen.rstrip().endswith(text), f"{text!r} at the end", seconds)

    def _read_until(self, is_there: Callable[[], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_there():
            if not self._read(what, deadline):
                raise AssertionError(f"no {what}; the output: {self.seen!r}")

    def exit_code(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Reads to end of file, waits for the program, and returns its exit code."""
        deadline = time.monotonic() + seconds
        while self._read("end of file", deadline):
            pass
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _read(self, what: str, deadline: float) -> bool:
        """Reads what there is, and returns whether that is anything but end of file."""
        waiting = select.poll()  # select() is limited to descriptors below 1,024
        waiting.register(self._fd, select.POLLIN)
        left = max(deadline - time.monotonic(), 0)
        assert waiting.poll(left * 1000), f"no {what}; the output: {self.seen!r}"
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.raw += data
        self.seen = _CONTROL.sub(b"", self.raw).decode(errors="replace").replace("\r", "")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)
