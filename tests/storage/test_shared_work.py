"""Tests that one thread works for all that wait."""

from __future__ import annotations

from functools import partial

from kafkafs.storage.concurrency.shared_work import SingleFlight
from tests.threads import in_threads
from tests.waiting import wait_until


def test_those_that_wait_are_served_by_one_of_them() -> None:
    turns = SingleFlight()
    asked: set[int] = set()
    done: set[int] = set()
    worked: list[int] = []

    def work(number: int) -> None:
        asked.add(number)
        with turns.acquire(lambda: number in done) as is_mine:
            if is_mine:
                wait_until(lambda: len(asked) == 10)
                done.update(asked)
                worked.append(number)
        assert number in done

    in_threads(*[partial(work, number) for number in range(1, 11)])
    assert len(worked) == 1


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
