"""Tests the fair lock: threads that use a partition without pause do not starve others."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.concurrency.fair_lock import FairLock
from tests.reading import open_log as open_to_read
from tests.threads import interrupt_main, repeating
from tests.waiting import wait_until
from tests.writing import batch, config, open_log


def test_one_at_a_time() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            time.sleep(0)
            inside -= 1

    with repeating(*[work] * 8):
        for _ in range(500):
            work()
    assert (inside, most) == (0, 1)
    with lock:
        assert lock._lock.locked()
    assert not lock._lock.locked()
    assert not lock._waiting


def test_in_the_order_in_which_they_came() -> None:
    lock = FairLock()
    order: list[int] = []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(10)]
    with lock:
        for number, thread in enumerate(threads):
            thread.start()
            while len(lock._waiting) <= number:
                time.sleep(0.001)
    take(10)  # a newcomer queues behind all waiters, however quick it is
    for thread in threads:
        thread.join()
    assert order == list(range(11))


def test_who_is_interrupted_while_waiting_is_in_nobodys_way() -> None:
    class Interrupted(Exception):
        pass

    interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise Interrupted

    lock = FairLock()
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=interrupt_main, args=(lambda: lock._waiting, interrupted))
    sender.start()
    try:
        with pytest.raises(Interrupted), lock:
            pass
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    done.set()
    holder.join()
    with lock:
        pass
    assert not lock._lock.locked()


class Counted:
    """Counts the calls of a function."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.count = 0
        self._work = work

    def __call__(self) -> None:
        self._work()
        self.count += 1


def passed_by(others: Counted, call: Callable[[], object]) -> int:
    """Returns how often others worked during a call: the most of three hundred."""
    wait_until(lambda: others.count)
    most = 0
    for _ in range(300):
        before = others.count
        call()
        most = max(most, others.count - before)
        time.sleep(0.0005)
    return most


#: More than the threads that may be before it. With Python's own lock it is about a thousand for
#: readers, and eighty for appends.
FEW = 30


def test_a_reader_that_never_pauses_does_not_keep_others_from_looking(tmp_path: Path) -> None:
    open_log(tmp_path / "t-0").append(batch())
    log = open_to_read(tmp_path / "t-0")
    others = Counted(log.view)
    with repeating(*[others] * 3):
        assert passed_by(others, log.view) < FEW


def test_a_thread_that_never_stops_appending_does_not_keep_others_from_changing(
    tmp_path: Path,
) -> None:
    writer = open_log(tmp_path / "t-0", config(segment_bytes=1 << 20))
    data = batch()
    others = Counted(lambda: writer.append(data))
    with repeating(others):
        assert passed_by(others, lambda: writer.delete_records(0)) < FEW
