"""Tests that one thread works for all that wait."""

from __future__ import annotations

import threading
import time
from functools import partial

from kafkafs.storage.concurrency.shared_work import SingleFlight
from tests.threads import in_threads


def test_those_that_wait_are_served_by_one_of_them() -> None:
    turns = SingleFlight()
    done = [0]
    asked = [0]
    worked: list[int] = []
    begun = threading.Barrier(10)

    def work(number: int) -> None:
        begun.wait()
        asked[0] = max(asked[0], number)
        with turns.acquire(lambda: number <= done[0]) as is_mine:
            if is_mine:
                upto = asked[0]
                time.sleep(0.02)
                done[0] = max(done[0], upto)
                worked.append(number)
        assert done[0] >= number

    in_threads(*[partial(work, number) for number in range(1, 11)])
    assert 1 <= len(worked) <= 3


def test_a_turn_that_fails_is_over() -> None:
    turns = SingleFlight()
    for _ in range(2):
        try:
            with turns.acquire() as is_mine:
                assert is_mine
                raise ValueError
        except ValueError:
            continue
    with turns.acquire() as is_mine:
        assert is_mine
