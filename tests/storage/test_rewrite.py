"""Tests batches that lose some records, against the builders and against Kafka's own cleaner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.kernels import rewrite as kernel
from kafkafs.storage.format.layout import (
    DELETE_HORIZON_MASK,
    RECORD_BATCH_OVERHEAD,
    Codec,
    TimestampType,
)
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.codecs import Scratch, decompress
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.format.records.rewrite import (
    DROP,
    KEEP,
    NO_HORIZON,
    RETAIN_EMPTY,
    Rewritten,
    rewrite,
)
from tests import kernel_forms
from tests.batches import LEGACY_CODECS, TIMESTAMPS, simple_records
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.profiles import percent

BASE = 1000  # file position of the first byte


@dataclass(frozen=True)
class Case:
    """A batch before and after rewriting."""

    before: bytes
    keep: list[bool]
    action: int
    horizon: int
    after: bytes


HORIZONS = st.one_of(st.just(NO_HORIZON), st.integers(0, 1 << 50))
ACTIONS = st.sampled_from([DROP, KEEP, KEEP, RETAIN_EMPTY])


@st.composite
def fields_of(draw: st.DrawFn, records: list[SimpleRecord], base_offset: int) -> BatchFields:
    last = records[-1].offset if records else base_offset
    appended = draw(st.booleans())
    return BatchFields(
        base_offset=base_offset,
        last_offset=last + draw(st.integers(0, 2)),
        leader_epoch=draw(st.integers(-1, 100)),
        codec=draw(st.sampled_from(Codec)) if records else Codec.NONE,
        timestamp_type=TimestampType(int(appended)),
        producer_id=draw(st.integers(-1, 1000)),
        producer_epoch=draw(st.integers(-1, 100)),
        base_sequence=draw(st.integers(-1, (1 << 31) - 1)),
        is_transactional=draw(st.booleans()),
        is_control=draw(st.booleans()),
        delete_horizon_ms=draw(HORIZONS) if records else -1,
        base_timestamp=None if records else -1,
        max_timestamp=draw(TIMESTAMPS) if appended or not records else None,
    )


def left_of(fields: BatchFields, kept: list[SimpleRecord], horizon: int) -> bytes:
    """Builds the batch with only these records."""
    if fields.timestamp_type is TimestampType.LOG_APPEND_TIME:
        assert fields.max_timestamp is not None
        kept = [replace(record, timestamp=fields.max_timestamp) for record in kept]
    if horizon == NO_HORIZON:
        horizon = fields.delete_horizon_ms
    return build_batch(kept, replace(fields, delete_horizon_ms=horizon))


@st.composite
def cases(draw: st.DrawFn, base_offset: int) -> Case:
    records = draw(simple_records(base_offset, min_size=0))
    fields = draw(fields_of(records, base_offset))
    before = build_batch(records, fields)
    keep = draw(
        st.one_of(
            st.sampled_from([[True], [False]]).map(lambda each: each * len(records)),
            st.lists(st.booleans(), min_size=len(records), max_size=len(records)),
        )
    )
    action, horizon = draw(ACTIONS), draw(HORIZONS)
    kept = [record for record, is_kept in zip(records, keep, strict=True) if is_kept]
    if action == DROP or (action == KEEP and not kept):
        after = b""
    elif not kept:
        table, _ = scan(before, len(before), 0, BatchTable.empty(1), whole=True)
        greatest = table[0].max_timestamp
        empty = replace(
            fields,
            codec=Codec.NONE,
            delete_horizon_ms=-1,
            base_timestamp=-1,
            max_timestamp=greatest,
        )
        after = build_batch([], empty)
    elif len(kept) == len(records) and horizon == NO_HORIZON:
        after = before
    else:
        after = left_of(fields, kept, horizon)
    return Case(before, keep, action, horizon, after)


@st.composite
def logs_of_cases(draw: st.DrawFn) -> list[Case]:
    offset, found = draw(st.integers(0, 1 << 40)), []
    for _ in range(draw(st.integers(1, 6))):
        case = draw(cases(offset))
        found.append(case)
        table, _ = scan(case.before, len(case.before), 0, BatchTable.empty(1), whole=True)
        offset = table[0].last_offset + 1
    return found


def stretches(data: memoryview, base: int, file: str = "") -> Iterator[Columns]:
    """Yields the columns of all batches; batches without rows become columns without rows."""
    table, walk = scan(data, len(data), base, BatchTable.empty(len(data) // 26 + 1), whole=True)
    assert walk.end == len(data)
    done = 0
    for columns in Decoder(1 << 24).decode(data, base, table, file):
        assert isinstance(columns, Columns)
        first = int(np.searchsorted(table.column(b.POSITION), columns.batches.rows[0, b.POSITION]))
        if first > done:
            yield without_rows(table.select(slice(done, first)), file)
        yield columns
        done = first + len(columns.batches)
    if done < len(table):
        yield without_rows(table.select(slice(done, len(table))), file)


def without_rows(table: BatchTable, file: str) -> Columns:
    nothing = np.empty(0, dtype=np.int64)
    spans = np.empty((0, 6), dtype=np.int32)
    first_row = np.zeros(len(table) + 1, dtype=np.int64)
    return Columns(b"", nothing, nothing, spans, table, first_row, file)


def rewritten(
    data: bytes, keep: list[bool], actions: list[int], horizons: list[int]
) -> list[Rewritten]:
    found, row, batch = [], 0, 0
    view = memoryview(data)
    for columns in stretches(view, BASE):
        rows, batches = row + len(columns), batch + len(columns.batches)
        result = rewrite(
            view,
            BASE,
            columns,
            np.array(keep[row:rows], dtype=np.uint8),
            np.array(actions[batch:batches], dtype=np.int8),
            np.array(horizons[batch:batches], dtype=np.int64),
        )
        found.append(result)
        row, batch = rows, batches
    return found


def of_cases(log: list[Case]) -> list[Rewritten]:
    return rewritten(
        b"".join(case.before for case in log),
        [each for case in log for each in case.keep],
        [case.action for case in log],
        [case.horizon for case in log],
    )


@given(logs_of_cases())
def test_the_bytes_are_those_that_the_builder_makes(log: list[Case]) -> None:
    found = b"".join(bytes(part.data) for part in of_cases(log))
    assert found == b"".join(case.after for case in log)


@given(logs_of_cases())
def test_the_table_is_what_a_scan_finds(log: list[Case]) -> None:
    for part in of_cases(log):
        room = BatchTable.empty(len(log))
        table, walk = scan(part.data, len(part.data), 0, room, whole=True)
        assert walk.end == len(part.data)
        assert table.rows.tolist() == part.table.rows.tolist()


@settings(max_examples=percent(30))
@given(logs_of_cases())
def test_uncompiled_the_kernel_gives_the_same(log: list[Case]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        uncompiled = kernel_forms.uncompiled("rewrite")
        patch.setattr(kernel, "rewrite_batches", uncompiled.rewrite_batches)
        found = b"".join(bytes(part.data) for part in of_cases(log))
    assert found == b"".join(case.after for case in log)


def test_a_batch_grows_when_its_timestamps_get_further_from_the_base() -> None:
    """The buffer is sized for that: each record takes 13 bytes more than before."""
    records = [SimpleRecord(1, None, b"v" * 50, offset=i) for i in range(200)]
    data = build_batch(records, BatchFields(last_offset=199))
    [part] = rewritten(data, [True] * 200, [KEEP], [1 << 62])
    assert bytes(part.data) == left_of(BatchFields(last_offset=199), records, 1 << 62)
    assert len(part.data) > len(data) + 200 * 8


def test_what_was_lent_is_not_lent_again_while_it_is_looked_at() -> None:
    first = build_batch([SimpleRecord(1, b"k", b"first", offset=0)])
    second = build_batch([SimpleRecord(1, b"k", b"other", offset=0)])
    [one], [other] = (rewritten(data, [True], [KEEP], [-1]) for data in (first, second))
    assert (bytes(one.data), bytes(other.data)) == (first, second)


# -- magic 0 and 1 --------------------------------------------------------------------------------


@st.composite
def message_cases(draw: st.DrawFn) -> tuple[MessageFields, list[SimpleRecord], list[bool]]:
    magic = draw(st.integers(0, 1))
    records = [
        SimpleRecord(record.timestamp if magic else -1, record.key, record.value, (), record.offset)
        for record in draw(simple_records(draw(st.integers(0, 1 << 40))))
    ]
    fields = MessageFields(magic=magic, codec=draw(st.sampled_from(LEGACY_CODECS)))
    keep = draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    return fields, records, keep


@given(message_cases())
def test_messages_that_stay_are_those_that_the_builder_makes(
    case: tuple[MessageFields, list[SimpleRecord], list[bool]],
) -> None:
    fields, records, keep = case
    batches = 1 if fields.codec else len(records)
    data = build_messages(records, fields)
    parts = rewritten(data, keep, [KEEP] * batches, [1 << 40] * batches)
    kept = [record for record, is_kept in zip(records, keep, strict=True) if is_kept]
    expected = build_messages(kept, fields) if kept else b""
    assert b"".join(bytes(part.data) for part in parts) == expected
    for part in parts:
        table, _ = scan(part.data, len(part.data), 0, BatchTable.empty(batches), whole=True)
        assert table.rows.tolist() == part.table.rows.tolist()


def test_a_compressed_message_with_the_time_of_the_append_keeps_it() -> None:
    records = [SimpleRecord(5 + i, b"k", b"%d" % i, offset=10 + i) for i in range(4)]
    fields = MessageFields(magic=1, codec=Codec.GZIP, log_append_time=1_700_000_000_000)
    [part] = rewritten(build_messages(records, fields), [False, True, True, False], [KEEP], [-1])
    [columns] = stretches(part.data, 0)
    assert columns.offsets.tolist() == [11, 12]
    assert columns.timestamps.tolist() == [1_700_000_000_000] * 2
    assert [columns.value(row) for row in range(2)] == [b"1", b"2"]
    assert columns.batches[0].timestamp_type is TimestampType.LOG_APPEND_TIME
    # the inner messages have the same attributes and timestamp, as those that Kafka's builder
    # appends
    table, _ = scan(columns.data, len(columns.data), 0, BatchTable.empty(2), whole=True)
    assert [(header.attributes, header.max_timestamp) for header in table] == [
        (8, 1_700_000_000_000)
    ] * 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_message_cannot_stay_without_records(codec: Codec) -> None:
    fields = MessageFields(magic=1, base_offset=7, codec=codec)
    data = build_messages([SimpleRecord(1, b"k", b"v")], fields)
    with pytest.raises(CorruptError, match="none of its records is retained") as caught:
        rewritten(data, [False], [RETAIN_EMPTY], [-1])
    assert caught.value.position == BASE


def test_messages_are_encoded_alike_uncompiled() -> None:
    records = [SimpleRecord(5 + i, b"k", None if i == 2 else b"v", offset=i) for i in range(4)]
    data = build_messages(records, MessageFields(magic=1, codec=Codec.LZ4))
    compiled = rewritten(data, [True, False, True, True], [KEEP], [-1])
    with pytest.MonkeyPatch.context() as patch:
        uncompiled = kernel_forms.uncompiled("rewrite")
        patch.setattr(kernel, "encode_messages", uncompiled.encode_messages)
        plain = rewritten(data, [True, False, True, True], [KEEP], [-1])
    assert bytes(plain[0].data) == bytes(compiled[0].data)


# -- bounds ---------------------------------------------------------------------------------------


def arguments(**changed: object) -> list[object]:
    """Returns the arguments for rebuilding a batch of two records, one of them with a header."""
    records = [
        SimpleRecord(1, b"k", b"v", offset=0),
        SimpleRecord(1, b"k", b"v", [("h", b"x")], offset=1),
    ]
    data = memoryview(build_batch(records, BatchFields(last_offset=1)))
    [columns] = stretches(data, 0)
    given = {
        "data": data,
        "base": 0,
        "table": columns.batches.rows.copy(),
        "records": columns.data,
        "offsets": columns.offsets.copy(),
        "timestamps": columns.timestamps.copy(),
        "spans": columns.spans.copy(),
        "first_row": columns.first_row.copy(),
        "keep": np.array([0, 1], dtype=np.uint8),
        "actions": np.array([KEEP], dtype=np.int8),
        "horizons": np.array([-1], dtype=np.int64),
        "out": bytearray(200),
        "out_table": np.zeros((1, 14), dtype=np.int64),
        "is_made": np.zeros(1, dtype=np.uint8),
    }
    return list((given | changed).values())


BOTH = [kernel, kernel_forms.uncompiled("rewrite")]


@pytest.mark.parametrize("form", BOTH, ids=["in use", "uncompiled"])
class TestBounds:
    def test_as_it_should_be(self, form: ModuleType) -> None:
        assert form.rewrite_batches(*arguments())[2:] == (1, 0)

    @pytest.mark.parametrize(
        ("column", "value"),
        [(0, -1), (0, 1 << 30), (1, 1 << 30), (2, -5), (2, 1 << 30), (3, 1 << 30), (4, -1),
         (4, 1 << 30), (5, 1 << 30), (5, 3)],
    )  # fmt: skip
    def test_a_span_outside_its_buffer(self, form: ModuleType, column: int, value: int) -> None:
        given = arguments()
        spans = given[6]
        assert isinstance(spans, np.ndarray)
        spans[1, column] = value
        found = form.rewrite_batches(*given)
        assert found[2:] == (0, kernel.BAD_SPAN)

    @pytest.mark.parametrize(
        ("column", "value"), [(0, -1), (0, 1 << 40), (1, 1 << 40), (1, 25), (1, -1), (1, 60)]
    )
    def test_a_batch_outside_its_buffer(self, form: ModuleType, column: int, value: int) -> None:
        given = arguments()
        table = given[2]
        assert isinstance(table, np.ndarray)
        table[0, column] = value
        found = form.rewrite_batches(*given)
        assert found[2:] == (0, kernel.BAD_SPAN)

    @pytest.mark.parametrize("bounds", [[0, 3], [-1, 2], [2, 1]])
    def test_rows_that_are_not_there(self, form: ModuleType, bounds: list[int]) -> None:
        first_row = np.array(bounds, dtype=np.int64)
        found = form.rewrite_batches(*arguments(first_row=first_row))
        assert found[2:] == (0, kernel.BAD_SPAN)

    def test_too_little_room(self, form: ModuleType) -> None:
        for room in range(75):
            given = arguments(out=bytearray(room))
            found = form.rewrite_batches(*given)
            assert found == (0, 0, 0, kernel.NO_ROOM)

    def test_no_row_left_in_the_table(self, form: ModuleType) -> None:
        table = np.zeros((0, 14), dtype=np.int64)
        found = form.rewrite_batches(*arguments(out_table=table))
        assert found == (0, 0, 0, kernel.NO_ROOM)

    @pytest.mark.parametrize(
        "name", ["offsets", "timestamps", "spans", "first_row", "keep", "actions", "horizons"]
    )
    def test_arrays_of_different_lengths(self, form: ModuleType, name: str) -> None:
        names = ["data", "base", "table", "records", "offsets", "timestamps", "spans"]
        names += ["first_row", "keep", "actions", "horizons"]
        found = arguments()[names.index(name)]
        assert isinstance(found, np.ndarray)
        longer = np.concatenate([found, found])
        with pytest.raises(ValueError, match="arrays of different lengths"):
            form.rewrite_batches(*arguments(**{name: longer}))


# -- Kafka's own cleaner --------------------------------------------------------------------------

PAIRS = [("compact-before", "compact-after"), ("compact-before2", "compact-after2")]


def segments(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def unpacked(data: bytes) -> list[bytes]:
    """Returns each batch with its records decompressed, without size and checksum, because
    compressed data depends on the version of a library."""
    table, _ = scan(data, len(data), 0, BatchTable.empty(len(data) // 26), whole=True)
    found = []
    for header in table:
        batch = data[header.position : header.next_position]
        if header.codec is not Codec.NONE:
            scratch = Scratch(1 << 24)
            decompress(
                header.codec, memoryview(batch), RECORD_BATCH_OVERHEAD, len(batch), 2, scratch
            )
            head = batch[:8] + batch[12:17] + batch[21:RECORD_BATCH_OVERHEAD]
            batch = head + bytes(scratch.data)
        found.append(batch)
    return found


def topics(corpus: Callable[[str], Path], name: str) -> list[str]:
    return sorted(path.name for path in corpus(name).glob("cmp-*"))


@cache
def kept_by_kafka(after: bytes) -> tuple[set[int], dict[int, int]]:
    """Returns the offsets of the retained records, and the delete horizons (-1 if none) by last
    offset of the retained batches."""
    offsets: set[int] = set()
    horizons: dict[int, int] = {}
    for columns in stretches(memoryview(after), 0):
        offsets |= set(columns.offsets.tolist())
        for header in columns.batches:
            horizons[header.last_offset] = (
                header.base_timestamp if header.has_delete_horizon else NO_HORIZON
            )
    return offsets, horizons


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_kafkas_cleaner_wrote_the_same_bytes(
    corpus: Callable[[str], Path], before: str, after: str
) -> None:
    """Its output determines the retained records and batches; the bytes are made here."""
    rebuilt = 0
    for topic in topics(corpus, before):
        expected = b"".join(segments(corpus(after) / topic))
        offsets, horizons = kept_by_kafka(expected)
        found = b""
        for data in segments(corpus(before) / topic):
            for columns in stretches(memoryview(data), 0):
                rows = columns.batches.rows
                actions, new = np.empty(len(rows), np.int8), np.full(len(rows), -1, np.int64)
                for i, header in enumerate(columns.batches):
                    actions[i] = RETAIN_EMPTY if header.last_offset in horizons else DROP
                    if not rows[i, b.ATTRIBUTES] & DELETE_HORIZON_MASK:
                        new[i] = horizons.get(header.last_offset, NO_HORIZON)
                keep = np.isin(columns.offsets, list(offsets)).astype(np.uint8)
                part = rewrite(memoryview(data), 0, columns, keep, actions, new)
                found += part.data
                rebuilt += len(part.table) and int(0 < keep.sum() < len(keep))
        assert unpacked(found) == unpacked(expected), topic
    assert rebuilt
