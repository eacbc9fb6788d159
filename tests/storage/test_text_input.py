"""Lines as records to write: every form, and the first line that is none."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import InvalidRecord
from kafkafs.storage.format.batch import BatchTable, scan
from kafkafs.storage.format.builder import BatchFields, SimpleRecord, build_batch
from kafkafs.storage.format.columns import Columns
from kafkafs.storage.format.decoder import Decoder
from kafkafs.storage.format.encoder import BatchPlan, RecordColumns, encode
from kafkafs.storage.format.lines import json_lines, values_lines
from kafkafs.storage.format.text_input import Parsed, parse_json, parse_keyed, parse_values

Pair = tuple[bytes | None, bytes | None]


def decoded(data: bytes | memoryview) -> list[Columns]:
    table, _ = scan(data, len(data), 0, BatchTable.empty(64), whole=True)
    parts = list(Decoder(1 << 20).decode(memoryview(data), 0, table, "file"))
    assert all(isinstance(part, Columns) for part in parts)
    return [part for part in parts if isinstance(part, Columns)]


def records(columns: RecordColumns) -> list[tuple[int, bytes | None, bytes | None, object]]:
    """The records, by way of the bytes that they are written as."""
    if not len(columns):
        return []
    return [
        (record.timestamp, record.key, record.value, record.headers)
        for part in decoded(encode(columns, BatchPlan()).data)
        for record in map(part.record, range(len(part)))
    ]


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


optional = st.none() | st.binary(max_size=8)
headers = st.lists(st.tuples(st.binary(max_size=4), optional), max_size=3)
simple = st.builds(SimpleRecord, st.integers(0, 2**40), optional, optional, headers)


@given(st.lists(simple, min_size=1, max_size=5))
def test_json_lines_of_a_log_are_the_records_again(given_records: list[SimpleRecord]) -> None:
    [columns] = decoded(build_batch(given_records, BatchFields()))
    parsed = parse_json(bytes(json_lines(columns, "orders", 0)))
    assert parsed.error is None
    [again] = decoded(encode(parsed.records, BatchPlan()).data)
    assert bytes(json_lines(again, "orders", 0)) == bytes(json_lines(columns, "orders", 0))
    assert bytes(values_lines(again, "", 0)) == bytes(values_lines(columns, "", 0))


def test_what_json_may_leave_out() -> None:
    parsed = parse_json(b'{"value":null}\n{"value":"v","key":null,"timestamp":null,"headers":null}')
    assert pairs(parsed) == [(None, None), (None, b"v")]
    assert parsed.records.timestamps.tolist() == [-1, -1]
    assert parsed.records.stamped(7).timestamps.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"value": "a"', "no JSON: "),
        ('{"vale": "a"}', '"vale" is not a field'),
        ('{"key": "a"}', "no value, not even null"),
        ('{"value": 1}', "value: 1 is neither a string"),
        ('{"value": {"base64": "!"}}', "is not base64"),
        ('{"value": {"base64": "aa=="}, "key": ["x"]}', "key: .* is neither"),
        ('{"value": "\\ud800"}', "lone surrogate"),
        ('{"value": "a", "timestamp": 1.5}', "timestamp: 1.5 is not milliseconds"),
        ('{"value": "a", "timestamp": true}', "timestamp: true"),
        ('{"value": "a", "timestamp": 9223372036854775808}', "timestamp"),
        ('{"value": "a", "timestamp": -2}', "timestamp"),
        ('{"value": "a", "headers": {}}', "headers: {} is not a list"),
        ('{"value": "a", "headers": [{"key": "a"}]}', "headers"),
        ('{"value": "a", "headers": [{"key": null, "value": null}]}', "a key is null"),
        ('{"value": "a", "isControl": true}', "control record"),
        ("[" * 100_000, "no JSON"),
        ("9" * 10_000, "no JSON"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_what_is_before_it_kept(line: str, why: str) -> None:
    parsed = parse_json(f'{{"value":"good"}}\n{line}\n{{"value":"never"}}\n'.encode())
    assert isinstance(parsed.error, InvalidRecord)
    assert parsed.error.index == 1
    with pytest.raises(InvalidRecord, match=why):
        raise parsed.error
    assert str(parsed.error).isprintable()
    assert [record[2] for record in records(parsed.records)] == [b"good"]


@given(st.binary(max_size=60) | st.text(max_size=20).map(lambda text: json.dumps(text).encode()))
def test_any_bytes_are_records_or_refused(data: bytes) -> None:
    parsed = parse_json(data)
    assert len(parsed.records) + (parsed.error is not None) <= data.count(b"\n") + 1
    for others in (parse_values(data), parse_keyed(data, b":")):
        assert len(others.records.timestamps) == len(others.records.values.sizes)
        assert np.all(others.records.values.sizes >= 0)
