"""Tests verification: no findings in real brokers' logs, and every kind of damage is located."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.files.snapshot import format_producer_snapshot, parse_producer_snapshot
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.check.verify import LogCheck
from kafkafs.storage.log.read.context import ReadLimits
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.verifier import Verifier
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.logs import TopicSettings, walk, write_log_dir, write_partition

TIME = 1_700_000_000_000
SMALL = TopicSettings(segment_bytes=1500, segment_index_bytes=1200, index_interval_bytes=200)
HEALTHY = (
    "kafka28",
    "kafka39",
    "kafka43-clean",
    "kafka43-crash",
    "kafka43-crash-recovered",
    "kafka43-torn-recovered",
    "compact-before",
    "compact-after",
    "compact-before2",
    "compact-after2",
)


def verified(*log_dirs: Path) -> list[tuple[str, int, str]]:
    """Returns all findings; files are relative to the first directory."""
    verifier = Verifier(Engine([str(path) for path in log_dirs]))
    found = list(verifier.directories())
    for partition in verifier.partitions():
        found += verifier.partition(partition)
    root = f"{log_dirs[0]}/"
    return [(one.file.removeprefix(root), one.position, one.what) for one in found]


def checked(partition: Path, start_offset: int = 0, **settings: bool) -> list[tuple[str, int, str]]:
    """Returns the findings in one partition, by default closed cleanly and not compacted."""
    facts: dict[str, Any] = {"is_closed": True, "may_have_gaps": False, **settings}
    directory = DirFd(str(partition.parent)).child(partition.name)
    found = LogCheck(directory, start_offset, limits=ReadLimits(), **facts).findings()
    return [(Path(one.file).name, one.position, one.what) for one in found]


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_where_brokers_were_at_work(
    name: str, corpus: Callable[[str], Path]
) -> None:
    assert verified(corpus(name)) == []


def test_nothing_is_found_in_two_directories(corpus: Callable[[str], Path]) -> None:
    root = corpus("kafka43-two-dirs")
    assert verified(root / "dir1", root / "dir2") == []


def test_damage_as_after_a_power_cut(corpus: Callable[[str], Path]) -> None:
    """The findings are those listed in torn.json, each at its position, and nothing else."""
    found = verified(corpus("kafka43-torn"))
    timeindex = "crash-big-0/00000000000000000000.timeindex"
    assert [(file, position) for file, position, _ in found if file == timeindex] == [
        (timeindex, position) for position in (0, 12, 24, 36)
    ]
    assert [one for one in found if one[0] != timeindex] == [
        (
            "crash-idem-0/00000000000000006131.log",
            96028,
            "magic is 208, expected 0, 1 or 2",
        ),
        (
            "crash-plain-0/00000000000000005170.log",
            18388,
            "batch of 489 bytes is cut off: 276 are left",
        ),
        ("crash-plain-1/00000000000000000000.index", -1, "missing"),
        (
            "crash-plain-1/00000000000000005156.log",
            17398,
            "zeros where a batch should begin",
        ),
        (
            "crash-txn-0/00000000000000002648.log",
            10401,
            "batch 2873-2880: crc is 1e6826b3, its header says 2c3b9695",
        ),
    ]


# A partition with everything in it, and one fault


def data(base: int, producer: int = -1, transactional: bool = False, epoch: int = 0) -> bytes:
    records = [SimpleRecord(TIME + base + n, b"k", bytes(40), offset=base + n) for n in range(3)]
    return build_batch(
        records,
        BatchFields(
            base_offset=base,
            leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=base if producer >= 0 else -1,
            is_transactional=transactional,
        ),
    )


def marker(offset: int, producer: int, kind: ControlType, epoch: int = 0) -> bytes:
    fields = BatchFields(
        base_offset=offset, leader_epoch=epoch, producer_id=producer, producer_epoch=0
    )
    return build_end_txn_marker(kind, TIME + offset, 3, fields)


def make(partition: Path) -> list[int]:
    """Writes plain and idempotent producers, committed and aborted transactions, and two leader
    epochs; returns the base offsets of the segments."""
    made, offset = [], 0
    for number in range(24):
        epoch = int(number > 12)
        if number % 6 == 4:
            made.append(data(offset, 7, transactional=True, epoch=epoch))
            kind = ControlType.ABORT if number % 12 == 4 else ControlType.COMMIT
            made.append(marker(offset + 3, 7, kind, epoch))
            offset += 4
        else:
            made.append(data(offset, 9 if number % 3 else -1, epoch=epoch))
            offset += 3
    return write_partition(partition, made, SMALL).bases


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    path = tmp_path / "topic-0"
    make(path)
    assert checked(path) == []
    return path


def log_of(partition: Path, number: int, suffix: str = "log") -> Path:
    return sorted(partition.glob(f"*.{suffix}"))[number]


def test_a_batch_with_a_right_checksum_and_wrong_records(partition: Path) -> None:
    log = log_of(partition, 1)
    content = bytearray(log.read_bytes())
    header = list(walk(bytes(content)))[1]
    at, told = header.position, header.max_timestamp
    content[at + 61 + 2] = 48  # the timestamp delta of the first record, doubled
    end = at + header.size
    content[at + 17 : at + 21] = struct.pack(">I", crc32c(memoryview(content)[at + 21 : end]))
    log.write_bytes(content)
    ((file, position, what),) = checked(partition)
    assert (file, position) == (log.name, at)
    assert what.endswith(f"its largest timestamp is {told + 22}, its header says {told}")


def test_a_segment_that_is_missing(partition: Path) -> None:
    gone, after = log_of(partition, 1), log_of(partition, 2)
    first, last = int(gone.name[:20]), int(after.name[:20]) - 1
    for path in partition.glob(f"{gone.name[:20]}.*"):
        path.unlink()
    found = checked(partition)
    what = f"the offsets {first} to {last} before it are in no batch"
    assert (after.name, 0, what) in found
    assert checked(partition, may_have_gaps=True) == [one for one in found if one[2] != what]


def test_an_index_that_belongs_to_nothing(partition: Path) -> None:
    (partition / f"{77777:020}.timeindex").write_bytes(b"")
    assert checked(partition) == [(f"{77777:020}.timeindex", -1, "its .log is missing")]


def test_a_link_in_the_place_of_a_file(partition: Path) -> None:
    index = log_of(partition, 0, "index")
    index.rename(partition / "aside")
    index.symlink_to("aside")
    assert checked(partition) == [
        (index.name, -1, "a symbolic link, not a regular file"),
        (index.name, -1, "missing"),
    ]


@pytest.mark.parametrize(("suffix", "entry"), [("index", 8), ("timeindex", 12)])
def test_missing_and_padded_indexes(partition: Path, suffix: str, entry: int) -> None:
    index = log_of(partition, 1, suffix)
    content = index.read_bytes()
    index.write_bytes(content + bytes(48))
    what = "48 bytes of zeros after the last entry, which brokers would use"
    assert checked(partition) == [(index.name, len(content), what)]
    index.write_bytes(content[:-1])
    what = f"{len(content) - 1} bytes, not a multiple of the entry size {entry}"
    assert (index.name, len(content) - entry, what) in checked(partition)
    index.unlink()
    assert checked(partition) == [(index.name, -1, "missing")]
    last = log_of(partition, -1, suffix)
    last.write_bytes(last.read_bytes() + bytes(4800))
    assert len(checked(partition)) == 2
    assert len(checked(partition, is_closed=False)) == 1  # preallocated


def test_entries_in_the_wrong_order(partition: Path) -> None:
    index = log_of(partition, 0, "index")
    content = index.read_bytes()
    index.write_bytes(content[8:16] + content[:8] + content[16:])
    ((file, position, what),) = checked(partition)
    assert (file, position) == (index.name, 8)
    assert what.endswith("it does not ascend from the entry before it")


def test_a_time_index_that_lost_its_end(partition: Path) -> None:
    index = log_of(partition, 1, "timeindex")
    index.write_bytes(index.read_bytes()[:-12])
    ((file, position, what),) = checked(partition)
    assert (file, position) == (index.name, -1)
    assert what.startswith("its last timestamp is")


def test_a_transaction_index_without_its_entry(partition: Path) -> None:
    index = log_of(partition, 0, "txnindex")
    content = index.read_bytes()
    assert len(content) == 34
    index.write_bytes(b"")
    (only,) = checked(partition)
    assert only[0] == index.name
    assert only[2].startswith("no entry for the transaction of producer 7, aborted from offset")
    index.write_bytes(content + content)
    ((_, position, what),) = checked(partition)
    assert (position, "is not above" in what) == (34, True)
    index.write_bytes(content + b"\0\0\0")
    assert checked(partition) == [
        (index.name, 34, "it does not end with a whole entry of 34 bytes")
    ]


def test_a_snapshot_that_tells_something_else(partition: Path) -> None:
    snapshot = log_of(partition, 1, "snapshot")
    entries = parse_producer_snapshot(snapshot.read_bytes())
    changed = [entry for entry in entries if entry.producer_id != 7]
    snapshot.write_bytes(format_producer_snapshot(changed))
    assert checked(partition) == []  # it may have expired
    stranger = struct.unpack_from(">q", b"\0" * 8)[0] + 99
    snapshot.write_bytes(
        format_producer_snapshot([*changed, type(changed[0])(stranger, 0, 1, 1, 0, TIME, -1, -1)])
    )
    assert checked(partition) == [
        (snapshot.name, 10 + 46 * len(changed), "producer 99: the log has none of its batches")
    ]
    beyond = partition / f"{99999:020}.snapshot"
    snapshot.rename(beyond)
    (only,) = checked(partition)
    assert only[:2] == (beyond.name, -1)
    assert only[2].startswith("the log ends at offset")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("0\n1\n0 0\n", "leader-epoch-checkpoint says epoch 0"),
        ("0\n2\n1 0\n0 40\n", "does not follow epoch 1"),
        ("0\n3\n0 0\n1 41\n2 9999\n", "epoch 2 begins at offset 9999, the log ends at"),
        ("0\n2\n0 0\n", "1 entries, expected 2"),
    ],
)
def test_leader_epochs(partition: Path, content: str, what: str) -> None:
    (partition / "leader-epoch-checkpoint").write_text(content)
    assert any(what in found for _, _, found in checked(partition))


#: Excludes time indexes, as brokers differ in where one points inside a batch: 3.7 wrote the
#: record's offset.
FILES = st.sampled_from([".log", ".index", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])


@given(kind=FILES, which=st.integers(0, 99), at=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_every_flipped_bit_is_found(
    tmp_path_factory: pytest.TempPathFactory, kind: str, which: int, at: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "topic-0"
    make(path)
    files = sorted(file for file in path.glob(f"*{kind}") if file.stat().st_size)
    file = files[which % len(files)]
    content = bytearray(file.read_bytes())
    if kind == ".txnindex" and at % len(content) % 34 <= 1:
        # Readers ignore the second byte of the version, and the sign of the first.
        at, bit = at - at % len(content) % 34, bit % 7
    if chr(content[at % len(content)]).isspace() and kind == "leader-epoch-checkpoint":
        at += 1  # all white space is equivalent
    if kind == "leader-epoch-checkpoint" and at % len(content) == content.index(b" ") + 1:
        at += 2  # entries before the first may have been deleted
    content[at % len(content)] ^= 1 << bit
    file.write_bytes(content)
    found = checked(path)
    assert found, f"{file.name} byte {at % len(content)} bit {bit}"
    if kind != "leader-epoch-checkpoint":  # such a fault is located where the batches contradict it
        assert all(Path(name).stem == file.stem or kind == ".log" for name, _, _ in found)
    shutil.rmtree(path.parent)


def test_beside_the_partitions(tmp_path: Path) -> None:
    log_dir, other = tmp_path / "a", tmp_path / "b"
    writer_end = {}
    for number in range(2):
        writer = write_partition(
            log_dir / f"topic-{number}", [data(0), data(3)], topic_id=bytes([number + 1]) * 16
        )
        writer_end["topic", number] = writer.end_offset
    write_log_dir(log_dir, writer_end)
    shutil.copytree(log_dir / "topic-1", other / "topic-1")
    write_log_dir(other, {("topic", 1): 99}, directory_id="ZGlyZWN0b3J5LXR3by4uLg")
    (log_dir / "no partition").mkdir()
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\ntopic 0 7\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\nx\n")
    found = verified(log_dir, other)
    assert sorted(found) == sorted(
        [
            ("log-start-offset-checkpoint", 2, "not a number from 0 to 2147483647: 'x'"),
            ("no partition", -1, "not a partition directory name: a broker would not start"),
            (f"{other}/topic-1", -1, f"the same partition is also in {log_dir}/topic-1"),
            *(
                (
                    path + "topic-1/partition.metadata",
                    -1,
                    "topic id AgICAgICAgICAgICAgICAg, but "
                    f"{log_dir}/topic-0/partition.metadata has AQEBAQEBAQEBAQEBAQEBAQ",
                )
                for path in ("", f"{other}/")
            ),
            *(
                (
                    f"{other}/{name}-offset-checkpoint",
                    -1,
                    f"topic-1: offset 99, but its log ends at 6: {why}",
                )
                for name, why in (
                    ("recovery-point", "some flushed records are missing"),
                    ("replication", "some records that consumers could read are missing"),
                )
            ),
            (
                "cleaner-offset-checkpoint",
                -1,
                "topic-0: offset 7, but its log ends at 6: some cleaned records are missing",
            ),
        ]
    )


def test_a_log_whose_start_went_up_before_a_crash(partition: Path) -> None:
    """Its first epoch was removed when the records were deleted. They are back, because their
    deletion had not reached the log directory's checkpoint."""
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n0 20\n1 41\n")
    assert checked(partition) == []


def test_a_transaction_that_began_in_segments_since_deleted(tmp_path: Path) -> None:
    made = [data(0, 7, transactional=True), data(3, 7, transactional=True), data(6)]
    path = tmp_path / "topic-0"
    one_each = TopicSettings(segment_bytes=len(made[0]))
    bases = write_partition(path, [*made, marker(9, 7, ControlType.ABORT)], one_each).bases
    assert checked(path) == []
    assert bases[:2] == [0, 3]
    for file in path.glob(f"{0:020}.*"):
        file.unlink()
    (path / f"{3:020}.snapshot").unlink()
    assert checked(path) == []


def test_after_a_crash_only_what_is_not_deleted_was_learnt(tmp_path: Path) -> None:
    """Kafka's recovery begins at the log start offset even if older segments still exist, so
    entries and producers reflect only the rest."""
    made = [data(0, 7, transactional=True), data(3), marker(6, 7, ControlType.ABORT), data(7)]
    one_each = TopicSettings(segment_bytes=len(made[0]))
    path = tmp_path / "topic-0"
    write_partition(path, made, one_each)
    learnt = tmp_path / "learnt" / "topic-0"
    write_partition(learnt, made[1:], one_each)
    (index,) = [each for each in path.glob("*.txnindex") if each.stat().st_size]
    index.write_bytes(b"")
    for snapshot in learnt.glob("*.snapshot"):
        shutil.copy(snapshot, path)
    assert len(checked(path)) > 1
    assert checked(path, start_offset=3) == []
    # Readers need the entry of a transaction with a remaining record, wherever it began.
    missing = "no entry for the transaction of producer 7, aborted from offset 0 to 6"
    assert (index.name, -1, missing) in checked(path, start_offset=2)


def test_empty_segments_are_the_log_s_end(partition: Path) -> None:
    """This holds even if a power cut damaged the end of the segment before."""
    snapshot = log_of(partition, -1, "snapshot")  # the snapshot at the previous end
    for base in (9998, 9999):
        for kind in ("log", "index", "timeindex"):
            (partition / f"{base:020}.{kind}").write_bytes(b"")
        shutil.copy(snapshot, partition / f"{base:020}.snapshot")
    snapshot.unlink()
    assert checked(partition) == []


def test_the_quorums_log_is_not_closed_by_the_marker(
    writable_corpus: Callable[[str], Path],
) -> None:
    """A broker recovers it at every start (KafkaMetadataLog); an engine leaves it alone, and may
    still mark the directory as cleanly shut down."""
    log_dir = writable_corpus("kafka43-crash")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    others = {file.partition("/")[0] for file, _, _ in verified(log_dir)}
    assert "__cluster_metadata-0" not in others
    assert "crash-plain-0" in others
