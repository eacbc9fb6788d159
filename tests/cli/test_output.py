"""Tests of lines, columns, times and sizes as verbs print them."""

from __future__ import annotations

import pytest

from kafkafs.cli.support import listing, output


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-1, "-"),
        (0, "1970-01-01T00:00:00.000Z"),
        (1526384718288, "2018-05-15T11:45:18.288Z"),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times(milliseconds: int, text: str) -> None:
    assert output.time_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.0K"),
        (10188, "9.9K"),
        (10189, "10K"),
        (1047552, "1023K"),
        (1048064, "1.0M"),
        (5 * 1024**3, "5.0G"),
        (2**63 - 1, "8.0E"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert output.size_text(size, human=True) == text
    assert output.size_text(size) == str(size)


def test_columns_are_aligned() -> None:
    rows = [("a", "1", "x"), ("bbb", "22", "")]
    assert list(output.aligned(rows, right=(1,))) == ["a     1  x", "bbb  22"]


def test_json_is_one_line_of_utf_8_whatever_the_names() -> None:
    assert output.json_line({"a": "ü\n\udcff"}) == '{"a":"ü\\n\\udcff"}\n'.encode()


def test_names_go_out_with_the_bytes_that_they_have() -> None:
    assert output.line("a\udcff") == b"a\xff\n"


def test_names_stand_in_columns_as_wide_as_the_terminal() -> None:
    names = ["a", "bb", "ccc", "dddd", "e"]
    assert list(listing._in_columns(names, 100)) == ["a  bb  ccc  dddd  e"]
    assert list(listing._in_columns(names, 12)) == ["a   ccc   e", "bb  dddd"]
    assert list(listing._in_columns(names, 3)) == names
