"""Tests cleaning passes: against a model of lists and dicts, and what aborts them."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.cleaner.cleaned import CleanedSegment
from kafkafs.storage.cleaner.cleaning import CleanedSink, CleaningResult, Throttle, clean
from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from kafkafs.storage.cleaner.plan import LogToClean, SegmentToClean
from kafkafs.storage.cleaner.reading import Chunk, read_chunks
from kafkafs.storage.cleaner.record_filter import FilterResult, RecordRetention
from kafkafs.storage.clock import SetClock
from kafkafs.storage.concurrency.read_ahead import read_ahead
from kafkafs.storage.errors import CleaningAborted, ConfigError, CorruptError, LogDirOffline
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchHeader, BatchTable, scan
from kafkafs.storage.format.records.encoder import put_checksums
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.durable import SyncFailed, WritableDirFd, replaced
from kafkafs.storage.log.read.view import View
from tests.batches import damaged_logs
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_end_txn_marker,
    build_messages,
)
from tests.cleaning import CONFIG, Exchange, log_to_clean
from tests.faults import FailingCalls
from tests.logs import TopicSettings, write_partition
from tests.profiles import percent
from tests.reading import UNCOMMITTED, Plain, open_view, read
from tests.writing import NOW, Unsynced, files

Pair = tuple[bytes | None, bytes | None]  # key and value


@dataclass
class Remembered:
    """A sink that only records which offsets are retained."""

    kept: list[int] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)

    def begin(self, segments: Sequence[SegmentToClean]) -> None:
        self.groups.append([segment.base_offset for segment in segments])

    def put(self, filtered: FilterResult) -> int:
        self.kept += filtered.columns.offsets[filtered.keep != 0].tolist()
        return 0

    def end(self) -> None:
        pass

    def discard(self) -> None:
        raise AssertionError("discarded although nothing failed")


def all_but_active(view: View, first_dirty: int = 0, **options: Any) -> LogToClean:
    return log_to_clean(view, first_dirty, view.segments[-1].base_offset, **options)


def write(directory: Path, batches: Sequence[Sequence[Pair]], segment_bytes: int = 200) -> View:
    """Writes a partition with these batches, one record per offset; returns its view."""
    made, offset = [], 0
    for pairs in batches:
        records = [SimpleRecord(NOW + offset, *pair) for pair in pairs]
        made.append(build_batch(records, BatchFields(base_offset=offset)))
        offset += len(pairs)
    write_partition(directory, made, TopicSettings(segment_bytes=segment_bytes))
    return open_view(directory)


# -- against a model ------------------------------------------------------------------------------

KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d", b"e"])
BATCHES = st.lists(
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=40)), min_size=1, max_size=5),
    min_size=2,
    max_size=12,
)


def model(
    records: Sequence[Plain], lasts: Sequence[int], first_dirty: int, end: int, capacity: int
) -> tuple[list[Plain], int]:
    """Returns what a pass retains, and where it ends; `lasts` are the batches' last offsets."""
    newest: dict[bytes, int] = {}
    for record in records:
        if record.key is None or not first_dirty <= record.offset < end:
            continue
        if len(newest) >= capacity:
            before = [last for last in lasts if last < record.offset]
            end = max([*newest.values(), *before[-1:]]) + 1
            break
        newest[record.key] = record.offset
    kept = [
        record
        for record in records
        if record.offset >= end
        or (record.key is not None and record.offset >= newest.get(record.key, -1))
    ]
    return kept, end


@settings(max_examples=percent(30))
@given(BATCHES, st.integers(1, 6), st.integers(60, 400))
def test_passes_keep_what_a_cleaner_of_lists_keeps(
    batches: list[list[Pair]], capacity: int, segment_bytes: int
) -> None:
    """Runs passes until all is clean, as a full map ends a pass."""
    config = replace(CONFIG, internal_segment_bytes=segment_bytes)
    lasts = [last - 1 for last in accumulate(map(len, batches))]
    with TemporaryDirectory() as folder, replaced(Unsynced()):
        directory = Path(folder) / "t-0"
        view = write(directory, batches, segment_bytes)
        active = view.segments[-1].base_offset
        first_dirty, kept = 0, plain(view)
        while first_dirty < active:
            view = open_view(directory)
            kept, end = model(plain(view), lasts, first_dirty, active, capacity)
            sink = CleanedSink(WritableDirFd(str(directory)), config, Exchange(directory))
            offset_map = OffsetMap(capacity * SLOT_BYTES, 1.0)
            result = clean(all_but_active(view, first_dirty, config=config), offset_map, sink)
            assert plain(open_view(directory)) == kept
            assert result.end_offset == end
            first_dirty = end
        left = {record.key: record.offset for record in kept if record.offset < active}
        assert sorted(left.values()) == [r.offset for r in kept if r.offset < active]
        assert None not in left


def plain(view: View) -> list[Plain]:
    return [
        Plain.of(part.record(row))
        for part in view.read(isolation=UNCOMMITTED)
        for row in range(len(part))
    ]


def test_a_sink_that_only_remembers_sees_the_same(tmp_path: Path) -> None:
    view = write(tmp_path / "t-0", [[(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")]] * 9)
    before = files(tmp_path / "t-0")
    sink = Remembered()
    result = clean(all_but_active(view), OffsetMap(1 << 12), sink)
    assert files(tmp_path / "t-0") == before
    assert sink.groups == [[s.base_offset for s in view.segments[:-1]]]
    written = CleanedSink(WritableDirFd(str(tmp_path / "t-0")), CONFIG, Exchange(view_dir(view)))
    again = clean(all_but_active(view), OffsetMap(1 << 12), written)
    left = [r.offset for r in plain(open_view(tmp_path / "t-0")) if r.offset < again.end_offset]
    assert left == sink.kept
    assert (again.counts, again.end_offset) == (result.counts, result.end_offset)
    assert result.counts[RecordRetention.KEPT] == len(sink.kept) == 2


def view_dir(view: View) -> Path:
    return Path(view.segments[0].path).parent


def test_nothing_dirty_is_nothing_to_do(tmp_path: Path) -> None:
    view = write(tmp_path / "t-0", [[(b"a", b"1")], [(b"a", b"2")]], 80)
    sink = Remembered()
    result = clean(all_but_active(view, view.segments[-1].base_offset), OffsetMap(1 << 12), sink)
    assert (result.end_offset, result.segments_before, sink.groups) == (1, 0, [])


# -- old formats ----------------------------------------------------------------------------------


def old_log(directory: Path, pairs: Sequence[Pair]) -> View:
    """Writes messages of magic 1, two per segment; the segments' mtimes are a second apart."""
    made = [
        build_messages([SimpleRecord(NOW, *pair)], MessageFields(1, offset))
        for offset, pair in enumerate(pairs)
    ]
    size = 2 * max(map(len, made))
    write_partition(directory, made, TopicSettings(segment_bytes=size))
    for number, segment in enumerate(open_view(directory).segments):
        os.utime(segment.path, ns=(0, (NOW + 1000 * number) * 1_000_000))
    return open_view(directory)


def test_tombstones_of_old_formats_go_by_the_age_of_what_was_cleaned_last(tmp_path: Path) -> None:
    pairs = [(b"a", None), (b"b", None), (b"c", None), (b"d", None), (b"e", b""), (b"f", b"")] * 2
    view = old_log(tmp_path / "t-0", pairs[:7])
    assert [segment.base_offset for segment in view.segments] == [0, 2, 4, 6]
    # The clean part is the first two segments; the second was written a second after the first.
    for retention, kept in ((1000, [2, 3, 4, 5]), (1001, [1, 2, 3, 4, 5]), (0, [4, 5])):
        sink = Remembered()
        config = replace(CONFIG, delete_retention_ms=retention)
        clean(all_but_active(view, 4, config=config), OffsetMap(1 << 12), sink)
        assert [offset for offset in sink.kept if offset not in (0,)] == kept


def test_an_old_message_that_must_stay_without_a_record_cannot(tmp_path: Path) -> None:
    view = old_log(tmp_path / "t-0", [(b"a", b"1"), (None, b"2"), (b"b", b"3")])
    before = files(tmp_path / "t-0")
    sink = CleanedSink(WritableDirFd(str(tmp_path / "t-0")), CONFIG, Exchange(view_dir(view)))
    with pytest.raises(CorruptError) as caught:
        clean(all_but_active(view), OffsetMap(1 << 12), sink)
    assert caught.value.file == view.segments[0].path
    assert files(tmp_path / "t-0") == before


# -- what ends a pass early -----------------------------------------------------------------------

SAMPLE: list[list[Pair]] = [[(b"k%d" % (n % 7), b"v%d" % n), (None, b"x")] for n in range(40)]
SMALL = replace(CONFIG, internal_segment_bytes=400)


@pytest.fixture
def sample(tmp_path: Path) -> View:
    """Writes a partition of several segments, two of which are merged into one."""
    return write(tmp_path / "t-0", SAMPLE)


def attempt(view: View, **options: Any) -> CleaningResult:
    sink = CleanedSink(WritableDirFd(str(view_dir(view))), SMALL, Exchange(view_dir(view)))
    return clean(all_but_active(view, config=SMALL, **options), OffsetMap(1 << 12), sink)


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("first_dirty", [0, 60])
def test_damage_ends_the_pass_and_is_named(sample: View, number: int, first_dirty: int) -> None:
    """Damage anywhere counts, also in the part that was cleaned before."""
    segment = sample.segments[number]
    data = bytearray(Path(segment.path).read_bytes())
    data[-1] ^= 1
    Path(segment.path).write_bytes(data)
    view = open_view(view_dir(sample))
    before = files(view_dir(view))
    sink = CleanedSink(WritableDirFd(str(view_dir(view))), CONFIG, Exchange(view_dir(view)))
    with pytest.raises(CorruptError) as caught:
        clean(all_but_active(view, first_dirty), OffsetMap(1 << 12), sink)
    assert caught.value.file == segment.path
    assert 0 < caught.value.position < len(data)
    assert files(view_dir(view)) == before


def with_right_checksums(data: bytes) -> bytes:
    """Returns the damaged data with valid checksums, as a malicious writer would produce it."""
    table, _ = scan(data, len(data), 0, BatchTable.empty(64), whole=True)
    fixed = bytearray(data)
    put_checksums(memoryview(fixed), table.select(table.column(b.MAGIC) == 2))
    return bytes(fixed)


@given(damaged_logs() | damaged_logs().map(with_right_checksums))
def test_damage_of_any_kind_is_found_or_does_no_harm(data: bytes) -> None:
    """Either the whole log is cleaned or nothing changes; no other error is raised."""
    with TemporaryDirectory() as folder, replaced(Unsynced()):
        directory = Path(folder) / "t-0"
        directory.mkdir()
        base = max(int.from_bytes(data[:8], "big") % (1 << 40), 0) if data else 0
        last = base + (1 << 31)
        (directory / f"{base:020}.log").write_bytes(data)
        (directory / f"{last:020}.log").touch()
        before = files(directory)
        sink = CleanedSink(WritableDirFd(str(directory)), CONFIG, Exchange(directory))
        found: list[CorruptError] = []
        try:
            result = clean(all_but_active(open_view(directory), base), OffsetMap(1 << 12), sink)
        except CorruptError as error:
            found.append(error)
        if found:
            assert found[0].file.endswith(f"{base:020}.log")
            assert 0 <= found[0].position <= len(data)
            assert files(directory) == before
        else:
            assert len(plain(open_view(directory))) <= result.counts[RecordRetention.KEPT]
            assert result.bytes_before == len(data)


def test_an_offset_too_far_above_its_base_is_damage(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [
        build_batch([SimpleRecord(NOW, b"k", b"v")], BatchFields(base_offset=offset))
        for offset in (0, (1 << 31) - 1, 1 << 31)
    ]
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    (directory / f"{1 << 32:020}.log").touch()
    before = files(directory)
    with pytest.raises(CorruptError, match="2147483648 is too far above") as caught:
        attempt(open_view(directory))
    assert caught.value.position == 2 * len(batches[0])
    assert files(directory) == before


def test_a_file_that_became_shorter_is_damage(sample: View) -> None:
    segment = sample.segments[1]
    whole = Path(segment.path).read_bytes()
    first = 12 + int.from_bytes(whole[8:12], "big")
    os.truncate(segment.path, first)
    with pytest.raises(CorruptError, match="the file ends here") as caught:
        attempt(sample)
    assert (caught.value.file, caught.value.position) == (segment.path, first)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_any_call_that_fails_leaves_all_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, error: int
) -> None:
    """Fails in the first group; groups that were already swapped in would stay."""
    for number in range(1000):
        directory = tmp_path_factory.mktemp("full") / "t-0"
        view = write(directory, SAMPLE)
        before = files(directory)
        sink = CleanedSink(WritableDirFd(str(directory)), CONFIG, never)
        calls = FailingCalls(number, error, ("open", "pwritev", "fsync", "ftruncate", "utime"))
        with replaced(calls), pytest.raises((OSError, Reached)) as caught:
            clean(all_but_active(view), OffsetMap(1 << 12), sink)
        if isinstance(caught.value, OSError):
            assert caught.value.errno == error
            assert calls.failed
            assert files(directory) == before
        elif not calls.failed:
            assert files(directory) == before
            assert number > 10
            return
        else:  # removing the files has failed; another pass or loading the log repeats that
            assert "failed to remove" in caught.value.__notes__[0]
    raise AssertionError("the pass never succeeded")


def test_a_pass_can_be_called_off_at_any_time(sample: View) -> None:
    before = files(view_dir(sample))
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > allowed:
            raise CleaningAborted("aborted by the test")

    for allowed in range(1000):
        asked = 0
        sink = CleanedSink(WritableDirFd(str(view_dir(sample))), CONFIG, never)
        try:
            clean(all_but_active(sample, check=check), OffsetMap(1 << 12), sink)
        except CleaningAborted:
            assert files(view_dir(sample)) == before
        except Reached:
            assert allowed > 2 * len(sample.segments[:-1])
            assert files(view_dir(sample)) == before
            return
    raise AssertionError("the pass never reached the swap")


class Reached(Exception):
    """Raised when a cleaned group would be swapped in."""


def never(cleaned: CleanedSegment, old: Sequence[int]) -> None:
    raise Reached


@pytest.mark.parametrize("error", [LogDirOffline("/d", "gone"), SyncFailed(errno.EIO, "no")])
def test_after_an_exchange_that_may_have_begun_its_files_stay(
    sample: View, error: Exception
) -> None:
    """Loading the partition needs them to decide which segments count."""

    def exchange(cleaned: CleanedSegment, old: Sequence[int]) -> None:
        raise error

    sink = CleanedSink(WritableDirFd(str(view_dir(sample))), CONFIG, exchange)
    with pytest.raises(type(error)):
        clean(all_but_active(sample), OffsetMap(1 << 12), sink)
    assert [name for name in files(view_dir(sample)) if name.endswith(".cleaned")]


def test_what_was_exchanged_before_an_error_stays(sample: View) -> None:
    groups = Remembered()
    clean(all_but_active(sample, config=SMALL), OffsetMap(1 << 12), groups)
    assert len(groups.groups) > 2
    damaged = Path(sample.segments.from_offset(groups.groups[2][0])[0].path)
    attempts: list[int] = []

    def check() -> None:
        # The offset map is complete here.
        attempts.append(1)
        if len(attempts) == len(sample.segments):
            damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")

    with pytest.raises(CorruptError):
        attempt(sample, check=check)
    left = open_view(view_dir(sample))
    assert not [name for name in files(view_dir(sample)) if name.endswith(".cleaned")]
    assert [s.base_offset for s in left.segments[:2]] == [g[0] for g in groups.groups[:2]]


# -- progress and pace ----------------------------------------------------------------------------


def test_progress_is_told_up_to_the_end(sample: View) -> None:
    heard: list[tuple[int, int]] = []
    attempt(sample, on_progress=lambda done, total: heard.append((done, total)))
    size = sum(segment.size for segment in sample.segments[:-1])
    assert heard[-1] == (2 * size, 2 * size)
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})
    assert all(done <= total for done, total in heard)


def test_a_throttle_waits_as_long_as_its_rate_demands() -> None:
    clock, naps = SetClock(NOW), []

    def wait(seconds: float) -> None:
        naps.append(seconds)
        clock.advance(round(seconds * 1000))

    throttle = Throttle(1000, clock, wait)
    throttle.spend(5000)
    assert not naps  # a rate over so short a time would mean nothing
    clock.advance(301)
    throttle.spend(1000)
    assert naps == [pytest.approx(5.699)]
    clock.advance(400)
    throttle.spend(400)
    assert len(naps) == 1
    clock.advance(301)
    throttle.spend(1301)
    assert naps[1] == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_at_which_nothing_would_be_read_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"log\.cleaner\.io\.max\.bytes\.per\.second"):
        Throttle(rate, SetClock(NOW))


def test_a_pass_keeps_to_the_rate(sample: View) -> None:
    """Both bytes read and bytes written count."""
    clock = SetClock(NOW)

    def wait(seconds: float) -> None:
        clock.advance(round(seconds * 1000))

    def told(done: int, total: int) -> None:
        clock.advance(301)

    sink = CleanedSink(WritableDirFd(str(view_dir(sample))), CONFIG, Exchange(view_dir(sample)))
    log = all_but_active(sample, on_progress=told)
    result = clean(log, OffsetMap(1 << 12), sink, Throttle(100, clock, wait))
    moved = 2 * result.bytes_before + result.bytes_after
    assert clock.now_ms() - NOW == pytest.approx(moved * 10, rel=0.1)


def headers(view: View, end: int) -> list[BatchHeader]:
    """Returns the headers of all batches in segments that start below an offset."""
    return [
        header
        for segment in view.segments
        for chunk in read_chunks(segment, 0, 1 << 20)
        for header in list(chunk.table)
        if segment.base_offset < end
    ]


def copied(chunk: Chunk) -> tuple[int, bytes, list[list[int]]]:
    return chunk.run.base, bytes(chunk.run.data), chunk.table.rows.tolist()


def test_reading_ahead_gives_the_same_and_ends_with_the_same_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkafs.storage.segment.walk._FIRST_RUN_BYTES", 700)
    monkeypatch.setattr("kafkafs.storage.segment.walk._RUN_GROWTH", 1)
    made = [
        build_batch([SimpleRecord(NOW, b"k", bytes(200))], BatchFields(base_offset=offset))
        for offset in range(30)
    ]
    made[25] = made[25][:-1] + b"x"
    write_partition(tmp_path / "t-0", made, TopicSettings(segment_bytes=1 << 20))
    [segment] = open_view(tmp_path / "t-0").segments
    kept: list[Chunk] = []
    with pytest.raises(CorruptError, match="batch 25-25: crc"):
        kept.extend(read_ahead(read_chunks(segment, 0, 1 << 20, stay_valid=True)))
    expected: list[tuple[int, bytes, list[list[int]]]] = []
    with pytest.raises(CorruptError, match="batch 25-25: crc"):
        expected.extend(map(copied, read_chunks(segment, 0, 1 << 20)))
    # All of them remain valid, although others were read in between.
    assert list(map(copied, kept)) == expected
    assert len(kept) > 5
    # An abandoned reader leaves no thread behind.
    assert next(read_ahead(read_chunks(segment, 0, 1 << 20, stay_valid=True))).run.base == 0
    gc.collect()
    assert not [each for each in threading.enumerate() if "ahead" in each.name]


# -- transactions ---------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.integers(-1, 2), st.sampled_from(["data", "data", "data", "commit", "abort"])),
    min_size=4,
    max_size=30,
)


def written_steps(steps: Sequence[tuple[int, str]], choose: Callable[[int], Pair]) -> list[bytes]:
    """Returns a batch per step: one data record, or the end of a producer's transaction. Producer
    -1 writes outside of transactions. All transactions are ended at the end."""
    made: list[bytes] = []
    sequences = dict.fromkeys(range(3), 0)
    for producer, what in (*steps, (0, "abort"), (1, "commit"), (2, "abort"), (-1, "data")):
        offset = len(made)
        fields = BatchFields(base_offset=offset)
        if producer >= 0:
            fields = replace(fields, producer_id=producer, producer_epoch=0)
        if what == "data":
            if producer >= 0:
                first = sequences[producer]
                fields = replace(fields, base_sequence=first, is_transactional=True)
                sequences[producer] += 1
            record = SimpleRecord(NOW + offset, *choose(offset))
            made.append(build_batch([record], fields))
        elif producer >= 0:
            kind = ControlType.COMMIT if what == "commit" else ControlType.ABORT
            made.append(build_end_txn_marker(kind, NOW + offset, 0, fields))
    return made


@settings(max_examples=percent(20))
@given(STEPS, st.randoms(use_true_random=False), st.integers(100, 600), st.integers(3, 9))
def test_transactions_come_out_as_they_were(
    steps: list[tuple[int, str]], chance: Random, segment_bytes: int, capacity: int
) -> None:
    """Runs passes as delete horizons expire. The newest committed record of each key stays as it
    was, no other record changes, moves or appears, and at last only markers of data are left."""

    def choose(offset: int) -> Pair:
        return chance.choice([b"a", b"b", b"c"]), chance.choice([b"v%d" % offset, None])

    config = replace(CONFIG, internal_segment_bytes=segment_bytes)
    with TemporaryDirectory() as folder, replaced(Unsynced()):
        directory = Path(folder) / "t-0"
        batches = written_steps(steps, choose)
        write_partition(directory, batches, TopicSettings(segment_bytes=segment_bytes))
        view = open_view(directory)
        active, end = view.segments[-1].base_offset, view.end_offset
        before = read(view)
        newest = {record.key: record for record in before}
        first_dirty, now = 0, NOW
        while active and now < NOW + 5 * config.delete_retention_ms:
            view = open_view(directory)
            sink = CleanedSink(WritableDirFd(str(directory)), config, Exchange(directory))
            log = all_but_active(view, first_dirty, config=config, now_ms=now)
            result = clean(log, OffsetMap(capacity * SLOT_BYTES, 1.0), sink)
            view = open_view(directory)
            left = read(view)
            assert (view.end_offset, view.last_stable_offset) == (end, end)
            assert left == [record for record in before if record in left]
            now_newest = {record.key: record for record in left}
            for key, record in newest.items():
                assert now_newest.get(key, record) == record
                assert key in now_newest or record.value is None
            first_dirty = result.end_offset
            if first_dirty == active:  # once more from the start, as after losing the checkpoint
                first_dirty, now = 0, now + config.delete_retention_ms
        below = [record for record in read(open_view(directory)) if record.offset < active]
        assert len({record.key for record in below}) == len(below)
        assert all(record.value is not None for record in below)
        begun: set[int] = set()
        for header in headers(open_view(directory), active):
            if not header.is_control:
                begun |= {header.producer_id} if header.is_transactional else set()
            elif header.last_offset != active - 1:
                begun.remove(header.producer_id)  # each remaining marker has its data
