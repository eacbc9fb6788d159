"""Erasing records from other files than segments of the log: leftovers, deleted partitions, and
what kafkafs has staged. What stays is named."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkafs.api.reading import LogDirectories
from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import (
    NotErased,
    OffsetNotFound,
    RecordNotFound,
    UnknownTopic,
)
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from kafkafs.storage.operations.request import PartitionFailed
from tests.erasing import (
    ALL,
    KEY,
    TOPIC,
    facts,
    make,
    open_manager,
    partition,
    records_of,
    run,
    traces,
)
from tests.writing import NOW, batch


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


def live(root: Path) -> list[str]:
    return sorted(file.name for file in (root / f"{TOPIC}-0").iterdir())


def copy_of_segment(root: Path, name: str) -> Path:
    """Copies the first segment's `.log` to the leftover `name`, with an index beside it."""
    base = min(partition(root).glob("*.log")).stem
    copy = partition(root) / f"{base}{name}"
    shutil.copy(min(partition(root).glob("*.log")), copy)
    (partition(root) / f"{base}{name.replace('.log', '.index')}").touch()
    return copy


LEFTOVERS = [".log.deleted", ".log.3.deleted", ".log.cleaned", ".log.cleaned.1.deleted"]


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
        log = LogDirectories(manager)[TOPIC, 0]
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
            f"remote storage: may still hold such records: segments of {TOPIC}/0 may be in remote"
            " storage (the part of __remote_log_metadata that says so is not in these directories);"
            " nothing is searched there",
        )
        again = Erase(ALL, keys=frozenset([KEY])).check(manager)
    assert again[0] == failed
    assert isinstance(again[1].cause, RecordNotFound)
    assert records_of(tmp_path) == expected
