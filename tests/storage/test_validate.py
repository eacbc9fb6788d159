"""Tests validation of producers' batches: which are accepted, rejected, or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    Refused,
)
from kafkafs.storage.format.kernels import validate as kernel
from kafkafs.storage.format.layout import Codec, ControlType, TimestampType
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns, Record
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.format.records.validate import (
    AppendOrigin,
    ValidationResult,
    ValidationRules,
    check_records,
    validate_batches,
)
from tests import kernel_forms
from tests.batches import legacy_batches, simple_records
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_end_txn_marker,
    build_messages,
    encode_record,
    frame_batch,
)
from tests.forging import forged_pair

NOW = 1_700_000_050_000
ANY_TIME = ValidationRules(after_max_ms=(1 << 63) - 1)
CODECS = tuple(Codec)


def put(
    data: bytes | bytearray,
    rules: ValidationRules = ANY_TIME,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    next_offset: int = 100,
    leader_epoch: int = 7,
) -> ValidationResult:
    admitted = validate_batches(data, rules, origin, NOW)
    admitted.place(next_offset, leader_epoch)
    return admitted


def read(admitted: ValidationResult) -> list[Record]:
    rows = []
    for columns in Decoder(1 << 20).decode(admitted.data, 0, admitted.table, ""):
        assert isinstance(columns, Columns)
        rows += [columns.record(row) for row in range(len(columns))]
    return rows


def refused(error: type[Refused], data: bytes, **how: Any) -> Refused:
    with pytest.raises(error) as caught:
        put(data, **how)
    return caught.value


def records(count: int, **changes: Any) -> list[SimpleRecord]:
    return [
        SimpleRecord(**{"timestamp": NOW - i, "key": b"k%d" % i, "value": b"v" * i, **changes})
        for i in range(count)
    ]


def same_bytes_of_table(admitted: ValidationResult) -> None:
    table, walk = scan(admitted.data, len(admitted.data), 0, BatchTable.empty(99), whole=True)
    assert walk.end == len(admitted.data)
    assert table.rows.tolist() == admitted.table.rows.tolist()


# Accepted unchanged


@given(
    st.lists(simple_records(gaps=False), min_size=1, max_size=4),
    st.sampled_from(CODECS),
    st.integers(0, 1 << 62),
    st.integers(-1, 1 << 30),
)
def test_batches_get_offsets_and_epoch_and_keep_every_other_byte(
    lists: list[list[SimpleRecord]], codec: Codec, next_offset: int, epoch: int
) -> None:
    given_batches, expected = [], []
    offset = next_offset
    for some in lists:
        given_batches.append(build_batch(some, BatchFields(codec=codec, leader_epoch=-1)))
        expected.append(
            offset.to_bytes(8, "big")
            + given_batches[-1][8:12]
            + epoch.to_bytes(4, "big", signed=True)
            + given_batches[-1][16:]
        )
        offset += len(some)
    admitted = put(b"".join(given_batches), next_offset=next_offset, leader_epoch=epoch)
    assert bytes(admitted.data) == b"".join(expected)
    same_bytes_of_table(admitted)
    assert admitted.append_time == -1


def test_bytes_are_copied_and_a_writable_buffer_is_used() -> None:
    data = build_batch(records(2))
    kept = bytes(data)
    assert bytes(put(data).data) != kept
    assert data == kept
    buffer = bytearray(data)
    assert put(buffer).data.obj is buffer
    assert buffer != kept


@pytest.mark.parametrize("codec", CODECS)
def test_producer_fields_and_transactions_stay(codec: Codec) -> None:
    fields = BatchFields(
        producer_id=5, producer_epoch=3, base_sequence=9, is_transactional=True, codec=codec
    )
    header = put(build_batch(records(3), fields)).table[0]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, 9)
    assert header.is_transactional
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (100, 102, 7)


def test_a_wrong_greatest_timestamp_is_put_right() -> None:
    wrong = build_batch(records(3), BatchFields(max_timestamp=12345))
    right = build_batch(records(3), BatchFields(base_offset=100, leader_epoch=7))
    admitted = put(wrong)
    assert bytes(admitted.data) == right
    same_bytes_of_table(admitted)


@pytest.mark.parametrize("codec", CODECS)
def test_with_log_append_time_records_have_the_time_of_now(codec: Codec) -> None:
    rules = ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    batches = [build_batch(records(count), BatchFields(codec=codec)) for count in (3, 1)]
    admitted = put(b"".join(batches), rules)
    expected = BatchFields(
        base_offset=100,
        leader_epoch=7,
        codec=codec,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=NOW,
    )
    assert bytes(admitted.data) == build_batch(records(3), expected) + build_batch(
        records(1), replace(expected, base_offset=103)
    )
    assert admitted.append_time == NOW
    assert {record.timestamp for record in read(admitted)} == {NOW}
    same_bytes_of_table(admitted)


# Other origins


def test_a_coordinator_writes_markers_and_has_no_sequences() -> None:
    marker = build_end_txn_marker(
        ControlType.COMMIT, NOW, 4, BatchFields(producer_id=8, producer_epoch=2, base_offset=55)
    )
    header = put(marker, origin=AppendOrigin.COORDINATOR).table[0]
    assert header.is_control
    assert header.base_offset == 100


def test_markers_are_not_compressed() -> None:
    marker = build_end_txn_marker(ControlType.ABORT, NOW, 4, BatchFields(producer_id=8))
    rules = replace(ANY_TIME, codec=Codec.ZSTD)
    header = put(marker, rules, AppendOrigin.COORDINATOR).table[0]
    assert (header.is_control, header.codec) == (True, Codec.NONE)


def test_from_another_log_batches_are_taken_with_their_offsets() -> None:
    data = build_batch(records(2), BatchFields(base_offset=150, last_offset=160, leader_epoch=3))
    data += build_messages(records(2), MessageFields(magic=1, base_offset=170))
    admitted = put(data, origin=AppendOrigin.REPLICATION)
    assert bytes(admitted.data) == data
    assert admitted.table.column(b.BASE_OFFSET).tolist() == [150, 170, 171]


def test_from_another_log_offsets_must_go_on_and_rise() -> None:
    at = {n: build_batch(records(2), BatchFields(base_offset=n)) for n in (99, 100, 102)}
    replication = AppendOrigin.REPLICATION
    assert "log end offset is 100" in refused(OffsetOutOfRange, at[99], origin=replication).why
    for wrong in (at[102] + at[100], at[100] + at[100]):
        error = refused(InvalidRecord, wrong, origin=replication)
        assert error.why.startswith("batch 1: base offset 100")
    put(at[100] + at[102], origin=replication)


def test_from_another_log_checksums_are_checked_and_records_are_not() -> None:
    nonsense = frame_batch(100, 0, build_batch(records(1))[21:-1] + b"\xff")
    put(nonsense, origin=AppendOrigin.REPLICATION)
    broken = nonsense[:-1] + b"\x00"
    assert refused(InvalidRecord, broken, origin=AppendOrigin.REPLICATION).why == (
        "batch 0: its checksum is wrong"
    )


# Rejected


@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_batches_whose_wrong_checksums_make_up_for_each_other_are_refused(
    origin: AppendOrigin,
) -> None:
    data = forged_pair(1 if origin is not AppendOrigin.CLIENT else 0)
    error = refused(InvalidRecord, data, origin=origin, next_offset=0)
    assert error.why == "batch 0: its checksum is wrong"


def test_no_batch_at_all_is_refused() -> None:
    for origin in AppendOrigin:
        refused(InvalidRecord, b"", origin=origin)


@pytest.mark.parametrize("origin", list(AppendOrigin))
def test_a_batch_that_is_cut_off_is_refused(origin: AppendOrigin) -> None:
    one = build_batch(records(2), BatchFields(base_offset=0))
    two = build_batch(
        records(2), BatchFields(base_offset=2 if origin is not AppendOrigin.CLIENT else 0)
    )
    for end in range(len(one) + 1, len(one) + len(two)):
        error = refused(InvalidRecord, (one + two)[:end], origin=origin, next_offset=0)
        assert error.why == "batch 1: it is truncated", end


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_cut_off_is_refused(magic: int) -> None:
    one = build_messages(records(1), MessageFields(magic=magic))
    for end in range(1, len(one)):
        refused(InvalidRecord, one + one[:end])
        refused(InvalidRecord, one[:end])


def test_any_wrong_byte_is_refused_or_outside_what_counts() -> None:
    data = build_batch(records(3), BatchFields(leader_epoch=-1))
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x41
        if 12 <= at < 16:  # the leader epoch, which the log sets
            assert bytes(put(broken).data) == bytes(put(data).data)
        else:
            refused(InvalidRecord, bytes(broken))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"base_offset": 1}, "its base offset is not 0"),
        ({"last_offset": 4}, "its record count does not match its offsets"),
        ({"is_control": True}, "a client may not write control records"),
        ({"producer_id": 5}, "it has a producer id, but no sequence"),
    ],
)
def test_fields_that_no_client_sends_are_refused(fields: dict[str, Any], why: str) -> None:
    good = build_batch(records(2))
    bad = build_batch(records(2), BatchFields(**fields))
    assert refused(InvalidRecord, good + bad).why == f"batch 1: {why}"


def test_a_batch_without_records_is_refused() -> None:
    error = refused(InvalidRecord, build_batch([]))
    assert "record count" in error.why


def test_a_record_count_of_other_batches_is_refused() -> None:
    """The header claims more or fewer records than there are, under a valid checksum."""
    for count in (1, 3):
        claim = build_batch(records(count))[21:61]
        data = frame_batch(0, 0, claim + build_batch(records(2))[61:])
        refused(InvalidRecord, data)


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_within_a_batch_must_count_up_from_0(codec: Codec) -> None:
    some = [SimpleRecord(NOW, b"k", b"v", offset=offset) for offset in (0, 0)]
    body = b"".join(encode_record(record, 0, record.offset) for record in some)
    head = build_batch(records(2))[21:61]
    assert "do not ascend" in refused(InvalidRecord, frame_batch(0, 0, head + body)).why
    gap = build_batch([some[0], replace(some[1], offset=2)], BatchFields(codec=codec))
    assert "record count" in refused(InvalidRecord, gap).why


def test_offsets_beyond_an_int64_are_refused() -> None:
    data = build_batch(records(2))
    last = (1 << 63) - 1
    assert put(data, next_offset=last - 2).table[0].last_offset == last - 1
    refused(OffsetOutOfRange, data, next_offset=last - 1)


@pytest.mark.parametrize("codec", [None, Codec.LZ4])
def test_batches_may_be_placed_again(codec: Codec | None) -> None:
    rules = replace(ANY_TIME, codec=codec)
    admitted = validate_batches(build_batch(records(3)) * 2, rules, AppendOrigin.CLIENT, NOW)
    for next_offset, epoch in ((50, 3), (7, 9), (0, 0)):
        admitted.place(next_offset, epoch)
        assert (admitted.first_offset, admitted.last_offset) == (next_offset, next_offset + 5)
        assert set(admitted.table.column(b.LEADER_EPOCH).tolist()) == {epoch}
        same_bytes_of_table(admitted)


def test_a_batch_may_be_as_large_as_the_limit() -> None:
    data = build_batch(records(5))
    put(data, replace(ANY_TIME, max_message_bytes=len(data)))
    small = replace(ANY_TIME, max_message_bytes=len(data) - 1)
    error = refused(MessageTooLarge, build_batch(records(1)) + data, rules=small)
    assert error.why.startswith(f"batch 1: it has {len(data)} bytes")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [1, 2])
def test_a_compacted_topic_wants_keys(codec: Codec, magic: int) -> None:
    if magic == 1 and codec is Codec.ZSTD:
        return
    compacted = replace(ANY_TIME, is_compacted=True)
    some = [*records(3), SimpleRecord(NOW, None, b"v"), SimpleRecord(NOW, b"", None)]
    if magic == 2:
        data = build_batch(records(2), BatchFields(codec=codec))
        data += build_batch(some, BatchFields(codec=codec))
        assert refused(InvalidRecord, data, rules=compacted).index == 5
    else:
        data = build_messages(some, MessageFields(codec=codec))
        assert refused(InvalidRecord, data, rules=compacted).index == 3
    put(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("offset_ms", "allowed"),
    [(-100, True), (-101, False), (50, True), (51, False)],
)
def test_timestamps_must_be_near_now(codec: Codec, offset_ms: int, allowed: bool) -> None:
    rules = ValidationRules(before_max_ms=100, after_max_ms=50)
    some = [SimpleRecord(NOW), SimpleRecord(-1), SimpleRecord(NOW + offset_ms)]
    data = build_batch(some, BatchFields(codec=codec))
    if allowed:
        put(data, rules)
    else:
        error = refused(InvalidTimestamp, data, rules=rules)
        assert error.index == 2
        assert error.why == (f"timestamp {NOW + offset_ms} is not within [{NOW - 100}, {NOW + 50}]")
    put(data, replace(rules, timestamp_type=TimestampType.LOG_APPEND_TIME))


def test_a_client_may_not_claim_log_append_time() -> None:
    appended = BatchFields(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=NOW - 5)
    data = build_batch(records(2), appended)
    on_append = ValidationRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert refused(InvalidTimestamp, data, rules=on_append).index == 0
    # with CreateTime and a timestamp it is accepted, and its type is CreateTime
    admitted = put(data)
    assert admitted.table[0].timestamp_type is TimestampType.CREATE_TIME
    assert admitted.table[0].max_timestamp == NOW - 5
    none = build_batch(records(2), replace(appended, max_timestamp=-1))
    refused(InvalidTimestamp, none)


def test_other_magics_among_the_batches_are_refused() -> None:
    old = [build_messages(records(1), MessageFields(magic=magic)) for magic in (0, 1)]
    new = build_batch(records(1))
    for data in (old[0] + old[1], old[1] + old[0], old[1] + new, new + old[1], new + old[0]):
        assert "magic" in refused(InvalidRecord, data).why


def test_decompressed_size_has_a_limit() -> None:
    bomb = build_batch([SimpleRecord(NOW, None, bytes(1 << 20))], BatchFields(codec=Codec.GZIP))
    error = refused(InvalidRecord, bomb, rules=replace(ANY_TIME, max_batch_bytes=1 << 19))
    assert "kafkafs.max.batch.bytes" in error.why


# Rebuilt


def as_written(read_records: Sequence[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in read_records]


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_another_codec_of_the_topic_builds_the_batch_anew(source: Codec, target: Codec) -> None:
    some = [SimpleRecord(NOW - i, b"k", None, [("h", b"x"), ("", None)]) for i in range(4)]
    fields = BatchFields(
        codec=source, producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    same = build_batch(records(1), replace(fields, codec=target))
    admitted = put(same + build_batch(some, fields), replace(ANY_TIME, codec=target))
    expected = replace(fields, codec=target, leader_epoch=7)
    assert bytes(admitted.data) == build_batch(
        records(1), replace(expected, base_offset=100)
    ) + build_batch(some, replace(expected, base_offset=101))
    same_bytes_of_table(admitted)


def test_built_anew_a_batch_may_be_too_large() -> None:
    some = [SimpleRecord(NOW, None, bytes(5000))]
    data = build_batch(some, BatchFields(codec=Codec.ZSTD))
    rules = replace(ANY_TIME, codec=Codec.NONE, max_message_bytes=4000)
    refused(MessageTooLarge, data, rules=rules)


def test_built_anew_a_batch_has_the_level_of_the_topic() -> None:
    some = [SimpleRecord(NOW, None, bytes(range(256)) * 20)]
    rules = replace(ANY_TIME, codec=Codec.GZIP, level=1)
    expected = BatchFields(base_offset=100, leader_epoch=7, codec=Codec.GZIP, level=1)
    assert bytes(put(build_batch(some), rules).data) == build_batch(some, expected)


@given(legacy_batches(), st.sampled_from([None, *CODECS]))
def test_old_messages_become_batches_of_magic_2(
    old: tuple[bytes, list[SimpleRecord]], codec: Codec | None
) -> None:
    data, some = old
    source = Codec(data[17] & 7)
    magic = data[16]
    admitted = put(data, replace(ANY_TIME, codec=codec))
    assert len(admitted.table) == 1
    header = admitted.table[0]
    assert header.codec is (source if codec is None else codec)
    assert (header.base_offset, header.last_offset) == (100, 99 + len(some))
    stamps = [record.timestamp for record in some]
    if magic == 0:
        stamps = [-1] * len(some)
    elif data[17] & 8:
        stamps = [1_700_000_000_000] * len(some)
    assert as_written(read(admitted)) == [
        (100 + i, stamps[i], record.key, record.value, []) for i, record in enumerate(some)
    ]


def test_old_messages_all_numbered_0_are_taken() -> None:
    data = b"".join(build_messages([record], MessageFields()) for record in records(3))
    assert [record.offset for record in read(put(data))] == [100, 101, 102]


def test_several_old_message_sets_are_as_many_batches() -> None:
    sets = build_messages(records(3), MessageFields(codec=Codec.LZ4)) * 2
    admitted = put(sets + build_messages(records(2), MessageFields()))
    assert admitted.table.column(b.RECORD_COUNT).tolist() == [3, 3, 2]
    assert [record.offset for record in read(admitted)] == list(range(100, 108))


# Our own records


def test_records_to_be_written_are_judged_alike() -> None:
    rules = ValidationRules(is_compacted=True, before_max_ms=10, after_max_ms=10)
    check_records(RecordColumns.from_records(records(3)), rules, NOW)
    for wrong, error in (
        (SimpleRecord(NOW, None), InvalidRecord),
        (SimpleRecord(NOW + 11, b"k"), InvalidTimestamp),
    ):
        columns = RecordColumns.from_records([*records(3), wrong])
        with pytest.raises(error) as caught:
            check_records(columns, rules, NOW)
        assert caught.value.index == 3


# The kernel


@given(
    st.lists(simple_records(gaps=False), min_size=1, max_size=3), st.binary(max_size=70), st.data()
)
def test_numbering_is_the_same_uncompiled_and_never_leaves_the_buffer(
    lists: list[list[SimpleRecord]], rest: bytes, draw: st.DataObject
) -> None:
    data = bytearray(b"".join(build_batch(some) for some in lists) + rest)
    for _ in range(draw.draw(st.integers(0, 2))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    other = bytearray(data)
    from_zero = draw.draw(st.booleans())
    results = [
        module.number(buffer, from_zero)
        for module, buffer in ((kernel, data), (kernel_forms.uncompiled("validate"), other))
    ]
    assert results[0] == results[1]
    assert data == other
    assert 0 <= results[0][1] <= len(data)


@given(st.lists(simple_records(gaps=False), min_size=1, max_size=3), st.integers(0, 1 << 60))
def test_placing_is_the_same_uncompiled(lists: list[list[SimpleRecord]], distance: int) -> None:
    data = b"".join(build_batch(some) for some in lists)
    table = put(data, next_offset=0).table
    results = []
    for module in (kernel, kernel_forms.uncompiled("validate")):
        buffer, rows = bytearray(data), table.rows.copy()
        module.place(buffer, rows, distance, 4)
        results.append((buffer, rows.tolist()))
    assert results[0] == results[1]
    with pytest.raises(ValueError, match="outside"):
        kernel.place(bytearray(data)[:-1][:60], table.rows, 1, 1)


COMMON = st.lists(
    st.builds(
        SimpleRecord,
        st.integers(0, 9000),
        st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=63, max_size=65)),
        st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=63, max_size=70)),
    ),
    min_size=1,
    max_size=80,
)


@given(st.lists(COMMON, min_size=1, max_size=3), st.integers(0, 9), st.booleans(), st.data())
def test_the_short_check_agrees_with_decoding(
    lists: list[list[SimpleRecord]], limit: int, compacted: bool, draw: st.DataObject
) -> None:
    """Batches that it accepts are valid, with the same greatest timestamps. Of undamaged batches it
    misses only those at the end of the buffer."""
    parts = []
    for some in lists:
        covered = bytearray(build_batch(some)[21:])
        for _ in range(draw.draw(st.integers(0, 1))):
            covered[draw.draw(st.integers(40, len(covered) - 1))] = draw.draw(st.integers(0, 255))
        parts.append(frame_batch(0, 0, bytes(covered)))
    data = b"".join(parts)
    rules = ValidationRules(before_max_ms=NOW - limit * 1000, is_compacted=compacted)
    rows = _table_of(data).rows
    results = []
    for module in (kernel, kernel_forms.uncompiled("validate")):
        greatest = np.zeros(len(rows), dtype=np.int64)
        count = module.check_batches(data, rows, limit * 1000, NOW, compacted, greatest)
        results.append((count, greatest[:count].tolist()))
    assert results[0] == results[1]
    (count, stamps) = results[0]
    for index, part in enumerate(parts[:count]):
        header = put(part, rules).table[0]
        assert header.max_timestamp == stamps[index]


def test_the_short_check_takes_ordinary_batches() -> None:
    data = b"".join(build_batch(records(300)) for _ in range(3)) + build_batch(records(300))
    greatest = np.zeros(4, dtype=np.int64)
    assert kernel.check_batches(data, _table_of(data).rows, 0, NOW, True, greatest) == 4
    assert greatest.tolist() == [NOW] * 4
    assert kernel.check_batches(data, _table_of(data).rows, 0, NOW - 1, True, greatest) == 0


def _table_of(data: bytes) -> BatchTable:
    """Returns the headers, whatever their offsets."""
    rows, at = [], 0
    while at < len(data):
        rows.append(scan(data, len(data), at, BatchTable.empty(1), start=at, whole=True)[0].rows)
        at += int(rows[-1][0, b.SIZE])
    return BatchTable(np.concatenate(rows))


@given(st.binary(max_size=200), st.sampled_from(list(AppendOrigin)))
def test_garbage_is_refused(data: bytes, origin: AppendOrigin) -> None:
    with pytest.raises(Refused):
        put(data, origin=origin)


@given(st.lists(simple_records(gaps=False), min_size=1, max_size=3), st.data())
def test_damage_under_a_right_checksum_is_refused_or_readable(
    lists: list[list[SimpleRecord]], draw: st.DataObject
) -> None:
    codec = draw.draw(st.sampled_from(CODECS))
    parts = []
    for some in lists:
        covered = bytearray(build_batch(some, BatchFields(codec=codec))[21:])
        for _ in range(draw.draw(st.integers(0, 2))):
            covered[draw.draw(st.integers(0, len(covered) - 1))] = draw.draw(st.integers(0, 255))
        parts.append(frame_batch(0, 0, bytes(covered)))
    try:
        admitted = put(b"".join(parts))
    except Refused:
        return
    same_bytes_of_table(admitted)
    offsets = [record.offset for record in read(admitted)]
    assert offsets == list(range(100, 100 + len(offsets)))
    assert np.array_equal(
        admitted.table.column(b.LAST_OFFSET)[:-1] + 1, admitted.table.column(b.BASE_OFFSET)[1:]
    )
