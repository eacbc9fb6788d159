"""Tests records as lines: keys and values byte for byte, and lossless JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import TimestampType
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.lines.json_output import json_lines, keys_lines, values_lines
from tests.batches import any_batches, simple_records
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.reading import plain


def columns_of(data: bytes) -> Columns:
    table, _ = scan(data, len(data), 0, BatchTable.empty(9), whole=True)
    [columns] = Decoder(64 << 20).decode(memoryview(data), 0, table, "")
    assert isinstance(columns, Columns)
    return columns


def as_json(data: bytes | None) -> Any:
    """Represents bytes as the JSON schema does."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def lines(columns: Columns, topic: str = "t", partition: int = 3) -> list[Any]:
    text = bytes(json_lines(columns, topic, partition)).decode()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


@given(simple_records(max_size=9))
def test_values_and_keys_are_a_line_each(records: list[SimpleRecord]) -> None:
    columns = columns_of(build_batch(records))
    values = b"".join((record.value or b"") + b"\n" for record in records)
    keys = b"".join((record.key or b"") + b"\n" for record in records)
    assert bytes(values_lines(columns, "t", 0)) == values
    assert bytes(keys_lines(columns, "t", 0)) == keys


@given(any_batches(7))
def test_a_json_line_holds_the_whole_record(batch: tuple[bytes, list[SimpleRecord]]) -> None:
    data, records = batch
    if not records:
        return
    columns = columns_of(data)
    types = [columns.record(row).timestamp_type.kafka_name for row in range(len(columns))]
    names = [[name for name, _ in record.headers] for record in records]
    found = lines(columns)
    for line, record, kind, raw in zip(found, plain(columns), types, names, strict=True):
        assert list(line) == [
            "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
        ]  # fmt: skip
        assert line["key"] == as_json(record.key)
        assert line["value"] == as_json(record.value)
        assert (line["topic"], line["partition"]) == ("t", 3)
        assert (line["offset"], line["timestamp"]) == (record.offset, record.timestamp)
        assert line["timestampType"] == kind
        # A name that is not UTF-8 is base64 here, as nothing may be lost.
        in_bytes = [name.encode() if isinstance(name, str) else name for name in raw]
        assert [header["key"] for header in line["headers"]] == [as_json(n) for n in in_bytes]
        values = [as_json(value) for _, value in record.headers]
        assert [header["value"] for header in line["headers"]] == values


BORDERS = [
    "", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000",
    "\U0010ffff", "\u2028", '"', "\\", "/", "\b\f\n\r\t", "\x00\x1f",
]  # fmt: skip
NOT_UTF8 = [
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xe0\x80\x80", b"\xe0\x9f\xbf",
    b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xef\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"ok\xe2\x82", b"\xe2\x28\xa1",
]  # fmt: skip


@pytest.mark.parametrize("text", BORDERS)
def test_text_stays_text(text: str) -> None:
    [line] = lines(columns_of(build_batch([SimpleRecord(1, text.encode(), text.encode())])))
    assert line["key"] == line["value"] == text


@pytest.mark.parametrize("data", NOT_UTF8)
def test_what_is_not_utf8_is_base64(data: bytes) -> None:
    assert as_json(data) == {"base64": base64.b64encode(data).decode()}
    [line] = lines(columns_of(build_batch([SimpleRecord(1, None, b"some text " + data)])))
    assert base64.b64decode(line["value"]["base64"]) == b"some text " + data


@given(st.binary(max_size=40))
@example(b"{}")
@example(b'{"base64":"AA=="}')
def test_any_bytes_are_told_apart(data: bytes) -> None:
    [line] = lines(columns_of(build_batch([SimpleRecord(1, None, data)])))
    assert line["value"] == as_json(data)


STRETCHES = st.tuples(
    st.sampled_from(
        ["plain ", '{"a":"b"}', "\\", '"', "\n", "\x1f", "\x7f", "é", "水", "\U0001f40c"]
    ),
    st.integers(1, 70),
)


@given(st.lists(STRETCHES, max_size=12), st.sampled_from([b"", b"\xff", b"\xe6\xb0"]))
@example([("x", 128)], b"")
@example([('"', 128), ("é", 1)], b"")
@example([("x", 127), ("é", 70), ('"', 200)], b"")
def test_stretches_of_any_kind_and_length(stretches: list[tuple[str, int]], end: bytes) -> None:
    """The kernel processes strings by the block and treats each kind differently."""
    data = "".join(text * times for text, times in stretches).encode() + end
    [line] = lines(columns_of(build_batch([SimpleRecord(1, data[::-1], data)])))
    assert line["value"] == as_json(data)
    assert line["key"] == as_json(data[::-1])


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 19))
@example((1 << 63) - 1, 0)
@example(-(1 << 63), 0)
@example(10**18, 0)
@example(10**18 - 1, 0)
def test_numbers_of_any_length(number: int, shorter: int) -> None:
    number = abs(number) // 10**shorter * (1 if number >= 0 else -1)
    data = build_batch([SimpleRecord(number)], BatchFields(base_timestamp=number))
    assert lines(columns_of(data))[0]["timestamp"] == number


@pytest.mark.parametrize("number", [-(1 << 63), -1, 0, 9, 10, 99, (1 << 63) - 1])
def test_any_timestamp_is_a_number(number: int) -> None:
    data = build_batch([SimpleRecord(number)], BatchFields(base_timestamp=number))
    assert lines(columns_of(data))[0]["timestamp"] == number


def test_timestamp_types_in_kafkas_words() -> None:
    record = [SimpleRecord(1)]
    append = BatchFields(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=5)
    for data, word in (
        (build_messages(record, MessageFields(magic=0)), "NoTimestampType"),
        (build_batch(record), "CreateTime"),
        (build_batch(record, append), "LogAppendTime"),
    ):
        assert lines(columns_of(data))[0]["timestampType"] == word


@pytest.mark.parametrize("value", [b"x" * 1_500_000, b"\xff" * 1_500_000, b"\x01" * 1_500_000])
def test_a_record_larger_than_a_piece_of_output(value: bytes) -> None:
    records = [SimpleRecord(1, b"a", b"b"), SimpleRecord(1, None, value), SimpleRecord(1, b"c")]
    found = lines(columns_of(build_batch(records)))
    assert [line["offset"] for line in found] == [0, 1, 2]
    assert found[1]["value"] == as_json(value)


def test_many_headers_in_one_record() -> None:
    headers = [(f"h{n}", b"v" * n) for n in range(3000)]
    [line] = lines(columns_of(build_batch([SimpleRecord(1, headers=headers)])))
    assert [header["key"] for header in line["headers"]] == [name for name, _ in headers]


def test_a_topic_is_escaped_as_json() -> None:
    columns = columns_of(build_batch([SimpleRecord(1)]))
    [line] = lines(columns, 'a"b\\c', 2**31 - 1)
    assert (line["topic"], line["partition"]) == ('a"b\\c', 2**31 - 1)


def test_no_rows_are_no_lines() -> None:
    columns = columns_of(build_batch([SimpleRecord(1)])).slice(0, 0)
    assert bytes(values_lines(columns, "t", 0)) == b""
    assert bytes(json_lines(columns, "t", 0)) == b""
