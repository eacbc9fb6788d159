"""Data directories of Redpanda, read as log directories.

No files of a real broker were available. These are written by `tests/redpanda.py`, from the
published format, of batches that brokers of Kafka have written, or that are made up.
"""

from __future__ import annotations

import os
import struct
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import LogDirError
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.files.checkpoints import parse_leader_epochs, parse_offsets
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.groups.groups import coordinator_partition
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.backup.making import make_point
from kafkafs.storage.operations.backup.request import Backup
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, list_groups
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from kafkafs.storage.redpanda.data_directory import RedpandaDirectory
from kafkafs.storage.redpanda.kvstore import UnseenOffsets
from kafkafs.storage.redpanda.opening import find_segment
from tests import answers
from tests.batches import MUTATIONS, mutated, v2_batches
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.group_records import commit, group_record
from tests.reading import COMMITTED, UNCOMMITTED, Plain, open_view, read, scan
from tests.redpanda import (
    ARCHIVAL_METADATA,
    PLACEHOLDER,
    RAFT_CONFIGURATION,
    TX_FENCE,
    UNSEEN,
    KeyValueStore,
    RedpandaLog,
    convert,
    placement_pair,
    raft_snapshot,
    translator_pairs,
)
from tests.storage.test_corpora import as_expected, records

CORPUS = "kafka43-clean"
PARTITIONS = answers.partitions(CORPUS)
WITH_RECORDS = [
    (*key, level)
    for key in answers.partitions_with_records(CORPUS)
    for level in (COMMITTED, UNCOMMITTED)
]


def batch(
    count: int, timestamp: int = 1_700_000_000_000, fields: BatchFields | None = None
) -> bytes:
    found = [SimpleRecord(timestamp + n, b"k%d" % n, b"value %d" % n) for n in range(count)]
    return build_batch(found, fields or BatchFields())


def partition_of(directory: Path, number: int = 0, revision: int = 12, topic: str = "t") -> Path:
    return directory / "kafka" / topic / f"{number}_{revision}"


def logs_of(directory: Path, topic: str = "t") -> bytes:
    """The translation of all segments of a partition, and checks that their names are right."""
    found = RedpandaDirectory(DirFd(str(directory))).child(f"{topic}-0")
    names = sorted(name for name in found.files()[0] if name.endswith(".log"))
    parts = [found.open(name).read(0, 1 << 30) for name in names]
    for name, part in zip(names, parts, strict=True):
        if part:
            assert struct.unpack_from(">q", part)[0] >= int(name.removesuffix(".log"))
    return b"".join(parts)


# -- batches of a real broker ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def converted(corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the batches of a corpus."""
    source, target = corpus(CORPUS), tmp_path_factory.mktemp("redpanda") / "data"
    starts = parse_offsets((source / "log-start-offset-checkpoint").read_bytes())
    convert(source, target, starts)
    return target


@pytest.fixture(scope="module")
def view(converted: Path) -> Callable[[str, int], View]:
    engine = Engine(str(converted))

    def opened(topic: str, number: int) -> View:
        return engine.log(topic, number).view()

    return cache(opened)


@pytest.mark.parametrize(("topic", "number", "isolation"), WITH_RECORDS)
def test_the_records_are_those_that_a_consumer_was_given(
    view: Callable[[str, int], View], topic: str, number: int, isolation: Isolation
) -> None:
    found = [as_expected(each) for each in records(view(topic, number), isolation)]
    assert found == list(answers.records(CORPUS, topic, number, isolation.value))


@pytest.mark.parametrize(("topic", "number"), PARTITIONS)
def test_the_offsets_are_those_that_a_broker_named(
    view: Callable[[str, int], View], topic: str, number: int
) -> None:
    found, named = view(topic, number), answers.offsets(CORPUS)[topic, number]
    expected = (named.beginning, named.end, named.last_stable)
    assert (found.start_offset, found.end_offset, found.last_stable_offset) == expected


# -- what the files say ----------------------------------------------------------------------------


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, object]]:
    """Draws what happens to a log."""
    found: list[tuple[str, object]] = []
    for _ in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["data", "data", "unseen", "hidden", "roll", "term", "gap"])):
            case "data":
                found.append(("data", draw(v2_batches())[0]))
            case "unseen":
                found.append(("other", (draw(st.sampled_from(UNSEEN)), draw(st.integers(1, 3)))))
            case "hidden":
                kind = draw(st.sampled_from([TX_FENCE, PLACEHOLDER, 5, 7, 33]))
                found.append(("other", (kind, draw(st.integers(1, 3)))))
            case other:
                found.append((other, None))
    return found


def written(directory: Path, taken: list[tuple[str, object]], base: int = 0) -> RedpandaLog:
    log = RedpandaLog(directory, base)
    log.roll()
    for what, how in taken:
        if what == "data":
            assert isinstance(how, bytes)
            log.add(how)
        elif what == "other":
            assert isinstance(how, tuple)
            log.add_other(*how)
        elif what == "gap":
            log.skip(2)
        else:
            log.roll(log.term + (what == "term"))
    return log


@given(steps(), st.data())
def test_the_translation_is_what_a_consumer_gets(
    tmp_path_factory: pytest.TempPathFactory, taken: list[tuple[str, object]], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("data")
    log = written(partition_of(directory), taken)
    whole = bytes(log.kafka)
    assert logs_of(directory) == whole
    found = RedpandaDirectory(DirFd(str(directory))).child("t-0")
    parts = []
    for name in sorted(name for name in found.files()[0] if name.endswith(".log")):
        file = found.open(name)
        size = file.size()
        parts.append(file.read(0, size))
        start = data.draw(st.integers(0, size))
        wanted = data.draw(st.integers(0, size + 5))
        buffer = bytearray(wanted)
        filled = file.read_into(start, buffer)
        assert file.read(start, wanted) == bytes(buffer[:filled]) == parts[-1][start:][:wanted]
        assert file.stat().st_size == size
        assert file.next_data(size + 9) == size
    assert b"".join(parts) == whole
    epochs = parse_leader_epochs(found.read_small("leader-epoch-checkpoint", 1 << 20))
    assert all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(epochs))


def test_large_batches_and_many_small_ones(tmp_path: Path) -> None:
    """Reads of any size, also in the middle of a batch that is larger than what a row covers."""
    log = RedpandaLog(partition_of(tmp_path))
    large = build_batch([SimpleRecord(5, b"k", os.urandom(200_000))])
    for number in range(300):
        log.add(large if number % 100 == 50 else batch(5, 1_700_000_000_000 + number))
        if number % 9 == 0:
            log.add_other(ARCHIVAL_METADATA)
    whole = bytes(log.kafka)
    file = RedpandaDirectory(DirFd(str(tmp_path))).child("t-0").open(f"{0:020}.log")
    assert file.size() == len(whole)
    for size in (1, 61, 100, 5000, 40_000, 70_000, 1 << 20):
        for position in range(0, len(whole), 37_111):
            assert file.read(position, size) == whole[position : position + size]
    assert bytes(file.content(len(whole))) == whole
    with pytest.raises(ValueError, match="fewer"):
        file.content(len(whole) + 1)
    view = Engine(str(tmp_path)).log("t", 0).view()
    found = {each.offset: each for each in read(view)}
    assert len(found) == 297 * 5 + 3
    for offset in list(found)[::41]:
        assert view.find(offset).value == found[offset].value
        timestamp = found[offset].timestamp
        first = min(each.offset for each in found.values() if each.timestamp >= timestamp)
        assert view.offset_for_time(timestamp) == first
    entries = Engine(str(tmp_path)).log("t", 0).directory.files(".index", ".timeindex")[0]
    assert {name: status.st_size > 0 for name, status in entries.items() if status} == {
        f"{0:020}.index": True,
        f"{0:020}.timeindex": True,
    }


def test_a_segment_without_records_has_no_log(tmp_path: Path) -> None:
    """Two of Kafka's segments cannot begin at one offset."""
    log = RedpandaLog(partition_of(tmp_path))
    for term in (1, 2, 3):
        log.roll(term)
        log.add_other(RAFT_CONFIGURATION)
    log.add(batch(2))
    log.roll(5)
    log.add_other(RAFT_CONFIGURATION)
    found = RedpandaDirectory(DirFd(str(tmp_path))).child("t-0")
    sizes = {name: found.stat(name).st_size for name in found.files()[0] if name.endswith(".log")}
    assert sizes == {f"{0:020}.log": len(log.kafka), f"{2:020}.log": 0}
    epochs = parse_leader_epochs(found.read_small("leader-epoch-checkpoint", 1 << 20))
    assert [(each.epoch, each.start_offset) for each in epochs] == [(3, 0), (5, 2)]


def test_aborted_records_are_hidden(tmp_path: Path) -> None:
    log = RedpandaLog(partition_of(tmp_path))
    log.add_other(TX_FENCE)
    fields = BatchFields(producer_id=7, producer_epoch=1, is_transactional=True)
    log.add(batch(3, fields=replace(fields, base_sequence=0)))
    log.add(build_end_txn_marker(ControlType.ABORT, 9, 0, fields))
    log.add(batch(1))
    view = Engine(str(tmp_path)).log("t", 0).view()
    assert [each.offset for each in read(view, isolation=COMMITTED)] == [5]
    assert [each.offset for each in read(view, isolation=UNCOMMITTED)] == [1, 2, 3, 5]


def test_groups_are_described(tmp_path: Path) -> None:
    log = RedpandaLog(partition_of(tmp_path, 3, topic="__consumer_offsets"))
    log.add_other(RAFT_CONFIGURATION)
    log.add(build_batch([commit("g", "t", 0, 2, timestamp=5), group_record("g")]))
    log.add_other(TX_FENCE)
    data = RedpandaLog(partition_of(tmp_path))
    data.add(batch(5))
    rows = list_groups(Engine(str(tmp_path)), ListGroups())
    assert [(row.offset, row.lag) for row in rows if isinstance(row, GroupOffset)] == [(2, 3)]


# -- where a log begins ----------------------------------------------------------------------------


def prefix_removed(directory: Path, *, cut_inside: bool) -> tuple[RedpandaLog, int, Path]:
    """A log whose first segment was removed; with `cut_inside` the log begins in the middle of the
    second one. Returns the log, its first offset in Kafka, and its directory."""
    into = partition_of(directory)
    log = RedpandaLog(into)
    log.add_other(RAFT_CONFIGURATION, 3)
    log.add(batch(10))
    removed = len(log.kafka)
    first = log.segment
    log.roll(2)
    log.add_other(RAFT_CONFIGURATION)
    if cut_inside:
        log.add(batch(4))
        log.add_other(ARCHIVAL_METADATA, 2)
    start, unseen = log.next_offset, log.unseen
    log.add(batch(4, 1_700_000_000_500))
    log.add_other(ARCHIVAL_METADATA)
    log.add(batch(1))
    assert first is not None
    first.unlink()
    del log.kafka[:removed]
    (into / "snapshot").write_bytes(raft_snapshot(start - 1, unseen))
    return log, start - unseen, into


@pytest.mark.parametrize("cut_inside", [False, True])
def test_offsets_go_on_where_the_removed_ones_ended(tmp_path: Path, cut_inside: bool) -> None:
    log, start, _ = prefix_removed(tmp_path, cut_inside=cut_inside)
    assert logs_of(tmp_path) == bytes(log.kafka)
    engine = Engine(str(tmp_path))
    view = engine.log("t", 0).view()
    assert (view.start_offset, view.end_offset) == (start, log.kafka_offset)
    assert [each.offset for each in read(view)] == list(range(start, log.kafka_offset))
    found = engine.log_dirs.dirs[0].directory.read_small("log-start-offset-checkpoint", 1 << 20)
    assert parse_offsets(found) == {("t", 0): start}
    assert engine.log_dirs.problems == []


def damaged_snapshots(data: bytes) -> Iterator[bytes]:
    yield b""
    yield data[:12]
    yield data[:-1]
    yield bytes(4) + data[4:]
    for at in (9, 20, len(data) - 1):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    yield raft_snapshot(20, 3, version=3)  # of an old version
    yield raft_snapshot(20, 500)
    yield raft_snapshot(-5, 0)


def test_offsets_that_are_not_known_are_not_made_up(tmp_path: Path) -> None:
    _, _, into = prefix_removed(tmp_path, cut_inside=False)
    whole = (into / "snapshot").read_bytes()
    for data in [None, *damaged_snapshots(whole)]:
        (into / "snapshot").unlink(missing_ok=True)
        if data is not None:
            (into / "snapshot").write_bytes(data)
        engine = Engine(str(tmp_path))
        found, damage = scan(engine.log("t", 0).view())
        assert found == []
        assert "the offsets are not known" in str(damage[0].error)
        assert f"{into}/13-2-v1.log" in str(damage[0].error)
        assert any("kafkafs.redpanda.offsets=shifted" in each for each in engine.log_dirs.problems)
    shifted = Engine(str(tmp_path), {"kafkafs.redpanda.offsets": "shifted"})
    assert [each.offset for each in read(shifted.log("t", 0).view())] == [13, 14, 15, 16, 17]
    assert any("are counted from Redpanda's own" in each for each in shifted.log_dirs.problems)


def test_a_partition_without_segments(tmp_path: Path) -> None:
    into = partition_of(tmp_path)
    into.mkdir(parents=True)
    assert Engine(str(tmp_path)).log("t", 0).view().end_offset == 0
    (into / "snapshot").write_bytes(raft_snapshot(20, 6))
    view = Engine(str(tmp_path)).log("t", 0).view()
    assert (view.start_offset, view.end_offset) == (15, 15)


# -- damage ----------------------------------------------------------------------------------------


def three_batches(directory: Path) -> tuple[RedpandaLog, Path, bytes]:
    log = RedpandaLog(partition_of(directory))
    log.add_other(RAFT_CONFIGURATION)
    for _ in range(3):
        log.add(batch(2))
    assert log.segment is not None
    return log, log.segment, log.segment.read_bytes()


SIZE = len(batch(2))
FIRST = 61 + len(b"inner")


def forged(data: bytes, at: int, field: int, layout: str, value: int) -> bytes:
    """The data with another field in the header at `at`, whose checksum is right."""
    out = bytearray(data)
    struct.pack_into(layout, out, at + field, value)
    struct.pack_into("<I", out, at, crc32c(bytes(out[at + 4 : at + 61])))
    return bytes(out)


DAMAGE: dict[str, tuple[Callable[[bytes, int], bytes], str]] = {
    "checksum": (lambda data, at: data[: at + 30] + b"!" + data[at + 31 :], "match its checksum"),
    "zeros": (lambda data, at: data[:at] + bytes(61) + data[at + 61 :], "zeros before more data"),
    "small": (lambda data, at: forged(data, at, 4, "<i", 60), "smaller than its header"),
    "back": (lambda data, at: forged(data, at, 8, "<q", 0), "do not follow"),
    "delta": (lambda data, at: forged(data, at, 23, "<i", -1), "do not follow"),
    "type": (lambda data, at: forged(data, at, 16, "<b", 99), "unknown type 99, with 2 offsets"),
    "type-0": (lambda data, at: forged(data, at, 16, "<b", 0), "unknown type 0"),
    "type-negative": (lambda data, at: forged(data, at, 16, "<b", -3), "unknown type -3"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_sound_around_damage_is_served(tmp_path: Path, name: str) -> None:
    _, segment, data = three_batches(tmp_path)
    damage, what = DAMAGE[name]
    at = FIRST + SIZE
    segment.write_bytes(damage(data, at))
    engine = Engine(str(tmp_path))
    found, reported = scan(engine.log("t", 0).view())
    assert [each.offset for each in found] == [0, 1, 4, 5]
    assert [(each.error.file, each.error.position) for each in reported] == [(str(segment), at)]
    assert what in str(reported[0].error)
    assert any(what in each and str(segment) in each for each in engine.log_dirs.problems)


def test_damaged_records_are_named_by_their_place_in_the_segment(tmp_path: Path) -> None:
    _, segment, data = three_batches(tmp_path)
    at = FIRST + SIZE
    segment.write_bytes(data[: at + 70] + b"!" + data[at + 71 :])
    found, reported = scan(Engine(str(tmp_path)).log("t", 0).view())
    assert [each.offset for each in found] == [0, 1, 4, 5]
    assert [(each.error.file, each.error.position) for each in reported] == [(str(segment), at)]


@pytest.mark.parametrize("left", [1, 60, 61, 62, SIZE - 1])
def test_a_last_batch_that_is_cut_off(tmp_path: Path, left: int) -> None:
    _, segment, data = three_batches(tmp_path)
    at = FIRST + 2 * SIZE
    segment.write_bytes(data[: at + left])
    found, reported = scan(Engine(str(tmp_path)).log("t", 0).view())
    assert [each.offset for each in found] == [0, 1, 2, 3]
    assert all((each.error.file, each.error.position) == (str(segment), at) for each in reported)


def test_a_size_that_reaches_beyond_the_end(tmp_path: Path) -> None:
    _, segment, data = three_batches(tmp_path)
    segment.write_bytes(forged(data, FIRST, 4, "<i", 1 << 30))
    found, _ = scan(Engine(str(tmp_path)).log("t", 0).view())
    assert found == []


def test_the_space_that_redpanda_preallocates_is_not_read(tmp_path: Path) -> None:
    log, segment, data = three_batches(tmp_path)
    segment.write_bytes(data + bytes(1 << 20))
    assert logs_of(tmp_path) == bytes(log.kafka)
    os.truncate(segment, 64 << 20)
    assert logs_of(tmp_path) == bytes(log.kafka)


def test_a_segment_that_is_missing_is_reported(tmp_path: Path) -> None:
    log, _, _ = three_batches(tmp_path)
    log.roll()
    log.add(batch(2))
    assert log.segment is not None
    missing = log.segment
    log.roll()
    log.add(batch(2))
    missing.unlink()
    engine = Engine(str(tmp_path))
    assert [each.offset for each in read(engine.log("t", 0).view())] == [*range(6), 8, 9]
    assert any("7 to 8 are in no segment" in each for each in engine.log_dirs.problems)


# -- names -----------------------------------------------------------------------------------------


def test_names_that_are_not_served_are_reported(tmp_path: Path) -> None:
    log, segment, data = three_batches(tmp_path)
    into = segment.parent
    outside = tmp_path / "outside"
    outside.write_bytes(data)
    (into / "7-1-v1.log").symlink_to(outside)
    (into / "8-1-v2.log").write_bytes(data)
    (into / "08-1-v1.log").write_bytes(data)
    (into / "0-1-v1.log.compaction.staging").write_bytes(b"x")
    (into / "0-1-v1.base_index").write_bytes(b"x")
    os.mkfifo(into / "9-1-v1.log")
    topics = into.parent.parent
    (topics / "t" / "x_1").mkdir()
    (topics / "t" / "1_5").symlink_to(into)
    (topics / "..t\n").mkdir()
    (topics / "linked").symlink_to(into.parent)
    engine = Engine(str(tmp_path))
    assert list(engine.topics().items()) == [("t", [0])]
    assert len(read(engine.log("t", 0).view())) == 6
    found = "\n".join(engine.log_dirs.problems)
    for text in (
        "7-1-v1.log: a symbolic link",
        "8-1-v2.log: a segment of version v2",
        "08-1-v1.log: not the name of a segment",
        "9-1-v1.log: a FIFO",
        "x_1: not the directory of a partition",
        "1_5: not the directory of a partition",
        "not a legal name of a topic",
        "linked: a symbolic link",
    ):
        assert text in found
    assert "staging" not in found
    assert logs_of(tmp_path) == bytes(log.kafka)


def test_the_latest_revision_of_a_partition_is_served(tmp_path: Path) -> None:
    for revision, count in ((9, 1), (30, 3), (12, 2)):
        RedpandaLog(partition_of(tmp_path, revision=revision)).add(batch(count))
    engine = Engine(str(tmp_path))
    assert len(read(engine.log("t", 0).view())) == 3
    assert sum("later revision" in each for each in engine.log_dirs.problems) == 2


# -- places ----------------------------------------------------------------------------------------


def test_an_archive_and_the_namespace_alone(tmp_path: Path) -> None:
    log, _, into = prefix_removed(tmp_path / "data", cut_inside=True)
    (tmp_path / "data" / "redpanda" / "controller" / "0_0").mkdir(parents=True)
    archive = tmp_path / "data.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tmp_path / "data", "data")
    for path in (archive, into.parent.parent):
        view = Engine(str(path)).log("t", 0).view()
        assert [each.offset for each in read(view)] == list(range(14, log.kafka_offset))


def test_a_data_directory_is_never_written_to(tmp_path: Path) -> None:
    three_batches(tmp_path)
    with pytest.raises(LogDirError, match="a data directory of Redpanda, which can only be read"):
        LogManager(str(tmp_path))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["0-1-v1.log"]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "t" / "other").mkdir(parents=True)
    (tmp_path / "kafka" / "t" / "0_1").touch()
    with pytest.raises(LogDirError, match="not a Kafka log directory"):
        Engine(str(tmp_path))


def test_revive_makes_a_log_directory_of_kafka(tmp_path: Path) -> None:
    _, start, _ = prefix_removed(tmp_path / "data", cut_inside=True)
    commits = [commit(f"g{number}", "t", 0, start + number, timestamp=5) for number in range(4)]
    for number in range(3):
        offsets = RedpandaLog(partition_of(tmp_path / "data", number, topic="__consumer_offsets"))
        offsets.add_other(RAFT_CONFIGURATION)
        if number == 1:
            offsets.add(build_batch(commits))
    sources = Engine(str(tmp_path / "data"))
    list(revive(sources, Revive(str(tmp_path / "new"))))
    engine = Engine(str(tmp_path / "new" / "data"))
    assert read(engine.log("t", 0).view()) == read(sources.log("t", 0).view())
    rows = [row for row in list_groups(engine, ListGroups()) if isinstance(row, GroupOffset)]
    assert [(row.group.name, row.offset) for row in rows] == [
        (f"g{number}", start + number) for number in range(4)
    ]
    assert all(row.group.coordinator == coordinator_partition(row.group.name, 3) for row in rows)
    assert len({row.group.coordinator for row in rows}) > 1


# -- while Redpanda runs ---------------------------------------------------------------------------


def test_a_log_that_grows_and_rolls(tmp_path: Path) -> None:
    log = RedpandaLog(partition_of(tmp_path))
    log.roll()
    opened = Engine(str(tmp_path)).log("t", 0)
    log.add_other(RAFT_CONFIGURATION)
    for number in range(40):
        log.add(batch(3, number))
        if number % 4 == 0:
            log.add_other(ARCHIVAL_METADATA)
        if number % 10 == 9:
            log.roll(log.term + 1)
        assert [each.offset for each in read(opened.view())] == list(range(log.kafka_offset))


def test_batches_that_a_new_leader_does_not_have_are_gone(tmp_path: Path) -> None:
    log, segment, _ = three_batches(tmp_path)
    opened = Engine(str(tmp_path)).log("t", 0)
    assert len(read(opened.view())) == 6
    os.truncate(segment, FIRST + SIZE)
    log.next_offset -= 4
    log.add(batch(1))
    log.add(batch(5))
    assert [each.offset for each in read(opened.view())] == list(range(8))


# -- the key-value store ---------------------------------------------------------------------------


def stored(directory: Path, how: str) -> KeyValueStore:
    """Writes stores that know of the log of `prefix_removed`, whose unseen offsets are 0 to 2, 13,
    18 to 19 and 24, and of others."""
    ranges = [(0, 3), (13, 1), (18, 2), (24, 1)]
    pairs = translator_pairs(5, ranges, 3, 25) | placement_pair(5, "t", 0, 12)
    others = placement_pair(6, "t", 0, 11) | translator_pairs(6, [(0, 1)], 900, 1000)
    noise = {struct.pack("<bbq", 1, 0, 5): b"vote", b"\2\0anything": b"start"}
    KeyValueStore(directory / "redpanda" / "kvstore" / "1_0").snapshot(others)
    store = KeyValueStore(directory / "redpanda" / "kvstore" / "0_0")
    if how == "segment":
        store.put(others | noise)
        store.put(pairs)
    elif how == "snapshot":
        store.next_offset = 40
        store.snapshot(others | noise | pairs)
    elif how == "both":
        stale = translator_pairs(5, [(0, 1)], 1, 25)
        store.put(pairs, 0)
        store.snapshot(pairs | others)
        store.put({**stale, b"\4\0gone": None}, 0)
        store.put(pairs, 5)
    else:
        store.put({**pairs, **dict.fromkeys(pairs)})
        store.put(dict.fromkeys(pairs))
    return store


@pytest.mark.parametrize("cut_inside", [False, True])
@pytest.mark.parametrize("how", ["segment", "snapshot", "both", "removed"])
def test_the_key_value_store_knows_the_offsets(tmp_path: Path, how: str, cut_inside: bool) -> None:
    log, _, into = prefix_removed(tmp_path, cut_inside=cut_inside)
    (into / "snapshot").unlink()
    stored(tmp_path, how)
    engine = Engine(str(tmp_path))
    if how == "removed":
        assert scan(engine.log("t", 0).view())[0] == []
        return
    assert logs_of(tmp_path) == bytes(log.kafka)
    assert engine.log("t", 0).view().end_offset == log.kafka_offset
    assert engine.log_dirs.problems == []


def test_what_the_store_does_not_know_is_not_made_up() -> None:
    found = UnseenOffsets((-5, 20, 30), (0, 4, 6), 40)
    assert found.start_of(-6) == (-4, 0)
    assert found.start_of(0) == (0, 0)
    assert found.start_of(20) == (20, 0)
    assert found.start_of(21) == (21, 4)
    assert found.start_of(41) == (41, 6)
    assert found.start_of(42) is None


@given(st.sampled_from(["segment", "snapshot"]), MUTATIONS)
def test_a_damaged_store_is_reported(
    tmp_path_factory: pytest.TempPathFactory, how: str, mutations: list[tuple[str, int, int]]
) -> None:
    """Whatever is in it, the offsets are right or refused."""
    directory = tmp_path_factory.mktemp("store")
    log, _, into = prefix_removed(directory, cut_inside=False)
    (into / "snapshot").unlink()
    store = stored(directory, how)
    path = max(store.directory.iterdir())
    data = path.read_bytes()
    path.write_bytes(mutated(data, mutations))
    engine = Engine(str(directory))
    found, _ = scan(engine.log("t", 0).view())
    assert found == [] or logs_of(directory) == bytes(log.kafka)
    if not found:
        assert any("the offsets are not known" in each for each in engine.log_dirs.problems)


@given(steps(), MUTATIONS)
@settings(max_examples=40)
def test_no_damage_makes_up_records(
    tmp_path_factory: pytest.TempPathFactory,
    taken: list[tuple[str, object]],
    mutations: list[tuple[str, int, int]],
) -> None:
    directory = tmp_path_factory.mktemp("data")
    log = written(partition_of(directory), taken)
    known = {(each.timestamp, each.key, each.value) for each in records_of(bytes(log.kafka))}
    assert log.segment is not None
    path = min(log.segment.parent.glob("*.log"), key=lambda each: -each.stat().st_size)
    path.write_bytes(mutated(path.read_bytes(), mutations))
    engine = Engine(str(directory))
    found, damage = scan(engine.log("t", 0).view())
    assert {(each.timestamp, each.key, each.value) for each in found} <= known
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets))
    assert all(str(log.segment.parent) in each.error.file for each in damage)
    list(engine.log_dirs.problems)


def records_of(data: bytes) -> list[Plain]:
    """The records of the batches of a `.log`."""
    with TemporaryDirectory() as place:
        (Path(place) / "t-0").mkdir()
        (Path(place) / "t-0" / f"{0:020}.log").write_bytes(data)
        return read(open_view(Path(place) / "t-0"), isolation=UNCOMMITTED)


def test_a_backup_has_the_files_of_kafka(converted: Path, tmp_path: Path) -> None:
    source, stored = Engine(str(converted)), tmp_path / "backup"
    rows = list(make_point(source, Backup(str(stored))))
    assert not [row for row in rows if isinstance(row, PartitionFailed)]
    found = Engine(str(stored))
    assert found.topics() == source.topics()
    for topic, numbers in source.topics().items():
        for number in numbers:
            one, other = source.log(topic, number), found.log(topic, number)
            assert one.view().end_offset == other.view().end_offset
            names = sorted(one.directory.files()[0])
            assert sorted(other.directory.files()[0]) == names
            for name in names:
                data = one.directory.open(name).read(0, 1 << 30)
                assert other.directory.open(name).read(0, 1 << 30) == data
    identities = {
        (topic, number, name): directory.open(name).identity
        for topic, numbers in source.topics().items()
        for number in numbers
        for directory in [source.log(topic, number).directory]
        for name in directory.files()[0]
    }
    assert len(set(identities.values())) == len(identities)


def test_a_segment_is_found_by_its_path(tmp_path: Path) -> None:
    log, segment, _ = three_batches(tmp_path)
    log.roll(2)
    log.add_other(RAFT_CONFIGURATION)
    log.roll(3)
    log.add(batch(1))
    into = segment.parent
    found = find_segment(str(into), segment.name)
    assert found is not None
    directory, name = found
    assert name == f"{0:020}.log"
    assert directory.open(name).path == str(segment)
    assert find_segment(str(into), "snapshot") is None
    assert find_segment(str(tmp_path / "t-0"), segment.name) is None
    with pytest.raises(LogDirError, match="without records"):
        find_segment(str(into), "7-2-v1.log")
    RedpandaLog(partition_of(tmp_path, revision=30)).add(batch(1))
    with pytest.raises(LogDirError, match="without records that are served"):
        find_segment(str(into), segment.name)
    with pytest.raises(LogDirError, match="in Redpanda's namespace redpanda"):
        find_segment(str(tmp_path / "redpanda" / "controller" / "0_0"), segment.name)
