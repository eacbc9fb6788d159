"""Tests JSON lines as records to write: the kernel agrees with `json`, and errors name the first
invalid line."""

from __future__ import annotations

import base64
import json
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import InvalidRecord
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import Headers, SimpleRecord
from kafkafs.storage.lines import json_input
from kafkafs.storage.lines.json_input import parse_json
from kafkafs.storage.lines.json_output import json_lines, values_lines
from tests.building import BatchFields, build_batch
from tests.columns import decoded, records
from tests.kernel_forms import in_use, uncompiled

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
    assert [record[1:3] for record in records(parsed.records)] == [(None, None), (None, b"v")]
    assert parsed.records.timestamps.tolist() == [-1, -1]
    assert parsed.records.stamped(7).timestamps.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "invalid JSON"),
        ("[1]", "not a JSON object"),
        ('{"value": "a"', "invalid JSON: "),
        ('{"vale": "a"}', '"vale" is not a field'),
        ('{"key": "a"}', "value is missing; null is allowed"),
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
        ("[" * 100_000, "invalid JSON"),
        ("9" * 10_000, "invalid JSON"),
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


# -- the kernel and `json` ----------------------------------------------------------------------

spaces = st.sampled_from(["", "", "", " ", "\t ", "\r"])
characters = st.one_of(
    st.sampled_from('"\\/bfnrtu0 aé€😀\x7f\x00\x1f\u2028'), st.characters(exclude_categories=["Cs"])
)


@st.composite
def json_strings(draw: st.DrawFn) -> str:
    """Draws a JSON string, each character escaped in one of the possible ways."""
    written = []
    for character in draw(st.lists(characters, max_size=20)):
        plain = character >= " " and character not in '"\\'
        units = character.encode("utf-16-be")
        codes = "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2))
        short = json.dumps(character, ensure_ascii=True)[1:-1]
        written.append(draw(st.sampled_from([character if plain else short, short, codes])))
    return '"' + "".join(written) + '"'


@st.composite
def base64_objects(draw: st.DrawFn) -> str:
    text = base64.b64encode(draw(st.binary(max_size=9))).decode()
    space = draw(spaces)
    return f'{{{space}"base64"{space}:{space}"{text}"{space}}}'


bytes_texts = json_strings() | base64_objects() | st.just("null")
integers = st.integers(-2, 2**64).map(str) | st.sampled_from(["-0", "01", "1.0", "1e3", "null", ""])


@st.composite
def header_lists(draw: st.DrawFn) -> str:
    space = draw(spaces)
    pairs = draw(st.lists(st.tuples(bytes_texts, bytes_texts), max_size=3))
    texts = [f'{{{space}"key":{name}{space},"value"{space}:{value}}}' for name, value in pairs]
    return "[" + f"{space},{space}".join(texts) + "]"


FIELDS = {
    "key": bytes_texts,
    "value": bytes_texts,
    "topic": json_strings(),
    "partition": integers,
    "offset": integers,
    "timestamp": integers,
    "timestampType": json_strings(),
    "headers": header_lists() | st.just("null"),
    "isControl": st.sampled_from(["true", "false", "null"]),
}


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """Draws a line that is a record, or nearly one."""
    names = draw(st.permutations(list(FIELDS)))[: draw(st.integers(3, len(FIELDS)))]
    if draw(st.integers(0, 9)) == 0:
        names.append(names[0])
    space = draw(spaces)
    fields = [f'{space}"{name}"{space}:{draw(FIELDS[name])}' for name in names]
    return f"{space}{{{','.join(fields)}{space}}}{space}".encode()


@st.composite
def damaged_texts(draw: st.DrawFn) -> bytes:
    """Draws such a line with bytes replaced, inserted or removed."""
    line = bytearray(draw(json_texts()))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(line)))
        put = draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b",", b"1", b" ", b"\xc3", b"\x00"])
        )
        line[at : at + draw(st.integers(0, 2))] = put
    return bytes(line).replace(b"\n", b"")


@st.composite
def alike_texts(draw: st.DrawFn) -> list[bytes]:
    """Draws lines of one writer: the same fields in the same order, mostly with the same text
    around what changes between lines. Some lines have one byte replaced."""
    names = draw(st.permutations(list(FIELDS)))[: draw(st.integers(3, len(FIELDS)))]
    space = draw(spaces)
    one = {name: draw(FIELDS[name]) for name in names}
    lines = []
    for _ in range(draw(st.integers(2, 6))):
        if draw(st.integers(0, 5)) == 0:
            changing = draw(st.sampled_from(names))
            one[changing] = draw(FIELDS[changing])
        for name in ("key", "value"):
            if one.get(name, "null")[0] == '"':
                one[name] = draw(json_strings())
        for name in ("offset", "timestamp"):
            if one.get(name, "null")[:1].isdigit():
                one[name] = draw(integers)
        fields = [f'{space}"{name}"{space}:{one[name]}' for name in names]
        line = bytearray(f"{{{','.join(fields)}{space}}}".encode())
        if draw(st.integers(0, 5)) == 0:
            at = draw(st.integers(0, len(line) - 1))
            line[at : at + 1] = draw(st.sampled_from([b"", b'"', b"\\", b"}", b"1", b" ", b"\xc3"]))
        lines.append(bytes(line))
    return lines


def read_by_json(lines: list[bytes]) -> tuple[list[SimpleRecord], str | None]:
    """Returns the records before the first invalid line, and the error in that line."""
    found: list[SimpleRecord] = []
    for line in lines:
        try:
            found.append(json_input._record(line))
        except json_input._Wrong as wrong:
            return found, str(wrong)
    return found, None


# The timestamp, key, value and headers of a record.
Shown = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def shown(record: SimpleRecord) -> Shown:
    names = [
        (name.encode() if isinstance(name, str) else name, value) for name, value in record.headers
    ]
    return record.timestamp, record.key, record.value, names


def columns_shown(data: bytes) -> tuple[list[Shown], InvalidRecord | None]:
    """Returns the same from `parse_json` over all lines."""
    parsed = parse_json(data)
    columns = parsed.records
    rows: list[Shown] = []
    for row, timestamp in enumerate(columns.timestamps.tolist()):
        key, value = (
            None if size < 0 else bytes(field.data[start : start + size])
            for field in (columns.keys, columns.values)
            for start, size in [(int(field.starts[row]), int(field.sizes[row]))]
        )
        rows.append((timestamp, key, value, _headers_of(columns.headers, row)))
    return rows, parsed.error


def _headers_of(headers: Headers, row: int) -> list[tuple[bytes, bytes | None]]:
    if not len(headers.bounds):
        return []
    data = headers.data
    return [
        (bytes(data[at : at + size]), None if length < 0 else bytes(data[start : start + length]))
        for at, size, start, length in headers.spans[
            headers.bounds[row] : headers.bounds[row + 1]
        ].tolist()
    ]


@pytest.mark.parametrize("kernel", [in_use("json_input"), uncompiled("json_input")])
@given(
    st.lists(json_texts() | damaged_texts() | st.binary(max_size=9), max_size=4) | alike_texts(),
    st.booleans(),
)
def test_the_kernel_reads_what_json_reads(
    kernel: ModuleType, lines: list[bytes], ended: bool
) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    if not ended and lines and not lines[-1]:
        ended = True
    expected, wrong = read_by_json(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_input, "kernel", kernel)
        found, error = columns_shown(b"\n".join(lines) + (b"\n" if ended and lines else b""))
    assert found == list(map(shown, expected))
    if wrong is None:
        assert error is None
    else:
        assert error is not None
        assert (error.index, error.why) == (len(expected), wrong)


@given(st.lists(simple, min_size=1, max_size=40))
def test_lines_of_a_log_are_the_kernels(given_records: list[SimpleRecord]) -> None:
    [columns] = decoded(build_batch(given_records, BatchFields()))
    data = bytes(json_lines(columns, "orders", 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_input, "_record", None)  # no line may need the Python parser
        found, error = columns_shown(data)
    assert error is None
    assert found == list(map(shown, given_records))


def test_lines_of_both_sorts_with_more_headers_than_expected() -> None:
    header = ',"headers":[' + ",".join(['{"key":"n\\u00e9","value":"v"}'] * 150) + "]"
    other = ',"headers":[' + ",".join(['{"value":"v","key":"né"}'] * 150) + "]"
    line = '{{"value":"a\\nb"{}}}'
    data = "\n".join(line.format(text) for text in ["", header, other, "", header]).encode()
    found, error = columns_shown(data)
    assert error is None
    assert [row[2] for row in found] == [b"a\nb"] * 5
    assert [len(row[3]) for row in found] == [0, 150, 150, 0, 150]
    assert {pair for row in found for pair in row[3]} == {("né".encode(), b"v")}


def test_lines_of_one_shape_with_and_without_escapes() -> None:
    """Covers lines after the first that forces a copy, and growing tables."""
    lines = [
        json.dumps(
            {
                "key": f"k{number}",
                "value": f"{number} é" if number < 700 else f"{number}\n\t",
                "offset": number,
                "timestamp": 10**8 + 7 * number,
                "headers": [{"key": "h", "value": "x" * number}] * (number % 500 == 499),
            },
            ensure_ascii=number % 2 == 0,
            separators=(",", ":"),
        ).encode()
        for number in range(1500)
    ]
    lines += [b'{"value":null}'] * 3000  # shorter than the assumed minimum
    found, error = columns_shown(b"\n".join(lines))
    assert error is None
    expected, wrong = read_by_json(lines)
    assert wrong is None
    assert found == list(map(shown, expected))


def test_lines_without_escapes_are_not_copied() -> None:
    data = b'{"key":"a","value":"b"}\n{"key":"c","value":"\xc3\xa9"}\n'
    columns = parse_json(data).records
    assert columns.keys.data is columns.values.data is data
    assert parse_json(data + b'{"value":"\\n"}').records.values.data != data
