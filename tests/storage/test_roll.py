"""Tests when a log is rolled: on each of Kafka's conditions and on nothing else."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import OutOfOrderSequence, RecordListTooLarge
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.append.roll import max_segment_ms
from kafkafs.storage.log.append.writer import LogWriter
from tests.building import BatchFields, build_batch
from tests.logs import PartitionWriter, TopicSettings
from tests.writing import NOW, Unsynced, batch, config, files, open_log

SIZE = len(batch())  # of a batch with one record


def bases(writer: LogWriter) -> list[int]:
    return [segment.base_offset for segment in writer.retention_state().segments]


def log(tmp_path: Path, clock: SetClock | None = None, **settings: Any) -> LogWriter:
    return open_log(tmp_path / "t-0", config(**settings), clock)


def test_a_segment_is_full_when_another_batch_would_be_too_much(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_bytes=3 * SIZE)
    for _ in range(3):
        writer.append(batch())
    assert bases(writer) == [0]
    writer.append(batch())
    assert bases(writer) == [0, 3]
    assert [segment.size for segment in writer.retention_state().segments] == [3 * SIZE, SIZE]


def test_each_batch_of_a_producer_rolls_for_itself(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_bytes=3 * SIZE)
    appended = writer.append(batch() * 8)
    assert (appended.first_offset, appended.last_offset) == (0, 7)
    assert bases(writer) == [0, 3, 6]


def test_what_another_log_gives_goes_into_one_segment(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_bytes=3 * SIZE)
    writer.append(batch())
    given = b"".join(batch(base_offset=offset) for offset in (5, 7, 9))
    writer.append(given, AppendOrigin.REPLICATION)
    assert bases(writer) == [0, 5]
    assert writer.end_offset == 10


def test_an_append_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_bytes=2 * SIZE)
    with pytest.raises(RecordListTooLarge, match=r"segment\.bytes"):
        writer.append(batch(size=2 * SIZE))
    given = b"".join(batch(base_offset=offset) for offset in range(3))
    with pytest.raises(RecordListTooLarge, match=r"segment\.bytes"):
        writer.append(given, AppendOrigin.REPLICATION)
    assert writer.end_offset == 0
    writer.append(batch() * 3)
    assert bases(writer) == [0, 2]


def test_the_time_that_counts_is_that_of_the_records(tmp_path: Path) -> None:
    clock = SetClock(NOW)
    writer = log(tmp_path, clock, segment_ms=1000)
    writer.append(batch(timestamp=NOW))
    clock.advance(100_000)
    writer.append(batch(timestamp=NOW + 1000))
    assert bases(writer) == [0]
    writer.append(batch(timestamp=NOW + 1001))
    assert bases(writer) == [0, 2]
    writer.append(batch(timestamp=NOW - 50_000))
    assert bases(writer) == [0, 2]


def test_it_is_the_clocks_where_records_have_none(tmp_path: Path) -> None:
    clock = SetClock(NOW)
    writer = log(tmp_path, clock, segment_ms=1000)
    clock.advance(5000)
    writer.append(batch(timestamp=-1, count=1))
    assert bases(writer) == [0]
    writer.append(batch(timestamp=-1))
    assert bases(writer) == [0, 1]
    clock.advance(1000)
    writer.append(batch(timestamp=-1))
    assert bases(writer) == [0, 1]
    clock.advance(1)
    writer.append(batch(timestamp=-1))
    assert bases(writer) == [0, 1, 3]


def test_after_opening_the_first_batch_tells_the_time(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_ms=1000)
    writer.append(batch(timestamp=NOW))
    writer.append(batch(timestamp=NOW + 900))
    writer.close()
    writer = log(tmp_path, segment_ms=1000)
    writer.append(batch(timestamp=NOW + 1000))
    assert bases(writer) == [0]
    writer.append(batch(timestamp=NOW + 1001))
    assert bases(writer) == [0, 3]


def test_segments_are_rolled_sooner_by_their_jitter(tmp_path: Path) -> None:
    found = set()
    for number in range(20):
        writer = open_log(tmp_path / f"t-{number}", config(segment_ms=1000, segment_jitter_ms=500))
        writer.append(batch(timestamp=NOW))
        for waited in range(400, 1100, 10):
            writer.append(batch(timestamp=NOW + waited))
            if len(bases(writer)) > 1:
                break
        assert 500 < waited <= 1010
        found.add(waited)
    assert len(found) > 1


def test_a_full_index_rolls(tmp_path: Path) -> None:
    # fits 4 offset entries, and 2 time entries besides the one reserved for the end
    for number, (timestamps, rolled) in enumerate([([-1] * 6, [0, 5]), (range(1, 6), [0, 3])]):
        settings = config(index_interval_bytes=0, segment_index_bytes=39)
        writer = open_log(tmp_path / f"t-{number}", settings)
        for timestamp in timestamps:
            writer.append(batch(timestamp=timestamp))
        assert bases(writer) == rolled


def test_an_index_that_is_always_full_rolls_with_every_batch(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_index_bytes=20)
    for _ in range(3):
        writer.append(batch())
    assert bases(writer) == [0, 1, 2]
    writer.close()
    assert open_log(tmp_path / "t-0").end_offset == 3


def test_more_room_for_indexes_takes_effect_at_once_in_an_empty_segment(tmp_path: Path) -> None:
    writer = log(tmp_path, segment_index_bytes=20)
    writer.config = config()
    writer.append(batch() * 3)
    assert bases(writer) == [0]


def test_an_offset_too_far_from_the_base_rolls(tmp_path: Path) -> None:
    writer = log(tmp_path)
    writer.append(batch(), AppendOrigin.REPLICATION)
    writer.append(batch(base_offset=2**31 - 1), AppendOrigin.REPLICATION)
    assert bases(writer) == [0]
    writer.append(batch(base_offset=2**32), AppendOrigin.REPLICATION)
    assert bases(writer) == [0, 2**32]
    assert writer.end_offset == 2**32 + 1


def test_a_compacted_topic_rolls_in_time_for_compaction() -> None:
    compacted = {"cleanup_policy": ("compact", "delete"), "segment_ms": 500}
    assert max_segment_ms(config(segment_ms=500, max_compaction_lag_ms=100)) == 500
    assert max_segment_ms(config(**compacted, max_compaction_lag_ms=100)) == 100
    assert max_segment_ms(config(**compacted, max_compaction_lag_ms=1000)) == 500


def test_a_duplicate_and_a_refused_batch_roll_as_others_do(tmp_path: Path) -> None:
    first = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    writer = log(tmp_path, segment_bytes=SIZE + 10)
    writer.append(first)
    again = writer.append(first)
    assert (again.first_offset, again.is_duplicate) == (0, True)
    assert bases(writer) == [0, 1]
    with pytest.raises(OutOfOrderSequence):
        writer.append(batch(producer_id=7, producer_epoch=0, base_sequence=5))
    writer.append(batch(producer_id=7, producer_epoch=0, base_sequence=1))
    assert (writer.end_offset, bases(writer)) == (2, [0, 1])


# -- all conditions, against the tests' writer, which is verified on brokers' files ----------------

TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 300))
BATCHES = st.lists(st.tuples(st.integers(1, 4), TIMESTAMPS, st.integers(0, 120)), max_size=25)


@given(
    BATCHES,
    st.lists(st.integers(1, 5), max_size=10),
    st.sampled_from([300, 500, 1000, 1 << 30]),
    st.sampled_from([20, 100, 1 << 40]),
    st.sampled_from([36, 60, 1 << 20]),
    st.sampled_from([0, 100, 250]),
)
def test_the_files_are_those_of_the_rules_however_batches_come(
    sizes: list[tuple[int, int, int]],
    runs: list[int],
    segment_bytes: int,
    segment_ms: int,
    index_bytes: int,
    interval: int,
) -> None:
    plain = [
        [SimpleRecord(timestamp if n == 0 else -1, None, bytes(size)) for n in range(count)]
        for count, timestamp, size in sizes
    ]
    sent = [build_batch(records) for records in plain]
    longest = max(map(len, sent), default=0)
    segment_bytes = max(segment_bytes, longest)
    with tempfile.TemporaryDirectory() as folder, replaced(Unsynced()):
        settings = TopicSettings(segment_bytes, segment_ms, index_bytes, interval)
        theirs = PartitionWriter(Path(folder, "theirs"), settings)
        offset = 0
        for records in plain:
            theirs.append(build_batch(records, BatchFields(base_offset=offset)))
            offset += len(records)
        theirs.close()
        ours = open_log(
            Path(folder, "ours"),
            config(
                segment_bytes=segment_bytes,
                segment_ms=segment_ms,
                segment_index_bytes=index_bytes,
                index_interval_bytes=interval,
            ),
        )
        while sent:
            count = runs.pop() if runs else 1
            ours.append(b"".join(sent[:count]))
            del sent[:count]
        ours.close()
        expected = files(Path(folder, "theirs"))
        expected.pop("partition.metadata")
        assert files(Path(folder, "ours")) == expected
        shutil.rmtree(folder, ignore_errors=True)
