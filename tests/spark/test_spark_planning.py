"""Tests of ranges for tasks: each requested record is in exactly one, and none is too large."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.options import ReadOptions
from kafkafs.spark.read import forks, planning
from kafkafs.spark.read.conditions import Conditions, conditions_of
from kafkafs.spark.read.planning import UNASKED_TOPICS, find_log_dirs, grouped, plan
from kafkafs.spark.read.streaming import Stream
from kafkafs.spark.workers import without_collections
from kafkafs.storage.errors import DataLoss, LogDirError
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import OpenFile
from kafkafs.storage.operations.offset_ranges import OffsetRange
from tests import answers
from tests.building import BatchFields, build_batch
from tests.index_damage import INDEX_DAMAGE, damage_indexes
from tests.logs import TopicSettings, write_log_dir, write_partition
from tests.profiles import percent

Corpus = Callable[[str], Path]


def planned(path: Path | str, /, **options: str) -> list[OffsetRange]:
    parsed = ReadOptions.parse({"path": str(path), **options})
    return plan(find_log_dirs(parsed.paths), parsed)


def whole(ranges: Sequence[OffsetRange]) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns first and end offset of each partition; asserts that its ranges are contiguous."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for each in ranges:
        assert each.start < each.end
        start, end = found.get((each.topic, each.partition), (each.start, each.start))
        assert end == each.start
        found[each.topic, each.partition] = (start, each.end)
    return found


# -- any log -------------------------------------------------------------------------------------


def write_log(directory: Path, batches: Sequence[tuple[int, int]], segment: int) -> int:
    """Writes partition t-0 with batches of (records, bytes per record); returns its end offset."""
    offset = 0
    made = []
    for count, size in batches:
        records = [SimpleRecord(1000 + offset + i, None, b"x" * size, []) for i in range(count)]
        made.append(build_batch(records, BatchFields(base_offset=offset)))
        offset += count
    shape = TopicSettings(segment_bytes=segment, index_interval_bytes=100)
    write_partition(directory / "t-0", made, shape)
    write_log_dir(directory, {("t", 0): offset})
    return offset


@settings(max_examples=percent(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 200)), min_size=1, max_size=40),
    segment=st.integers(300, 4000),
    damage=INDEX_DAMAGE,
    most_bytes=st.integers(1, 20_000),
    least=st.none() | st.integers(1, 60),
    most=st.none() | st.integers(1, 60),
    bounds=st.tuples(st.integers(0, 400), st.integers(0, 400)),
)
def test_every_offset_is_in_one_range(
    tmp_path: Path,
    batches: list[tuple[int, int]],
    segment: int,
    damage: list[tuple[int, str, int]],
    most_bytes: int,
    least: int | None,
    most: int | None,
    bounds: tuple[int, int],
) -> None:
    """Holds even if the indexes are damaged."""
    directory = tmp_path / "log"
    shutil.rmtree(directory, ignore_errors=True)
    end = write_log(directory, batches, segment)
    damage_indexes(directory / "t-0", damage)
    low, high = sorted(min(bound, end) for bound in bounds)
    options = {
        "maxBytesPerPartition": str(most_bytes),
        "startingOffsets": json.dumps({"t": {"0": low}}),
        "endingOffsets": json.dumps({"t": {"0": high}}),
    }
    if least is not None:
        options["minPartitions"] = str(least)
    if most is not None:
        options["maxRecordsPerPartition"] = str(most)
    ranges = planned(directory, **options)
    assert whole(ranges) == ({("t", 0): (low, high)} if low < high else {})
    if least is not None:
        assert len(ranges) >= min(least, high - low)
    if most is not None:
        assert all(each.end - each.start <= most for each in ranges)
    assert [each.is_last for each in ranges] == [each.end == end for each in ranges]


def test_a_partition_is_cut_by_bytes(tmp_path: Path) -> None:
    end = write_log(tmp_path, [(10, 100)] * 200, segment=50_000)
    total = sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
    ranges = planned(tmp_path, maxBytesPerPartition="20000")
    assert whole(ranges) == {("t", 0): (0, end)}
    assert len(ranges) == -(-total // 20_000)
    # all batches have the same size here, so offsets are proportional to bytes
    largest = max(each.end - each.start for each in ranges)
    assert largest * total / end <= 20_000 + 3 * total / 200
    assert abs(sum(each.size for each in ranges) - total) < len(ranges)


def test_planning_reads_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, [(10, 100)] * 200, segment=50_000)
    read: list[tuple[str, int]] = []
    original = OpenFile.read

    def noted(self: OpenFile, position: int, size: int) -> bytes:
        read.append((self.path, size))
        return original(self, position, size)

    monkeypatch.setattr(OpenFile, "read", noted)
    ranges = planned(tmp_path, maxBytesPerPartition="20000")
    assert len(ranges) > 5
    assert sum(size for path, size in read if path.endswith(".log")) < 20_000


def test_processes_share_the_planning(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_SHARED_PARTITIONS", 3)
    monkeypatch.setattr(forks, "_processors", lambda: 3)
    options = ReadOptions.parse({"path": str(corpus("kafka43-clean"))})
    expected = plan(options.paths, options)
    assert len(expected) > 9
    assert plan(options.paths, options, may_fork=True) == expected
    times = {"startingTimestamp": "9999999999999", "startingOffsetsByTimestampStrategy": "error"}
    options = ReadOptions.parse({"path": str(corpus("kafka43-clean")), **times})
    with pytest.raises(OptionError, match="has no record at 9999999999999 or later"):
        plan(options.paths, options, may_fork=True)


def test_a_process_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_processors", lambda: 3)
    parent = os.getpid()

    def doubled(numbers: Sequence[int]) -> list[int]:
        if os.getpid() != parent and 7 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        return [2 * each for each in numbers]

    assert forks.share(doubled, range(10), 2) == [*range(0, 20, 2)]
    assert forks.share(doubled, [], 2) == []


# -- which task ------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 40 << 20)), max_size=60),
    most_bytes=st.integers(1, 200 << 20),
    least=st.none() | st.integers(1, 80),
    most=st.none() | st.integers(1, 1000),
)
def test_small_ranges_share_a_task_in_order(
    sizes: list[tuple[int, int]], most_bytes: int, least: int | None, most: int | None
) -> None:
    ranges = [OffsetRange("t", i, 0, n, size) for i, (n, size) in enumerate(sizes)]
    options = {"path": "/data", "maxBytesPerPartition": str(most_bytes)}
    if least is not None:
        options["minPartitions"] = str(least)
    if most is not None:
        options["maxRecordsPerPartition"] = str(most)
    tasks = grouped(ranges, ReadOptions.parse(options))
    assert [each for task in tasks for each in task] == ranges
    assert len(tasks) >= min(least or 0, len(ranges))
    for task in filter(lambda task: len(task) > 1, tasks):
        assert sum(each.size for each in task) <= most_bytes
        assert most is None or sum(each.end for each in task) <= most


def test_few_tasks_for_many_small_partitions() -> None:
    options = ReadOptions.parse({"path": "/data"})
    small = [OffsetRange("t", i, 0, 100, 10_000) for i in range(10_000)]
    assert 20 < len(grouped(small, options)) < 40
    assert len(grouped(small[:30], options)) == 1
    large = [OffsetRange("t", i, 0, 10**6, 100 << 20) for i in range(100)]
    assert len(grouped(large, options)) == 100


# -- which partitions ------------------------------------------------------------------------------


def test_all_topics_but_the_internal_ones(corpus: Corpus) -> None:
    ranges = planned(corpus("kafka43-clean"))
    expected = {
        key: (answer.beginning, answer.end)
        for key, answer in answers.offsets("kafka43-clean").items()
        if key[0] not in UNASKED_TOPICS and answer.beginning < answer.end
    }
    assert whole(ranges) == expected


def test_an_internal_topic_that_is_named(corpus: Corpus) -> None:
    ranges = planned(corpus("kafka43-clean"), subscribe="__consumer_offsets")
    assert {each.topic for each in ranges} == {"__consumer_offsets"}


def test_committed_records_end_at_the_last_stable_offset(corpus: Corpus) -> None:
    answer = answers.offsets("kafka43-clean")["txn-open", 0]
    assert answer.last_stable < answer.end
    options = {"subscribe": "txn-open", "kafka.isolation.level": "read_committed"}
    ranges = planned(corpus("kafka43-clean"), **options)
    assert whole(ranges) == {("txn-open", 0): (answer.beginning, answer.last_stable)}


def test_paths_are_absolute_for_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    assert find_log_dirs(["data", "../*"]) == [f"{tmp_path}/a/data", f"{tmp_path}/a"]


def test_a_pattern_is_searched_for_in_names(corpus: Corpus) -> None:
    ranges = planned(corpus("kafka43-clean"), subscribePattern="dec-(gzip|z)|orders$|^rders")
    assert {each.topic for each in ranges} == {"codec-gzip", "codec-zstd", "orders"}


def test_assigned_partitions(corpus: Corpus) -> None:
    ranges = planned(corpus("kafka43-clean"), assign='{"orders": [2, 0]}')
    assert list(whole(ranges)) == [("orders", 0), ("orders", 2)]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"subscribe": "orders,odrers"}, "option subscribe: there is no topic odrers"),
        ({"assign": '{"orders": [3]}'}, "option assign: orders has no partition 3"),
        (
            {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1, "1": 1}}'},
            "option startingOffsets: orders-2 is read, but not named",
        ),
        (
            {"assign": '{"orders": [0]}', "endingOffsets": '{"orders": {"0": 9}, "x": {"0": 9}}'},
            "option endingOffsets: x-0 is named, but not read",
        ),
        (
            {"subscribe": "orders", "startingTimestamp": "9999999999999"},
            "option startingTimestamp: orders-0 has no record at 9999999999999 or later",
        ),
    ],
)
def test_what_is_not_there_is_named(corpus: Corpus, options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError) as refused:
        planned(corpus("kafka43-clean"), **options)
    assert what in str(refused.value)


def test_several_directories_and_wildcards(corpus: Corpus) -> None:
    both = corpus("kafka43-two-dirs")
    by_name = planned(f"{both}/dir1,{both}/dir2")
    assert whole(by_name) == whole(planned(f"{both}/dir[12]"))
    assert len(whole(by_name)) > len(whole(planned(both / "dir1")))


def test_wildcards_that_nothing_matches(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"option path: .*/d\*: no directory matches"):
        planned(tmp_path / "d*")


def test_a_path_that_is_no_log_directory(tmp_path: Path) -> None:
    with pytest.raises(LogDirError, match="no such directory"):
        planned(tmp_path / "nothing")


# -- conditions ------------------------------------------------------------------------------------


def instant(literal: str) -> int | None:
    """Knows one time."""
    return 1_500_500 if "noon" in literal else None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("partition = 1", "partition = 1"),
        ("`Partition` IN (3, 1) and 7 <= offset", "partition in 1, 3 and offset >= 7"),
        ("(topic = 'a' AND (offset < 9)) AND f(key, 1)", "topic in a and offset <= 8"),
        ("topic in ('b', 'a') AND topic == 'a'", "topic in a"),
        ("offset between 3 and 5 AND partition >= 2", "partition >= 2 and offset = 3"),
        ("timestamp >= TIMESTAMP 'noon' AND offset > 4", "offset >= 5 and timestamp >= 1500 ms"),
        ("'noon' < timestamp", "timestamp >= 1500 ms"),
        # not understood, and so left to Spark
        ("partition = 1 OR offset = 5", ""),
        ("offset = 1 AND partition = 1 OR true", ""),
        ("offset = 1 AND (partition = 1 OR partition = 2)", "offset = 1"),
        ("NOT partition = 1 AND NOT (offset = 1)", ""),
        ("CASE WHEN true AND partition = 1 AND true THEN true ELSE true END", ""),
        ("partition NOT IN (1) AND partition != 2 AND offset <=> 1", ""),
        ("x BETWEEN 5 AND partition = 1 AND offset = 2", "offset = 2"),
        ("partition = 1 = false AND offset + 1 = 3 AND partition = -1", ""),
        ("partition = 1 -- AND offset = 5", ""),
        ("topic = 'a' 'b' AND topic = 'it''s' AND t.partition = 1 AND topic = 5", ""),
        ("timestamp < 'noon' AND timestamp > 'abc' AND offset = 1.5", ""),
    ],
)
def test_what_a_filter_selects(where: str, expected: str) -> None:
    expected = expected.replace("offset = 3", "offset >= 3 and offset <= 5")
    assert str(conditions_of(where, instant)) == expected


def test_only_selected_offsets_are_planned(corpus: Corpus) -> None:
    """An impossible selection is no error, and neither are offsets that do not exist."""

    def selected(where: str) -> dict[tuple[str, int], tuple[int, int]]:
        options = ReadOptions.parse({"path": str(corpus("kafka43-clean"))})
        return whole(plan(options.paths, options, conditions_of(where, instant)))

    answer = answers.offsets("kafka43-clean")["orders", 1]
    assert selected("topic = 'orders' AND partition = 1 AND offset >= 600") == {
        ("orders", 1): (600, answer.end)
    }
    assert selected("topic = 'orders' AND partition IN (1, 99) AND offset < 5") == {
        ("orders", 1): (0, 5)
    }
    assert selected("topic = 'odrers'") == selected("offset > 99999999") == {}
    times = [each for each in answers.times("kafka43-clean") if each.topic == "orders"]
    found = sorted({each.timestamp for each in times if each.offset})
    middle = [each for each in times if each.timestamp == found[len(found) // 2]]
    conditions = Conditions(frozenset(["orders"]), from_ms=middle[0].timestamp)
    options = ReadOptions.parse({"path": str(corpus("kafka43-clean"))})
    starts = {key: span[0] for key, span in whole(plan(options.paths, options, conditions)).items()}
    assert middle
    assert all(starts[each.topic, each.partition] == each.offset for each in middle if each.offset)


# -- which offsets ---------------------------------------------------------------------------------


def test_offsets_that_have_gone_are_a_loss(corpus: Corpus) -> None:
    answer = answers.offsets("kafka43-clean")["trimmed", 0]
    assert answer.beginning > 0
    options = {"subscribe": "trimmed", "startingOffsets": '{"trimmed": {"0": 0}}'}
    with pytest.raises(
        DataLoss, match=f"startingOffsets is 0, but only offsets {answer.beginning}"
    ):
        planned(corpus("kafka43-clean"), **options)
    ranges = planned(corpus("kafka43-clean"), **options, failOnDataLoss="false")
    assert whole(ranges) == {("trimmed", 0): (answer.beginning, answer.end)}


def test_offsets_that_are_not_there_yet_are_a_loss(corpus: Corpus) -> None:
    answer = answers.offsets("kafka43-clean")["orders", 0]
    options = {"assign": '{"orders": [0]}', "endingOffsets": '{"orders": {"0": 99999999}}'}
    with pytest.raises(DataLoss, match="endingOffsets is 99999999"):
        planned(corpus("kafka43-clean"), **options)
    ranges = planned(corpus("kafka43-clean"), **options, failOnDataLoss="false")
    assert whole(ranges) == {("orders", 0): (answer.beginning, answer.end)}


def test_times_become_offsets_as_the_broker_told_them(corpus: Corpus) -> None:
    """Checks only logs for which the broker's answer is right; see the README of the answers."""
    answer = [each for each in answers.times("kafka43-clean") if each.topic == "orders"]
    found = sorted({each.timestamp: each for each in answer if each.offset}.values(), key=str)
    assert len(found) > 20
    for each in found[::10]:
        of = {each.topic: {str(each.partition): each.timestamp}}
        options = {"assign": json.dumps({each.topic: [each.partition]})}
        ranges = planned(
            corpus("kafka43-clean"), **options, startingOffsetsByTimestamp=json.dumps(of)
        )
        assert ranges[0].start == each.offset
        if each.offset:
            ranges = planned(
                corpus("kafka43-clean"), **options, endingOffsetsByTimestamp=json.dumps(of)
            )
            assert ranges[-1].end == each.offset


def test_no_record_that_late(corpus: Corpus) -> None:
    late = "9999999999999"
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert planned(corpus("kafka43-clean"), startingTimestamp=late, **strategy) == []
    to_the_end = planned(corpus("kafka43-clean"), endingTimestamp=late)
    assert whole(to_the_end) == whole(planned(corpus("kafka43-clean")))


def test_ranges_follow_each_other_in_order(corpus: Corpus) -> None:
    ranges = planned(corpus("kafka43-clean"), maxBytesPerPartition="5000")
    keys = [(each.topic, each.partition, each.start) for each in ranges]
    assert all(one < other for one, other in pairwise(keys))


def test_collections_are_only_suspended() -> None:
    assert gc.isenabled()
    with suppress(DataLoss), without_collections():
        assert not gc.isenabled()
        raise DataLoss
    assert gc.isenabled()


def test_offsets_in_remote_storage_that_are_not_read_are_a_warning(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    tiered = corpus("tier43")
    line = (
        "t-lz4/0: offsets 0 to 200 are in remote storage, and were not read;"
        " see the option kafkafs.tier"
    )
    planned(tiered / "logs", subscribe="t-lz4")
    assert [record.getMessage() for record in caplog.records] == [line]
    caplog.clear()
    options = ReadOptions.parse({"path": str(tiered / "logs"), "subscribe": "t-lz4"})
    with closing(Stream([str(tiered / "logs")], options)) as stream:
        stream.next_end(None, limited=False)
    assert [record.getMessage() for record in caplog.records] == [line]
    caplog.clear()
    planned(tiered / "logs", subscribe="t-lz4", startingOffsets='{"t-lz4": {"0": 250}}')
    planned(tiered / "logs", subscribe="t-lz4", **{"kafkafs.tier": str(tiered / "tier")})
    assert not caplog.records
