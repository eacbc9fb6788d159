"""Tests lines as records to write: every format, and errors that name the first invalid line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.lines.text_input import Parsed, parse_keyed, parse_values
from tests.columns import records

Pair = tuple[bytes | None, bytes | None]


def pairs(parsed: Parsed) -> list[Pair]:
    assert parsed.error is None
    return [(key, value) for _, key, value, _ in records(parsed.records)]


lines = st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"")), max_size=8)


@given(lines, st.booleans())
def test_values_are_lines_byte_for_byte(values: list[bytes], ended: bool) -> None:
    data = b"".join(value + b"\n" for value in values)
    if not ended and values and values[-1]:
        data = data[:-1]
    assert pairs(parse_values(data)) == [(None, value) for value in values]


@given(lines, st.binary(min_size=1, max_size=3).filter(lambda text: b"\n" not in text))
def test_keys_end_at_the_first_separator(found: list[bytes], separator: bytes) -> None:
    parsed = parse_keyed(b"".join(line + b"\n" for line in found), separator)
    good = []
    for line in found:
        if separator not in line:
            break
        good.append(tuple(line.split(separator, 1)))
    assert [(key, value) for _, key, value, _ in records(parsed.records)] == good
    if len(good) == len(found):
        assert parsed.error is None
    else:
        assert parsed.error is not None
        assert parsed.error.index == len(good)


@pytest.mark.parametrize("separator", [b"", b"\n", b"a\nb"])
def test_what_separates_nothing(separator: bytes) -> None:
    with pytest.raises(ValueError, match="separator"):
        parse_keyed(b"a\n", separator)


@given(st.binary(max_size=60))
def test_any_bytes_are_records(data: bytes) -> None:
    for parsed in (parse_values(data), parse_keyed(data, b":")):
        assert len(parsed.records.timestamps) == len(parsed.records.values.sizes)
        assert np.all(parsed.records.values.sizes >= 0)
