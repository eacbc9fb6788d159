"""Tests lookups by offset and time: always right, and fast if the indexes are intact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read import lookup
from kafkafs.storage.log.read.explain import (
    FoundStep,
    OffsetIndexStep,
    Step,
    TimeIndexStep,
    WalkStep,
    explain_offset,
    explain_time,
)
from tests.batches import LEGACY_CODECS, any_batches
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.index_damage import INDEX_DAMAGE, damage_indexes
from tests.logs import TopicSettings, walk, write_partition
from tests.reading import (
    COMMITTED,
    Plain,
    check_against,
    find,
    first_since,
    open_view,
    probes,
    read,
    written,
)

LIMIT = 128 << 20
Written = tuple[bytes, list[SimpleRecord]]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[Written], TopicSettings]:
    """Draws batches of any magic in one log, with timestamps in no order, and settings that give
    several segments with index entries."""
    offset = draw(st.integers(0, 1 << 33))
    batches: list[Written] = []
    for _ in range(draw(st.integers(1, 12))):
        batch, records = draw(any_batches(offset))
        batches.append((batch, records))
        offset = max([offset, *(record.offset for record in records)]) + draw(st.integers(3, 6))
    settings = TopicSettings(
        segment_bytes=draw(st.sampled_from([150, 400, 1200, 1 << 20])),
        index_interval_bytes=draw(st.sampled_from([0, 0, 60, 300])),
    )
    return batches, settings


def write(
    directory: Path, batches: Sequence[Written], settings: TopicSettings, *, clean: bool = True
) -> list[Plain]:
    """Writes the partition; returns its records."""
    single = [header.data for batch, _ in batches for header in walk(batch)]
    first = min([record.offset for _, records in batches for record in records], default=0)
    if any(batch[16] == 2 for batch, _ in batches[:1]):
        first = int.from_bytes(batches[0][0][:8], "big")
    write_partition(directory, single, settings, base_offset=first, clean=clean)
    return [record for batch, records in batches for record in written(batch, records)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "p-0"


@given(partitions(), st.booleans())
def test_every_question_about_a_random_log_is_answered_as_by_brute_force(
    partition: tuple[list[Written], TopicSettings], clean: bool
) -> None:
    with TemporaryDirectory() as name:
        records = write(Path(name) / "p-0", *partition, clean=clean)
        check_against(open_view(Path(name) / "p-0"), records)


@given(partitions(), INDEX_DAMAGE, st.booleans())
def test_damaged_indexes_never_change_an_answer(
    partition: tuple[list[Written], TopicSettings],
    damage: list[tuple[int, str, int]],
    clean: bool,
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        records = write(directory, *partition, clean=clean)
        damage_indexes(directory, damage)
        check_against(open_view(directory), records)


def outcome(steps: Iterable[Step]) -> object:
    """Returns the offset that an explained lookup finds, else the error that it raises, else
    None."""
    found: int | None = None
    try:
        for step in steps:
            found = step.offset if isinstance(step, FoundStep) else found
    except StorageError as error:
        return (type(error), str(error)) if found is None else found
    return found


def answer(look_up: Callable[[], int | None]) -> object:
    try:
        return look_up()
    except StorageError as error:
        return type(error), str(error)


FLIPS = st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(1, 255)), max_size=2)


@given(partitions(), INDEX_DAMAGE, FLIPS, st.integers(0, 60))
def test_a_lookup_is_explained_as_it_is_answered(
    partition: tuple[list[Written], TopicSettings],
    damage: list[tuple[int, str, int]],
    flips: list[tuple[int, int]],
    further: int,
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        records = write(directory, *partition)
        damage_indexes(directory, damage)
        log = min(directory.glob("*.log"))
        data = bytearray(log.read_bytes())
        for at, bits in flips:
            data[at % len(data)] ^= bits
        log.write_bytes(data)
        view = open_view(directory, records[0].offset + further if records else further)
        for offset in range(view.start_offset - 1, min(view.end_offset + 2, view.start_offset + 9)):
            expected = answer(lambda: view.find(offset).offset)  # noqa: B023  called at once
            assert outcome(explain_offset(view, offset, COMMITTED)) == expected
        for timestamp in probes(record.timestamp for record in records):
            expected = answer(lambda: view.offset_for_time(timestamp))  # noqa: B023
            explained = outcome(explain_time(view, timestamp, COMMITTED))
            if expected is None and explained is not None:
                assert isinstance(explained, tuple)  # a broker would read what is damaged
            else:
                assert explained == expected


@given(partitions(), st.integers(0, 60))
def test_nothing_below_the_log_start_is_found(
    partition: tuple[list[Written], TopicSettings], further: int
) -> None:
    with TemporaryDirectory() as name:
        records = write(Path(name) / "p-0", *partition)
        start = records[0].offset + further if records else further
        view = open_view(Path(name) / "p-0", start)
        check_against(view, [record for record in records if record.offset >= view.start_offset])


def one_record_batches(timestamps: Sequence[int], value: bytes = b"v") -> list[Written]:
    """Makes a batch of one record for each timestamp, at offsets from 0."""
    written_ones: list[Written] = []
    for offset, timestamp in enumerate(timestamps):
        records = [SimpleRecord(timestamp, None, value, offset=offset)]
        written_ones.append((build_batch(records, BatchFields(base_offset=offset)), records))
    return written_ones


DENSE = TopicSettings(index_interval_bytes=0)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_cut_at_any_byte_changes_nothing(directory: Path, suffix: str) -> None:
    records = write(directory, one_record_batches([5, 3, 9, 9, 2, 11, 30, 4]), DENSE)
    index = directory / f"{0:020}{suffix}"
    whole = index.read_bytes()
    assert len(whole) > 20
    for size in range(len(whole)):
        index.write_bytes(whole[:size])
        check_against(open_view(directory), records)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_zeros_or_of_another_segment_changes_nothing(
    directory: Path, suffix: str
) -> None:
    settings = TopicSettings(segment_bytes=400, index_interval_bytes=0)
    records = write(directory, one_record_batches([5, 3, 9, 9, 2, 11, 30, 4] * 4), settings)
    indexes = sorted(directory.glob(f"*{suffix}"))
    assert len(indexes) > 3
    originals = [index.read_bytes() for index in indexes]
    for number, index in enumerate(indexes):
        for data in (b"", bytes(4096), originals[number - 1], originals[number] + bytes(99)):
            index.write_bytes(data)
            check_against(open_view(directory), records)
        os.truncate(index, 10 << 20)
        check_against(open_view(directory), records)
        index.write_bytes(originals[number])


def lying_time_index(directory: Path, entries: Sequence[tuple[int, int]]) -> None:
    data = b"".join(
        time.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big") for time, offset in entries
    )
    (directory / f"{0:020}.timeindex").write_bytes(data)


def test_a_time_index_without_the_spike_that_it_should_have(directory: Path) -> None:
    """Each entry holds for its own batch but not for all before it: the worst kind of error."""
    records = write(directory, one_record_batches([10, 9999, 20, 30, 40]), DENSE)
    lying_time_index(directory, [(10, 0), (20, 2), (30, 3), (40, 4)])
    check_against(open_view(directory), records)


def test_a_time_index_whose_offsets_point_at_later_batches_with_the_same_time(
    directory: Path,
) -> None:
    records = write(directory, one_record_batches([5, 9, 5, 9, 20]), DENSE)
    lying_time_index(directory, [(5, 2), (9, 3)])
    check_against(open_view(directory), records)


def test_one_log_with_all_three_magics_in_its_segments(tmp_path: Path) -> None:
    batches: list[Written] = []
    offset = 0
    for magic in (0, 0, 1, 1, 2, 2):
        for codec in LEGACY_CODECS if magic < 2 else tuple(Codec):
            simple = [
                SimpleRecord(1000 + 7 * offset, b"k%d" % n, b"v%d" % offset, offset=offset + n)
                for n in range(3)
            ]
            if magic == 2:
                data = build_batch(simple, BatchFields(base_offset=offset, codec=codec))
            else:
                fields = MessageFields(magic=magic, base_offset=offset, codec=codec)
                data = build_messages(simple, fields)
            batches.append((data, simple))
            offset += 3
    settings = TopicSettings(segment_bytes=600, index_interval_bytes=100)
    records = write(tmp_path / "p-0", batches, settings)
    assert len(list((tmp_path / "p-0").glob("*.log"))) > 3
    check_against(open_view(tmp_path / "p-0"), records)


def test_leading_segments_that_the_cleaner_emptied(directory: Path) -> None:
    settings = TopicSettings(segment_bytes=200, index_interval_bytes=0)
    records = write(directory, one_record_batches(range(100, 120)), settings)
    logs = sorted(directory.glob("*.log"))
    for log in logs[:3]:
        for suffix in (".log", ".index", ".timeindex"):
            log.with_suffix(suffix).write_bytes(b"")
    first = int(logs[3].stem)
    assert first > 2
    view = open_view(directory)
    assert view.start_offset == 0
    check_against(view, [record for record in records if record.offset >= first])


def test_gaps_of_compaction_are_no_records_and_no_damage(tmp_path: Path) -> None:
    """Compacted batches retain their last offset after losing some or all records."""
    records = [SimpleRecord(50, b"a", b"1", offset=3), SimpleRecord(60, b"b", b"2", offset=6)]
    empty = BatchFields(base_offset=10, last_offset=14, max_timestamp=99)
    later = [SimpleRecord(70, b"c", b"3", offset=20)]
    batches = [
        (build_batch(records, BatchFields(base_offset=0, last_offset=9)), records),
        (build_batch([], empty), []),
        (build_batch(later, BatchFields(base_offset=20)), later),
    ]
    directory = tmp_path / "p-0"
    model = write(directory, batches, DENSE)
    view = open_view(directory)
    assert (view.start_offset, view.end_offset) == (0, 21)
    check_against(view, model)


def sparse_log(directory: Path) -> None:
    batches = one_record_batches(range(1000, 4000), b"x" * 300)
    write(directory, batches, TopicSettings(index_interval_bytes=4096))


def of_kind(steps: Iterable[Step], kind: type) -> list[object]:
    return [step for step in steps if isinstance(step, kind)]


def test_an_offset_is_found_from_its_index_entry(tmp_path: Path) -> None:
    sparse_log(tmp_path / "p-0")
    view = open_view(tmp_path / "p-0")
    assert view.find(2500).offset == 2500
    steps = list(explain_offset(view, 2500, COMMITTED))
    [entry] = of_kind(steps, OffsetIndexStep)
    assert isinstance(entry, OffsetIndexStep)
    assert not entry.refused
    assert 2480 < entry.offset <= 2500
    assert len(of_kind(steps, WalkStep)) <= 2500 - entry.offset + 1


def test_an_entry_that_lies_is_refused_and_said_so(directory: Path) -> None:
    sparse_log(directory)
    index = directory / f"{0:020}.index"
    data = index.read_bytes()
    shifted = b"".join(
        data[at : at + 4] + (int.from_bytes(data[at + 4 : at + 8], "big") + 3).to_bytes(4, "big")
        for at in range(0, len(data), 8)
    )
    index.write_bytes(shifted)
    view = open_view(directory)
    assert view.find(2500).offset == 2500
    [entry] = of_kind(explain_offset(view, 2500, COMMITTED), OffsetIndexStep)
    assert isinstance(entry, OffsetIndexStep)
    assert entry.refused


def test_a_time_is_found_from_its_index_entries(tmp_path: Path) -> None:
    sparse_log(tmp_path / "p-0")
    view = open_view(tmp_path / "p-0")
    assert view.offset_for_time(3500) == 2500
    steps = list(explain_time(view, 3500, COMMITTED))
    [time_entry] = of_kind(steps, TimeIndexStep)
    [entry] = of_kind(steps, OffsetIndexStep)
    assert isinstance(time_entry, TimeIndexStep)
    assert isinstance(entry, OffsetIndexStep)
    assert 3470 < time_entry.timestamp < 3500
    assert entry.target == time_entry.offset


@pytest.mark.parametrize("magic", [1, 2])
def test_a_batch_in_a_value_is_none_of_the_log_even_if_an_index_says_so(
    directory: Path, magic: int
) -> None:
    inner = build_batch([SimpleRecord(7, None, b"inner")] * 3, BatchFields(base_offset=3))
    simple = [SimpleRecord(9, b"k", inner + bytes(9), offset=2)]
    if magic == 2:
        outer = build_batch(simple, BatchFields(base_offset=2))
    else:
        outer = build_messages(simple, MessageFields(magic=1, base_offset=2))
    batches = [*one_record_batches([5, 6]), (outer, simple)]
    for offset in range(3, 9):
        later = [SimpleRecord(10 + offset, None, b"v", offset=offset)]
        batches.append((build_batch(later, BatchFields(base_offset=offset)), later))
    records = write(directory, batches, DENSE)
    log = (directory / f"{0:020}.log").read_bytes()
    entry = (3).to_bytes(4, "big") + log.index(inner).to_bytes(4, "big")
    (directory / f"{0:020}.index").write_bytes(entry)
    for time_index in (b"", (7).to_bytes(8, "big") + (5).to_bytes(4, "big")):
        (directory / f"{0:020}.timeindex").write_bytes(time_index)
        view = open_view(directory)
        check_against(view, records)
        for start in range(9):
            assert read(view, start) == records[start:]


def test_a_hint_behind_damage_still_finds_what_is_behind_it(directory: Path) -> None:
    sparse_log(directory)
    log = directory / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    headers = list(walk(bytes(data)))
    bad = headers[1000]
    data[bad.position : bad.position + bad.size] = bytes(bad.size)
    log.write_bytes(data)
    view = open_view(directory)
    for offset in (0, 998, 999, 1001, 1002, 2000, 2999):
        found = find(view, offset)
        assert found is not None
        assert found.offset == offset
    largest = lookup.largest_timestamp(view.segments[0], LIMIT)
    assert largest == 3999


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30),
    st.sampled_from([0, 100, 250]),
)
def test_times_in_no_order_find_the_first_record_that_reaches_them(
    timestamps: list[int], interval: int
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        settings = TopicSettings(segment_bytes=500, index_interval_bytes=interval)
        records = write(directory, one_record_batches(timestamps), settings)
        view = open_view(directory)
        for time in range(-1, 33):
            assert view.offset_for_time(time) == first_since(records, time)
