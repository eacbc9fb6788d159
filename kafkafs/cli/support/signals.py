"""Signal handling that lets verbs that write close their log directories cleanly."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kafkafs.storage.concurrency.interruption import interrupt

# Sent by Ctrl-C, by a shutdown or `timeout`, and by a closed terminal.
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CLOSING: Final = b"kafkafs: closing the log directories\n"


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Makes terminating signals raise KeyboardInterrupt in the block, in the main thread, after the
    current change is complete, so that the block can close its log directories. Later signals only
    print a message. After the block, the first signal takes its normal effect. Signals that are
    ignored stay ignored, as nohup(1) requires."""
    heard: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            interrupt()
        else:
            os.write(2, _CLOSING)  # not print(), which the signal may have interrupted

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
