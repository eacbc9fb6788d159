"""Tests suggestions of names that resemble a misspelt one."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from kafkafs.storage.wording import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("ordres", ["orders", "orders-eu"]),
        ("ORDERS", ["orders", "orders-eu"]),
        ("orders-0", ["orders", "orders-eu"]),
        ("payment", ["payments"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_nearest(name: str, similar: list[str]) -> None:
    assert nearest(name, ["payments", "orders", "orders-eu", "clicks"]) == similar


def test_messages() -> None:
    assert did_you_mean("zzz", ["orders"]) == ""
    assert did_you_mean("ordres", ["orders"]) == "; did you mean orders?"
    assert did_you_mean("ab", ["abc", "abd", "abe", "xyz"]) == "; did you mean abe, abd or abc?"


def test_of_many_names_few_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    get_close_matches = difflib.get_close_matches

    def counted(word: str, names: Any, count: int) -> list[str]:
        nonlocal compared
        compared += len(names)
        return get_close_matches(word, names, count)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    names = [f"team{number % 97}.events.{number}" for number in range(100_000)]
    assert nearest("prders", [*names, "orders"]) == ["orders"]
    assert nearest("team5.event.48505", names)[0] == "team5.events.48505"
    assert compared <= 2000
    assert nearest("x" * 1_000_000, names) == []
