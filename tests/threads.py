"""Runs functions in threads of their own, and raises what they raise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from tests.waiting import wait_until


@contextmanager
def running(*works: Callable[[], object]) -> Iterator[None]:
    """Runs each function in a thread of its own, and waits for all of them at the end of the block.
    Raises the first failure."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
        yield
    for future in futures:
        future.result()


def in_threads(*works: Callable[[], object]) -> None:
    """Runs each function in a thread of its own, and waits for all. Raises the first failure."""
    with running(*works):
        pass


@contextmanager
def repeating(*works: Callable[[], object]) -> Iterator[None]:
    """Calls each function again and again during the block, in a thread of its own. Raises the
    first failure."""
    is_over = threading.Event()

    def until_over(work: Callable[[], object]) -> None:
        while not is_over.is_set():
            work()

    with running(*[partial(until_over, work) for work in works]):
        try:
            yield
        finally:
            is_over.set()


def interrupt_main(is_due: Callable[[], object], interrupted: threading.Event) -> None:
    """Sends SIGUSR1 to the main thread once `is_due`, and again until its handler has set
    `interrupted`: one that arrives just before the thread waits for a lock does not end the wait.
    """
    main = threading.main_thread().ident
    assert main is not None

    def send() -> bool:
        signal.pthread_kill(main, signal.SIGUSR1)
        return interrupted.is_set()

    wait_until(is_due)
    wait_until(send)
