"""The log of recent messages, in which no text can look like two messages."""

from __future__ import annotations

import logging
import re

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.mount.monitoring.recent_log import (
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_LINES,
    LogHandle,
    RecentLog,
)

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) (.*)")


def record(message: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("kafkafs", level, __file__, 1, message, None, None)


def lines(recent: RecentLog) -> list[str]:
    text = recent.read(0, 1 << 30).decode()
    assert recent.size == len(text.encode())
    assert text == "" or text.endswith("\n")
    return text.splitlines()


@given(st.lists(st.text(st.characters(codec=None)), max_size=5))
def test_each_message_is_one_line_whatever_is_in_it(messages: list[str]) -> None:
    recent = RecentLog()
    for message in messages:
        recent.handle(record(message, logging.WARNING))
    found = lines(recent)
    assert len(found) == len(messages)
    for line in found:
        match = LINE.fullmatch(line)
        assert match is not None
        assert match[1] == "WARNING"
        assert line.isprintable()


def test_a_name_cannot_look_like_a_message() -> None:
    recent = RecentLog()
    recent.handle(record("no topic a\n2030-01-01T00:00:00.000Z ERROR all is lost\x1b[2J\udcff"))
    (line,) = lines(recent)
    assert line.endswith(r" INFO no topic a\n2030-01-01T00:00:00.000Z ERROR all is lost\x1b[2J\xff")


def test_a_fault_comes_with_its_traceback_on_the_line() -> None:
    recent = RecentLog()
    try:
        raise ValueError("not this one")
    except ValueError as error:
        told = record("it failed", logging.ERROR)
        told.exc_info = (ValueError, error, error.__traceback__)
        recent.handle(told)
    (line,) = lines(recent)
    assert r" ERROR it failed\nTraceback (most recent call last):\n" in line
    assert line.endswith(r"\nValueError: not this one")


def test_what_is_kept_is_bounded_and_the_last() -> None:
    recent = RecentLog()
    for number in range(3 * MAX_LINES):
        recent.handle(record(f"number {number}"))
        assert len(lines(recent)) <= MAX_LINES
    assert lines(recent)[-1].endswith(f"number {3 * MAX_LINES - 1}")
    assert len(lines(recent)) >= MAX_LINES // 2
    for _ in range(500):
        recent.handle(record("x" * 100_000))
        assert recent.size <= MAX_BYTES
    assert all(len(line) < MAX_CHARACTERS + 100 for line in lines(recent))


def test_an_open_handle_sees_what_comes() -> None:
    recent = RecentLog()
    handle = LogHandle(recent)
    assert handle.read(0, 100) == b""
    recent.handle(record("one"))
    first = bytes(handle.read(0, 100))
    before = recent.changed_ns
    recent.handle(record("two"))
    assert recent.changed_ns > before
    assert bytes(handle.read(len(first), 100)).endswith(b" INFO two\n")
