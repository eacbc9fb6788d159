"""Tests group commit: one thread appends for many."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import pytest

from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log.append import group_commit
from kafkafs.storage.log.append.appending import AppendRequest, LogAppendInfo
from kafkafs.storage.log.append.group_commit import GroupCommit
from kafkafs.storage.log.append.merging import RecordsRequest
from tests.threads import in_threads, interrupt_main, running
from tests.waiting import PATIENCE_SECONDS, wait_until


def request(number: int = 0) -> AppendRequest:
    """Returns a request to append one record."""
    return RecordsRequest(RecordColumns.from_values([b"%d" % number]), BatchPlan())


class Log:
    """Answers with offsets, and records the groups. After `hold`, the next group waits."""

    def __init__(self) -> None:
        self.groups: list[list[AppendRequest]] = []
        self.is_in = threading.Event()
        self.may_go = threading.Event()
        self.may_go.set()
        self._busy = threading.Lock()

    def append(self, requests: Sequence[AppendRequest]) -> None:
        assert self._busy.acquire(blocking=False), "two groups ran at the same time"
        self.groups.append(list(requests))
        self.is_in.set()
        assert self.may_go.wait(PATIENCE_SECONDS)
        for number, each in enumerate(requests):
            each.answer(LogAppendInfo(number, number))
        self._busy.release()

    def hold(self) -> None:
        self.is_in.clear()
        self.may_go.clear()


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def waiting(group: GroupCommit) -> int:
    return len(group._waiting)


def are_waiting(group: GroupCommit, count: int) -> bool:
    return waiting(group) == count


def test_one_thread_is_a_group_by_itself() -> None:
    log = Log()
    group = GroupCommit(log.append, waits=True)
    for _ in range(3):
        assert group.submit(request()) == LogAppendInfo(0, 0)
    assert list(map(len, log.groups)) == [1, 1, 1]


def test_those_that_wait_are_made_together_in_their_order() -> None:
    log = Log()
    group = GroupCommit(log.append, waits=False)
    log.hold()
    threads = [started(lambda: group.submit(request()))]
    assert log.is_in.wait(PATIENCE_SECONDS)
    asked = [request(number) for number in range(5)]
    for number, each in enumerate(asked):
        threads.append(started(partial(group.submit, each)))
        wait_until(partial(are_waiting, group, number + 1))
    log.may_go.set()
    for thread in threads:
        thread.join()
    assert log.groups[1:] == [asked]
    assert [each.result() for each in asked] == [LogAppendInfo(n, n) for n in range(5)]


def test_one_that_leads_waits_for_as_many_as_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group may be smaller; all later ones have a request of every thread. Each group
    takes a minute on the clock of this test, and so long a leader waits."""

    def append(requests: Sequence[AppendRequest]) -> None:
        if not sizes:
            wait_until(lambda: waiting(group) == 4 - len(requests))
        for each in requests:
            each.answer(LogAppendInfo(len(sizes), len(sizes)))
        sizes.append(len(requests))

    sizes: list[int] = []
    group = GroupCommit(append, waits=True)

    def work() -> None:
        is_ahead = group.submit(request()).first_offset == 0
        for _ in range(39 + is_ahead):
            group.submit(request())

    monkeypatch.setattr(group_commit, "perf_counter", count(0, PATIENCE_SECONDS).__next__)
    monkeypatch.setattr(group_commit, "_LONGEST_WAIT", PATIENCE_SECONDS)
    in_threads(*[work] * 4)
    assert sizes[1:] == [4] * 40


def test_one_that_leads_waits_in_vain_only_once() -> None:
    log = Log()
    group = GroupCommit(log.append, waits=True)
    log.hold()
    with running(*[lambda: group.submit(request())] * 4):
        wait_until(lambda: waiting(group) == 3)
        log.may_go.set()
    group.submit(request())
    assert group._expected == 1
    group.submit(request())
    assert list(map(len, log.groups)) == [1, 3, 1, 1]


def test_an_error_is_everyones_and_the_next_goes_on() -> None:
    log = Log()
    is_broken = True

    def append(requests: Sequence[AppendRequest]) -> None:
        log.append(requests)
        if is_broken:
            for each in requests:
                each.appended = None
            raise ArithmeticError

    group = GroupCommit(append, waits=True)
    log.hold()

    def work() -> None:
        with pytest.raises(ArithmeticError):
            group.submit(request())

    with running(*[work] * 4):
        wait_until(lambda: waiting(group) == 3)
        log.may_go.set()
    is_broken = False
    assert group.submit(request()) == LogAppendInfo(0, 0)


class Interrupted(BaseException):
    """Raised by a signal handler."""


def test_a_signal_while_waiting_is_no_ones_but_the_waiters() -> None:
    """Handlers run in the main thread, which here waits for a blocked append."""
    log = Log()
    group = GroupCommit(log.append, waits=True)
    log.hold()
    other = started(lambda: group.submit(request()))
    assert log.is_in.wait(PATIENCE_SECONDS)

    interrupted = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise Interrupted

    old = signal.signal(signal.SIGUSR1, interrupt)
    sender = started(lambda: interrupt_main(lambda: waiting(group) == 1, interrupted))
    try:
        with pytest.raises(Interrupted):
            group.submit(request())
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, old)
    log.may_go.set()
    other.join()
    assert group.submit(request()) == LogAppendInfo(0, 0)
    assert list(map(len, log.groups)) == [1, 1]
