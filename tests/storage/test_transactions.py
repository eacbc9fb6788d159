"""Tests transactions: committed, aborted and open ones, also when files are missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import OffsetNotFound
from kafkafs.storage.format.layout import Codec, ControlType
from kafkafs.storage.format.records.columns import Damage
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.logs import TopicSettings, write_partition
from tests.reading import (
    COMMITTED,
    UNCOMMITTED,
    Plain,
    check_against,
    find,
    open_view,
    read,
    scan,
    written,
)


@dataclass
class Story:
    """A partition as its producers wrote it, and what each reader must see."""

    batches: list[bytes] = field(default_factory=list)
    records: list[tuple[Plain, int]] = field(default_factory=list)  # its transaction, -1 if none
    open_since: dict[int, int] = field(default_factory=dict)  # first offset by producer
    numbers: dict[int, int] = field(default_factory=dict)  # of each producer's current transaction
    aborted: set[tuple[int, int]] = field(default_factory=set)
    owners: list[tuple[int, int]] = field(default_factory=list)
    offset: int = 0

    def data(self, producer: int, count: int = 2, codec: Codec | None = None) -> Story:
        """Appends `count` records of a producer; -1 writes outside of transactions."""
        fields = BatchFields(
            base_offset=self.offset,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            is_transactional=producer >= 0,
            codec=codec or Codec.NONE,
        )
        records = [
            SimpleRecord(1000 + self.offset + n, b"%d" % producer, b"v", offset=self.offset + n)
            for n in range(count)
        ]
        batch = build_batch(records, fields)
        self.batches.append(batch)
        if producer >= 0:
            self.open_since.setdefault(producer, self.offset)
        owner = (producer, self.numbers.get(producer, 0))
        for record in written(batch, records):
            self.records.append((record, len(self.owners)))
            self.owners.append(owner)
        self.offset += count
        return self

    def end(self, producer: int, kind: ControlType) -> Story:
        """Writes the COMMIT or ABORT marker of a producer's transaction, which may be empty."""
        fields = BatchFields(base_offset=self.offset, producer_id=producer, producer_epoch=0)
        self.batches.append(build_end_txn_marker(kind, 1000 + self.offset, 1, fields))
        number = self.numbers.get(producer, 0)
        if kind is ControlType.ABORT:
            self.aborted.add((producer, number))
        self.numbers[producer] = number + 1
        self.open_since.pop(producer, None)
        self.offset += 1
        return self

    @property
    def last_stable_offset(self) -> int:
        return min([self.offset, *self.open_since.values()])

    def committed(self) -> list[Plain]:
        return [
            record
            for record, owner in self.records
            if record.offset < self.last_stable_offset and self.owners[owner] not in self.aborted
        ]

    def uncommitted(self) -> list[Plain]:
        return [record for record, _ in self.records]

    def write(self, directory: Path, segment_bytes: int = 400, *, clean: bool = True) -> None:
        settings = TopicSettings(segment_bytes=segment_bytes, index_interval_bytes=100)
        write_partition(directory, self.batches, settings, clean=clean)

    def check(self, directory: Path, start: int = 0) -> None:
        view = open_view(directory, start)
        assert view.end_offset == self.offset
        assert view.last_stable_offset == max(self.last_stable_offset, start)
        seen = [record for record in self.committed() if record.offset >= start]
        check_against(view, seen, COMMITTED)
        markers = [n for n in range(start, self.offset) if n not in self.offsets()]
        everything = [record for record in self.uncommitted() if record.offset >= start]
        assert read(view, isolation=UNCOMMITTED) == everything
        for record in everything:
            assert find(view, record.offset, UNCOMMITTED) == record
        for offset in markers:  # READ_UNCOMMITTED lookups by offset return control records
            assert view.find(offset, UNCOMMITTED).batch.is_control
            with pytest.raises(OffsetNotFound):
                view.find(offset, COMMITTED)

    def offsets(self) -> set[int]:
        return {record.offset for record, _ in self.records}


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(-1, 3), st.sampled_from([Codec.NONE, Codec.LZ4])),
        st.tuples(st.just("commit"), st.integers(0, 3), st.none()),
        st.tuples(st.just("abort"), st.integers(0, 3), st.none()),
    ),
    max_size=25,
)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    story = Story()
    for what, producer, codec in draw(EVENTS):
        if what == "data":
            story.data(producer, draw(st.integers(1, 3)), codec)
        else:
            story.end(producer, ControlType.ABORT if what == "abort" else ControlType.COMMIT)
    return story


@given(stories(), st.sampled_from([150, 400, 1 << 20]), st.booleans())
def test_any_interleaving_is_seen_as_it_was_decided(
    story: Story, segment_bytes: int, clean: bool
) -> None:
    with TemporaryDirectory() as name:
        story.write(Path(name) / "p-0", segment_bytes, clean=clean)
        story.check(Path(name) / "p-0")


@given(stories(), st.integers(0, 30))
def test_a_log_start_in_the_middle_of_a_transaction(story: Story, start: int) -> None:
    with TemporaryDirectory() as name:
        story.write(Path(name) / "p-0")
        story.check(Path(name) / "p-0", min(start, story.offset))


LOSSES: dict[str, Callable[[Path, random.Random], object]] = {
    "removed": lambda path, source: path.unlink(),
    "empty": lambda path, source: path.write_bytes(b""),
    "cut": lambda path, source: path.write_bytes(path.read_bytes()[: source.randrange(60)]),
    "random": lambda path, source: path.write_bytes(source.randbytes(120)),
    "zeros": lambda path, source: path.write_bytes(bytes(100)),
    "flipped": lambda path, source: path.write_bytes(
        bytes(byte ^ (source.random() < 0.1) for byte in path.read_bytes())
    ),
}


@given(
    stories(),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(sorted(LOSSES))), max_size=6),
    st.randoms(use_true_random=False),
)
def test_lost_and_torn_snapshots_and_transaction_indexes_change_nothing(
    story: Story, losses: list[tuple[int, str]], source: random.Random
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(name) / "p-0"
        story.write(directory)
        for which, what in losses:
            files = sorted([*directory.glob("*.snapshot"), *directory.glob("*.txnindex")])
            if files:
                LOSSES[what](files[which % len(files)], source)
        story.check(directory)


def a_story() -> Story:
    """Returns two aborted transactions, one committed, one open since offset 9, and plain data."""
    story = Story().data(1).data(-1).data(1).end(1, ControlType.ABORT).data(2).data(3)
    story.end(2, ControlType.COMMIT).data(-1).data(1).end(1, ControlType.ABORT).data(-1)
    return story


def test_a_story_read_both_ways(tmp_path: Path) -> None:
    story = a_story()
    story.write(tmp_path / "p-0")
    assert (story.last_stable_offset, story.offset) == (9, 19)
    assert [record.offset for record in story.committed()] == [2, 3, 7, 8]
    story.check(tmp_path / "p-0")


def test_why_an_offset_is_not_shown(tmp_path: Path) -> None:
    story = a_story()
    story.write(tmp_path / "p-0")
    view = open_view(tmp_path / "p-0")
    for offset, why in (
        (0, "aborted transaction"),
        (6, "a control batch"),
        (9, "a transaction has been open since offset 9"),
        (19, r"past the end of topic/0 \(0 to 18\)"),
    ):
        with pytest.raises(OffsetNotFound, match=why):
            view.find(offset)


def test_a_snapshot_from_beyond_the_log_s_end_is_not_believed(tmp_path: Path) -> None:
    """The log lost its end; the snapshot contains a commit that is no longer there."""
    story = Story().data(1).end(1, ControlType.COMMIT)
    story.write(tmp_path / "p-0", 1 << 20)
    log = tmp_path / "p-0" / f"{0:020}.log"
    log.write_bytes(story.batches[0])
    cut = Story().data(1)
    cut.check(tmp_path / "p-0")
    assert open_view(tmp_path / "p-0").last_stable_offset == 0


def test_a_snapshot_older_than_the_first_segment_is_not_looked_at(tmp_path: Path) -> None:
    story = a_story()
    story.write(tmp_path / "p-0", 150)
    directory = tmp_path / "p-0"
    for path in sorted(directory.glob("*.log"))[:3]:
        for suffix in (".log", ".index", ".timeindex"):
            path.with_suffix(suffix).unlink()
    first = min(int(path.stem) for path in directory.glob("*.log"))
    for path in directory.glob("*.snapshot"):
        if int(path.stem) >= first:
            path.unlink()
    assert list(directory.glob("*.snapshot"))
    view = open_view(directory)
    assert (view.start_offset, view.end_offset) == (first, story.offset)
    assert view.last_stable_offset == max(9, first)


def flip(directory: Path, base: int, at: int, bit: int) -> int:
    """Flips a bit in a batch; returns the batch's position."""
    for log in sorted(directory.glob("*.log")):
        data = bytearray(log.read_bytes())
        position = 0
        while position < len(data):
            if int.from_bytes(data[position : position + 8], "big") == base:
                data[position + at] ^= bit
                log.write_bytes(data)
                return position
            position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    raise AssertionError(base)


@pytest.mark.parametrize("keep_snapshots", [True, False])
def test_a_flipped_bit_opens_no_transaction(tmp_path: Path, keep_snapshots: bool) -> None:
    """Otherwise it would never end, and all that follows would be hidden for ever."""
    story = Story().data(-1).data(-1).data(-1)
    story.write(tmp_path / "p-0")
    flip(tmp_path / "p-0", 2, 22, 0x10)  # "transactional"
    if not keep_snapshots:
        for path in (tmp_path / "p-0").glob("*.snapshot"):
            path.unlink()
    view = open_view(tmp_path / "p-0")
    assert view.last_stable_offset == 6
    records, damage = scan(view)
    assert [record.offset for record in records] == [0, 1, 4, 5]
    assert [(part.first_offset, part.next_offset) for part in damage] == [(2, 4)]


def test_a_damaged_batch_in_a_transaction_costs_itself_alone(tmp_path: Path) -> None:
    story = Story().data(1).data(1).data(1).end(1, ControlType.COMMIT).data(-1)
    story.write(tmp_path / "p-0", 1 << 20)
    position = flip(tmp_path / "p-0", 2, 70, 1)
    view = open_view(tmp_path / "p-0")
    records, damage = scan(view)
    assert [record.offset for record in records] == [0, 1, 4, 5, 7, 8]
    assert [(part.first_offset, part.error.position) for part in damage] == [(2, position)]


@pytest.mark.parametrize("has_index", [True, False])
def test_a_damaged_abort_marker_is_made_good_by_the_transaction_index(
    tmp_path: Path, has_index: bool
) -> None:
    story = Story().data(1).end(1, ControlType.ABORT).data(-1)
    story.write(tmp_path / "p-0", 1 << 20)
    flip(tmp_path / "p-0", 2, 70, 1)
    index = tmp_path / "p-0" / f"{0:020}.txnindex"
    if not has_index:
        index.unlink()
    view = open_view(tmp_path / "p-0")
    assert view.last_stable_offset == 5
    records, damage = scan(view)
    # Without either, the outcome is unknown; records are shown rather than lost.
    assert [record.offset for record in records] == ([3, 4] if has_index else [0, 1, 3, 4])
    assert len(damage) == 1
    shown = find(view, 0)
    assert (shown is None) == has_index


def test_control_records_that_end_no_transaction_decide_nothing(tmp_path: Path) -> None:
    story = Story().data(1)
    fields = BatchFields(base_offset=2, is_control=True)
    leader_change = SimpleRecord(5, b"\0\0\0\2", bytes(6))
    story.batches.append(build_batch([leader_change], fields))
    story.offset = 3
    story.data(-1).end(1, ControlType.COMMIT).data(-1)
    story.write(tmp_path / "p-0")
    records, damage = scan(open_view(tmp_path / "p-0"))
    assert [record.offset for record in records] == [0, 1, 3, 4, 6, 7]
    assert not damage


def test_scans_give_nothing_of_a_control_batch_and_no_damage_for_it(tmp_path: Path) -> None:
    story = Story().data(1).end(1, ControlType.COMMIT)
    story.write(tmp_path / "p-0")
    view = open_view(tmp_path / "p-0")
    for isolation in (COMMITTED, UNCOMMITTED):
        assert not any(isinstance(part, Damage) for part in view.scan(isolation=isolation))
        assert view.last(isolation) == 1
        assert view.offset_for_time(1002, isolation) is None
