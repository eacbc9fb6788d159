"""Erasing records: what remains is compared with a list, and no file keeps a trace."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkafs.api.reading import Partition
from kafkafs.storage.clock import SetClock
from kafkafs.storage.erasure.rewriting import RewrittenSegment, rewrite_segment
from kafkafs.storage.errors import (
    CleaningAborted,
    CorruptError,
    NotErased,
    OffsetNotFound,
    RecordNotFound,
    UnknownTopic,
)
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations import erase as module
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from kafkafs.storage.operations.history import History, history
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.verifier import Verifier
from kafkafs.storage.segment.segment import Segment
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.erasing import KEY, TOPIC, make, open_manager, records_of, traces
from tests.logs import write_topic
from tests.reading import UNCOMMITTED, read
from tests.waiting import wait_until
from tests.writing import NOW, batch

ALL = Selection.of(TOPIC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


def run(manager: LogManager, request: Erase) -> list[ErasedFile]:
    rows = []
    for row in erase(manager, request):
        assert isinstance(row, ErasedFile), row
        assert ErasedFile.of_json(row.as_json()) == row
        rows.append(row)
    return rows


def findings(root: Path) -> list[str]:
    verifier = Verifier(Engine([str(root)]))
    return [str(each) for key in verifier.partitions() for each in verifier.partition(key)]


def sums(root: Path) -> dict[str, str]:
    files = sorted((root / f"{TOPIC}-0").glob("*.log"))
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def snapshot(root: Path) -> dict[str, bytes]:
    found = [file for file in root.rglob("*") if file.is_file()]
    return {str(file.relative_to(root)): file.read_bytes() for file in found}


def test_all_records_of_a_key_are_gone_and_all_others_are_as_they_were(tmp_path: Path) -> None:
    expected = make(tmp_path)
    before, holding = sums(tmp_path), traces(tmp_path)
    with open_manager(tmp_path) as manager:
        writer = manager.writer(TOPIC, 0)
        states, end = writer.producer_states(), writer.end_offset
        stable = writer.last_stable_offset
        rows = run(manager, Erase(ALL, keys=frozenset([KEY])))
        assert (writer.producer_states(), writer.end_offset) == (states, end)
        assert writer.last_stable_offset == stable
        assert records_of(tmp_path) == expected
        assert not list(tmp_path.glob("*/*.deleted"))
    assert records_of(tmp_path) == expected
    after = sums(tmp_path)
    assert len(rows) > 5
    assert sorted(Path(row.file).name for row in rows) == sorted(holding)
    assert rows[0].size == max(row.size for row in rows)
    for row in rows:
        assert (row.sha256, row.new_sha256) == (before[row.file], after[row.file])
        assert row.new_size == Path(row.file).stat().st_size
    untouched = before.keys() - {row.file for row in rows}
    assert {file: before[file] for file in untouched} == {file: after[file] for file in untouched}
    assert traces(tmp_path) == []
    request = History(ALL, KEY, Isolation.READ_UNCOMMITTED)
    assert list(history(Engine([str(tmp_path)]), request)) == []
    assert findings(tmp_path) == []


def test_what_is_rebuilt_from_the_log_is_as_before(tmp_path: Path) -> None:
    """As after a crash, when nothing but the `.log` files is trusted."""
    expected = make(tmp_path)
    with open_manager(tmp_path) as manager:
        states = manager.writer(TOPIC, 0).producer_states()
        run(manager, Erase(ALL, keys=frozenset([KEY])))
    kept = snapshot(tmp_path)
    for file in tmp_path.rglob("*"):
        if file.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            file.unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with open_manager(tmp_path) as manager:
        assert manager.writer(TOPIC, 0).producer_states() == states
    assert records_of(tmp_path) == expected
    rebuilt = snapshot(tmp_path)
    for name, data in kept.items():
        if name.endswith((".log", ".index", ".timeindex")):
            assert rebuilt[name] == data, name
    assert findings(tmp_path) == []


@pytest.mark.parametrize("prefix", [b"person-7", b"person-", b"p", b"person-70"])
def test_all_keys_with_a_prefix(tmp_path: Path, prefix: bytes) -> None:
    make(tmp_path)
    before = records_of(tmp_path)
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, prefix=prefix))
    expected = [each for each in before if not (each.key or b"").startswith(prefix)]
    assert records_of(tmp_path) == expected
    assert sum(row.records for row in rows) == len(before) - len(expected)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("count", [2, 300, 5000])
def test_many_keys(tmp_path: Path, count: int) -> None:
    """Also keys of which there is no record, the empty one, and one that begins another."""
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        for key in (b"", b"person", None):
            value = [SimpleRecord(NOW, key, b"value")]
            manager.writer(TOPIC, 0).append(build_batch(value, BatchFields(leader_epoch=-1)))
    before = records_of(tmp_path)
    keys = frozenset([KEY, b"", *(b"person-%d" % (number * 7) for number in range(1, count))])
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, keys=keys))
    expected = [each for each in before if each.key not in keys]
    assert records_of(tmp_path) == expected
    assert sum(row.records for row in rows) == len(before) - len(expected)
    assert {b"person", None} < {each.key for each in expected}
    assert traces(tmp_path) == []
    assert findings(tmp_path) == []


def test_a_check_reads_no_further_than_to_the_first_record(tmp_path: Path) -> None:
    """Also the threads that search other files end."""
    make(tmp_path)
    engine = Engine([str(tmp_path)])
    assert Erase(ALL, prefix=b"person").check(engine) == ()
    wait_until(lambda: not [each for each in threading.enumerate() if "ahead" in each.name])


def test_one_offset(tmp_path: Path) -> None:
    make(tmp_path)
    before = records_of(tmp_path)
    for gone in (before[0], before[50], before[-1]):
        with open_manager(tmp_path) as manager:
            [row] = run(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=gone.offset))
        assert row.records == 1
        before.remove(gone)
        assert records_of(tmp_path) == before
        assert findings(tmp_path) == []


def test_an_offset_without_a_record(tmp_path: Path) -> None:
    """That of a marker, one whose record was erased, and those past the log."""
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        end = manager.writer(TOPIC, 0).end_offset
        before = {each.offset for each in records_of(tmp_path)}
        markers = sorted(set(range(end)) - before)
        assert markers
        run(manager, Erase(ALL, keys=frozenset([KEY])))
    gone = sorted(before - {each.offset for each in records_of(tmp_path)})
    files = sums(tmp_path)
    for offset in (markers[0], markers[-1], gone[0], gone[-1], end, 1 << 62):
        with open_manager(tmp_path) as manager:
            [failed] = erase(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=offset))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, RecordNotFound)
        assert failed.error == f"no record at offset {offset} is on the disk"
    assert sums(tmp_path) == files


def test_a_dry_run_finds_the_same_and_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    before = snapshot(tmp_path)
    found = list(erase(Engine([str(tmp_path)]), Erase(ALL, keys=frozenset([KEY]), dry_run=True)))
    assert snapshot(tmp_path) == before
    with open_manager(tmp_path) as manager:
        done = run(manager, Erase(ALL, keys=frozenset([KEY])))
    dry = [row for row in found if isinstance(row, ErasedFile)]
    assert [facts(row) for row in dry] == sorted(map(facts, done))


def facts(row: ErasedFile) -> tuple[str, int, bool, int, str]:
    return row.file, row.records, row.is_removed, row.size, row.sha256


def test_a_dry_run_finds_the_same_among_leftovers(tmp_path: Path) -> None:
    make(tmp_path)
    for name in LEFTOVERS:
        copy_of_segment(tmp_path, name)
    deleted = tmp_path / f"{TOPIC}-0.{'a' * 32}-delete"
    shutil.copytree(partition(tmp_path), deleted)
    request = Erase(ALL, keys=frozenset([KEY]), dry_run=True)
    found = list(erase(Engine([str(tmp_path)]), request))
    with open_manager(tmp_path) as manager:
        done = run(manager, replace(request, dry_run=False))
    dry = [row for row in found if isinstance(row, ErasedFile)]
    assert len(dry) == len(found) > 10
    assert sorted(map(facts, dry)) == sorted(map(facts, done))
    assert traces(tmp_path) == []


def test_what_is_not_there_is_one_failure(tmp_path: Path) -> None:
    make(tmp_path)
    before = snapshot(tmp_path)
    engine = Engine([str(tmp_path)])
    [failed] = Erase(ALL, keys=frozenset([b"nobody"])).check(engine)
    assert isinstance(failed.cause, RecordNotFound)
    assert (failed.where, failed.error) == (TOPIC, "no record with key nobody is on the disk")
    assert list(erase(engine, Erase(ALL, keys=frozenset([b"nobody"]), dry_run=True))) == [failed]
    assert Erase(ALL, keys=frozenset([KEY])).check(engine) == ()
    with pytest.raises(UnknownTopic):
        Erase(Selection.of("other"), keys=frozenset([KEY])).check(engine)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"selection": ALL}, "exactly one"),
        ({"selection": ALL, "keys": frozenset([b"k"]), "offset": 1}, "exactly one"),
        ({"selection": ALL, "offset": 1}, "an offset needs exactly one"),
        ({"selection": ALL, "prefix": b""}, "must not be empty"),
        ({"keys": frozenset([b"k"])}, "needs TOPIC"),
    ],
)
def test_requests_that_make_no_sense(wrong: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Erase(**wrong)


# -- other files ----------------------------------------------------------------------------------


def live(root: Path) -> list[str]:
    return sorted(file.name for file in (root / f"{TOPIC}-0").iterdir())


def partition(root: Path) -> Path:
    return root / f"{TOPIC}-0"


def copy_of_segment(root: Path, name: str) -> Path:
    """Copies the first segment's `.log` to the leftover `name`, with an index beside it."""
    base = min(partition(root).glob("*.log")).stem
    copy = partition(root) / f"{base}{name}"
    shutil.copy(min(partition(root).glob("*.log")), copy)
    (partition(root) / f"{base}{name.replace('.log', '.index')}").touch()
    return copy


LEFTOVERS = [".log.deleted", ".log.3.deleted", ".log.cleaned", ".log.cleaned.1.deleted"]


@pytest.mark.parametrize("name", LEFTOVERS)
def test_leftovers_with_a_record_are_removed(tmp_path: Path, name: str) -> None:
    expected = make(tmp_path)
    copy_of_segment(tmp_path, name)
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, keys=frozenset([KEY])))
        removed = [row for row in rows if row.is_removed]
    [row] = removed
    assert (row.records, row.new_size, row.new_sha256) == (2, None, None)
    assert not [name for name in live(tmp_path) if "deleted" in name or "cleaned" in name]
    assert records_of(tmp_path) == expected
    assert traces(tmp_path) == []


def test_what_only_a_leftover_holds_is_erased_too(tmp_path: Path) -> None:
    """As after a crash between a swap and the removal of the old files."""
    expected = make(tmp_path)
    copy_of_segment(tmp_path, ".log.deleted")
    kept = (partition(tmp_path) / f"{0:020}.log.deleted").read_bytes()
    with open_manager(tmp_path) as manager:
        run(manager, Erase(ALL, keys=frozenset([KEY])))
    (partition(tmp_path) / f"{0:020}.log.deleted").write_bytes(kept)
    assert Erase(ALL, keys=frozenset([KEY])).check(Engine([str(tmp_path)])) == ()
    with open_manager(tmp_path) as manager:
        [row] = run(manager, Erase(ALL, keys=frozenset([KEY])))
    assert (row.is_removed, Path(row.file).name) == (True, f"{0:020}.log.deleted")
    assert records_of(tmp_path) == expected
    assert traces(tmp_path) == []


def test_leftovers_without_such_a_record_stay(tmp_path: Path) -> None:
    make(tmp_path)
    copy = copy_of_segment(tmp_path, ".log.deleted")
    data = copy.read_bytes()
    with open_manager(tmp_path) as manager:
        last = records_of(tmp_path)[-1].offset
        run(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=last))
    assert copy.read_bytes() == data


def test_what_retention_has_just_deleted_is_erased(tmp_path: Path) -> None:
    """Those files wait for their removal by the same process; the rest can still be restored."""
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        writer = manager.writer(TOPIC, 0)
        before = records_of(tmp_path)
        bases = [segment.base_offset for segment in writer.rolled().segments]
        writer.delete_records(bases[3])
        writer.delete_below_start()
        assert [each.start_offset for each in writer.deleted()] == [0]
        key = before[0].key or b""
        rows = run(manager, Erase(Selection.of(f"{TOPIC}/0"), keys=frozenset([key])))
        assert next(Path(row.file).name for row in rows if row.is_removed) == f"{0:020}.log.deleted"
        kept = [each for each in before if each.offset >= bases[3] and each.key != key]
        assert records_of(tmp_path) == kept
        assert not list(partition(tmp_path).glob(f"{0:020}.*"))


def test_a_deleted_partition_with_a_record_is_removed(tmp_path: Path) -> None:
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        manager.delete_topic(TOPIC)
        assert len(list(tmp_path.glob("*-delete"))) == 1
        manager.create_topic(TOPIC, 1)
        rows = run(manager, Erase(ALL, keys=frozenset([KEY])))
        assert all(row.is_removed for row in rows)
        assert not list(tmp_path.glob("*-delete"))
    assert traces(tmp_path) == []


def test_what_is_left_of_a_deleted_topic_is_removed(tmp_path: Path) -> None:
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        manager.create_topic("other", 1)
        manager.delete_topic(TOPIC)
    dry = list(erase(Engine([str(tmp_path)]), Erase(ALL, keys=frozenset([KEY]), dry_run=True)))
    with open_manager(tmp_path) as manager:
        [failed] = erase(manager, Erase(ALL, keys=frozenset([b"nobody"])))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, RecordNotFound)
        assert len(list(tmp_path.glob("*-delete"))) == 1
        assert run(manager, Erase(ALL, keys=frozenset([KEY]))) == dry
        assert not list(tmp_path.glob("*-delete"))
        with pytest.raises(UnknownTopic):
            list(erase(manager, Erase(ALL, keys=frozenset([KEY]))))
    assert traces(tmp_path) == []


@pytest.mark.parametrize("spelling", ["{}/", "{}/.", "{}/../{.name}", "link"])
def test_however_the_directory_is_spelled(
    root: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root)
    shutil.copytree(partition(root), root / f"{TOPIC}-0.{'a' * 32}-delete")
    staged(root, "kafkafs-compact/whole/attempt-1")
    monkeypatch.chdir(root.parent)
    Path("link").symlink_to("data")
    with LogManager(spelling.format("data", root), clock=SetClock(NOW)) as manager:
        rows = run(manager, Erase(ALL, keys=frozenset([KEY])))
    assert {row.is_removed for row in rows} == {True, False}
    assert traces(root) == []
    assert not list(root.parent.glob("*compact"))


def test_partitions_that_the_topic_no_longer_has_are_removed(tmp_path: Path) -> None:
    """It was deleted and created again with fewer partitions."""
    make(tmp_path)
    shutil.copytree(partition(tmp_path), tmp_path / f"{TOPIC}-3.{'a' * 32}-delete")
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, keys=frozenset([KEY])))
    assert {(row.partition, row.is_removed) for row in rows} == {(0, False), (3, True)}
    assert traces(tmp_path) == []


def test_an_offset_means_that_of_the_present_topic(tmp_path: Path) -> None:
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        manager.delete_topic(TOPIC)
        manager.create_topic(TOPIC, 1)
        manager.writer(TOPIC, 0).append(batch(3))
        [row] = run(manager, Erase(Selection.of(f"{TOPIC}/0"), offset=1))
        assert not row.is_removed
        assert len(list(tmp_path.glob("*-delete"))) == 1
        assert [each.offset for each in records_of(tmp_path)] == [0, 2]


def test_caches_know_it_at_once(tmp_path: Path) -> None:
    make(tmp_path)
    with open_manager(tmp_path) as manager:
        log = Partition(manager.log(TOPIC, 0), manager)
        found = log.latest(KEY)
        assert found is not None
        assert log.record(found.offset).key == KEY
        run(manager, Erase(ALL, keys=frozenset([KEY])))
        assert log.latest(KEY) is None
        with pytest.raises(OffsetNotFound):
            log.record(found.offset)


def test_a_stray_partition_is_reported_and_stays(tmp_path: Path) -> None:
    make(tmp_path)
    stray = tmp_path / f"{TOPIC}-0.{'a' * 32}-stray"
    shutil.copytree(partition(tmp_path), stray)
    before = {file.name: file.read_bytes() for file in stray.iterdir()}
    with open_manager(tmp_path) as manager:
        rows = list(erase(manager, Erase(ALL, keys=frozenset([KEY]))))
    failed = [row for row in rows if isinstance(row, PartitionFailed)]
    assert failed
    assert all(isinstance(row.cause, NotErased) for row in failed)
    assert "which `purge --stray` removes" in failed[0].error
    assert {file.name: file.read_bytes() for file in stray.iterdir()} == before
    assert KEY not in [each.key for each in records_of(tmp_path)]


def test_a_copy_that_a_broker_was_making_is_reported_and_stays(tmp_path: Path) -> None:
    """When it is complete, the broker would replace the partition by it."""
    make(tmp_path)
    future = tmp_path / f"{TOPIC}-0.{'a' * 32}-future"
    shutil.copytree(partition(tmp_path), future)
    with open_manager(tmp_path) as manager:
        rows = list(erase(manager, Erase(ALL, keys=frozenset([KEY]))))
    failed = [row for row in rows if isinstance(row, PartitionFailed)]
    assert len(failed) == len(rows) / 2
    assert all(str(future) in row.error for row in failed)
    assert "it belongs to a replica that is not served" in failed[0].error


# -- what kafkafs has staged beside the directory -------------------------------------------------


def staged(root: Path, directory: str) -> Path:
    """Copies a segment that a Spark job has staged to a directory beside the log directory."""
    made = root.parent / f".{root.name}.{directory}"
    made.mkdir(parents=True)
    name = f"{0:020}.log"
    shutil.copy(partition(root) / name, made / f"{name}.cleaned")
    return made / f"{name}.cleaned"


def test_what_a_spark_job_has_staged_is_reported_and_stays(root: Path) -> None:
    expected = make(root)
    file = staged(root, f"kafkafs-staging/job-1/attempt-1/{TOPIC}-0")
    staged(root, "kafkafs-staging/job-1/attempt-1/other-0")
    kept = file.read_bytes()
    for dry_run in (True, False):
        with open_manager(root) as manager:
            rows = list(erase(manager, Erase(ALL, keys=frozenset([KEY]), dry_run=dry_run)))
        [failed] = [row for row in rows if isinstance(row, PartitionFailed)]
        job = root.parent / ".data.kafkafs-staging/job-1"
        assert failed.error == (
            f"{file}: still holds such records: a Spark job has staged it; end the job, and"
            f" remove {job}"
        )
    assert records_of(root) == expected
    assert traces(root) == []
    assert file.read_bytes() == kept
    with open_manager(root) as manager:  # until it is removed
        assert list(erase(manager, Erase(ALL, keys=frozenset([KEY])))) == [failed]
        shutil.rmtree(job)
        [gone] = erase(manager, Erase(ALL, keys=frozenset([KEY])))
        assert isinstance(gone, PartitionFailed)
        assert isinstance(gone.cause, RecordNotFound)


@pytest.mark.parametrize("request_", [{"keys": frozenset([KEY])}, {"offset": 3}])
def test_what_a_compaction_with_spark_has_left_is_removed(
    root: Path, request_: dict[str, Any]
) -> None:
    make(root)
    file = staged(root, "kafkafs-compact/whole/attempt-1")
    with open_manager(root) as manager:
        rows = run(manager, Erase(Selection.of(f"{TOPIC}/0"), **request_))
    is_by_key = "keys" in request_
    assert [row.file for row in rows if row.is_removed] == ([str(file)] if is_by_key else [])
    assert [each.name for each in root.parent.iterdir()] == ["data"]


def test_what_only_a_compaction_with_spark_holds_is_removed(root: Path) -> None:
    make(root)
    other = staged(root, "kafkafs-compact/whole/attempt-1").read_bytes()
    place = root.parent / ".data.kafkafs-compact/whole/attempt-1"
    with open_manager(root) as manager:
        run(manager, Erase(ALL, keys=frozenset([KEY])))
        place.mkdir(parents=True)
        file = place / f"{0:020}.log.cleaned"
        file.write_bytes(other)
        [row] = run(manager, Erase(ALL, keys=frozenset([KEY])))
    assert (row.file, row.is_removed) == (str(file), True)
    assert [each.name for each in root.parent.iterdir()] == ["data"]


# -- what cannot be known -------------------------------------------------------------------------


def test_unfinished_output_that_may_hold_a_part_of_a_record(tmp_path: Path) -> None:
    """It stays if there is no such record, since a failed command changes nothing."""
    make(tmp_path)
    copy = copy_of_segment(tmp_path, ".log.cleaned")
    copy.write_bytes(copy.read_bytes()[:-5])
    for dry_run in (True, False):
        with open_manager(tmp_path) as manager:
            request = Erase(ALL, keys=frozenset([b"nobody"]), dry_run=dry_run)
            [failed] = erase(manager, request)
        assert isinstance(failed, PartitionFailed)
        assert failed.error == (
            f"{copy}: may still hold such records: it is unfinished output of the cleaner, whose"
            " end cannot be read; `purge` removes it"
        )
    with open_manager(tmp_path) as manager:
        rows = run(manager, Erase(ALL, prefix=b"person-8"))
    assert str(copy) in [row.file for row in rows if row.is_removed]
    assert not list(tmp_path.glob("*/*cleaned*"))


def test_remote_storage_is_named(tmp_path: Path) -> None:
    expected = make(tmp_path)
    with open_manager(tmp_path) as manager:
        manager.set_topic_config(TOPIC, {"remote.storage.enable": "true"})
        *rows, failed = erase(manager, Erase(ALL, keys=frozenset([KEY])))
        assert all(isinstance(row, ErasedFile) for row in rows)
        assert isinstance(failed, PartitionFailed)
        assert (failed.where, failed.error) == (
            TOPIC,
            "remote storage: may still hold such records: its remote.storage.enable is true, and"
            " its segments there are not searched",
        )
        again = Erase(ALL, keys=frozenset([KEY])).check(manager)
    assert again[0] == failed
    assert isinstance(again[1].cause, RecordNotFound)
    assert records_of(tmp_path) == expected


def test_damage_leaves_the_partition_as_it_was(tmp_path: Path) -> None:
    make(tmp_path)
    log = sorted(partition(tmp_path).glob("*.log"))[2]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    before = sums(tmp_path)
    with open_manager(tmp_path) as manager:
        [failed] = erase(manager, Erase(ALL, keys=frozenset([KEY])))
    assert isinstance(failed, PartitionFailed)
    assert isinstance(failed.cause, CorruptError)
    assert str(log) in failed.error
    assert sums(tmp_path) == before


# -- old messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats(tmp_path: Path, magic: int, codec: Codec) -> None:
    """Kafka cannot write such a message without records, so it is dropped; the log's end stays."""
    keys = [[b"a", b"b", b"c"], [b"b", b"b"], [b"a", b"c", b"b"], [b"b"]]
    batches, offset = [], 0
    for each in keys:
        records = [SimpleRecord(NOW, key, b"of %s" % key) for key in each]
        fields = MessageFields(magic=magic, base_offset=offset, codec=codec)
        batches.append(build_messages(records, fields))
        offset += len(each)
    write_topic(tmp_path, batches, topic=TOPIC)
    expected = [each for each in records_of(tmp_path) if each.key != b"b"]
    with open_manager(tmp_path) as manager:
        [row] = run(manager, Erase(ALL, keys=frozenset([b"b"])))
        assert row.records == 5
        assert manager.writer(TOPIC, 0).end_offset == offset
    assert records_of(tmp_path) == expected
    with open_manager(tmp_path) as manager:
        run(manager, Erase(ALL, prefix=b"a"))
        run(manager, Erase(ALL, prefix=b"c"))
        assert manager.writer(TOPIC, 0).end_offset == offset
        manager.writer(TOPIC, 0).append(batch())
    assert [each.offset for each in records_of(tmp_path)] == [offset]


# -- while it is written to -----------------------------------------------------------------------


def test_a_log_that_grows_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount appends: the active segment is rolled, and the appended records stay."""
    expected = make(tmp_path)
    with open_manager(tmp_path) as manager:
        writer = manager.writer(TOPIC, 0)
        grown: list[int] = []

        def rewrite_and_append(segment: Segment, *rest: Any) -> RewrittenSegment:
            found: RewrittenSegment = rewrite_segment(segment, *rest)
            if segment.is_active and not grown:
                grown.append(writer.append(batch()).last_offset)
            return found

        monkeypatch.setattr(module, "rewrite_segment", rewrite_and_append)
        run(manager, Erase(ALL, keys=frozenset([KEY])))
        assert grown
        assert writer.end_offset == grown[0] + 1
    found = records_of(tmp_path)
    assert found[:-1] == expected
    assert found[-1].offset == grown[0]
    assert traces(tmp_path) == []
    assert findings(tmp_path) == []


def test_a_partition_that_is_being_cleaned_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path)
    before = sums(tmp_path)
    with open_manager(tmp_path) as manager:
        with manager.cleaner.cleaning_state.in_progress((TOPIC, 0)):
            [failed] = erase(manager, Erase(ALL, keys=frozenset([KEY])))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, CleaningAborted)
    assert sums(tmp_path) == before


# -- logs of real brokers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kafka28", "compact-after"])
def test_logs_that_a_broker_wrote(writable_corpus: Callable[[str], Path], name: str) -> None:
    """Of all formats and codecs, with transactions, compacted ones."""
    root = writable_corpus(name)
    with open_manager(root) as manager:
        erased = 0
        for key, writer in manager.writers().items():
            log = manager.log(*key)
            before = read(log.view(), isolation=UNCOMMITTED)
            keys = sorted({each.key for each in before if each.key})
            if not keys:
                continue
            prefix = keys[len(keys) // 2][:-1] or keys[0]
            states, end = writer.producer_states(), writer.end_offset
            rows = run(manager, Erase(Selection((key,)), prefix=prefix))
            expected = [each for each in before if not (each.key or b"").startswith(prefix)]
            assert read(log.view(), isolation=UNCOMMITTED) == expected, key
            assert (writer.producer_states(), writer.end_offset) == (states, end)
            assert sum(row.records for row in rows) >= len(before) - len(expected)
            erased += 1
    assert erased > 15
    # A message of magic 0 or 1 that is not compressed leaves a gap.
    assert [each for each in findings(root) if " are in no batch" not in each] == []
