"""Compares logs as of a time with logs that were written only up to then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.cleaner.preview.compacted_view import CompactedView
from kafkafs.storage.cleaner.preview.latest import LatestRecords
from kafkafs.storage.cleaner.preview.preview import PreviewRequest, preview
from kafkafs.storage.config.kafka import BrokerConfig, TopicConfig
from kafkafs.storage.format.layout import Codec, ControlType, TimestampType
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.log import Log
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_end_txn_marker,
    build_messages,
)
from tests.logs import PartitionWriter, TopicSettings, write_partition
from tests.reading import Plain, find, open_log, plain, read, scan

SETTINGS = TopicSettings(segment_ms=1 << 40, index_interval_bytes=100)
COMPACT = TopicConfig(cleanup_policy=("compact",))
LATEST_MS = 30
APPEND_TIME = TimestampType.LOG_APPEND_TIME


@dataclass(frozen=True)
class Part:
    """A batch: records, or a marker with the timestamp of its only record, or nothing, where a
    cleaner has emptied it. `rolls`: it is the first of a segment."""

    records: tuple[SimpleRecord, ...]
    fields: BatchFields
    marker: ControlType | None = None
    rolls: bool = False

    def first_later(self, at_ms: int) -> int | None:
        """Returns the offset of the first record later than a time."""
        fields = self.fields
        if not self.records:
            assert fields.max_timestamp is not None
            return fields.base_offset if fields.max_timestamp > at_ms else None
        latest = max(record.timestamp for record in self.records)
        for record in self.records:
            time = latest if fields.timestamp_type is APPEND_TIME else record.timestamp
            if time > at_ms:
                return record.offset
        return None

    def below(self, end: int) -> Part | None:
        """Returns what is below an offset."""
        if self.fields.base_offset >= end:
            return None
        if self.fields.last_offset < end:
            return self
        records = tuple(record for record in self.records if record.offset < end)
        if not records:
            return None
        return replace(self, records=records, fields=replace(self.fields, last_offset=end - 1))

    def build(self) -> bytes:
        if self.marker is not None:
            return build_end_txn_marker(self.marker, self.records[0].timestamp, 1, self.fields)
        return build_batch(self.records, self.fields)


def write(directory: Path, parts: Sequence[Part], *, clean: bool) -> None:
    log = PartitionWriter(directory, SETTINGS)
    for part in parts:
        if part.rolls and log.end_offset:
            log.roll(part.fields.base_offset)
        log.append(part.build())
    log.close(clean)


def first_later(parts: Sequence[Part], at_ms: int) -> int | None:
    found = (part.first_later(at_ms) for part in parts)
    return next((offset for offset in found if offset is not None), None)


@st.composite
def logs(draw: st.DrawFn) -> list[Part]:
    """Draws logs with disorder, transactions, and what a cleaner leaves."""
    parts: list[Part] = []
    offset = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 14))):
        producer = draw(st.integers(-1, 2))
        kind = draw(st.sampled_from(["data", "data", "data", "commit", "abort", "empty"]))
        time = draw(st.integers(0, LATEST_MS))
        rolls = draw(st.sampled_from([False, False, True]))
        fields = BatchFields(base_offset=offset, producer_id=producer, producer_epoch=0)
        if kind in ("commit", "abort"):
            fields = replace(fields, producer_id=max(producer, 0), last_offset=offset)
            marker = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
            record = SimpleRecord(time, offset=offset)
            parts.append(Part((record,), fields, marker, rolls))
        elif kind == "empty":
            last = offset + draw(st.integers(0, 3))
            fields = replace(fields, last_offset=last, max_timestamp=time)
            parts.append(Part((), fields, None, rolls))
        else:
            parts.append(draw(_data(replace(fields, is_transactional=producer >= 0), time, rolls)))
        offset = parts[-1].fields.last_offset + 1 + draw(st.sampled_from([0, 0, 0, 2]))
    return parts


@st.composite
def _data(draw: st.DrawFn, fields: BatchFields, time: int, rolls: bool) -> Part:
    count = draw(st.integers(1, 5))
    offsets = sorted(draw(st.sets(st.integers(0, 6), min_size=count, max_size=count)))
    disorder = draw(st.integers(0, 5))
    records = tuple(
        SimpleRecord(
            max(time + draw(st.integers(-disorder, disorder)), 0),
            draw(st.sampled_from([None, b"a", b"b", b"c"])),
            draw(st.sampled_from([None, b"value"])),
            offset=fields.base_offset + delta,
        )
        for delta in offsets
    )
    fields = replace(
        fields,
        last_offset=records[-1].offset + draw(st.sampled_from([0, 0, 1])),
        codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])),
        timestamp_type=draw(st.sampled_from([TimestampType.CREATE_TIME] * 3 + [APPEND_TIME])),
    )
    return Part(records, fields, None, rolls)


@given(logs(), st.integers(-1, LATEST_MS + 1), st.integers(0, 8), st.booleans(), st.booleans())
def test_a_log_as_of_a_time_is_the_log_that_was(
    parts: list[Part], at_ms: int, start: int, clean: bool, has_index: bool
) -> None:
    end = first_later(parts, at_ms)
    before = parts if end is None else [left for part in parts if (left := part.below(end))]
    with TemporaryDirectory() as name:
        write(Path(name, "whole-0"), parts, clean=clean)
        write(Path(name, "before-0"), before, clean=clean)
        if not has_index:
            for index in Path(name, "whole-0").glob("*.timeindex"):
                index.unlink()
        found = open_log(Path(name, "whole-0"), start, at_ms=at_ms)
        expected = open_log(Path(name, "before-0"), start)
        check(found, expected, end, at_ms)


def check(found_log: Log, expected_log: Log, end: int | None, at_ms: int) -> None:
    """Checks that two logs answer alike; the first ended at the offset `end`."""
    found, expected = found_log.view(), expected_log.view()
    assert found_log.view() is found
    assert found.ended_at_ms == (None if end is None else at_ms)
    assert found.start_offset == expected.start_offset
    assert found.end_offset == max(expected.end_offset if end is None else end, found.start_offset)
    is_open = expected.last_stable_offset < expected.end_offset
    stable = expected.last_stable_offset if is_open else found.end_offset
    assert found.last_stable_offset == stable or expected.start_offset == expected.end_offset
    assert found.max_timestamp == expected.max_timestamp
    assert [s.base_offset for s in found.segments] == [s.base_offset for s in expected.segments]
    for isolation in Isolation:
        assert read(found, isolation=isolation) == read(expected, isolation=isolation)
        for offset in range(found.end_offset + 2):
            assert find(found, offset, isolation) == find(expected, offset, isolation)
        for time in range(LATEST_MS + 8):
            answers = (view.offset_for_time(time, isolation) for view in (found, expected))
            assert len(set(answers)) == 1, time
        assert found.first(isolation) == expected.first(isolation)
        assert found.last(isolation) == expected.last(isolation)
        for key in (b"a", b"b", b"c"):
            assert latest_of(found_log, key, isolation) == latest_of(expected_log, key, isolation)
    assert compacted(found, at_ms) == compacted(expected, at_ms)


def latest_of(log: Log, key: bytes, isolation: Isolation) -> Plain | None:
    found = LatestRecords(1 << 20).find(log, key, isolation)
    return None if found is None else Plain.of(found[0].record(found[1]))


def compacted(view: View, at_ms: int) -> tuple[list[Plain], object]:
    """Returns what compaction leaves of a log, and the counts of its summary."""
    request = PreviewRequest.of(view, COMPACT, BrokerConfig(), None, at_ms)
    made = CompactedView(request, preview(request))
    summary = made.summary()
    names = ("records", "segments", "gone", "markersGone", "bound")
    counts = {name: summary[name] for name in names}
    return [record for part in made.scan() for record in plain(cast(Columns, part))], counts


# -- logs that change ---------------------------------------------------------------------------


def records(*times: int, base: int = 0) -> bytes:
    """Returns a batch with a record for each timestamp."""
    made = [SimpleRecord(time, b"k", b"%d" % time) for time in times]
    return build_batch(made, BatchFields(base_offset=base))


def append(directory: Path, *batches: bytes) -> None:
    with max(directory.glob("*.log")).open("ab") as file:
        file.writelines(batches)


def test_the_end_stays_where_it_was_found(tmp_path: Path) -> None:
    """Neither appends, nor a cleaning that discards the later record, move it."""
    directory = tmp_path / "p-0"
    first = [records(1, 2), records(9, base=2), records(3, 4, base=3)]
    write_partition(directory, first, TopicSettings(segment_bytes=200))
    log = open_log(directory, at_ms=5)
    before = log.view()
    assert (before.end_offset, before.extent) == (2, "0 to 1 as of 1970-01-01T00:00:00.005Z")
    append(directory, records(4, 5, base=5))
    assert log.view() is before
    cleaned = tmp_path / "cleaned"
    cleaned.write_bytes(records(1, 2) + records(3, 4, base=3))
    for index in directory.glob("*.*index"):
        index.unlink()
    for old in directory.glob("*.log"):
        if old.name != f"{0:020}.log":
            old.unlink()
    cleaned.rename(directory / f"{0:020}.log")
    append(directory, records(4, 5, base=5))
    after = log.view()
    assert after is not before
    assert (after.end_offset, after.size) == (2, len(records(1, 2)))
    assert [record.timestamp for record in read(after)] == [1, 2]


def test_an_end_that_is_yet_to_come(tmp_path: Path) -> None:
    directory = tmp_path / "p-0"
    write_partition(directory, [records(1, 2)])
    log = open_log(directory, at_ms=5)
    assert (log.view().end_offset, log.view().ended_at_ms) == (2, None)
    append(directory, records(4, base=2))
    assert (log.view().end_offset, log.view().ended_at_ms) == (3, None)
    append(directory, records(5, 6, base=3))
    view = log.view()
    assert (view.end_offset, view.ended_at_ms, view.max_timestamp) == (4, 5, 5)
    append(directory, records(5, base=5))
    assert log.view() is view


def test_a_log_that_was_truncated_below_its_end_gets_another(tmp_path: Path) -> None:
    directory = tmp_path / "p-0"
    write_partition(directory, [records(1, 2), records(3, 4, base=2), records(9, base=4)])
    log = open_log(directory, at_ms=5)
    before = log.view()
    assert before.end_offset == 4
    with (directory / f"{0:020}.log").open("r+b") as file:
        file.truncate(len(records(1, 2)))
    append(directory, records(4, 8, base=2), records(9, 9, 9, base=4))
    after = log.view()
    assert (after.end_offset, after.cuts) == (3, before.cuts + 1)
    assert [record.timestamp for record in read(after)] == [1, 2, 4]


def test_a_wrapper_is_split(tmp_path: Path) -> None:
    """Its header has neither the first offset nor the number of its messages."""
    made = [SimpleRecord(time, b"k", b"v") for time in (1, 3, 7, 2)]
    wrapper = build_messages(made, MessageFields(base_offset=0, codec=Codec.GZIP))
    late = build_messages(made[:1], MessageFields(magic=0, base_offset=4))
    write_partition(tmp_path / "p-0", [wrapper, late])
    for at_ms, end, largest in ((0, 0, -1), (1, 1, 1), (6, 2, 3), (7, 5, 7)):
        view = open_log(tmp_path / "p-0", at_ms=at_ms).view()
        assert (view.end_offset, view.max_timestamp) == (end, largest)
        assert [record.offset for record in read(view)] == list(range(end))


def test_damage_does_not_hide_the_end(tmp_path: Path) -> None:
    """It is reported only if it lies before the end."""
    parts = [records(1, 2), records(9, base=2), records(9, base=3)]
    damaged = bytearray(b"".join(parts))
    damaged[len(parts[0]) + len(parts[1]) - 1] ^= 1
    write_partition(tmp_path / "p-0", parts)
    (tmp_path / "p-0" / f"{0:020}.log").write_bytes(damaged)
    view = open_log(tmp_path / "p-0", at_ms=5).view()
    assert view.end_offset == 3
    found, damage = scan(view)
    assert [record.timestamp for record in found] == [1, 2]
    assert [(each.first_offset, each.next_offset) for each in damage] == [(2, -1)]
