"""Tests signals that interrupt the main thread, and changes that must not stop half-way."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.concurrency.interruption import delivering, interrupt, uninterrupted
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_manager import LogManager
from tests.faults import FailingCalls
from tests.reading import open_view, read
from tests.waiting import PATIENCE_SECONDS
from tests.writing import NOW, batch, config, open_log

T = TypeVar("T")

SIZE = len(batch())


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: interrupt())
    yield
    signal.signal(signal.SIGUSR1, before)


def send() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_a_signal_interrupts_at_once() -> None:
    done: list[str] = []

    def work() -> None:
        send()
        done.append("behind it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == []


class SignalsWhenFinalised:
    def __del__(self) -> None:
        send()


def test_a_signal_that_a_finaliser_swallows_interrupts_after_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def work() -> None:
        SignalsWhenFinalised()
        threading.Event().wait(PATIENCE_SECONDS)

    with delivering(), pytest.raises(KeyboardInterrupt):
        work()
    assert capfd.readouterr().err == ""
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_what_else_a_finaliser_raises_is_mentioned_as_usual() -> None:
    class Fails:
        def __del__(self) -> None:
            raise ValueError("from a finaliser")

    mentioned: list[object] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda what: mentioned.append(what.exc_type)
    try:
        with delivering():
            Fails()
    finally:
        sys.unraisablehook = hook
    assert mentioned == [ValueError]


def test_a_change_is_made_first() -> None:
    done: list[str] = []

    def work() -> None:
        with uninterrupted:
            with uninterrupted:
                send()
                done.append("in it")
            done.append("around it")
        done.append("behind it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["in it", "around it"]
    with uninterrupted:  # once
        pass


def test_an_error_of_the_change_is_not_lost() -> None:
    def work() -> None:
        with uninterrupted:
            send()
            raise OSError

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, OSError)


def test_what_others_change_holds_up_nothing() -> None:
    changing, done = threading.Event(), threading.Event()

    def change() -> None:
        with uninterrupted:
            changing.set()
            done.wait(PATIENCE_SECONDS)

    other = threading.Thread(target=change)
    other.start()
    assert changing.wait(PATIENCE_SECONDS)
    with pytest.raises(KeyboardInterrupt):
        send()
    assert other.is_alive()
    done.set()
    other.join()


class SignallingCalls(FailingCalls):
    """Sends a signal at call number `at`."""

    def __init__(self, at: int) -> None:
        super().__init__(at, 0)

    def _call(self, kind: str, about: str, call: Callable[[], T]) -> T:
        self.made.append(kind)
        if len(self.made) == self.at + 1:
            send()
        return call()

    def fsync(self, fd: int) -> None:
        self._call("fsync", "", lambda: None)


def test_directories_are_closed_wherever_a_signal_comes(tmp_path: Path) -> None:
    interrupted = 0
    for at in itertools.count():
        engine = LogManager(str(tmp_path / str(at)))
        engine.create_topic("t", 2)
        append(engine.writer("t", 0))
        calls = SignallingCalls(at)
        try:
            with replaced(calls), engine:
                pass
        except KeyboardInterrupt:
            interrupted += 1
        assert (tmp_path / str(at) / ".kafka_cleanshutdown").exists()
        if len(calls.made) <= at:
            break
    assert interrupted == at > 10


def append(writer: LogWriter, durable: bool = False) -> None:
    writer.append(batch(value=b"%050d" % writer.end_offset), durable=durable)


def changes(writer: LogWriter) -> Iterator[Callable[[], object]]:
    """Yields changes of all kinds, with rolls among them."""
    for number in range(7):
        yield partial(append, writer, durable=number % 3 == 0)
    yield writer.flush
    yield lambda: writer.delete_records(3)
    yield writer.retain
    yield lambda: writer.undelete(1)
    yield lambda: writer.delete_records(2)
    yield writer.delete_below_start
    yield lambda: writer.truncate_to(6)
    yield lambda: writer.remove_deleted(NOW + 60_000)
    yield writer.roll
    yield lambda: append(writer, durable=True)


def test_a_log_is_in_order_wherever_a_signal_comes(tmp_path: Path) -> None:
    settings = config(segment_bytes=2 * SIZE, index_interval_bytes=0, file_delete_delay_ms=60_000)
    interrupted = 0
    for at in itertools.count():
        path = tmp_path / str(at)
        writer = open_log(path, settings, SetClock(NOW))
        calls = SignallingCalls(at)
        with replaced(calls):
            for change in changes(writer):
                try:
                    change()
                except KeyboardInterrupt:
                    interrupted += 1
        assert writer.failed is None
        append(writer)
        start, end = writer.start_offset, writer.end_offset
        writer.close()
        points = {"recovery_point": writer.recovery_point, "start_offset": start}
        again = open_log(path, settings, SetClock(NOW), **points, is_clean=True)
        assert (again.start_offset, again.end_offset) == (start, end)
        found = [(record.offset, record.value) for record in read(open_view(path), start)]
        assert found == [(offset, b"%050d" % offset + bytes(100)) for offset in range(start, end)]
        if len(calls.made) <= at:
            break
    assert interrupted == at > 60
