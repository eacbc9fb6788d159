"""Reports: their numbers are those of the operations and scans that they sum up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.files.names import METADATA_TOPIC
from kafkafs.storage.format.layout import CONTROL_MASK, Codec
from kafkafs.storage.format.records.columns import KEY_SIZE, VALUE_SIZE, Columns
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.compact import Compact, CompactedLog, compact
from kafkafs.storage.operations.describe_topics import DescribeConfigs, describe_configs
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, list_groups
from kafkafs.storage.operations.report.model import (
    Growth,
    LogDirsReport,
    PartitionReport,
    SegmentState,
    TimeGap,
)
from kafkafs.storage.operations.report.report import ReportLogDirs, report
from kafkafs.storage.operations.report.sampling import narrowed
from kafkafs.storage.operations.report.timeline import offsets_at, sizes_at, time_axis
from kafkafs.storage.operations.transactions import (
    PartitionTransaction,
    Transactions,
    list_transactions,
)
from kafkafs.storage.operations.verify import Verify, VerifySummary, verify
from kafkafs.storage.operations.why import ExplainedPartition, Why, why
from kafkafs.storage.segment.offset_index import OffsetIndex
from kafkafs.storage.segment.time_index import TimeIndex
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_log_dir, write_partition

THEN = 1_790_000_000_000
HOUR_MS = 3_600_000
#: A time when retention has expired something in every corpus, and one when nothing.
TIMES = (1_788_300_000_000, 1_900_000_000_000)


def engine_at(path: Path, now_ms: int) -> Engine:
    engine = Engine(str(path))
    engine.clock = SetClock(now_ms)
    return engine


def made(engine: Engine, *, deep: bool = False) -> LogDirsReport:
    *_, last = report(engine, ReportLogDirs(deep=deep))
    assert isinstance(last, LogDirsReport)
    return last


def explained(engine: Engine, found: PartitionReport) -> dict[str, Any]:
    [row] = [
        row
        for row in why(engine, Why(found.topic, found.partition))
        if isinstance(row, ExplainedPartition)
    ]
    return row.as_json()


@pytest.mark.parametrize("now_ms", TIMES)
@pytest.mark.parametrize("name", ["kafka43-clean", "kafka28", "compact-before"])
def test_segments_are_those_that_why_explains(
    corpus: Callable[[str], Path], name: str, now_ms: int
) -> None:
    engine = engine_at(corpus(name), now_ms)
    found = made(engine)
    assert [(each.topic, each.partition) for each in found.partitions] == [
        (topic, number)
        for topic, numbers in engine.topics().items()
        for number in numbers
        if topic != METADATA_TOPIC
    ]
    states = set()
    for one in found.partitions:
        expected = explained(engine, one)
        for segment, other in zip(one.segments, expected["segments"], strict=True):
            fate, standing = other["retention"], other["compaction"]
            is_dirty = standing is not None and standing["state"] == "dirty"
            assert (segment.base_offset, segment.end_offset, segment.size) == (
                *(other["baseOffset"], other["upperBound"], other["size"]),
            )
            assert segment.largest_timestamp == other["largestTimestamp"]
            assert segment.expires_at_ms == fate["expiresAt"]
            assert (segment.state is SegmentState.EXPIRED) == (fate["rule"] is not None)
            assert (segment.state is SegmentState.DIRTY) == (is_dirty and fate["rule"] is None)
            states.add(segment.state)
        assert one.last_stable_offset == expected["lastStableOffset"]
        assert (one.dirty_ratio is None) == (expected["compaction"] is None)
    assert (SegmentState.EXPIRED in states) == (now_ms == TIMES[1])


def test_the_rest_is_what_the_other_operations_list(corpus: Callable[[str], Path]) -> None:
    engine = Engine(str(corpus("kafka43-clean")))
    found = made(engine)
    assert [
        (one.topic, one.partition, each) for one in found.partitions for each in one.transactions
    ] == [
        (row.topic, row.partition, row.transaction)
        for row in list_transactions(engine, Transactions())
        if isinstance(row, PartitionTransaction)
    ]
    for topic in found.topics:
        [configs] = describe_configs(engine, DescribeConfigs(topic.topic))
        assert {name: (text, str(source)) for name, (text, source) in topic.configs.items()} == {
            name: (each["value"], each["source"])
            for name, each in configs.configs.items()
            if each["source"] != "default"
        }
    assert found.as_json()["topics"][0]["partitions"][0]["partition"] == 0


def test_groups_are_those_that_groups_lists(corpus: Callable[[str], Path]) -> None:
    engine = engine_at(corpus("groups43"), TIMES[1])
    everything = [row for row in list_groups(engine, ListGroups()) if isinstance(row, GroupOffset)]
    assert list(made(engine).groups) == everything
    *_, one = report(engine, ReportLogDirs(Selection.of("main/2")))
    assert isinstance(one, LogDirsReport)
    assert list(one.groups) == [r for r in everything if (r.topic, r.partition) == ("main", 2)]
    assert one.groups


@pytest.mark.parametrize(
    ("name", "at_ms"),
    [
        ("kafka43-clean", None),
        ("kafka43-clean", 1_788_436_800_000),
        ("kafka28", None),
        ("kafka43-torn", None),
        ("compact-before", None),
    ],
)
def test_a_deep_report_counts_what_a_scan_reads(
    corpus: Callable[[str], Path], name: str, at_ms: int | None
) -> None:
    engine = Engine(str(corpus(name)), at_ms=at_ms)
    found = made(engine, deep=True)
    assert not any(one.disorder.future for one in found.partitions)
    if at_ms is not None:
        assert not any(one.disorder.future for one in made(engine).partitions)
        assert found.at_ms == at_ms
    for one in found.partitions:
        view = engine.log(one.topic, one.partition).view()
        records = keys = values = stored = 0
        for part in view.scan(isolation=Isolation.READ_UNCOMMITTED):
            if isinstance(part, Columns):
                is_control = part.batches.flagged(CONTROL_MASK)
                data = part.where(~np.repeat(is_control, np.diff(part.first_row)))
                records += len(data)
                keys += int(data.spans[:, KEY_SIZE].clip(0).sum())
                values += int(data.spans[:, VALUE_SIZE].clip(0).sum())
                stored += sum(header.size for header in data.batches)
        assert one.counts is not None
        assert (one.counts.records, one.counts.key_bytes) == (records, keys)
        assert one.counts.value_bytes == values
        uses = one.codecs.values()
        assert sum(use.stored_bytes for use in uses) == stored
        assert sum(use.data_bytes for use in uses) == keys + values
        if len(one.growth) and name != "kafka43-torn":
            assert one.growth.sizes[-1] <= one.size
    *_, summary = verify(engine, Verify())
    assert isinstance(summary, VerifySummary)
    damage = {each.error for one in found.partitions for each in one.damage}
    assert summary.findings <= len(damage) + len(found.problems)
    assert bool(summary.findings) == (name == "kafka43-torn")


@pytest.mark.parametrize("now_ms", TIMES)
def test_superseded_records_are_those_that_compaction_removes(
    corpus: Callable[[str], Path], now_ms: int
) -> None:
    engine = engine_at(corpus("compact-before"), now_ms)
    found = made(engine, deep=True)
    rows = compact(engine, Compact(dry_run=True, force=True, everything=True))
    gone = {
        (row.topic, row.partition): sum(row.gone.values()) - row.gone["expired"]
        for row in rows
        if isinstance(row, CompactedLog)
    }
    assert {
        (one.topic, one.partition): one.removable_records
        - sum(
            segment.removable_records
            for segment in one.segments
            if segment.state is SegmentState.EXPIRED
        )
        for one in found.partitions
        if one.dirty_ratio is not None
    } == gone
    assert sum(gone.values()) > 1000


# -- timestamps ------------------------------------------------------------------------------------


def log_of(root: Path, timestamps: Sequence[int], batch: int) -> Engine:
    """Returns a log with a record of each timestamp, `batch` of them in each batch."""
    made_batches = [
        build_batch(
            [SimpleRecord(each, None, b"v") for each in timestamps[at : at + batch]],
            BatchFields(base_offset=at),
        )
        for at in range(0, len(timestamps), batch)
    ]
    write_partition(root / "t-0", made_batches, TopicSettings(segment_bytes=400))
    write_log_dir(root, {("t", 0): len(timestamps)})
    return engine_at(root, THEN + 100 * HOUR_MS)


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=40).map(
        lambda hours: [THEN + HOUR_MS * each for each in hours]
    ),
    st.integers(1, 5),
)
def test_disorder_and_gaps_are_those_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, timestamps: list[int], batch: int
) -> None:
    engine = log_of(tmp_path_factory.mktemp("disorder"), timestamps, batch)
    [one] = made(engine, deep=True).partitions
    latest = [max(timestamps[: at + 1]) for at in range(len(timestamps))]
    steps = [before - each for before, each in zip(latest, timestamps[1:], strict=False)]
    assert one.disorder.examined == len(timestamps)
    assert one.disorder.count == sum(step > 0 for step in steps)
    assert one.disorder.largest_ms == max([0, *steps])
    assert one.disorder.future == sum(each > engine.clock.now_ms() for each in timestamps)
    seen = [min(each, engine.clock.now_ms()) for each in latest]
    if one.gaps:
        assert one.gaps[0].length_ms == max(np.diff(seen))
    for gap in one.gaps:
        assert gap.until_ms - gap.from_ms >= 1000
        assert latest[gap.offset - 1] == gap.from_ms
        assert min(latest[gap.offset], engine.clock.now_ms()) == gap.until_ms
    [shallow] = made(engine).partitions
    assert shallow.disorder.largest_ms <= one.disorder.largest_ms
    assert shallow.size == one.size


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 10**13), st.integers(1, 10**6)), min_size=1, max_size=20),
        min_size=1,
        max_size=4,
    )
)
def test_an_axis_of_time_shows_every_byte(logs: list[list[tuple[int, int]]]) -> None:
    growths = []
    for points in logs:
        times = np.maximum.accumulate(np.array([points[0][0], *(time for time, _ in points)]))
        sizes = np.cumsum([0, *(size for _, size in points)])
        growths.append(Growth(times, 3 * sizes + 7, sizes))
    axis = time_axis(growths)
    assert 2 <= len(axis) <= 400
    assert (np.diff(axis) == axis[1] - axis[0]).all()
    for growth in growths:
        found = sizes_at(growth, axis)
        assert (np.diff(found) >= 0).all()
        assert found[-1] == growth.sizes[-1]
        assert offsets_at(growth, axis)[-1] == 3 * growth.sizes[-1]


# -- what headers show -----------------------------------------------------------------------------


def large_log(root: Path, batches: int, codec: Codec = Codec.NONE) -> Path:
    """Makes a log of one segment whose headers are sampled: a record a minute."""
    made_batches = (
        build_batch(
            [SimpleRecord(THEN + 60_000 * at, b"k", bytes(2000))],
            BatchFields(base_offset=at, codec=codec),
        )
        for at in range(batches)
    )
    write_partition(root / "t-0", list(made_batches), TopicSettings())
    write_log_dir(root, {("t", 0): batches})
    return root / "t-0" / f"{0:020}.log"


def test_large_segments_are_sampled(root: Path) -> None:
    log = large_log(root, 2000)
    [one] = made(engine_at(root, THEN)).partitions
    assert 100 <= one.codecs["none"].batches <= 130
    assert one.damage == ()
    data = bytearray(log.read_bytes())
    step = len(data) // 2000
    data[500 * step : 1500 * step] = bytes(1000 * step)
    log.write_bytes(data)
    [one] = made(engine_at(root, THEN)).partitions
    assert one.damage
    assert all("no batch begins here" in each.error for each in one.damage)
    [deep] = made(engine_at(root, THEN), deep=True).partitions
    assert deep.counts is not None
    assert deep.counts.records == 1000


def test_a_gap_between_samples_is_narrowed_by_the_time_index(root: Path) -> None:
    times = [THEN + 60_000 * at + (at >= 1003) * 30 * HOUR_MS for at in range(2000)]
    batches = [
        build_batch([SimpleRecord(time, None, bytes(5000))], BatchFields(base_offset=at))
        for at, time in enumerate(times)
    ]
    write_partition(root / "t-0", batches, TopicSettings())
    write_log_dir(root, {("t", 0): len(batches)})
    [one] = made(engine_at(root, THEN + 1000 * HOUR_MS)).partitions
    gap = one.gaps[0]
    assert (gap.from_ms, gap.until_ms, gap.offset) == (times[1002], times[1003], 1003)


@pytest.mark.parametrize("deep", [False, True])
def test_partitions_are_not_kept_open(corpus: Callable[[str], Path], deep: bool) -> None:
    """With hundreds of thousands of segments, they would take more memory than all else."""
    engine = Engine(str(corpus("kafka28")))
    before = engine.log("mixed", 0)
    made(engine, deep=deep)
    opened = {log.topic for log in engine.opened()}  # v2 has committed offsets
    assert opened == {"__consumer_offsets", "v2", "mixed"}
    assert engine.log("mixed", 0) is before


def test_gaps_are_searched_in_the_time_index_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry at a time would take minutes for many large segments."""
    large_log(root, 2000)
    engine = engine_at(root, THEN)
    monkeypatch.setattr(TimeIndex, "entry", None)
    made(engine)
    view = engine.log("t", 0).view()
    index = view.segments[0].time_index()
    assert index is not None
    found = narrowed(TimeGap(THEN, THEN + 2000 * 60_000, 0), view)
    assert found.length_ms == np.diff(index.columns(0, len(index))[0]).max()


def test_a_log_that_is_truncated_meanwhile_is_still_described(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(index: OffsetIndex, slot: int) -> None:
        raise IndexError(slot)

    large_log(root, 200)
    monkeypatch.setattr(OffsetIndex, "entry", entry)
    engine = engine_at(root, THEN)
    [one] = made(engine).partitions
    assert one.codecs["none"].batches == 1
    assert one.damage == ()


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 30])
def test_records_without_timestamps_are_not_from_1970(root: Path, batch: int, deep: bool) -> None:
    times = [-1, -1, -1, *(THEN + 1000 * at for at in range(20)), -1, THEN + HOUR_MS]
    [one] = made(log_of(root, times, batch), deep=deep).partitions
    first = THEN if deep or batch < 30 else THEN + HOUR_MS  # a header has the latest time only
    assert one.growth.timestamps[[0, -1]].tolist() == [first, THEN + HOUR_MS]
    assert [gap.length_ms for gap in one.gaps] == [HOUR_MS - 19_000] * (batch < 30)
    assert one.disorder.count == 0


def test_batches_without_records_are_read(root: Path) -> None:
    """Compaction leaves them behind so that a producer's state is kept."""
    batches = [
        build_batch(
            [SimpleRecord(THEN, None, b"v")] * (at % 2), BatchFields(at, at, max_timestamp=THEN)
        )
        for at in range(5)
    ]
    write_partition(root / "t-0", batches, TopicSettings())
    write_log_dir(root, {("t", 0): 5})
    [one] = made(engine_at(root, THEN), deep=True).partitions
    assert one.counts is not None
    assert (one.counts.records, one.codecs["none"].data_bytes) == (2, 2)


def test_many_points_of_a_log_are_thinned(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and the longest pauses remain exact."""
    times = [THEN + 60_000 * at + (at >= 777) * HOUR_MS for at in range(1000)]
    engine = log_of(root, times, 1)
    before = made(engine, deep=True).partitions[0]
    monkeypatch.setattr("kafkafs.storage.operations.report.reading._MOST_KEPT", 32)
    after = made(engine, deep=True).partitions[0]
    assert len(after.growth) <= 32 < len(before.growth)
    assert after.gaps[0] == before.gaps[0]
    assert (after.gaps[0].length_ms, after.gaps[0].offset) == (HOUR_MS + 60_000, 777)
    for one in (before, after):
        assert (one.growth.offsets[[0, -1]] == (0, 1000)).all()


def test_a_partition_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as manager:
        for topic in ("a", "b"):
            manager.create_topic(topic)
            records = RecordColumns.from_values([b"v"], timestamp=THEN)
            manager.writer(topic, 0).append_records(records)
    log = tmp_path / "data" / "a-0" / f"{0:020}.log"
    log.unlink()
    log.mkdir()
    rows = list(report(Engine(str(tmp_path / "data")), ReportLogDirs()))
    last = rows[-1]
    assert isinstance(last, LogDirsReport)
    assert [(each.name, bool(each.damage)) for each in last.partitions] == [
        *(("a/0", True), ("b/0", False)),
    ]
    assert rows[:-1] == list(last.unreadable) == []
