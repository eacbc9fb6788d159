"""Items that another thread makes: the same in the same order, and nothing left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator

import pytest

from kafkafs.storage.ahead import one_ahead


def numbers(count: int, made_by: list[str]) -> Generator[int]:
    for number in range(count):
        made_by.append(threading.current_thread().name)
        yield number


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("processors", [1, 2])
def test_the_same_items(count: int, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    made_by: list[str] = []
    assert list(one_ahead(numbers(count, made_by))) == list(range(count))
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

    for item in one_ahead(items()):
        if item == 2:
            assert third_is_made.wait(10)


def test_an_error_comes_where_its_item_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

    def items() -> Generator[int]:
        yield from range(5)
        raise ValueError("the sixth")

    got: list[int] = []
    with pytest.raises(ValueError, match="the sixth"):
        got.extend(one_ahead(items()))
    assert got == list(range(5))


def test_who_has_enough_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    ahead = one_ahead(numbers(100, []))
    assert [next(ahead) for _ in range(4)] == [0, 1, 2, 3]
    ahead.close()
    assert not [each for each in threading.enumerate() if "ahead" in each.name]


def test_neither_does_what_was_made_ahead_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    inner = one_ahead(numbers(100, []))
    ahead = one_ahead(2 * number for number in inner)
    assert [next(ahead) for _ in range(6)] == [0, 2, 4, 6, 8, 10]
    assert len([each for each in threading.enumerate() if "ahead" in each.name]) == 2
    ahead.close()
    inner.close()
    assert not [each for each in threading.enumerate() if "ahead" in each.name]
