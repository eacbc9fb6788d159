"""Tests LogCleaningState: claiming partitions, pausing them, and aborting passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kafkafs.storage.cleaner.cleaning_state import LogCleaningState
from kafkafs.storage.errors import CleaningAborted
from tests.waiting import PATIENCE_SECONDS

KEY, OTHER = ("t", 0), ("t", 1)


class Holder:
    """A thread that holds `KEY` until it is made to release it."""

    def __init__(
        self, cleaning_state: LogCleaningState, work: Callable[[], None] = lambda: None
    ) -> None:
        self.error: CleaningAborted | None = None
        self._has_it = threading.Event()
        self._cleaning_state, self._work = cleaning_state, work
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        assert self._has_it.wait(PATIENCE_SECONDS)

    def _hold(self) -> None:
        with self._cleaning_state.in_progress(KEY) as is_mine:
            assert is_mine
            self._has_it.set()
            try:
                while True:
                    self._cleaning_state.wait(KEY, 0.001)
                    self._cleaning_state.check_aborted(KEY)
            except CleaningAborted as error:
                self.error = error
            self._work()

    def join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


def test_one_at_a_time() -> None:
    cleaning_state = LogCleaningState()
    with (
        cleaning_state.in_progress(KEY) as first,
        cleaning_state.in_progress(KEY) as second,
        cleaning_state.in_progress(OTHER) as other,
    ):
        assert (first, second, other) == (True, False, True)
        assert not cleaning_state.is_idle(KEY)
        cleaning_state.check_aborted(KEY)
    assert cleaning_state.is_idle(KEY)
    with pytest.raises(KeyError), cleaning_state.in_progress(KEY):
        raise KeyError
    assert cleaning_state.is_idle(KEY)


def test_pauses_add_up() -> None:
    cleaning_state = LogCleaningState()
    with cleaning_state.abort_and_pause(KEY):
        with cleaning_state.abort_and_pause(KEY):
            assert not cleaning_state.is_idle(KEY)
        with (
            cleaning_state.in_progress(KEY) as is_mine,
            cleaning_state.in_progress(OTHER) as is_other,
        ):
            assert (is_mine, is_other) == (False, True)
        cleaning_state.check_aborted(OTHER)
    assert cleaning_state.is_idle(KEY)


def test_a_pause_waits_until_who_has_it_has_given_it_back() -> None:
    cleaning_state = LogCleaningState()
    done: list[str] = []

    def work() -> None:
        time.sleep(0.05)
        done.append("given back")

    holder = Holder(cleaning_state, work)
    with cleaning_state.abort_and_pause(KEY):
        done.append("paused")
        assert not cleaning_state.is_idle(KEY)
    holder.join()
    assert done == ["given back", "paused"]
    assert "truncated, deleted or reconfigured" in str(holder.error)
    assert cleaning_state.is_idle(KEY)


def test_aborting_what_nobody_has_and_what_somebody_has() -> None:
    cleaning_state = LogCleaningState()
    cleaning_state.abort(KEY)
    holder = Holder(cleaning_state)
    cleaning_state.abort(KEY)
    holder.join()
    assert cleaning_state.is_idle(KEY)


def test_a_wait_lasts_as_long_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaning_state = LogCleaningState()
    now = 100.0
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        nonlocal now
        waits.append(seconds)
        now += 1  # woken up early
        return len(waits) < 3

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(cleaning_state._changed, "wait", wait)
    cleaning_state.wait(KEY, 20)
    assert waits == [20, 19, 18]


def test_a_wait_ends_early_when_it_is_to_be_given_back() -> None:
    cleaning_state = LogCleaningState()
    holder = Holder(cleaning_state, lambda: cleaning_state.wait(KEY, 3600))
    cleaning_state.abort(KEY)
    holder.join()


def test_stopped_nothing_is_given_any_more() -> None:
    cleaning_state = LogCleaningState()
    holder = Holder(cleaning_state)
    cleaning_state.stop()
    holder.join()
    assert "closed" in str(holder.error)
    assert not cleaning_state.is_idle(OTHER)
    with pytest.raises(CleaningAborted):
        cleaning_state.check_aborted(OTHER)
