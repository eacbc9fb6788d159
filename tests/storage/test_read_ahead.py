"""Tests read_ahead and parallel_map: items keep their order, and no thread survives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator

import pytest

from kafkafs.storage.concurrency import read_ahead as read_ahead_module
from kafkafs.storage.concurrency.read_ahead import parallel_map, read_ahead
from tests.waiting import PATIENCE_SECONDS


def numbers(count: int, made_by: list[str]) -> Generator[int]:
    for number in range(count):
        made_by.append(threading.current_thread().name)
        yield number


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("processors", [1, 2])
def test_the_same_items(count: int, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    made_by: list[str] = []
    assert list(read_ahead(numbers(count, made_by))) == list(range(count))
    own = threading.current_thread().name
    assert all(name == own for name in made_by[: 2 if processors > 1 else count])
    assert all(name.startswith("kafkafs-ahead") for name in made_by[2:]) or processors == 1
    assert not [each for each in threading.enumerate() if "ahead" in each.name]


def test_the_next_one_is_made_while_one_is_worked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    third_is_made = threading.Event()

    def items() -> Generator[int]:
        yield from range(3)
        third_is_made.set()
        yield 3

    for item in read_ahead(items()):
        if item == 2:
            assert third_is_made.wait(PATIENCE_SECONDS)


def test_an_error_comes_where_its_item_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

    def items() -> Generator[int]:
        yield from range(5)
        raise ValueError("the sixth")

    got: list[int] = []
    with pytest.raises(ValueError, match="the sixth"):
        got.extend(read_ahead(items()))
    assert got == list(range(5))


def test_who_has_enough_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    ahead = read_ahead(numbers(100, []))
    assert [next(ahead) for _ in range(4)] == [0, 1, 2, 3]
    ahead.close()
    assert not [each for each in threading.enumerate() if "ahead" in each.name]


def test_neither_does_what_was_made_ahead_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    inner = read_ahead(numbers(100, []))
    ahead = read_ahead(2 * number for number in inner)
    assert [next(ahead) for _ in range(6)] == [0, 2, 4, 6, 8, 10]
    assert len([each for each in threading.enumerate() if "ahead" in each.name]) == 2
    ahead.close()
    inner.close()
    assert not [each for each in threading.enumerate() if "ahead" in each.name]


def test_no_item_is_handed_over_while_each_processor_has_a_thread_that_iterates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(read_ahead_module, "_BUSY_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(read_ahead_module._CONSUMERS, "_requested", {})
    made_by: list[str] = []
    ahead = read_ahead(numbers(9, made_by))
    found = [next(ahead) for _ in range(4)]
    other = threading.Thread(target=lambda: next(read_ahead(numbers(9, []))))
    other.start()
    other.join()
    found += [next(ahead) for _ in range(3)]  # of these, the first was made ahead
    read_ahead_module._CONSUMERS._requested.clear()
    assert found + list(ahead) == list(range(9))
    own = threading.current_thread().name
    are_own = [name == own for name in made_by]
    assert are_own == 2 * [True] + 3 * [False] + 2 * [True] + 2 * [False]


class TestSideBySide:
    """Tests `parallel_map`, which runs each worker in a thread of its own."""

    @pytest.mark.parametrize("count", range(9))
    @pytest.mark.parametrize(("processors", "workers"), [(1, 2), (2, 1), (2, 2), (2, 3)])
    def test_in_the_order_of_the_items(
        self, count: int, processors: int, workers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each worker also receives its items in that order."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
        had: list[list[int]] = [[] for _ in range(workers)]

        def worker(number: int) -> Callable[[int], str]:
            def work(item: int) -> str:
                time.sleep(0.002 * (item % 3))
                had[number].append(item)
                return str(item)

            return work

        made = parallel_map(numbers(count, []), [worker(number) for number in range(workers)])
        assert list(made) == [str(number) for number in range(count)]
        assert all(items == sorted(items) for items in had)
        assert sorted(item for items in had for item in items) == list(range(count))

    def test_at_the_same_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        both = threading.Barrier(2, timeout=PATIENCE_SECONDS)

        def work(item: int) -> int:
            if item >= 2:
                both.wait()
            return item

        assert list(parallel_map(numbers(8, []), [work, work])) == list(range(8))

    def test_at_the_same_time_from_the_first_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        both = threading.Barrier(2, timeout=PATIENCE_SECONDS)

        def work(item: int) -> int:
            both.wait()
            return item

        assert list(parallel_map(numbers(4, []), [work, work], on_demand=0)) == list(range(4))

    def test_an_error_of_a_worker_comes_in_its_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

        def work(item: int) -> int:
            if item == 5:
                raise ValueError("the sixth")
            return item

        got: list[int] = []
        with pytest.raises(ValueError, match="the sixth"):
            got.extend(parallel_map(numbers(9, []), [work, work]))
        assert got == list(range(5))
        assert not [each for each in threading.enumerate() if "ahead" in each.name]

    def test_no_more_is_held_than_there_are_workers_and_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        taken: list[int] = []
        made = parallel_map(numbers(50, []), [taken.append] * 2)
        for at, _ in enumerate(made):
            time.sleep(0.002)
            assert len(taken) <= at + 3
        assert len(taken) == 50
