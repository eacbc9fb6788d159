"""Tests loading a partition after a crash or a clean stop, compared with Kafka 4.3."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.errors import CorruptError, StorageError
from kafkafs.storage.format.files.checkpoints import EpochEntry, parse_offsets
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.durable import WritableDirFd, replaced
from kafkafs.storage.log.load.log_loader import LogLoader, RecoveryPlan
from kafkafs.storage.log.load.recovery_actions import Cut
from kafkafs.storage.log.read.context import ReadLimits
from tests.batches import MUTATIONS, mutated
from tests.building import BatchFields, build_batch
from tests.conftest import differences, fingerprint
from tests.faults import CrashState, RecordingCalls, crash_states
from tests.logs import TopicSettings, rebuild_indexes, walk, write_partition
from tests.profiles import percent
from tests.reading import open_view, read
from tests.writing import files

#: When the broker loaded kafka43-crash and -torn (recovery.log): 2026-11-21T08:23:06Z.
LOADED_MS = 1795249386000
TIME = 1_700_000_000_000
DEFAULTS = TopicConfig()


def writable(partition: Path) -> WritableDirFd:
    return WritableDirFd(str(partition.parent)).child(partition.name)


def plan(
    partition: Path,
    recovery_point: int = 0,
    start: int = 0,
    clean: bool = False,
    config: TopicConfig = DEFAULTS,
    limits: ReadLimits | None = None,
) -> RecoveryPlan:
    directory = DirFd(str(partition.parent)).child(partition.name)
    loader = LogLoader(directory, recovery_point, start, clean, config, LOADED_MS, limits)
    return loader.plan()


def recover(
    partition: Path,
    recovery_point: int = 0,
    start: int = 0,
    clean: bool = False,
    config: TopicConfig = DEFAULTS,
) -> RecoveryPlan:
    planned = plan(partition, recovery_point, start, clean, config)
    planned.apply(writable(partition))
    return planned


def contents(partition: Path) -> dict[str, bytes]:
    """Returns all files but the `.deleted` ones."""
    found = files(partition)
    return {name: data for name, data in found.items() if not name.endswith(".deleted")}


def batch(base: int, records: int = 3, value: int = 40) -> bytes:
    made = [
        SimpleRecord(TIME + base + number, b"k", bytes(value), offset=base + number)
        for number in range(records)
    ]
    return build_batch(made, BatchFields(base_offset=base, leader_epoch=0))


def batches(count: int, records: int = 3, start: int = 0) -> list[bytes]:
    return [batch(start + records * number, records) for number in range(count)]


SMALL = TopicSettings(segment_bytes=1000, segment_index_bytes=1200, index_interval_bytes=200)
CONFIG = TopicConfig(segment_index_bytes=1200, index_interval_bytes=200)


# What Kafka made of the same logs


def config_of(expected: Path, topic: str) -> TopicConfig:
    """Returns the config with which the broker indexed `topic`."""
    known = json.loads((expected / "partitions.json").read_text()).get(topic, {"configs": {}})
    values = {name: config["value"] for name, config in known["configs"].items()}
    plain = TopicConfig()
    return TopicConfig(
        index_interval_bytes=int(values.get("index.interval.bytes", plain.index_interval_bytes)),
        segment_index_bytes=int(values.get("segment.index.bytes", plain.segment_index_bytes)),
    )


def partitions(log_dir: Path) -> Iterator[tuple[str, int, Path]]:
    """Yields topic, number and directory of the partitions that a broker loads by these rules."""
    for path in sorted(log_dir.iterdir()):
        topic, _, number = path.name.rpartition("-")
        if path.is_dir() and number.isdigit() and topic != "__cluster_metadata":
            yield topic, int(number), path


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


@pytest.mark.parametrize("name", ["kafka43-crash", "kafka43-torn"])
def test_a_crash_is_recovered_as_kafka_does(
    name: str,
    writable_corpus: Callable[[str], Path],
    corpus: Callable[[str], Path],
    expected: Callable[[str], Path],
) -> None:
    crashed, by_kafka = writable_corpus(name), corpus(f"{name}-recovered")
    points = parse_offsets((crashed / "recovery-point-offset-checkpoint").read_bytes())
    ends = json.loads((expected(f"{name}-recovered") / "offsets.json").read_text())
    seen = 0
    for topic, number, partition in partitions(crashed):
        config = config_of(expected(f"{name}-recovered"), topic)
        planned = recover(partition, points[topic, number], config=config)
        wanted = contents(by_kafka / partition.name)
        # The broker became leader of the partition again, with a new epoch that starts at the end.
        epochs = f"0\n2\n0 0\n2 {planned.end_offset}\n".encode()
        assert wanted.pop("leader-epoch-checkpoint") == epochs
        found = contents(partition)
        assert found.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
        assert found == wanted, partition.name
        assert planned.recovery_point == points[topic, number]
        assert planned.epochs.entries == (EpochEntry(0, 0),)
        answer = ends.get(f"{topic}-{number}")
        if answer is not None:
            assert (planned.start_offset, planned.end_offset) == (
                answer["beginning"],
                answer["end"],
            )
            unstable = planned.producers.first_unstable_offset
            assert (unstable if unstable >= 0 else planned.end_offset) == answer[
                "end_read_committed"
            ]
            seen += 1
        assert plan(partition, points[topic, number], config=config).actions == []
    assert seen == 7


def test_the_plan_says_what_is_damaged(corpus: Callable[[str], Path]) -> None:
    torn = corpus("kafka43-torn")
    cut = {
        partition.name: [str(action) for action in plan(partition).actions if "cut" in str(action)]
        for _, _, partition in partitions(torn)
    }
    assert cut["crash-txn-0"] == [
        "cut 00000000000000002648.log from 17425 to 10401 bytes: batch 2873-2880: "
        "crc is 1e6826b3, its header says 2c3b9695"
    ]
    assert cut["crash-plain-1"] == [
        "cut 00000000000000005156.log from 23232 to 17398 bytes: zeros where a batch should begin"
    ]
    assert cut["crash-plain-0"] == [
        "cut 00000000000000005170.log from 18664 to 18388 bytes: "
        "batch of 489 bytes is cut off: 276 are left"
    ]
    assert cut["crash-big-0"] == []


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka39", "kafka28", "compact-after2"])
def test_what_was_closed_cleanly_stays_as_it_is(
    name: str, corpus: Callable[[str], Path], expected: Callable[[str], Path]
) -> None:
    log_dir = corpus(name)
    starts = parse_offsets((log_dir / "log-start-offset-checkpoint").read_bytes())
    ends = json.loads((expected(name) / "offsets.json").read_text())
    before = fingerprint(log_dir)
    for topic, number, partition in partitions(log_dir):
        planned = plan(partition, 0, starts.get((topic, number), 0), True)
        answer = ends.get(f"{topic}-{number}")
        if answer is not None:
            assert (planned.start_offset, planned.end_offset) == (
                answer["beginning"],
                answer["end"],
            ), partition.name
        assert planned.recovery_point == planned.end_offset
        for action in planned.actions:
            name_of = str(action).split()[1].rstrip(",:")
            assert ".deleted" in name_of or ".snapshot" in name_of or "epoch" in name_of, action
    assert differences(before, fingerprint(log_dir)) == []


# What an unclean stop leaves


def test_every_segment_from_the_recovery_point_on_is_gone_through(partition: Path) -> None:
    writer = write_partition(partition, batches(40), SMALL, clean=False)
    bases = writer.bases
    for base in bases:
        (partition / f"{base:020}.index").write_bytes(b"\1" * 8)
    planned = recover(partition, bases[3] + 2, config=CONFIG)
    assert [segment.base_offset for segment in planned.segments] == bases
    for number, base in enumerate(bases):
        data = (partition / f"{base:020}.log").read_bytes()
        right = rebuild_indexes(data, base, 200).offset_bytes()
        held = (partition / f"{base:020}.index").read_bytes()
        assert held == (right if number >= 3 else b"\1" * 8)
    assert planned.recovery_point == bases[3] + 2
    assert planned.end_offset == 120


def test_behind_damage_nothing_stays(partition: Path) -> None:
    bases = write_partition(partition, batches(40), SMALL, clean=False).bases
    log = partition / f"{bases[2]:020}.log"
    damaged = bytearray(log.read_bytes())
    headers = list(walk(bytes(damaged)))
    damaged[headers[2].position + 70] ^= 1
    log.write_bytes(damaged)
    planned = recover(partition, config=CONFIG)
    assert planned.end_offset == headers[2].base_offset
    assert [segment.base_offset for segment in planned.segments] == bases[:3]
    assert log.stat().st_size == headers[2].position == planned.segments[-1].size
    assert planned.faults[0].position == headers[2].position
    left = {path.name for path in partition.iterdir()}
    for base in bases[3:]:
        for suffix in ("log", "index", "timeindex", "snapshot"):
            assert f"{base:020}.{suffix}" not in left
            assert f"{base:020}.{suffix}.deleted" in left
    assert f"{planned.end_offset:020}.snapshot" in left
    assert [r.offset for r in read(open_view(partition))] == list(range(planned.end_offset))


def test_a_log_that_ends_before_its_start_begins_anew(partition: Path) -> None:
    write_partition(partition, batches(40), SMALL)
    planned = recover(partition, 120, 200, clean=True, config=CONFIG)
    assert (planned.start_offset, planned.end_offset, planned.recovery_point) == (200, 200, 200)
    assert planned.epochs.entries == ()
    assert planned.latest_epoch == 0
    live = sorted(contents(partition))
    assert live == sorted(
        [
            *(f"{200:020}.{suffix}" for suffix in ("index", "log", "snapshot", "timeindex")),
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
    )


def test_an_empty_directory_becomes_an_empty_log(partition: Path) -> None:
    partition.mkdir()
    planned = recover(partition, 0, 7)
    assert planned.end_offset == planned.start_offset == 7
    assert {path.name for path in partition.iterdir()} == {
        f"{7:020}.{suffix}" for suffix in ("index", "log", "timeindex")
    }
    assert recover(partition, 0, 7).actions == []


def test_missing_indexes_of_flushed_segments(partition: Path) -> None:
    """A missing offset index is rebuilt together with the time index; a missing time index stays
    empty."""
    bases = write_partition(partition, batches(40), SMALL).bases
    before = contents(partition)
    (partition / f"{bases[1]:020}.index").unlink()
    (partition / f"{bases[2]:020}.timeindex").unlink()
    (partition / f"{bases[1] + 1:020}.index").write_bytes(b"12345678")
    recover(partition, 120, clean=True, config=CONFIG)
    after = contents(partition)
    assert after.pop(f"{bases[2]:020}.timeindex") == b""
    del before[f"{bases[2]:020}.timeindex"]
    # ProducerStateManager takes no snapshots between the previous one and those of the end
    gone = {f"{base:020}.snapshot" for base in bases[3:-2]}
    assert after == {name: data for name, data in before.items() if name not in gone}


def test_a_bad_transaction_index_is_made_anew(partition: Path) -> None:
    bases = write_partition(partition, batches(40), SMALL).bases
    name = partition / f"{bases[1]:020}.txnindex"
    for bad in (struct.pack(">hqqqq", 0, 1, 2, 3, 4), b"\1" * 34, b"\0" * 12):
        name.write_bytes(bad)
        planned = recover(partition, 120, clean=True, config=CONFIG)
        assert any(".txnindex" in str(action) for action in planned.actions)
        assert name.read_bytes() == b""


def test_a_clean_stop_whose_end_is_torn_is_recovered(partition: Path) -> None:
    bases = write_partition(partition, batches(40), SMALL).bases
    before = contents(partition)
    log = partition / f"{bases[-1]:020}.log"
    log.write_bytes(log.read_bytes() + b"\1\2\3")
    planned = recover(partition, 120, clean=True, config=CONFIG)
    assert planned.end_offset == 120
    cuts = [action.name for action in planned.actions if isinstance(action, Cut)]
    assert log.name in cuts
    assert contents(partition) == before


def test_broken_epochs_are_made_anew(partition: Path) -> None:
    made = [batch(base) for base in range(0, 30, 3)]
    made += [
        build_batch(
            [SimpleRecord(TIME + base, b"k", b"v", offset=base)],
            BatchFields(base_offset=base, leader_epoch=5),
        )
        for base in range(30, 40)
    ]
    write_partition(partition, made, SMALL)
    right = (partition / "leader-epoch-checkpoint").read_bytes()
    assert right == b"0\n2\n0 0\n5 30\n"
    for clean in (True, False):
        (partition / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n5")
        assert recover(partition, 40, clean=clean, config=CONFIG).latest_epoch == 5
        assert (partition / "leader-epoch-checkpoint").read_bytes() == right
    (partition / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    recover(partition, 0, config=CONFIG)  # the batches' epochs had not reached the file in time
    assert (partition / "leader-epoch-checkpoint").read_bytes() == right


def test_a_batch_larger_than_memory_may_be_is_kept(partition: Path) -> None:
    made = [batch(0), batch(3, value=50_000), batch(6), batch(9, value=60_000)]
    write_partition(partition, made, clean=False)
    planned = recover(partition, config=TopicConfig())
    again = plan(partition, limits=ReadLimits(max_batch_bytes=4096))
    assert again.end_offset == planned.end_offset == 12
    assert again.actions == []
    log = partition / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(made[0]) + 70_000] ^= 1
    log.write_bytes(data)
    assert plan(partition, limits=ReadLimits(max_batch_bytes=4096)).end_offset == 3


def test_a_file_that_is_none_is_refused(partition: Path) -> None:
    write_partition(partition, batches(4), SMALL)
    (partition / f"{50:020}.log").symlink_to("elsewhere")
    with pytest.raises(CorruptError, match="symbolic link"):
        plan(partition)
    (partition / f"{50:020}.log").unlink()
    with (partition / f"{50:020}.log").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(CorruptError, match="more than the 2147483647"):
        plan(partition)


# Interrupted changes of segments


def swapped(partition: Path, bases: list[int], state: str) -> dict[str, bytes]:
    """Merges the segments from bases[1] to bases[2], as the cleaner does, into files with the
    suffix `state`; returns what the partition must hold after the swap."""
    merged = b"".join((partition / f"{base:020}.log").read_bytes() for base in bases[1:3])
    indexes = rebuild_indexes(merged, bases[1], 200)
    files = {
        "log": merged,
        "index": indexes.offset_bytes(),
        "timeindex": indexes.time_bytes(),
    }
    wanted = {
        name: data
        for name, data in contents(partition).items()
        if not bases[1] <= int(name.partition(".")[0] if name[0].isdigit() else -1) < bases[3]
    }
    for suffix, data in files.items():
        (partition / f"{bases[1]:020}.{suffix}{state}").write_bytes(data)
        wanted[f"{bases[1]:020}.{suffix}"] = data
    return wanted


@pytest.mark.parametrize("done", range(9))
def test_a_committed_exchange_is_finished(partition: Path, done: int) -> None:
    """The first `done` files of the old segments already have their `.deleted` names."""
    bases = write_partition(partition, batches(40), SMALL).bases
    wanted = swapped(partition, bases, ".swap")
    old = [
        f"{base:020}.{suffix}"
        for base in bases[1:3]
        for suffix in ("log", "index", "timeindex", "snapshot")
    ]
    originals = {name: (partition / name).read_bytes() for name in old}
    for name in old[:done]:
        (partition / name).rename(partition / f"{name}.deleted")
    planned = recover(partition, 120, clean=True, config=CONFIG)
    assert contents(partition) == wanted
    deleted = {path.name: path.read_bytes() for path in partition.glob("*.deleted")}
    assert deleted == {f"{name}.deleted": data for name, data in originals.items()}
    assert [segment.base_offset for segment in planned.segments] == [*bases[:2], *bases[3:]]
    assert [r.offset for r in read(open_view(partition))] == list(range(120))


def test_an_exchange_that_was_not_committed_does_not_count(partition: Path) -> None:
    """Its leftovers stay, like everything else that Kafka would remove here."""
    bases = write_partition(partition, batches(40), SMALL).bases
    swapped(partition, bases, ".cleaned")
    swapped(partition, [0, *bases[2:5]], ".swap")  # above the lowest .cleaned
    (partition / f"{bases[3]:020}.snapshot.tmp").write_bytes(b"half")
    (partition / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n")
    (partition / f"{bases[2]:020}.log.deleted").write_bytes(b"deleted")
    before = files(partition)
    planned = recover(partition, 120, clean=True, config=CONFIG)
    assert planned.actions == []
    assert [segment.base_offset for segment in planned.segments] == bases
    assert files(partition) == before
    assert [r.offset for r in read(open_view(partition))] == list(range(120))


@pytest.mark.parametrize("done", range(9))
def test_leftovers_of_the_same_names_are_set_aside(partition: Path, done: int) -> None:
    """`done` as above. Files that a committed swap deletes do not replace older leftovers."""
    bases = write_partition(partition, batches(40), SMALL).bases
    wanted = swapped(partition, bases, ".swap")
    kinds = ("log", "index", "timeindex", "snapshot")
    old = [f"{base:020}.{kind}" for base in bases[1:3] for kind in kinds]
    for name in old[:done]:
        (partition / name).rename(partition / f"{name}.deleted")
    for name in old[done:]:
        (partition / f"{name}.deleted").write_bytes(b"older")
    recover(partition, 120, clean=True, config=CONFIG)
    assert contents(partition) == wanted
    older = [path.name for path in partition.iterdir() if path.read_bytes() == b"older"]
    assert sorted(older) == sorted(f"{name}.1.deleted" for name in old[done:])
    assert recover(partition, 120, clean=True, config=CONFIG).actions == []


def overflowing(partition: Path) -> list[bytes]:
    """Writes one segment whose offsets are too far apart for its index, as old cleaners did."""
    far = [base + 2**31 for base in range(0, 15, 3)]
    further = [base + 2**32 + 7 for base in range(0, 15, 3)]
    made = [batch(base) for base in [*range(0, 15, 3), *far, *further]]
    write_partition(partition, made[:5], replace(SMALL, segment_bytes=2000), clean=False)
    (partition / f"{0:020}.log").write_bytes(b"".join(made))
    return made


@pytest.mark.parametrize("cause", ["crash", "missing index"])
def test_a_segment_with_offsets_too_far_apart_is_split(partition: Path, cause: str) -> None:
    made = overflowing(partition)
    if cause == "missing index":
        (partition / f"{0:020}.index").unlink()
    planned = recover(partition, 0, clean=cause != "crash", config=CONFIG)
    bases = [0, 2**31, 2**32 + 7]
    assert [segment.base_offset for segment in planned.segments] == bases
    for number, base in enumerate(bases):
        data = b"".join(made[5 * number : 5 * number + 5])
        assert (partition / f"{base:020}.log").read_bytes() == data
        indexes = rebuild_indexes(data, base, 200)
        assert (partition / f"{base:020}.index").read_bytes() == indexes.offset_bytes()
        assert (partition / f"{base:020}.timeindex").read_bytes() == indexes.time_bytes()
    assert len(read(open_view(partition))) == 45
    assert recover(partition, 0, config=CONFIG).actions == []


def test_a_split_does_not_count_on_what_another_one_left(partition: Path) -> None:
    """A `.cleaned` file at a lower offset would revert the swap after a crash."""
    overflowing(partition)
    names = [f"{0:020}.log.cleaned", f"{0:020}.index.cleaned", f"{2**31:020}.log.swap"]
    for name in names:
        (partition / name).write_bytes(b"old")
    planned = recover(partition, 0, config=CONFIG)
    assert [segment.base_offset for segment in planned.segments] == [0, 2**31, 2**32 + 7]
    for name in names:
        assert (partition / f"{name}.1.deleted").read_bytes() == b"old"
    first = [str(action) for action in planned.actions if "leftover" in str(action)]
    assert ".swap" in first[0]  # without the .cleaned files it would count


# Damage of every kind, and a crash during recovery


def covered(batch: bytes) -> bytes:
    """Returns what a batch's checksum covers, which excludes its offset and leader epoch."""
    return batch[16:]


@settings(max_examples=percent(40))
@given(
    count=st.integers(1, 30),
    point=st.integers(0, 90),
    segment=st.integers(0, 100),
    mutations=MUTATIONS,
)
def test_whatever_happened_a_prefix_stays_and_nothing_is_invented(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    point: int,
    segment: int,
    mutations: list[tuple[str, int, int]],
) -> None:
    partition = tmp_path_factory.mktemp("log") / "topic-0"
    bases = write_partition(partition, batches(count), SMALL, clean=False).bases
    log = partition / f"{bases[segment % len(bases)]:020}.log"
    log.write_bytes(mutated(log.read_bytes(), mutations))
    planned = recover(partition, point, config=CONFIG)
    flushed = max(base for base in bases if base <= max(point, 0))
    if int(log.name[:20]) >= flushed:
        logs = sorted(partition.glob("*.log"))
        found = [header.data for path in logs for header in walk(path.read_bytes())]
        assert list(map(covered, found)) == list(map(covered, batches(count)))[: len(found)]
    for loaded in planned.segments:
        if loaded.base_offset >= flushed:
            held = (partition / f"{loaded.base_offset:020}.log").read_bytes()
            indexes = rebuild_indexes(held, loaded.base_offset, 200)
            stem = partition / f"{loaded.base_offset:020}"
            assert stem.with_suffix(".index").read_bytes() == indexes.offset_bytes()
            assert stem.with_suffix(".timeindex").read_bytes() == indexes.time_bytes()
    again = recover(partition, point, config=CONFIG)
    assert all(".deleted" in str(action) for action in again.actions)
    assert again.end_offset == planned.end_offset


#: Changes to a directory: the file, the change, and the other file and suffix that it involves.
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 999),
        st.sampled_from(["damage", "remove", "rename", "copy"]),
        st.integers(0, 999),
        st.sampled_from([".swap", ".cleaned", ".deleted", ".tmp", ""]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=percent(40))
@given(
    changes=CHANGES,
    mutations=MUTATIONS,
    point=st.integers(0, 99),
    start=st.sampled_from([0, 10, 200]),
    clean=st.booleans(),
)
def test_whatever_is_in_a_directory_is_recovered_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, str, int, str]],
    mutations: list[tuple[str, int, int]],
    point: int,
    start: int,
    clean: bool,
) -> None:
    partition = tmp_path_factory.mktemp("log") / "topic-0"
    write_partition(partition, batches(30), SMALL)
    for which, what, other, suffix in changes:
        files = sorted(partition.iterdir())
        file, target = files[which % len(files)], files[other % len(files)]
        target = target.with_name(target.name + suffix)
        if what == "damage":
            file.write_bytes(mutated(file.read_bytes(), mutations))
        elif what == "remove" and len(files) > 1:
            file.unlink()
        elif what == "rename":
            file.rename(target)
        elif what == "copy":
            target.write_bytes(file.read_bytes())
    try:
        planned = recover(partition, point, start, clean=clean, config=CONFIG)
    except StorageError:
        return  # such as a checkpoint in place of a log
    assert planned.start_offset <= planned.end_offset
    assert planned.start_offset <= planned.recovery_point <= planned.end_offset
    if not clean:
        again = plan(partition, point, start, config=CONFIG)
        assert (again.start_offset, again.end_offset) == (planned.start_offset, planned.end_offset)
        assert again.segments == planned.segments


def torn(partition: Path) -> None:
    bases = write_partition(partition, batches(12), SMALL, clean=False).bases
    log = partition / f"{bases[1]:020}.log"
    data = log.read_bytes()
    log.write_bytes(data[:-20])
    (partition / f"{bases[-1]:020}.timeindex").write_bytes(b"\1" * 24)


def half_exchanged(partition: Path) -> None:
    bases = write_partition(partition, batches(30), SMALL, clean=False).bases
    swapped(partition, bases, ".swap")
    (partition / f"{bases[1]:020}.log").unlink()


def half_split(partition: Path) -> None:
    overflowing(partition)


@pytest.mark.parametrize("make", [torn, half_exchanged, half_split])
def test_a_crash_in_recovery_changes_nothing_about_its_end(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    root = tmp_path / "logs"
    partition = root / "topic-0"
    root.mkdir()
    make(partition)
    recording = RecordingCalls(root)
    with replaced(recording):
        planned = recover(partition, config=CONFIG)
    wanted = contents(partition)
    for state in crash_states(recording, samples=1):
        found = recovered_again(tmp_path / "again", state)
        assert found == (wanted, planned.end_offset), state


def test_a_crash_while_a_log_begins_anew_does_not_move_its_start(tmp_path: Path) -> None:
    """Its later segments are deleted for the damage in the first one, which ends before the start
    of the log: then that one, too."""
    root = tmp_path / "logs"
    partition = root / "topic-0"
    root.mkdir()
    first = partition / f"{write_partition(partition, batches(12), SMALL).bases[0]:020}.log"
    first.write_bytes(bytes(first.stat().st_size))
    recording = RecordingCalls(root)
    with replaced(recording):
        recover(partition, start=2, config=CONFIG)
    wanted = contents(partition)
    assert f"{2:020}.log" in wanted
    for state in crash_states(recording, samples=1):
        found, end = recovered_again(tmp_path / "again", state, start=2)
        assert (sorted(found), end) == (sorted(wanted), 2), state


def recovered_again(root: Path, state: CrashState, start: int = 0) -> tuple[dict[str, bytes], int]:
    """Recovers what a power cut left of the first recovery; returns contents and end offset."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    state.write_to(root)
    planned = recover(root / "topic-0", start=start, config=CONFIG)
    return contents(root / "topic-0"), planned.end_offset
