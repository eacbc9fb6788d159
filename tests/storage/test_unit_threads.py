"""Units of work in threads: their results in order, their progress, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafkafs.storage.concurrency import unit_threads
from kafkafs.storage.concurrency.unit_threads import Advance, run_units

SECONDS = 60


@pytest.fixture(params=[1, 2, 4])
def processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    count: int = request.param
    monkeypatch.setattr(unit_threads, "processors", lambda: count)
    return count


def ignore(done: int, total: int) -> None:
    """Ignores the progress."""


def identity(unit: int) -> int:
    return unit


def test_results_are_in_the_order_of_the_units(processors: int) -> None:
    order: list[int] = []

    def work(unit: int, advance: Advance) -> int:
        order.append(unit)
        advance(unit)
        return -unit

    units = [3, 1, 4, 1, 5, 9, 2, 6]
    assert run_units(units, work, identity, ignore) == [-unit for unit in units]
    assert sorted(order) == sorted(units)
    assert run_units([], work, identity, ignore) == []
    if processors == 2:
        assert order[0] == 9  # the largest begins first


def test_units_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_threads, "processors", lambda: 2)
    both = threading.Barrier(2)

    def work(unit: int, advance: Advance) -> int:
        both.wait(SECONDS)
        return unit

    assert run_units([1, 2], work, identity, ignore) == [1, 2]


def test_progress(processors: int) -> None:
    told: list[tuple[int, int]] = []

    def work(unit: int, advance: Advance) -> None:
        for _ in range(unit):
            advance(1)

    run_units([5, 10, 15], work, identity, lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {30}
    assert told[-1][0] == 30
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def endless(started: threading.Event) -> Callable[[int, Advance], None]:
    """Returns work that goes on until another unit fails; unit 9 fails when one has begun."""

    def work(unit: int, advance: Advance) -> None:
        if unit == 9:
            assert started.wait(SECONDS)
            raise ValueError("unit 9")
        started.set()
        while True:
            advance(1)

    return work


def test_the_first_error_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_threads, "processors", lambda: 2)
    before = threading.active_count()
    with pytest.raises(ValueError, match="unit 9"):
        run_units([1, 2, 3, 9], endless(threading.Event()), identity, ignore)
    assert threading.active_count() == before


def test_an_error_of_the_caller_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_threads, "processors", lambda: 2)
    before = threading.active_count()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_units([1, 2, 3], endless(threading.Event()), identity, stop)
    assert threading.active_count() == before
