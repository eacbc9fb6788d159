"""How the signals that end a process end a verb that writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kafkafs.storage.interruption import interrupt

# Of Ctrl-C, a shutdown or `timeout`, and a terminal that is closed.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CLOSING: Final = b"kafkafs: closing the log directories\n"


@contextmanager
def ending_in_order() -> Iterator[None]:
    """For a block that closes log directories when it is left, in the main thread: the signals that
    end a process leave it with KeyboardInterrupt, after the change that is being made; those that
    come then are told that it is on its way. Behind the block the first one does what it does
    always. One that is ignored stays so: that is what nohup(1) is for."""
    heard: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            interrupt()
        else:
            os.write(2, _CLOSING)  # no print: it may be in the midst of one

    before = {each: signal.getsignal(each) for each in _ENDING}
    usual = (signal.SIG_DFL, signal.default_int_handler)
    mine = [each for each, handler in before.items() if handler in usual]
    for each in mine:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in mine:
            signal.signal(each, before[each])
        if heard:
            os.kill(os.getpid(), heard[0])
