"""All versions of a key on the disk, compared with what Kafka's consumer got before a cleaning, and
with an independent walk through all files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError, SegmentGone, UnknownPartition, UnknownTopic
from kafkafs.storage.format.files.names import deleted_partition_dir
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.lines.json_output import json_lines, record_as_json
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.operations.history import History, KeyVersion, VersionState, history
from kafkafs.storage.operations.request import PartitionFailed, ProgressListener
from kafkafs.storage.segment.segment import HeldFile, SegmentFiles
from tests import answers
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.logs import TopicSettings, walk, write_log_dir, write_partition, write_topic

Corpus = Callable[[str], Path]

BEFORE, AFTER = "compact-before", "compact-after"
KEY = b"k"


def versions(
    directory: Path,
    key: bytes = KEY,
    where: str = "t/0",
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> list[KeyVersion]:
    rows = list(history(Engine(str(directory)), History(Selection.of(where), key, isolation)))
    assert not [row for row in rows if isinstance(row, PartitionFailed)]
    return [row for row in rows if isinstance(row, KeyVersion)]


def put(offset: int, value: bytes | None, key: bytes = KEY, epoch: int = 0) -> bytes:
    record = SimpleRecord(1_700_000_000_000 + offset, key, value, offset=offset)
    return build_batch([record], BatchFields(base_offset=offset, leader_epoch=epoch))


def log(directory: Path, base: int = 0) -> Path:
    return directory / "t-0" / f"{base:020}.log"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three segments, of the offsets 0 and 1, 2 and 3, 4; all have the key."""
    size = len(put(0, b"0"))
    batches = [put(at, b"%d" % at) for at in range(5)]
    return write_topic(tmp_path / "data", batches, TopicSettings(segment_bytes=2 * size))


@pytest.mark.parametrize("topic", ["cmp-plain", "cmp-tomb", "cmp-delete", "cmp-zstd", "cmp-txn"])
def test_what_a_cleaning_superseded(corpus: Corpus, topic: str) -> None:
    """The cleaner has left the old segments, so every record that a consumer got before is there
    once, and as served exactly what a consumer gets now."""
    before, after = (list(answers.records(name, topic, 0)) for name in (BEFORE, AFTER))
    keys = sorted({record.key for record in before if record.key is not None})
    for key in keys[:: len(keys) // 4]:
        found = versions(corpus(AFTER), key, topic)
        expected = [each for each in before if each.key == key]
        assert [(v.record.offset, v.record.timestamp, v.record.value) for v in found] == [
            (each.offset, each.timestamp, each.value) for each in expected
        ]
        served = [v.record.offset for v in found if v.is_served]
        assert served == [each.offset for each in after if each.key == key]
        for each in found:
            assert each.file.endswith(".log" if each.is_served else ".log.deleted")


def test_every_file_is_searched(corpus: Corpus) -> None:
    """Finds the offsets that a walk through all files finds."""
    directory = corpus("kafka43-clean") / "compacted-0"
    batches = {
        header.base_offset: header
        for path in directory.iterdir()
        if path.name.endswith((".log", ".log.deleted"))
        for header in walk(path.read_bytes())
    }
    key = b"key-29"
    found = versions(corpus("kafka43-clean"), key, "compacted")
    assert len(found) > 3
    for each in found:
        batch = batches[each.record.batch.base_offset]
        assert Path(each.file).read_bytes()[each.record.batch.position :][:8] == batch.data[:8]
    holding = sum(header.data.count(key + b"\x01") for header in batches.values())
    assert holding <= len(found)


def test_why_a_version_is_not_served(small: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = log(small).with_suffix(suffix)
        path.rename(f"{path}.deleted")
    (small / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    found = versions(small)
    assert [each.state for each in found] == [VersionState.BELOW_START] * 3 + [
        VersionState.SERVED
    ] * 2
    assert [Path(each.file).name.partition(".")[2] for each in found] == [
        *("log.deleted", "log.deleted"),
        *("log", "log", "log"),
    ]
    assert [each.as_json()["served"] for each in found] == [False] * 3 + [True] * 2


def test_files_of_every_state_and_name(small: Path) -> None:
    """A record in several files is one version; another record with its offset is a second one."""
    partition = small / "t-0"
    (partition / f"{0:020}.log.cleaned").write_bytes(put(0, b"0") + put(1, b"1")[:20])
    (partition / f"{2:020}.log.1.deleted").write_bytes(put(2, b"2") + put(3, None))
    (partition / f"{3:020}.log.cleaned.2.deleted").write_bytes(put(3, b"3"))
    (partition / f"{10**20 - 1}.log.deleted").write_bytes(put(0, b"no offset"))
    (partition / f"{5:020}.log.deleted").write_bytes(put(5, b"5") + put(6, b"6", b"another"))
    found = [(v.record.offset, v.record.value, v.state) for v in versions(small)]
    assert found == [
        *((at, b"%d" % at, VersionState.SERVED) for at in range(4)),
        (3, None, VersionState.COMPACTED),
        (4, b"4", VersionState.SERVED),
        (5, b"5", VersionState.PAST_END),
    ]


def test_other_replicas(small: Path, tmp_path: Path) -> None:
    """What only a replica has that is not served, for example because it missed a leader election;
    what both have is the served one's."""
    batches = [put(0, b"0"), put(1, b"1"), put(2, b"lost"), put(3, b"3")]
    other = tmp_path / "other"
    write_partition(other / "t-0", batches)
    write_log_dir(other, {("t", 0): 4}, node_id=2, directory_id="ZGlyZWN0b3J5LXR3by4uLg")
    engine = Engine([str(small), str(other)])
    found = list(history(engine, History(Selection.of("t"), KEY)))
    assert [
        (v.record.offset, v.record.value, v.state) for v in found if isinstance(v, KeyVersion)
    ] == [
        *((at, b"%d" % at, VersionState.SERVED) for at in range(3)),
        (2, b"lost", VersionState.REPLICA),
        *((at, b"%d" % at, VersionState.SERVED) for at in range(3, 5)),
    ]


UUID = "0123456789abcdef0123456789abcdef"
OTHER_ID = b"\x02" * 16


def found_in(directory: Path, where: str = "t/0") -> list[tuple[int, bytes | None, VersionState]]:
    return [(v.record.offset, v.record.value, v.state) for v in versions(directory, where=where)]


@pytest.mark.parametrize(
    ("ending", "state"), [("delete", VersionState.DELETED), ("stray", VersionState.STRAY)]
)
def test_an_earlier_life_of_the_topic(small: Path, ending: str, state: VersionState) -> None:
    """Its records are versions of their own, also at the offsets of the present ones."""
    (small / "t-0").rename(small / f"t-0.{UUID}-{ending}")
    write_partition(small / "t-0", [put(0, b"0"), put(1, b"new")], topic_id=OTHER_ID)
    earlier = [(at, b"%d" % at, state) for at in range(5)]
    now = [(0, b"0", VersionState.SERVED), (1, b"new", VersionState.SERVED)]
    assert found_in(small) == found_in(small, "t") == earlier + now
    first = versions(small)[0]
    assert first.file == str(small / f"t-0.{UUID}-{ending}" / f"{0:020}.log")
    shutil.rmtree(small / "t-0")
    assert found_in(small) == found_in(small, "t") == earlier
    with pytest.raises(UnknownTopic):
        History(Selection.of("t/1"), KEY).check(Engine(str(small)))
    assert History(key=KEY).units(Engine(str(small))) == [("t", 0)]


def test_a_topic_that_a_broker_deleted(corpus: Corpus) -> None:
    directory = corpus("kafka43-clean")
    with pytest.raises(UnknownTopic):
        Engine(str(directory)).log("gone", 0)
    (version,) = versions(directory, b"rowan0", "gone")
    assert (version.record.offset, version.state) == (0, VersionState.DELETED)
    (deleted,) = directory.glob("gone-0.*-delete")
    assert version.file == str(deleted / f"{0:020}.log")


def test_a_deleted_replica_of_the_same_life(small: Path) -> None:
    """As a broker leaves when it moves a replica to another directory."""
    deleted = small / f"t-0.{UUID}-delete"
    (small / "t-0").rename(deleted)
    write_partition(small / "t-0", [put(at, b"%d" % at) for at in (1, 2, 4)])
    assert [(offset, state) for offset, _, state in found_in(small)] == [
        (0, VersionState.REPLICA),
        (1, VersionState.SERVED),
        (2, VersionState.SERVED),
        (3, VersionState.REPLICA),
        (4, VersionState.SERVED),
    ]


def test_the_directory_of_a_deleted_topic_with_a_long_name(tmp_path: Path) -> None:
    topic = "t" * 240
    name = deleted_partition_dir(topic, 0, UUID)
    assert f"{topic}-0" not in name
    root = tmp_path / "data"
    write_partition(root / name, [put(0, b"0")])
    write_partition(root / "other-0", [put(0, b"x")])
    write_log_dir(root, {("other", 0): 1})
    assert found_in(root, topic) == [(0, b"0", VersionState.DELETED)]
    for other in ("t" * 200, "o" * 240):
        with pytest.raises(UnknownTopic):
            History(Selection.of(other), KEY).check(Engine(str(root)))


def test_a_deletion_that_goes_on(small: Path) -> None:
    """The broker removes the directories of deleted partitions after they were listed."""
    dirs = [small / f"t-0.{digit * 32}-delete" for digit in "01"]
    for number, each in enumerate(dirs):
        write_partition(each, [put(number, b"old")], topic_id=bytes([3 + number]) * 16)
        os.utime(each, (number, number))
    rows = history(Engine(str(small)), History(Selection.of("t"), KEY))
    states = (row.state if isinstance(row, KeyVersion) else row for row in rows)
    assert next(states) is VersionState.DELETED
    for each in dirs:
        shutil.rmtree(each)
    assert list(states) == [VersionState.SERVED] * 5


def test_a_replica_whose_deletion_goes_on(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its files may vanish before it is opened."""
    deleted = small / f"t-0.{UUID}-delete"
    (small / "t-0").rename(deleted)
    write_partition(small / "t-0", [put(1, b"1")])
    hold = SegmentFiles.hold

    def hold_or_miss(files: SegmentFiles) -> HeldFile:
        if files.directory.name.endswith("-delete") and files.base_offset > 0:
            raise SegmentGone(files.path())
        return hold(files)

    monkeypatch.setattr(SegmentFiles, "hold", hold_or_miss)
    assert [(offset, state) for offset, _, state in found_in(small)] == [
        (0, VersionState.REPLICA),
        (1, VersionState.SERVED),
    ]


def test_a_directory_that_was_removed(small: Path, tmp_path: Path) -> None:
    """The other one is still searched."""
    other = tmp_path / "other"
    write_partition(other / "u-0", [put(0, b"0")])
    write_log_dir(other, {("u", 0): 1}, directory_id="ZGlyZWN0b3J5LXR3by4uLg")
    engine = Engine([str(small), str(other)])
    assert engine.topics().keys() == {"t", "u"}
    shutil.rmtree(other)
    rows = list(history(engine, History(Selection.of("t"), KEY)))
    assert [row.is_served for row in rows if isinstance(row, KeyVersion)] == [True] * 5


@given(
    placed=st.lists(
        st.tuples(
            st.sampled_from([".deleted", ".swap", ".cleaned", ".1.deleted"]),
            st.lists(st.tuples(st.integers(0, 6), st.sampled_from([b"a", b"b"])), max_size=5),
        ),
        max_size=4,
    ),
    start=st.integers(0, 5),
)
def test_as_a_scan_of_all_files(
    tmp_path_factory: pytest.TempPathFactory,
    placed: list[tuple[str, list[tuple[int, bytes]]]],
    start: int,
) -> None:
    """Whatever files there are, and however they overlap: each offset with the key is there once
    for each different record, by offset, and served is what the log serves."""
    root = write_topic(tmp_path_factory.mktemp("placed"), [put(0, b"0", b"a"), put(6, None, b"b")])
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    holding = {(0, b"0", b"a"), (6, None, b"b")}
    for suffix, records in placed:
        path = root / "t-0" / f"{min((at for at, _ in records), default=0):020}.log{suffix}"
        if not path.exists():
            values = {at: (at, suffix.encode() + b"%d" % at, key) for at, key in records}
            path.write_bytes(b"".join(put(*values[at]) for at in sorted(values)))
            holding |= set(values.values())
    view = Engine(str(root)).log("t", 0).view()
    served = [
        (int(columns.offsets[row]), columns.value(row), columns.key(row))
        for columns in view.read()
        for row in range(len(columns))
    ]
    for key in (b"a", b"b"):
        found = versions(root, key)
        offsets = [each.record.offset for each in found]
        assert offsets == sorted(offsets)
        plain = [(each.record.offset, each.record.value, each.record.key) for each in found]
        assert len(set(plain)) == len(plain)
        assert set(plain) == {each for each in holding if each[2] == key}
        is_served = [each for each, version in zip(plain, found, strict=True) if version.is_served]
        assert is_served == [each for each in served if each[2] == key]
    shutil.rmtree(root)


def test_aborted_transactions(tmp_path: Path) -> None:
    """Are left out, as their markers say, wherever the batch and the marker are."""

    def batch(offset: int) -> tuple[list[SimpleRecord], BatchFields]:
        fields = BatchFields(
            base_offset=offset, producer_id=7, producer_epoch=0, base_sequence=0,
            is_transactional=True,
        )  # fmt: skip
        return [SimpleRecord(1_700_000_000_000, KEY, b"%d" % offset, offset=offset)], fields

    def marker(offset: int, kind: ControlType) -> bytes:
        fields = BatchFields(base_offset=offset, producer_id=7, producer_epoch=0)
        return build_end_txn_marker(kind, 1_700_000_000_000, 0, fields)

    batches = [
        build_batch(*batch(0)), marker(1, ControlType.ABORT), build_batch(*batch(2)),
        marker(3, ControlType.COMMIT), build_batch(*batch(4)),
    ]  # fmt: skip
    size = len(batches[0])
    root = write_topic(tmp_path / "data", batches, TopicSettings(segment_bytes=size + 1))
    log(root).rename(f"{log(root)}.deleted")
    states = VersionState.BELOW_START, VersionState.SERVED, VersionState.UNSTABLE
    assert [(v.record.offset, v.state) for v in versions(root)] == [(2, states[1]), (4, states[2])]
    every = versions(root, isolation=Isolation.READ_UNCOMMITTED)
    assert [(v.record.offset, v.state) for v in every] == [
        (0, states[0]), (2, states[1]), (4, states[1]),
    ]  # fmt: skip


def test_leftovers_as_of_a_time(tmp_path: Path) -> None:
    """Each ends before its own first later record, also where the log has none: neither that nor a
    later marker counts."""

    def batch(offset: int, timestamp: int, *, is_transactional: bool = False) -> bytes:
        producer = 7 if is_transactional else -1
        record = SimpleRecord(timestamp, KEY, b"%d" % offset, offset=offset)
        return build_batch(
            [record],
            BatchFields(
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=is_transactional,
            ),
        )

    root = write_topic(tmp_path / "data", [batch(0, 10), batch(9, 10)])
    marker = build_end_txn_marker(
        ControlType.ABORT, 30, 0, BatchFields(base_offset=4, producer_id=7, producer_epoch=0)
    )
    left = [batch(1, 10), batch(2, 10, is_transactional=True), batch(3, 30), marker, batch(5, 10)]
    (root / "t-0" / f"{1:020}.log.deleted").write_bytes(b"".join(left))

    def offsets(at_ms: int) -> list[int]:
        rows = history(Engine(str(root), at_ms=at_ms), History(Selection.of("t"), KEY))
        return [row.record.offset for row in rows if isinstance(row, KeyVersion)]

    assert offsets(20) == [0, 1, 2, 9]
    assert offsets(30) == [0, 1, 3, 5, 9]


def test_damage_is_reported_and_the_rest_is_found(small: Path) -> None:
    path = log(small, 2)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    rows = list(history(Engine(str(small)), History(Selection.of("t"), KEY)))
    offsets = [row.record.offset for row in rows if isinstance(row, KeyVersion)]
    [failed] = [row for row in rows if isinstance(row, PartitionFailed)]
    assert offsets == [0, 1, 2, 4]
    assert isinstance(failed.cause, CorruptError)
    assert (failed.cause.file, failed.cause.position) == (str(path), len(data) // 2)


def test_a_row_is_a_line_of_the_log_with_more(corpus: Corpus) -> None:
    engine = Engine(str(corpus("kafka43-clean")))
    view = engine.log("codec-none", 0).view()
    for columns in view.read():
        lines = bytes(json_lines(columns, "codec-none", 0)).splitlines()
        rows = [columns.record(row) for row in range(len(columns))]
        assert [json.loads(line) for line in lines] == [
            record_as_json(record, "codec-none", 0) for record in rows
        ]
    key = next(
        record.key for record in answers.records("kafka43-clean", "codec-none", 0) if record.key
    )
    for each in versions(corpus("kafka43-clean"), key, "codec-none"):
        found = each.as_json()
        assert list(found)[-4:] == ["served", "state", "file", "position"]
        assert found["offset"] == each.record.offset


def test_progress(small: Path) -> None:
    """It is reported by file, and a search can be ended between two."""
    seen: list[tuple[str, int, int]] = []

    class Listener(ProgressListener):
        def report(self, what: str, done: int, total: int) -> None:
            seen.append((what, done, total))

        def check(self) -> None:
            if len(seen) == 2:
                raise RuntimeError

    rows = history(Engine(str(small)), History(Selection.of("t"), KEY), Listener())
    with pytest.raises(RuntimeError):
        list(rows)
    size = len(put(0, b"0"))
    assert seen == [("searching", 0, 5 * size), ("searching", 2 * size, 5 * size)]


def test_names_that_do_not_exist(small: Path) -> None:
    with pytest.raises(UnknownPartition):
        History(Selection.of("t/1"), KEY).check(Engine(str(small)))
    assert versions(small, b"nobody") == []
