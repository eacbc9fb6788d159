"""Tests what a pass makes of batches and records: the kernel in both forms, and each rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.cleaner.offset_map import OffsetMap
from kafkafs.storage.cleaner.reading import read_chunks
from kafkafs.storage.cleaner.record_filter import (
    FilterResult,
    NewestInMap,
    RecordFilter,
    RecordRetention,
)
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.layout import Codec, ControlType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.format.records.rewrite import DROP, KEEP, RETAIN_EMPTY
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log.state.producer_state import BatchMetadata, ProducerStateEntry
from kafkafs.storage.segment.txn_index import AbortedTxn
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_end_txn_marker,
    build_messages,
)
from tests.kernel_forms import in_use, uncompiled
from tests.logs import TopicSettings, write_partition
from tests.reading import open_view

Row = tuple[int, int, int, int]  # sizes of key and value, offset, newest offset of the key

NOW = 1_700_000_000_000
RETENTION = 1000
BOTH = pytest.mark.parametrize(
    "kernel", [in_use("retention"), uncompiled("retention")], ids=["in use", "uncompiled"]
)


# -- the kernel -----------------------------------------------------------------------------------


def kernel_arrays(rows: Sequence[Row], counts: Sequence[int]) -> dict[str, np.ndarray]:
    spans = np.zeros((len(rows), 6), dtype=np.int32)
    spans[:, 1] = [row[0] for row in rows]
    spans[:, 3] = [row[1] for row in rows]
    return {
        "spans": spans,
        "offsets": np.array([row[2] for row in rows], dtype=np.int64),
        "newest": np.array([row[3] for row in rows], dtype=np.int64),
        "first_row": np.cumsum([0, *counts], dtype=np.int64),
    }


ROWS = st.tuples(*[st.integers(-1, 2)] * 2, *[st.integers(-1, 6)] * 2)


@BOTH
@given(st.lists(st.tuples(st.integers(0, 2), st.lists(ROWS, max_size=4)), max_size=4), ROWS)
def test_the_kernel_follows_the_rules(
    kernel: ModuleType, batches: list[tuple[int, list[Row]]], other: Row
) -> None:
    rows = [row for _, rows in batches for row in rows]
    arrays = kernel_arrays(rows, [len(rows) for _, rows in batches])
    rules = np.array([rule for rule, _ in batches], dtype=np.int8)
    latest = other[2]
    retentions, keep = np.full((2, len(rows)), 9, dtype=np.uint8)
    tombstones = np.full(len(batches), 9, dtype=np.uint8)
    counts = np.zeros(len(RecordRetention), dtype=np.int64)
    kernel.filter_records(*arrays.values(), rules, latest, retentions, keep, tombstones, counts)

    def retention(rule: int, row: Row) -> RecordRetention:
        key, value, offset, newest = row
        if rule == kernel.RETAIN_ALL or offset > latest:
            return RecordRetention.KEPT
        if key < 0:
            return RecordRetention.KEYLESS
        if offset < newest:
            return RecordRetention.SUPERSEDED
        return (
            RecordRetention.TOMBSTONE
            if value < 0 and rule == kernel.DISCARD_TOMBSTONES
            else RecordRetention.KEPT
        )

    wanted = [[retention(rule, row) for row in rows] for rule, rows in batches]
    assert retentions.tolist() == list(chain(*wanted))
    assert counts.tolist() == [
        list(chain(*wanted)).count(retention) for retention in RecordRetention
    ]
    assert keep.tolist() == [int(each == RecordRetention.KEPT) for each in chain(*wanted)]
    assert tombstones.tolist() == [
        int(
            any(
                f == RecordRetention.KEPT and row[1] < 0 for f, row in zip(found, rows, strict=True)
            )
        )
        for found, (_, rows) in zip(wanted, batches, strict=True)
    ]


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spans", np.zeros((1, 6), dtype=np.int32)),
        ("spans", np.zeros((2, 3), dtype=np.int32)),
        ("offsets", np.zeros(1, dtype=np.int64)),
        ("newest", np.zeros(1, dtype=np.int64)),
        ("first_row", np.array([0, 2], dtype=np.int64)),
        ("first_row", np.array([0, 1, 3], dtype=np.int64)),
        ("first_row", np.array([0, 3, 2], dtype=np.int64)),
        ("first_row", np.array([-1, 1, 2], dtype=np.int64)),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    kernel: ModuleType, name: str, value: np.ndarray
) -> None:
    arrays = kernel_arrays([(1, 1, 0, 0), (1, 1, 1, 1)], [1, 1]) | {name: value}
    retentions, keep = np.zeros((2, 2), dtype=np.uint8)
    rules, tombstones = np.ones(2, dtype=np.int8), np.zeros(2, dtype=np.uint8)
    counts = np.zeros(len(RecordRetention), dtype=np.int64)
    with pytest.raises(ValueError, match=r"columns|rules"):
        kernel.filter_records(*arrays.values(), rules, 9, retentions, keep, tombstones, counts)


# -- the filter -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """A filtered batch: the action, its new delete horizon, and the retention of its records."""

    action: int
    horizon: int = -1
    retentions: list[RecordRetention] = field(default_factory=list)


@dataclass(frozen=True)
class Found:
    batches: list[Batch]
    aborted: list[AbortedTxn]
    counts: dict[RecordRetention, int]


def filter_log(
    view: View,
    newest: dict[bytes, int] | None = None,
    latest: int | None = None,
    producers: Iterable[ProducerStateEntry] = (),
    first_uncleanable: int = 10**6,
    legacy_horizon_ms: int = 0,
    delete_retention_ms: int = RETENTION,
) -> Found:
    """Filters all segments; the map holds `newest` and covers the log up to `latest`."""
    offset_map = OffsetMap(1 << 12)
    for key, offset in (newest or {}).items():
        offset_map.put(key, np.array([[0, len(key)]], np.int32), np.array([offset], np.int64))
    offset_map.latest_offset = view.end_offset - 1 if latest is None else latest
    # If nothing is dirty all keys are looked up, so the map need not hold what the log does.
    made = RecordFilter(
        view,
        NewestInMap(offset_map, offset_map.latest_offset + 1),
        first_uncleanable,
        NOW,
        delete_retention_ms,
        legacy_horizon_ms,
    )
    made.set_producers(producers)
    found = Found([], [], dict.fromkeys(RecordRetention, 0))
    with view.context.decoder() as decoder:
        for segment in view.segments:
            for chunk in read_chunks(segment, 0, 1 << 20):
                for filtered in made.filter(chunk, decoder):
                    add(found, filtered)
    return found


def add(found: Found, filtered: FilterResult) -> None:
    counts = filtered.counts()
    for retention in RecordRetention:
        found.counts[retention] += int(counts[retention])
    found.aborted.extend(filtered.aborted)
    columns = filtered.columns
    assert columns.first_row[-1] == len(columns) == len(filtered.keep)
    assert filtered.keep.tolist() == (filtered.retentions == RecordRetention.KEPT).tolist()
    for number, header in enumerate(columns.batches):
        rows = slice(*columns.first_row[number : number + 2].tolist())
        offsets = columns.offsets[rows].tolist()
        assert all(header.base_offset <= o <= header.last_offset for o in offsets) or (
            header.magic < 2
        )
        retentions = [
            RecordRetention(retention) for retention in filtered.retentions[rows].tolist()
        ]
        unread = RecordRetention(int(filtered.batch_retentions[number]))
        if unread is not RecordRetention.KEPT:
            assert not retentions
            retentions = [unread] * header.record_count
        horizon = int(filtered.horizons[number])
        found.batches.append(Batch(int(filtered.actions[number]), horizon, retentions))


Open = Callable[..., View]


@pytest.fixture
def log(tmp_path: Path) -> Open:
    """Returns `log(batches…)`, which writes a partition; `segment_bytes` is the topic's config."""

    def opened(*batches: bytes, segment_bytes: int = 1 << 20) -> View:
        settings = TopicSettings(segment_bytes=segment_bytes)
        write_partition(tmp_path / "t-0", list(batches), settings)
        return open_view(tmp_path / "t-0")

    return opened


def data(
    base: int, *records: tuple[bytes | None, bytes | None], last: int = -1, **fields: Any
) -> bytes:
    made = [SimpleRecord(NOW + base, key, value) for key, value in records]
    return build_batch(made, BatchFields(base_offset=base, last_offset=last, **fields))


def in_transaction(base: int, producer: int, *keys: bytes, **fields: Any) -> bytes:
    records = [(key, b"v") for key in keys]
    return data(
        base, *records, producer_id=producer, producer_epoch=0, base_sequence=0,
        is_transactional=True, **fields,
    )  # fmt: skip


def marker(base: int, producer: int, kind: ControlType, horizon: int = -1) -> bytes:
    fields = BatchFields(
        base_offset=base, producer_id=producer, producer_epoch=0, delete_horizon_ms=horizon
    )
    return build_end_txn_marker(kind, NOW, 0, fields)


COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
K, S = RecordRetention.KEPT, RecordRetention.SUPERSEDED


def test_the_newest_record_of_a_key_stays_and_one_without_a_key_goes(log: Open) -> None:
    view = log(data(0, (b"a", b"1"), (b"b", b"1"), (None, b"x")), data(3, (b"a", b"2")))
    found = filter_log(view, {b"a": 3, b"b": 1})
    assert found.batches == [
        Batch(KEEP, retentions=[S, K, RecordRetention.KEYLESS]),
        Batch(KEEP, retentions=[K]),
    ]
    assert found.counts[RecordRetention.KEPT] == 2
    assert found.counts[RecordRetention.KEYLESS] == found.counts[RecordRetention.SUPERSEDED] == 1


def test_what_the_map_does_not_know_of_stays(log: Open) -> None:
    view = log(data(0, (b"a", b"1"), (b"a", b"1"), (None, b"x"), (b"a", None)))
    found = filter_log(view, {b"a": 1}, latest=1)
    assert found.batches == [Batch(KEEP, NOW + RETENTION, [S, K, K, K])]


def test_a_tombstone_gets_its_horizon_and_goes_when_that_has_come(log: Open) -> None:
    records = (b"a", None), (b"b", b"v"), (b"c", None)
    newest = {b"a": 0, b"b": 1, b"c": 9}
    assert filter_log(log(data(0, *records)), newest).batches == [
        Batch(KEEP, NOW + RETENTION, [K, K, S])
    ]
    for horizon, retention in ((NOW + 1, K), (NOW, RecordRetention.TOMBSTONE)):
        view = log(data(0, *records, delete_horizon_ms=horizon))
        # The batch already has a horizon and gets no other.
        assert filter_log(view, newest).batches == [Batch(KEEP, -1, [retention, K, S])]


def test_a_tombstone_that_is_superseded_sets_no_horizon(log: Open) -> None:
    assert filter_log(log(data(0, (b"a", None))), {b"a": 5}).batches == [Batch(KEEP, -1, [S])]


def test_a_horizon_that_never_comes_is_none(log: Open) -> None:
    view = log(data(0, (b"a", None)), marker(1, 1, COMMIT))
    for retention, horizon in ((2**63 - 1 - NOW, 2**63 - 1), (2**63 - NOW, -1), (2**63 - 1, -1)):
        found = filter_log(view, {b"a": 0}, delete_retention_ms=retention)
        assert found.batches == [Batch(KEEP, horizon, [K])] * 2


def test_the_last_batch_before_what_is_not_cleaned_stays_even_without_records(log: Open) -> None:
    view = log(data(0, (b"a", b"1")), data(1, (b"a", b"2")))
    found = filter_log(view, {b"a": 7}, first_uncleanable=2)
    assert [batch.action for batch in found.batches] == [KEEP, RETAIN_EMPTY]


def test_the_last_batch_of_an_active_producer_stays_even_without_records(log: Open) -> None:
    def batch(base: int, producer: int) -> bytes:
        return data(base, (b"a", b"v"), producer_id=producer, producer_epoch=0, base_sequence=base)

    def state(producer: int, last_offset: int) -> ProducerStateEntry:
        cached = BatchMetadata(last_offset, last_offset, 0, NOW)
        return ProducerStateEntry(producer, epoch=0, batches=(cached,))

    view = log(batch(0, 5), batch(1, 5), batch(2, 7), batch(3, 3), data(4, (b"a", b"v")))
    states = [state(7, 2), state(5, 1), state(9, 0), state(3, 99)]
    actions = [batch.action for batch in filter_log(view, {b"a": 9}, producers=states).batches]
    assert actions == [KEEP, RETAIN_EMPTY, RETAIN_EMPTY, KEEP, KEEP]


def test_what_was_aborted_goes_unread_and_its_marker_stays_while_there_was_data(log: Open) -> None:
    view = log(
        in_transaction(0, 1, b"a", b"b"), marker(2, 1, ABORT),
        in_transaction(3, 1, b"a"), marker(4, 1, COMMIT),
    )  # fmt: skip
    found = filter_log(view, {b"a": 3})
    assert found.batches == [
        Batch(DROP, -1, [RecordRetention.ABORTED] * 2), Batch(KEEP, -1, [K]),
        Batch(KEEP, -1, [K]), Batch(KEEP, -1, [K]),
    ]  # fmt: skip
    assert found.aborted == [AbortedTxn(1, 0, 2, 3)]
    assert (found.counts[RecordRetention.ABORTED], found.counts[RecordRetention.KEPT]) == (2, 3)


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_a_marker_without_its_data_gets_a_horizon_and_goes_when_that_has_come(
    log: Open, kind: ControlType
) -> None:
    first = filter_log(log(marker(0, 1, kind)))
    assert first.batches == [Batch(KEEP, NOW + RETENTION, [K])]
    assert first.aborted == []
    for horizon, batch in (
        (NOW + 1, Batch(KEEP, -1, [K])),
        (NOW, Batch(DROP, -1, [RecordRetention.MARKER])),
    ):
        assert filter_log(log(marker(0, 1, kind, horizon))).batches == [batch]


def test_each_transaction_has_a_marker_of_its_own(log: Open) -> None:
    view = log(in_transaction(0, 1, b"a"), marker(1, 1, COMMIT), marker(2, 1, COMMIT))
    horizons = [batch.horizon for batch in filter_log(view, {b"a": 0}).batches]
    assert horizons == [-1, -1, NOW + RETENTION]
    # Data of another producer does not count.
    view = log(in_transaction(0, 2, b"a"), marker(1, 1, COMMIT), marker(2, 2, COMMIT))
    horizons = [batch.horizon for batch in filter_log(view, {b"a": 0}).batches]
    assert horizons == [-1, NOW + RETENTION, -1]


def test_data_that_went_in_this_very_pass_still_keep_their_marker(log: Open) -> None:
    view = log(in_transaction(0, 1, b"a"), marker(1, 1, COMMIT), segment_bytes=100)
    found = filter_log(view, {b"a": 5})
    assert found.batches == [Batch(KEEP, -1, [S]), Batch(KEEP, -1, [K])]


def test_an_emptied_control_batch_goes_unless_a_producer_needs_it(log: Open) -> None:
    emptied = build_batch(
        [], BatchFields(last_offset=0, producer_id=1, is_transactional=True, is_control=True)
    )
    path = Path(log(data(0, (b"a", b"1"))).segments[0].path)
    path.write_bytes(emptied)
    view = open_view(path.parent)
    assert [batch.action for batch in filter_log(view).batches] == [KEEP]
    state = ProducerStateEntry(1, epoch=-1)
    assert [batch.action for batch in filter_log(view, producers=[state]).batches] == [RETAIN_EMPTY]


def test_a_marker_is_the_last_of_a_producer_of_whom_no_data_are_known(log: Open) -> None:
    view = log(marker(0, 1, COMMIT, NOW))
    for epoch, action in ((0, RETAIN_EMPTY), (1, DROP)):
        found = filter_log(view, producers=[ProducerStateEntry(1, epoch=epoch)])
        assert found.batches == [Batch(action, -1, [RecordRetention.MARKER])]


def test_control_records_of_other_kinds_stay(log: Open) -> None:
    key = bytes([0, 0, 0, ControlType.LEADER_CHANGE])
    change = build_batch([SimpleRecord(NOW, key, b"v")], BatchFields(is_control=True))
    assert filter_log(log(change)).batches == [Batch(KEEP, -1, [K])]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_that_are_not_read_lie_among_others(log: Open, codec: Codec) -> None:
    view = log(
        in_transaction(0, 1, b"a"),
        data(1, (b"a", b"1"), (b"b", b"1"), codec=codec),
        in_transaction(3, 1, b"a"),
        in_transaction(4, 1, b"a", codec=codec),
        data(5, (b"a", b"2"), codec=codec),
        data(6, (b"c", b"3")),
        in_transaction(7, 1, b"a"),
        marker(8, 1, ABORT),
        in_transaction(9, 2, b"a"),
        marker(10, 2, ABORT),
    )
    gone = Batch(DROP, -1, [RecordRetention.ABORTED])
    kept = Batch(KEEP, -1, [K])
    assert filter_log(view, {b"a": 5, b"b": 2, b"c": 6}).batches == [
        gone, Batch(KEEP, -1, [S, K]), gone, gone, kept, kept, gone, kept, gone, kept,
    ]  # fmt: skip


def test_an_entry_that_the_transaction_index_has_lost_is_made_anew(log: Open) -> None:
    batches = (
        in_transaction(0, 1, b"a"), in_transaction(1, 2, b"b"), in_transaction(2, 1, b"a"),
        marker(3, 1, ABORT), marker(4, 2, ABORT),
    )  # fmt: skip
    whole = filter_log(log(*batches))
    assert whole.aborted == [AbortedTxn(1, 0, 3, 1), AbortedTxn(2, 1, 4, 5)]
    view = log(*batches)
    path = Path(view.segments[0].path).with_suffix(".txnindex")
    path.write_bytes(b"\1" * 34 + path.read_bytes()[34:])
    assert filter_log(open_view(path.parent)).aborted == whole.aborted
    path.unlink()
    assert filter_log(open_view(path.parent)).aborted == whole.aborted


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_tombstones_of_old_formats_go_by_the_age_of_their_segment(log: Open, codec: Codec) -> None:
    records = [SimpleRecord(NOW, b"a", None), SimpleRecord(NOW, b"b", b"v")]
    view = log(build_messages(records, MessageFields(1, 0, codec)))
    mtime_ms = view.segments[0].mtime_ns // 1_000_000
    for horizon, retention in ((mtime_ms - 1, K), (mtime_ms, RecordRetention.TOMBSTONE)):
        found = filter_log(view, {b"a": 0, b"b": 1}, legacy_horizon_ms=horizon)
        assert [each for batch in found.batches for each in batch.retentions] == [
            retention,
            K,
        ]
        assert {batch.horizon for batch in found.batches} == {-1}


def test_a_record_that_cannot_be_read_is_damage(log: Open) -> None:
    good = data(0, (b"a", b"1"))
    bad = bytearray(data(1, (b"a", b"2")))
    bad[61] += 2  # the record claims to be longer than its batch
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    view = log(good, bytes(bad))
    with pytest.raises(CorruptError) as caught:
        filter_log(view)
    assert (caught.value.file, caught.value.position) == (view.segments[0].path, len(good))
