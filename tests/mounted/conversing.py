"""Sends commands to `.kafkafs/control`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

Row = dict[str, Any]


class Conversation:
    """An open handle of a mount's control file."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def write(self, line: str) -> None:
        data = line.encode()
        assert os.write(self.fd, data) == len(data)

    def read(self) -> list[Row]:
        """Returns the answer, read to its end."""
        data = b""
        while True:
            try:
                part = os.read(self.fd, 1 << 16)
            except InterruptedError:
                continue
            if not part:
                return [json.loads(line) for line in data.splitlines()]
            data += part

    def ask(self, line: str) -> list[Row]:
        self.write(line + "\n")
        return self.read()


@contextmanager
def conversation(point: Path) -> Iterator[Conversation]:
    fd = os.open(point / ".kafkafs/control", os.O_RDWR)
    try:
        yield Conversation(fd)
    finally:
        os.close(fd)


def ask(point: Path, line: str) -> list[Row]:
    """Returns the answer to one line."""
    with conversation(point) as handle:
        return handle.ask(line)


def logged(point: Path, text: str) -> str:
    """Waits for a line with `text` in `.kafkafs/log`; returns the first one."""
    path = point / ".kafkafs/log"
    return wait_until(
        lambda: next((line for line in path.read_text().splitlines() if text in line), "")
    )
