"""The model of the crash tests detects violations."""

from __future__ import annotations

import pytest

from tests.crash.model import (
    Contents,
    Deleting,
    Done,
    Durable,
    Event,
    Making,
    Model,
    Refused,
    Retaining,
    Trimming,
    Truncating,
    Try,
    value_of,
)

MADE: list[Event] = [Making("p", False), Making("p", True)]


def appended(name: str, first: int, count: int, txn: str = "") -> list[Event]:
    return [Try("p", name, count, txn=txn), Done("p", name, first)]


def ended(name: str, offset: int, txn: str, commit: bool) -> list[Event]:
    return [Try("p", name, 0, txn=txn, commit=commit), Done("p", name, offset)]


def holding(
    *values: str | None,
    start: int = 0,
    committed: list[int] | None = None,
    size: int = 1000,
    txn: str = "7",
) -> dict[str, Contents]:
    """Returns the contents of a partition `p` with these values from `start` on: None for an end
    marker of transaction `txn`, "" for nothing."""
    end = start + len(values)
    there = {offset: value for offset, value in enumerate(values, start) if value != ""}
    shown = [offset for offset in there if there[offset]] if committed is None else committed
    ends = {offset: txn for offset, value in there.items() if value is None}
    return {"p": Contents(start, end, size, there, ends, shown)}


def a(number: int) -> str:
    return value_of("a", number, 0)


def b(number: int) -> str:
    return value_of("b", number, 0)


def check(events: list[Event], found: dict[str, Contents], power_cut: bool = False) -> Model:
    model = Model(MADE + events)
    model.check(found, power_cut)
    return model


def refuse(
    what: str, events: list[Event], found: dict[str, Contents], power_cut: bool = False
) -> None:
    with pytest.raises(AssertionError, match=what):
        check(events, found, power_cut)


def test_what_was_acknowledged_must_be_there() -> None:
    check(appended("a", 0, 2), holding(a(0), a(1)))
    refuse("ends at 1, not 2", appended("a", 0, 2), holding(a(0)))
    refuse("offset 1: a.0., not a.1.", appended("a", 0, 2), holding(a(0), a(0)))
    refuse("offset 0: None, not a.0.", appended("a", 0, 2), holding(None, a(1)))


def test_what_was_only_tried_may_be_there_whole_and_once() -> None:
    tried: list[Event] = [*appended("a", 0, 1), Try("p", "b", 2)]
    check(tried, holding(a(0)))
    check(tried, holding(a(0), b(0), b(1)))
    refuse("torn", tried, holding(a(0), b(0)))
    refuse("torn", tried, holding(a(0), b(0), a(0)))
    refuse("nobody wrote", tried, holding(a(0), b(0), b(1), b(0), b(1)))
    refuse("nobody wrote", tried, holding(a(0), "c.0."))
    refuse("nothing at offset 1", tried, holding(a(0), ""))
    refuse("an end marker that nobody wrote", tried, holding(a(0), None))


def test_what_was_refused_must_not_be_there() -> None:
    refused: list[Event] = [Try("p", "a", 1), Refused("p", "a")]
    check(refused, holding())
    refuse("nobody wrote", refused, holding(a(0)))


def test_a_power_cut_takes_what_is_not_durable_and_no_more() -> None:
    events: list[Event] = [*appended("a", 0, 1), Durable("p", 1), *appended("b", 1, 1)]
    for left in (holding(a(0)), holding(a(0), b(0))):
        check(events, left, power_cut=True)
    check(events, holding(a(0), ""), power_cut=True).check(holding(a(0), ""))
    refuse("ends at 1, not 2", events, holding(a(0)))
    refuse("nothing at offset 1", events, holding(a(0), ""))
    refuse("nothing at offset 0", events, holding("", b(0)), power_cut=True)
    refuse("ends at 0, not 1", events, holding(), power_cut=True)


def test_a_power_cut_takes_the_end_of_a_segment_before_it_was_acknowledged() -> None:
    events: list[Event] = [*appended("a", 0, 1), Durable("p", 1), Try("p", "b", 1)]
    check(events, holding(a(0), ""), power_cut=True).check(holding(a(0), ""))
    refuse("nothing at offset 1", events, holding(a(0), ""))
    refuse("nothing at offset 1", events[:-1], holding(a(0), ""), power_cut=True)


def test_what_was_found_once_must_stay() -> None:
    model = check([Try("p", "a", 1)], holding(a(0)))
    with pytest.raises(AssertionError, match="ends at 0, not 1"):
        model.check(holding())
    model = check([Try("p", "a", 1)], holding())
    with pytest.raises(AssertionError, match="nobody wrote"):
        model.check(holding(a(0)))


def test_the_start_goes_up_only_as_it_was_asked_to() -> None:
    events = appended("a", 0, 3)
    refuse("starts at 1, not up to 0", events, holding(a(1), a(2), start=1))
    trimming: list[Event] = [*events, Trimming("p", 2)]
    for start in (0, 1, 2):
        check(trimming, holding(*map(a, range(start, 3)), start=start))
    refuse("starts at 3", trimming, holding(start=3))
    retaining: list[Event] = [*events, Retaining(500)]
    check(retaining, holding(a(2), start=2))
    refuse("only 400 bytes left", retaining, holding(a(2), start=2, size=400))
    refuse("starts at 2", [*retaining, Retaining(-1)], holding(a(2), start=2))


def test_partitions_come_and_go_as_they_were_told_to() -> None:
    Model([Making("p", False)]).check({})
    Model([Making("p", False)]).check(holding())
    with pytest.raises(AssertionError, match="was created but is missing"):
        Model(MADE).check({})
    for found in ({}, holding()):
        Model([*MADE, Deleting("p", False)]).check(found)
    with pytest.raises(AssertionError, match="was deleted but is present"):
        Model([*MADE, Deleting("p", False), Deleting("p", True)]).check(holding())
    with pytest.raises(AssertionError, match="never created"):
        Model().check(holding())


def test_readers_of_committed_records_see_just_those() -> None:
    transactions: list[Event] = [
        *appended("a", 0, 1, txn="7"),
        *appended("b", 1, 1),
        *ended("end", 2, "7", commit=False),
    ]
    check(transactions, holding(a(0), b(0), None, committed=[1]))
    refuse(r"offsets \[0\]", transactions, holding(a(0), b(0), None))
    refuse(r"offsets \[1\]", transactions, holding(a(0), b(0), None, committed=[]))
    check(transactions, holding(a(0), b(0), committed=[]), power_cut=True)
    refuse(r"offsets \[1\]", transactions, holding(a(0), b(0), committed=[1]), power_cut=True)
    twice = [*transactions, *ended("again", 3, "7", commit=True)]
    check(twice, holding(a(0), b(0), None, None, committed=[1]))
    committed = [*transactions[:4], Try("p", "end", 0, txn="7", commit=True)]
    check(committed, holding(a(0), b(0), committed=[]))
    check(committed, holding(a(0), b(0), None, committed=[0, 1]))
    assert check(committed, holding(a(0), b(0), committed=[])).partitions[
        "p"
    ].open_transactions() == {"7"}


def test_an_end_marker_is_that_of_its_own_transaction() -> None:
    """When a process of several threads is killed, some may have been about to end one each."""
    ending: list[Event] = [
        *appended("a", 0, 1, txn="7"),
        *appended("b", 1, 1, txn="8"),
        Try("p", "end 7", 0, txn="7", commit=True),
        Try("p", "end 8", 0, txn="8", commit=True),
    ]
    found = check(ending, holding(a(0), b(0), None, committed=[], txn="8"))
    assert found.partitions["p"].open_transactions() == {"7"}
    refuse(r"offsets \[0, 1\]", ending, holding(a(0), b(0), None, committed=[0, 1], txn="8"))
    refuse("nobody wrote", ending, holding(a(0), b(0), None, committed=[], txn="9"))
    acknowledged: list[Event] = [*ending[:3], *ended("end", 2, "8", commit=True)]
    refuse("ends 7, not 8", acknowledged, holding(a(0), b(0), None, committed=[0]))


def test_where_an_open_transaction_began_is_not_known_when_its_records_have_gone() -> None:
    events = [*appended("a", 0, 2, txn="7"), *appended("b", 2, 1), Trimming("p", 1)]
    check(events, holding(a(1), b(0), start=1, committed=[]))
    check([*events, Trimming("p", 2)], holding(b(0), start=2, committed=[]))
    refuse("wrong visibility", events, holding(a(0), a(1), b(0), committed=[2]))


def test_what_was_cut_off_is_gone_unless_the_power_was_cut_too() -> None:
    events: list[Event] = [*appended("a", 0, 1), *appended("b", 1, 1), Durable("p", 2)]
    cutting: list[Event] = [*events, Truncating("p", 1, False)]
    for left in (holding(a(0)), holding(a(0), b(0))):
        check(cutting, left)
        check(cutting, left, power_cut=True)
    refuse("ends at 0, not 1", cutting, holding())
    cut: list[Event] = [*cutting, Truncating("p", 1, True)]
    check(cut, holding(a(0)))
    check(cut, holding(a(0), b(0)), power_cut=True)
    refuse("nobody wrote", cut, holding(a(0), b(0)))
    refuse("ends at 0, not 1", cut, holding(), power_cut=True)
    again = [*cut, Try("p", "c", 1), Done("p", "c", 1), Durable("p", 2)]
    check(again, holding(a(0), "c.0."), power_cut=True)
    refuse("offset 1: b.0., not c.0.", again, holding(a(0), b(0)), power_cut=True)
