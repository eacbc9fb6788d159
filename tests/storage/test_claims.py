"""Taking partitions, pausing them, and giving up what is under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kafkafs.storage.cleaner.claims import LogCleaningState
from kafkafs.storage.errors import CleaningAborted

KEY, OTHER = ("t", 0), ("t", 1)


class Holder:
    """A thread that has `KEY` until it is made to give it back."""

    def __init__(self, claims: LogCleaningState, work: Callable[[], None] = lambda: None) -> None:
        self.error: CleaningAborted | None = None
        self._has_it = threading.Event()
        self._claims, self._work = claims, work
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        assert self._has_it.wait(10)

    def _hold(self) -> None:
        with self._claims.take(KEY) as is_mine:
            assert is_mine
            self._has_it.set()
            try:
                while True:
                    self._claims.wait(KEY, 0.001)
                    self._claims.check(KEY)
            except CleaningAborted as error:
                self.error = error
            self._work()

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_one_at_a_time() -> None:
    claims = LogCleaningState()
    with claims.take(KEY) as first, claims.take(KEY) as second, claims.take(OTHER) as other:
        assert (first, second, other) == (True, False, True)
        assert not claims.is_free(KEY)
        claims.check(KEY)
    assert claims.is_free(KEY)
    with pytest.raises(KeyError), claims.take(KEY):
        raise KeyError
    assert claims.is_free(KEY)


def test_pauses_add_up() -> None:
    claims = LogCleaningState()
    with claims.paused(KEY):
        with claims.paused(KEY):
            assert not claims.is_free(KEY)
        with claims.take(KEY) as is_mine, claims.take(OTHER) as is_other:
            assert (is_mine, is_other) == (False, True)
        claims.check(OTHER)
    assert claims.is_free(KEY)


def test_a_pause_waits_until_who_has_it_has_given_it_back() -> None:
    claims = LogCleaningState()
    done: list[str] = []

    def work() -> None:
        time.sleep(0.05)
        done.append("given back")

    holder = Holder(claims, work)
    with claims.paused(KEY):
        done.append("paused")
        assert not claims.is_free(KEY)
    holder.join()
    assert done == ["given back", "paused"]
    assert "truncated, deleted or reconfigured" in str(holder.error)
    assert claims.is_free(KEY)


def test_aborting_what_nobody_has_and_what_somebody_has() -> None:
    claims = LogCleaningState()
    claims.abort(KEY)
    holder = Holder(claims)
    claims.abort(KEY)
    holder.join()
    assert claims.is_free(KEY)


def test_a_wait_ends_early_when_it_is_to_be_given_back() -> None:
    claims = LogCleaningState()
    start = time.monotonic()
    claims.wait(KEY, 0.02)
    assert time.monotonic() - start >= 0.02
    holder = Holder(claims, lambda: claims.wait(KEY, 60))
    claims.abort(KEY)
    holder.join()
    assert time.monotonic() - start < 10


def test_stopped_nothing_is_given_any_more() -> None:
    claims = LogCleaningState()
    holder = Holder(claims)
    claims.stop()
    holder.join()
    assert "closed" in str(holder.error)
    assert not claims.is_free(OTHER)
    with pytest.raises(CleaningAborted):
        claims.check(OTHER)
