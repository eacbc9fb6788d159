"""Compares the compiled kernels with their uncompiled source, on valid and invalid bytes.

On any invalid bytes, a kernel returns one of its error codes. That it stays within its buffers
while doing so is verified by tests/test_sanitizer.py, which runs these tests under a sanitizer.
"""

from __future__ import annotations

import os
import re
from functools import reduce
from itertools import chain
from operator import and_, or_
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.format import kernels
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.layout import TIMESTAMP_TYPE_MASK
from kafkafs.storage.format.records.batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    RECORD_COUNT,
    SIZE,
)
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.lines.json_output import _QUOTING, _texts
from tests import redpanda
from tests.batches import INT64, MUTATIONS, damaged_logs, logs, mutated, simple_records
from tests.building import BatchFields, MessageFields, build_batch, build_messages, encode_record
from tests.kernel_forms import NAMES, in_use, uncompiled

CREATE_TIME = -(1 << 63)
HEADER_COLUMNS = [RECORD_COUNT, BASE_OFFSET, LAST_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP]


def both(name: str) -> tuple[ModuleType, ModuleType]:
    return in_use(name), uncompiled(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_in_use_are_compiled_unless_the_switch_says_otherwise(name: str) -> None:
    import cython

    assert not cython.compiled
    is_extension = not str(in_use(name).__file__).endswith(".py")
    assert is_extension == kernels.COMPILED == (os.environ.get("KAFKAFS_KERNELS") != "python")
    assert str(uncompiled(name).__file__).endswith(".py")


def test_no_module_imports_from_a_kernel() -> None:
    """The import system would load the kernel a second time, and in the form that it prefers."""
    root = Path(kernels.__file__).parents[2]
    for path in root.rglob("*.py"):
        found = re.findall(r"^from \S*\bkernels\.([a-z]\w*) import", path.read_text(), re.MULTILINE)
        assert not found, path


# -- headers ------------------------------------------------------------------------------------


def scanned(kernel: ModuleType, data: bytes, *arguments: Any) -> tuple[object, ...]:
    start, available, position, previous, whole, rows, first_row = arguments
    table = np.zeros((rows, kernel.COLUMNS), dtype=np.int64)
    count, end, why = kernel.scan_headers(
        data, start, available, position, previous, whole, table, first_row
    )
    return count, end, why, table[first_row : first_row + count].tolist()


@given(st.lists(st.tuples(st.integers(0, 2), INT64, st.integers(-1, 1 << 40)), max_size=5))
def test_both_forms_summarize_alike(rows: list[tuple[int, int, int]]) -> None:
    table = np.zeros((len(rows), in_use("headers").COLUMNS), dtype=np.int64)
    table[:, [MAGIC, ATTRIBUTES, RECORD_COUNT]] = np.array(rows, dtype=np.int64).reshape(-1, 3)
    expected = (
        min([2, *(magic for magic, _, _ in rows)]),
        reduce(or_, (attributes for _, attributes, _ in rows), 0),
        reduce(and_, (attributes for _, attributes, _ in rows), -1),
        min((count for _, _, count in rows), default=(1 << 63) - 1),
        sum(count for _, _, count in rows),
    )
    for kernel in both("headers"):
        assert kernel.summary(table) == expected
        with pytest.raises(ValueError, match="columns"):
            kernel.summary(table[:, :13].copy())


@given(
    st.one_of(logs(), damaged_logs()),
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 1 << 40),
    st.one_of(st.just(-1), INT64),
    st.booleans(),
    st.integers(0, 5),
)
def test_both_forms_scan_headers_alike(
    data: bytes, start: int, cut: int, position: int, previous: int, whole: bool, rows: int
) -> None:
    available = max(len(data) - cut, 0)
    start = min(start, available) if cut % 3 == 0 else 0
    arguments = (data, start, available, position, previous, whole, rows, rows // 3)
    compiled, plain = both("headers")
    found = scanned(compiled, *arguments)
    assert found == scanned(plain, *arguments)
    count, end, why, _ = found
    assert isinstance(count, int)
    assert 0 <= count <= rows
    assert isinstance(end, int)
    assert end >= start
    assert why in range(8)


@given(st.one_of(logs(), damaged_logs(), st.binary(max_size=100)), st.integers(0, 99), INT64, INT64)
def test_both_forms_find_headers_alike(data: bytes, start: int, one: int, other: int) -> None:
    start = min(start, len(data))
    lowest, highest = sorted((one, other))
    found = [
        kernel.find_header(data, start, len(data), len(data) - start, lowest, highest)
        for kernel in both("headers")
    ]
    assert found[0] == found[1]
    assert found[0] == -1 or start <= found[0] <= len(data) - 26


@pytest.mark.parametrize("kernel", both("headers"), ids=["in use", "uncompiled"])
def test_a_scan_outside_its_buffers_is_refused(kernel: ModuleType) -> None:
    table = np.zeros((4, kernel.COLUMNS), dtype=np.int64)
    narrow = np.zeros((4, kernel.COLUMNS - 1), dtype=np.int64)
    for start, available, first_row, into in (
        (0, 11, 0, table),
        (-1, 10, 0, table),
        (0, 10, -1, table),
        (0, 10, 0, narrow),
    ):
        with pytest.raises(ValueError, match=r"buffer|start"):
            kernel.scan_headers(bytes(10), start, available, 0, -1, True, into, first_row)
    with pytest.raises(ValueError, match="buffer"):
        kernel.find_header(bytes(10), -1, 10, 10, 0, 0)
    with pytest.raises(ValueError, match="buffer"):
        kernel.find_header(bytes(10), 0, 11, 10, 0, 0)


@given(
    data=st.one_of(logs(), damaged_logs()),
    start=st.integers(0, 200),
    cut=st.integers(0, 100),
    previous=st.integers(-1, 50),
    rows=st.integers(0, 7),
    room=st.sampled_from([128, 200, 1 << 14]),
)
def test_both_forms_read_headers_alike(
    data: bytes, start: int, cut: int, previous: int, rows: int, room: int
) -> None:
    """And what they read is what a scan of the same bytes in memory finds first."""
    start = start if cut % 3 == 0 else 0
    end = max(len(data) - cut, 0)
    found = []
    with TemporaryFile(buffering=0) as file:
        file.write(data)
        for kernel in both("header_reads"):
            table = np.zeros((rows, kernels.headers.COLUMNS), dtype=np.int64)
            arguments = (file.fileno(), start, end, previous, table, bytearray(room))
            found.append(table[: kernel.read_headers(*arguments)].tolist())
    assert found[0] == found[1]
    whole = scanned(in_use("headers"), data[start:end], 0, end - start, start, previous, 0, rows, 0)
    headers: Any = whole[3]
    expected = [row for row in headers if row[POSITION] + row[SIZE] <= end] if end > start else []
    assert found[0] == expected


def test_headers_are_read_into_a_table_and_a_buffer_of_their_size() -> None:
    table = np.zeros((2, kernels.headers.COLUMNS), dtype=np.int64)
    for kernel in both("header_reads"):
        assert kernel.read_headers(-1, 0, 100, -1, table, bytearray(128)) == 0
        for into, room, start in (
            (table, 127, 0),
            (table[:, :13].copy(), 128, 0),
            (table, 128, -1),
        ):
            with pytest.raises(ValueError, match=r"columns|position"):
                kernel.read_headers(-1, start, 100, -1, into, bytearray(room))


# -- checksums ----------------------------------------------------------------------------------


def combined(kernel: ModuleType, data: bytes, base: int = 0, first: int = 0) -> int:
    """Returns the combined checksum of the batches of `data` from number `first` on."""
    steps, powers = np.zeros(256, dtype=np.uint32), np.zeros((4, 256), dtype=np.uint32)
    kernel.prepare(steps, powers)
    table = np.zeros((64, kernels.headers.COLUMNS), dtype=np.int64)
    count, _, _ = in_use("headers").scan_headers(data, 0, len(data), base, -1, True, table, 0)
    result: int = kernel.combined(data, base, table[first:count], steps, powers)
    return result


@pytest.mark.parametrize("kernel", both("checksums"), ids=["in use", "uncompiled"])
@given(st.lists(st.integers(0, 400), min_size=1, max_size=5))
def test_checksums_of_batches_give_that_of_all_bytes(kernel: ModuleType, sizes: list[int]) -> None:
    data = b""
    for offset, size in enumerate(sizes):
        record = SimpleRecord(value=bytes(size), offset=offset)
        data += build_batch([record], BatchFields(base_offset=offset))
    assert combined(kernel, data, 77) == crc32c(data)


@pytest.mark.parametrize("kernel", both("checksums"), ids=["in use", "uncompiled"])
@pytest.mark.parametrize("size", [60, 200, 70_000, 17_000_000])
def test_checksums_of_batches_of_any_size(kernel: ModuleType, size: int) -> None:
    batches = [
        build_batch([SimpleRecord(value=bytes(length), offset=n)], BatchFields(base_offset=n))
        for n, length in enumerate((10, size, size))
    ]
    assert combined(kernel, b"".join(batches)) == crc32c(b"".join(batches))


@pytest.mark.parametrize("kernel", both("checksums"), ids=["in use", "uncompiled"])
def test_batches_that_give_no_checksum_together(kernel: ModuleType) -> None:
    two = b"".join(
        build_batch([SimpleRecord(offset=n)], BatchFields(base_offset=n)) for n in range(2)
    )
    old = build_messages([SimpleRecord(offset=2)], MessageFields(1, 2))
    assert combined(kernel, two + old) == -1
    assert combined(kernel, b"") == -1
    steps, powers = np.zeros(256, dtype=np.uint32), np.zeros((4, 256), dtype=np.uint32)
    table = np.zeros((2, kernels.headers.COLUMNS), dtype=np.int64)
    table[:, [SIZE, MAGIC]] = len(two) // 2, 2
    for positions in ((0, 0), (0, 1 << 40), (-1, 0), (len(two) // 2, 0), (0, -(1 << 63))):
        table[:, POSITION] = positions
        assert kernel.combined(two, 0, table, steps, powers) == -1
    table[:, POSITION], table[:, SIZE] = 0, (1 << 63) - 1
    assert kernel.combined(two, 0, table, steps, powers) == -1
    for misfits in ((table[:, :9].copy(), steps, powers), (table, steps[:9], powers)):
        with pytest.raises(ValueError, match="columns"):
            kernel.combined(two, 0, *misfits)
    with pytest.raises(ValueError, match="256"):
        kernel.prepare(steps[:9], powers)


# -- records ------------------------------------------------------------------------------------


def decoded(kernel: ModuleType, data: bytes, batches: list[tuple[int, ...]], rows: int) -> Any:
    """Decodes `batches`: start, end, count, base and last offset, base timestamp, append time."""
    columns = np.array(batches, dtype=np.int64).reshape(len(batches), 7).T.copy()
    table = np.zeros((len(batches), kernels.headers.COLUMNS), dtype=np.int64)
    table[:, HEADER_COLUMNS] = columns[2:].T
    table[:, ATTRIBUTES] = np.where(columns[6] == CREATE_TIME, 0, TIMESTAMP_TYPE_MASK)
    first_row = np.zeros(len(batches) + 1, dtype=np.int64)
    offsets = np.zeros(rows, dtype=np.int64)
    timestamps = np.zeros(rows, dtype=np.int64)
    spans = np.zeros((rows, 6), dtype=np.int32)
    done, written, error, at = kernel.decode_records(
        data, columns[0], columns[1], table, 0, offsets, timestamps, spans, first_row
    )
    assert 0 <= done <= len(batches)
    assert 0 <= written <= rows
    assert (error == 0) == (done == len(batches))
    assert first_row[: done + 1].tolist() == [
        sum(b[2] for b in batches[:i]) for i in range(done + 1)
    ]
    assert first_row[done] == written
    return (
        done,
        written,
        error,
        at,
        offsets[:written].tolist(),
        timestamps[:written].tolist(),
        spans[:written].tolist(),
    )


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, ...]]]:
    """Draws encoded records of some batches, often damaged, and the numbers of those batches."""
    out = b""
    batches: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, 3))):
        base = draw(st.one_of(st.integers(0, 1 << 40), st.just((1 << 63) - (1 << 31) - 2)))
        base_timestamp = draw(INT64)
        records = draw(simple_records(base))
        body = b"".join(
            encode_record(record, draw(st.one_of(st.integers(-9, 9), INT64)), record.offset - base)
            for record in records
        )
        if draw(st.booleans()):
            body = mutated(body, draw(MUTATIONS))
        count = max(len(records) + draw(st.sampled_from([0, 0, 0, 1, -1])), 0)
        last = records[-1].offset + draw(st.integers(0, 2))
        append_time = draw(st.sampled_from([CREATE_TIME, 1_700_000_000_000]))
        start, end = len(out), len(out) + len(body)
        batches.append((start, end, count, base, last, base_timestamp, append_time))
        out += body
    return out, batches


def copied(
    kernel: ModuleType, data: bytes, batches: list[tuple[int, ...]], column: int, room: int
) -> tuple[int, bytes, int, int]:
    """Returns batches, lines, error and position of `copy_lines`; `batches` as in `decoded`."""
    columns = np.array(batches, dtype=np.int64).reshape(len(batches), 7).T.copy()
    table = np.zeros((len(batches), kernels.headers.COLUMNS), dtype=np.int64)
    table[:, HEADER_COLUMNS] = columns[2:].T
    row, spans = np.zeros(1, dtype=np.int64), np.zeros((1, 6), dtype=np.int32)
    out = np.zeros(room, dtype=np.uint8)
    done, written, error, at = kernel.copy_lines(
        data, columns[0], columns[1], table, 0, column, row, row.copy(), spans, out
    )
    assert 0 <= written <= room
    return done, bytes(out[:written]), error, at


@given(bodies(), st.sampled_from([0, 2]))
def test_lines_are_copied_as_records_are_decoded(
    body: tuple[bytes, list[tuple[int, ...]]], column: int
) -> None:
    data, batches = body
    for kernel in both("records"):
        done, _, error, at, _, _, spans = decoded(kernel, data, batches, 99)
        fields = [row[column : column + 2] for row in spans]
        lines = b"".join(data[start : start + max(size, 0)] + b"\n" for start, size in fields)
        assert copied(kernel, data, batches, column, len(data)) == (done, lines, error, at)


@given(bodies(), st.sampled_from([0, 2]), st.integers(0, 200))
def test_both_forms_copy_lines_alike_however_little_room_there_is(
    body: tuple[bytes, list[tuple[int, ...]]], column: int, room: int
) -> None:
    data, batches = body
    compiled, plain = both("records")
    assert copied(compiled, data, batches, column, room) == copied(
        plain, data, batches, column, room
    )


@given(bodies(), st.integers(0, 20))
def test_both_forms_decode_records_alike(
    body: tuple[bytes, list[tuple[int, ...]]], rows: int
) -> None:
    data, batches = body
    compiled, plain = both("records")
    assert decoded(compiled, data, batches, rows) == decoded(plain, data, batches, rows)


@given(st.binary(max_size=60), st.integers(0, 9), st.integers(0, 9), st.integers(-1, 70))
@example(b"\x0c\0\0\0\1\1\0", 1, 0, 7)
@example(b"\xff" * 12, 1, 0, 12)  # a length that never ends
@example(b"\x20\0" + b"\x80" * 10 + b"\1\0\1\1\0\0", 1, 0, 18)  # a delta of eleven bytes
def test_both_forms_decode_any_bytes_alike(data: bytes, count: int, start: int, end: int) -> None:
    batches: list[tuple[int, ...]] = [(start, end, count, 5, 5 + count, 0, CREATE_TIME)]
    compiled, plain = both("records")
    assert decoded(compiled, data, batches, 9) == decoded(plain, data, batches, 9)


@pytest.mark.parametrize("kernel", both("records"), ids=["in use", "uncompiled"])
def test_an_error_names_the_record_where_it_is(kernel: ModuleType) -> None:
    good = encode_record(SimpleRecord(key=b"k"), 0, 0)
    for bad in (
        b"\xff\xff\xff\xff\xff",  # length
        b"\x0c\0\x80\x80\x80\x80\x80",  # delta cut off by the record's end
        b"\x0c\0\0\2\1\1\x7e",  # headers
        b"\x0c\0\0\2\x7e\1\0",  # key
        b"\x0c\0\0\2\1\x7e\0",  # value
        b"\x0e\0\0\2\1\1\0\0",  # longer than its fields
    ):
        data = good + bad
        done, rows, error, at, *_ = decoded(
            kernel, data, [(0, len(data), 2, 0, 1, 0, CREATE_TIME)], 2
        )
        assert (done, rows, at) == (0, 0, len(good)), bad
        assert error


def test_decoding_begins_at_the_batch_that_is_asked_for() -> None:
    bodies = [encode_record(SimpleRecord(key=b"k%d" % number), 0, 0) for number in range(3)]
    ends = np.cumsum([len(body) for body in bodies])
    table = np.zeros((3, kernels.headers.COLUMNS), dtype=np.int64)
    table[:, RECORD_COUNT] = 1
    table[:, BASE_OFFSET] = table[:, LAST_OFFSET] = [7, 8, 9]
    offsets, timestamps, first_row = (np.zeros(3, dtype=np.int64) for _ in range(3))
    spans = np.zeros((3, 6), dtype=np.int32)
    for kernel in both("records"):
        starts = ends - len(bodies[0])
        done, rows, error, at = kernel.decode_records(
            b"".join(bodies), starts, ends, table, 1, offsets, timestamps, spans, first_row
        )
        assert (done, rows, error, at) == (2, 2, 0, ends[2])
        assert offsets[:2].tolist() == [8, 9]
        assert first_row.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kernel", both("records"), ids=["in use", "uncompiled"])
@pytest.mark.parametrize(
    ("place", "misfit"),
    [
        (0, np.zeros(2, dtype=np.int64)),
        (1, np.zeros(2, dtype=np.int64)),
        (2, np.zeros((2, 14), dtype=np.int64)),
        (2, np.zeros((1, 13), dtype=np.int64)),
        (3, 2),
        (3, -1),
        (5, np.zeros(1, dtype=np.int64)),
        (6, np.zeros((2, 5), dtype=np.int32)),
        (6, np.zeros((1, 6), dtype=np.int32)),
        (7, np.zeros(1, dtype=np.int64)),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    kernel: ModuleType, place: int, misfit: Any
) -> None:
    one, two = np.zeros(1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    table, spans = np.zeros((1, 14), dtype=np.int64), np.zeros((2, 6), dtype=np.int32)
    arguments = [one, one, table, 0, two, two, spans, two]
    kernel.decode_records(b"", *arguments)
    arguments[place] = misfit
    with pytest.raises(ValueError, match="lengths"):
        kernel.decode_records(b"", *arguments)


@pytest.mark.parametrize("kernel", both("records"), ids=["in use", "uncompiled"])
@pytest.mark.parametrize(
    ("place", "misfit"),
    [
        (0, np.zeros(2, dtype=np.int64)),
        (1, np.zeros(2, dtype=np.int64)),
        (2, np.zeros((2, 14), dtype=np.int64)),
        (2, np.zeros((1, 13), dtype=np.int64)),
        (3, 2),
        (3, -1),
        (4, -2),
        (4, 1),
        (4, 4),
        (5, np.zeros(0, dtype=np.int64)),
        (6, np.zeros(0, dtype=np.int64)),
        (7, np.zeros((1, 5), dtype=np.int32)),
        (7, np.zeros((0, 6), dtype=np.int32)),
    ],
)
def test_arrays_that_do_not_fit_lines_are_refused(
    kernel: ModuleType, place: int, misfit: Any
) -> None:
    one = np.zeros(1, dtype=np.int64)
    table, spans = np.zeros((1, 14), dtype=np.int64), np.zeros((1, 6), dtype=np.int32)
    arguments = [one, one, table, 0, 0, one, one, spans, np.zeros(1, dtype=np.uint8)]
    kernel.copy_lines(b"", *arguments)
    arguments[place] = misfit
    with pytest.raises(ValueError, match="lengths"):
        kernel.copy_lines(b"", *arguments)


# -- messages of magic 0 and 1 ------------------------------------------------------------------


@given(
    st.one_of(damaged_logs(), st.binary(max_size=100)),
    st.lists(st.tuples(st.integers(-2, 300), st.integers(-2, 400), st.integers(0, 1)), max_size=4),
)
def test_both_forms_decode_messages_alike(
    data: bytes, messages: list[tuple[int, int, int]]
) -> None:
    starts, ends, magics = np.array(messages, dtype=np.int64).reshape(len(messages), 3).T.copy()
    results = []
    for kernel in both("legacy"):
        spans = np.zeros((len(messages), 6), dtype=np.int32)
        count, error = kernel.decode_messages(data, starts, ends, magics, spans)
        assert (error == 0) == (count == len(messages))
        results.append((count, error, spans[:count].tolist()))
    assert results[0] == results[1]


# -- records as text and as Arrow ---------------------------------------------------------------

SPAN = st.tuples(
    st.integers(-1, 40),
    st.integers(-1, 20),
    st.integers(-1, 40),
    st.integers(-1, 20),
    st.integers(-1, 40),
    st.integers(0, 3),
)


@given(
    st.binary(max_size=40),
    st.lists(SPAN, max_size=5),
    st.integers(0, 3000),
    st.lists(st.integers(-2, 20), min_size=30, max_size=30) | st.none(),
)
def test_both_forms_write_any_spans_alike(
    data: bytes, rows: list[tuple[int, ...]], room: int, decoded: list[int] | None
) -> None:
    """Spans outside of their buffer are reported, and none of its bytes is touched."""
    spans = np.array(rows, dtype=np.int32).reshape(len(rows), 6)
    numbers = np.arange(len(rows), dtype=np.int64) * 12345678901 - 3
    types = (np.arange(len(rows)) % 4 - 1).astype(np.int32)
    texts, marks = _texts("topic", 7)
    places = np.array(decoded or [], dtype=np.int64).reshape(-1, 6)[: len(rows)]
    results = []
    for kernel in both("render"):
        lines = np.zeros(room, dtype=np.uint8)
        written = kernel.write_lines(data, spans, 2, lines)
        out = np.zeros(room, dtype=np.uint8)
        done, used = kernel.write_json(
            data, numbers, numbers, types, spans, data[::-1], places, texts, marks,
            b"null", b'{"base64":"', _QUOTING, 0, out,
        )  # fmt: skip
        results.append(
            (written, bytes(lines[: max(written, 0)]), done, used, bytes(out[: max(used, 0)]))
        )
    assert results[0] == results[1]


@given(st.binary(max_size=40), st.lists(SPAN, max_size=9), st.integers(0, 90), st.integers(0, 9))
def test_both_forms_gather_any_spans_alike(
    data: bytes, rows: list[tuple[int, ...]], room: int, headers: int
) -> None:
    spans = np.array(rows, dtype=np.int32).reshape(len(rows), 6)
    timestamps = spans[:, 0].astype(np.int64) - 1
    results = []
    for kernel in both("gather"):
        offsets = np.zeros(len(rows) + 1, dtype=np.int32)
        out = np.zeros(room, dtype=np.uint8)
        written = kernel.gather(data, spans, 0, offsets, out)
        header_spans = np.zeros((headers, 4), dtype=np.int32)
        found = kernel.header_spans(data, spans, header_spans)
        results.append(
            (
                kernel.measure(spans, 0),
                kernel.totals(spans, timestamps),
                written,
                (offsets.tolist(), bytes(out)) if written >= 0 else None,
                found,
                header_spans[: max(found, 0)].tolist(),
            )
        )
    assert results[0] == results[1]
    measured = (*kernel.measure(spans, 0), *kernel.measure(spans, 2), kernel.count_headers(spans))
    assert results[0][1] == (*measured, int(timestamps.min(initial=0)))


@given(st.binary(max_size=40), st.lists(SPAN, max_size=9), st.integers(-1, 4), st.integers(0, 9))
def test_both_forms_make_the_same_tuples_of_any_spans(
    data: bytes, rows: list[tuple[int, ...]], low: int, high: int
) -> None:
    spans = np.array(rows, dtype=np.int32).reshape(len(rows), 6)
    timestamps = spans[:, 0].astype(np.int64) - 1
    results: list[object] = []
    for kernel in both("gather"):
        try:
            results.append(kernel.tuples(data, spans, timestamps, low, high, bytes.hex))
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]
    if low < 0 or high > len(rows):
        assert results[0] == "no such rows"


PLACE = st.integers(0, 55) | st.integers(-1, 70)
PLACED = st.tuples(PLACE, st.binary(max_size=9))
GATHERED = st.tuples(st.sampled_from((0, 2)), st.integers(-1, 17), PLACE, st.integers(0, 20))


@given(
    st.lists(PLACED, min_size=12, max_size=12),
    st.binary(max_size=40),
    st.lists(SPAN, max_size=4),
    st.lists(GATHERED, max_size=2),
)
def test_both_forms_write_alike(
    parts: list[tuple[int, bytes]],
    data: bytes,
    rows: list[tuple[int, ...]],
    columns: list[tuple[int, int, int, int]],
) -> None:
    """Buffers are copied, and columns gathered as `gather` does it; what has no room is refused."""
    positions = np.array([at for at, _ in parts], dtype=np.int64)
    spans = np.array(rows, dtype=np.int32).reshape(len(rows), 6)
    gathered = np.array([(c, n, at, at + size) for c, n, at, size in columns], dtype=np.int64)
    fits = all(0 <= at <= 64 - len(part) for at, part in parts)
    fits &= all(0 <= n < 16 - len(rows) and 0 <= at <= 64 - size for _, n, at, size in columns)
    results = []
    for kernel in both("gather"):
        out = np.zeros(64, dtype=np.uint8)
        expected = bytearray(64)
        copied = (part for _, part in parts)
        arguments = (out, out.view(np.int32), positions, *copied, data, spans)
        if not fits:
            with pytest.raises(ValueError, match="no room"):
                kernel.write(*arguments, gathered.reshape(-1, 4))
            assert bytes(out) == expected
            continue
        is_right = kernel.write(*arguments, gathered.reshape(-1, 4))
        for at, part in parts:
            expected[at : at + len(part)] = part
        for column, first, at, size in columns:
            ends, joined = np.zeros(len(rows) + 1, dtype=np.int32), np.zeros(size, dtype=np.uint8)
            if kernel.gather(data, spans, column, ends, joined) != size:
                assert not is_right
                break
            expected[4 * first : 4 * (first + len(ends))] = ends.tobytes()
            expected[at : at + size] = joined.tobytes()
        else:
            assert is_right
        if is_right and not _are_overlapping(columns, len(rows)):
            assert bytes(out) == expected
        results.append((is_right, bytes(out) if is_right else b""))
    assert results[:1] == results[1:]


def _are_overlapping(columns: list[tuple[int, int, int, int]], rows: int) -> bool:
    """Returns whether offsets or bytes of two columns have the same place, in which case the result
    depends on the order of writing."""
    places = [range(at, at + size) for _, _, at, size in columns]
    places += [range(4 * first, 4 * (first + rows + 1)) for _, first, _, _ in columns]
    return len({*chain(*places)}) < sum(map(len, places))


@pytest.mark.parametrize("kernel", both("gather"), ids=["in use", "uncompiled"])
def test_a_column_that_is_not_there_is_refused(kernel: ModuleType) -> None:
    spans = np.zeros((1, 6), dtype=np.int32)
    out = np.zeros(1, dtype=np.uint8)
    with pytest.raises(ValueError, match="column"):
        kernel.gather(b"", spans, 5, np.zeros(2, dtype=np.int32), out)
    with pytest.raises(ValueError, match="column"):
        kernel.measure(spans, 5)
    with pytest.raises(ValueError, match="timestamp"):
        kernel.totals(spans, np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match="timestamp"):
        kernel.tuples(b"", spans, np.zeros(2, dtype=np.int64), 0, 1, bytes.hex)
    with pytest.raises(ValueError, match="room"):
        kernel.gather(b"", spans, 0, np.zeros(1, dtype=np.int32), out)
    with pytest.raises(ValueError, match="columns"):
        kernel.header_spans(b"", spans, np.zeros((1, 3), dtype=np.int32))
    numbers, places = np.zeros(2, dtype=np.int32), np.zeros(12, dtype=np.int64)
    for row, what in (([5, 0, 0, 0], "column"), ([0, 0, 1, 0], "room"), ([0, 0, 0], "four")):
        gathered = np.array([row], dtype=np.int64)
        with pytest.raises(ValueError, match=what):
            kernel.write(out, numbers, places, *[b""] * 12, b"", spans, gathered)


# -- Redpanda's segments ---------------------------------------------------------------------------

STEPS = np.empty(256, dtype=np.uint32)
in_use("checksums").prepare(STEPS, np.empty((4, 256), dtype=np.uint32))


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Draws batches of a segment of Redpanda, some of no producer, and sometimes damage."""
    out, offset = b"", draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            batch = build_batch(draw(simple_records(0, gaps=False)), BatchFields())
            out += redpanda.data_batch(batch, offset)
            offset += 6
        else:
            kind, count = draw(st.integers(-3, 50)), draw(st.integers(1, 3))
            out += redpanda.other_batch(kind, offset, count)
            offset += count
    return mutated(out, draw(st.one_of(st.just([]), MUTATIONS)))


@given(segments(), st.integers(0, 99), st.integers(-20, 20), st.integers(0, 300), st.integers(0, 5))
def test_both_forms_walk_segments_of_redpanda_alike(
    data: bytes, cut: int, missing: int, interval: int, count: int
) -> None:
    found = []
    for kernel in both("redpanda"):
        available = max(len(data) - cut, 0)
        state = np.array([0, 0, 0, -1, -1, 0], dtype=np.int64)
        rows = np.zeros((count, kernel.COLUMNS), dtype=np.int64)
        end = len(data) + missing
        walked = kernel.walk(data, available, 0, end, interval, STEPS, state, rows)
        found.append((walked, state.tolist(), rows[: walked[0]].tolist()))
    assert found[0] == found[1]
    assert found[0][0][2] in range(9)


@given(segments(), st.integers(0, 99), INT64)
def test_both_forms_find_headers_of_redpanda_alike(data: bytes, start: int, offset: int) -> None:
    start = min(start, len(data))
    found = [
        kernel.find_header(data, start, len(data), len(data) - start, offset, STEPS)
        for kernel in both("redpanda")
    ]
    assert found[0] == found[1]


@given(segments(), st.integers(0, 99), INT64, st.integers(-1, 1 << 31))
def test_both_forms_translate_segments_of_redpanda_alike(
    data: bytes, start: int, unseen: int, epoch: int
) -> None:
    start, found = min(start, len(data)), []
    for kernel in both("redpanda"):
        room = bytearray(data)
        size = kernel.translate(room, start, len(data), unseen, epoch)
        assert 0 <= size <= len(data) - start
        found.append((size, bytes(room[start : start + size])))
    assert found[0] == found[1]


@pytest.mark.parametrize("kernel", both("redpanda"), ids=["in use", "uncompiled"])
def test_the_types_of_batches_whose_offsets_are_not_seen(kernel: ModuleType) -> None:
    found = [kind for kind in range(-128, 128) if kernel.is_unseen(kind)]
    assert found == sorted(redpanda.UNSEEN)


@pytest.mark.parametrize("kernel", both("redpanda"), ids=["in use", "uncompiled"])
def test_segments_of_redpanda_outside_their_buffers_are_refused(kernel: ModuleType) -> None:
    state, rows = np.zeros(6, dtype=np.int64), np.zeros((2, 7), dtype=np.int64)
    arguments = (bytes(10), 10, 0, 10, 0, STEPS, state, rows)
    for number, wrong in ((1, 11), (5, STEPS[:255]), (6, state[:5]), (7, rows[:, :6].copy())):
        with pytest.raises(ValueError, match=r"buffer|columns"):
            kernel.walk(*arguments[:number], wrong, *arguments[number + 1 :])
    for start, available in ((-1, 10), (0, 11)):
        with pytest.raises(ValueError, match="buffer"):
            kernel.find_header(bytes(10), start, available, 10, 0, STEPS)
        with pytest.raises(ValueError, match="buffer"):
            kernel.translate(bytearray(10), start, available, 0, 0)


# -- index entries ------------------------------------------------------------------------------


INDEX_ROWS = st.lists(
    st.tuples(st.integers(0, 1 << 31), st.integers(0, (1 << 31) - 1), INT64), max_size=20
)


@given(INDEX_ROWS, st.integers(0, 1 << 30), st.integers(0, 5), st.integers(0, 5))
def test_both_forms_index_batches_alike(
    rows: list[tuple[int, int, int]], interval: int, offsets: int, times: int
) -> None:
    table = np.zeros((len(rows), kernels.headers.COLUMNS), dtype=np.int64)
    table[:, (POSITION, LAST_OFFSET, MAX_TIMESTAMP)] = np.array(rows, np.int64).reshape(-1, 3)
    found = []
    for kernel in both("index"):
        state = np.array([0, 0, 0, -1, 0, -1, 0], dtype=np.int64)
        into = bytearray(8 * len(rows)), bytearray(12 * len(rows))
        ends = kernel.index_batches(table, state, 0, interval, offsets, times, *into)
        assert ends == (8 * state[kernel.OFFSET_COUNT], 12 * state[kernel.TIME_COUNT])
        found.append((ends, state.tolist(), into))
    assert found[0] == found[1]


@pytest.mark.parametrize("kernel", both("index"), ids=["in use", "uncompiled"])
def test_entries_are_not_written_where_there_may_be_no_room(kernel: ModuleType) -> None:
    table = np.zeros((2, kernels.headers.COLUMNS), dtype=np.int64)
    state = np.zeros(kernel.STATE_SIZE, dtype=np.int64)
    for rows, of, offsets, times in (
        (table, state, 15, 24),
        (table, state, 16, 23),
        (table[:, :13].copy(), state, 16, 24),
        (table, state[:6], 16, 24),
    ):
        with pytest.raises(ValueError, match=r"room|few"):
            kernel.index_batches(rows, of, 0, 0, 9, 9, bytearray(offsets), bytearray(times))
