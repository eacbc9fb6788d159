"""Tests of backups: what a point in time has, how little a second one costs, how they are read and
pruned. Power cuts and failing calls are in tests/crash/test_backups.py."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.backup.keeping import Keep
from kafkafs.storage.backup.layout import parse_point_name, point_name
from kafkafs.storage.backup.manifest import (
    Noted,
    Piece,
    Point,
    SourceState,
    StoredFile,
    StoredLogDir,
    StoredObject,
    format_manifest,
    parse_manifest,
)
from kafkafs.storage.backup.open_repository import open_repository, writable_repository
from kafkafs.storage.backup.uncached import UncachedWriter
from kafkafs.storage.clock import SetClock, milliseconds
from kafkafs.storage.concurrency import unit_threads
from kafkafs.storage.errors import CorruptError, LogDirError, SegmentGone
from kafkafs.storage.format.files.checkpoints import parse_offsets
from kafkafs.storage.format.files.names import PartitionState
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.log_dir import LogDir
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.backup import copier, fixing, making
from kafkafs.storage.operations.backup.copier import Copier
from kafkafs.storage.operations.backup.file_copier import LogBatches
from kafkafs.storage.operations.backup.points import list_points, prune_points, verify_points
from kafkafs.storage.operations.backup.request import Backup, FinishedPoint
from kafkafs.storage.operations.groups import ListGroups, list_groups
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from kafkafs.storage.operations.verifier import Verifier
from tests.backups import back_up, check, contents, failures_in
from tests.conftest import differences, fingerprint

Corpus = Callable[[str], Path]

CORPORA = ("kafka28", "kafka39", "kafka43-clean", "kafka43-torn", "kafka43-two-dirs")


def append(engine: LogManager, topic: str, count: int, size: int = 10) -> None:
    for number in range(count):
        record = SimpleRecord(1000 + number, b"k", os.urandom(size))
        engine.writer(topic, 0).append_records(RecordColumns.from_records([record]))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with segments of all sizes, closed cleanly."""
    path = tmp_path / "source"
    with LogManager(str(path)) as engine:
        engine.create_topic("small", 1, {"internal.segment.bytes": "300"})
        engine.create_topic("large", 1)
        append(engine, "small", 20)
        append(engine, "large", 10, 20_000)
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def stored_bytes(repository: Path) -> int:
    return sum(path.stat().st_size for path in repository.rglob("*") if path.is_file())


def small_files(log_dir: Path | LogDir) -> LogDir:
    return log_dir if isinstance(log_dir, LogDir) else LogDir(str(log_dir))


class TestRoundTrip:
    @pytest.mark.parametrize("name", CORPORA)
    def test_what_is_read_is_what_the_source_has(
        self, name: str, corpus: Corpus, tmp_path: Path, repository: Path
    ) -> None:
        roots = sorted(path.parent for path in corpus(name).rglob("meta.properties"))
        paths = ",".join(map(str, roots))
        request = Backup(str(repository))
        rows = list(making.make_point(Engine(paths), request))
        assert isinstance(rows[-1], FinishedPoint)
        assert contents(repository) == contents(paths)
        assert len(Engine(str(repository)).log_dirs.dirs) == len(roots)
        again = list(making.make_point(Engine(paths), request))[-1]
        assert isinstance(again, FinishedPoint)
        assert again.stored == 0
        assert check(repository) == 2
        ours, theirs = Engine(str(repository)), Engine(paths)
        for engine in (ours, theirs):
            engine.clock = SetClock(2_000_000_000_000)
        assert list(list_groups(ours, ListGroups())) == list(list_groups(theirs, ListGroups()))
        for mine, other in zip(ours.log_dirs.dirs, theirs.log_dirs.dirs, strict=True):
            assert mine.is_clean == other.is_clean
            assert mine.meta == other.meta
            normal = {
                (each.topic, each.partition)
                for each in other.partitions()
                if each.state is PartitionState.NORMAL
            }
            assert {(each.topic, each.partition) for each in mine.partitions()} == normal
            for key, start in other.log_start_offsets.items():
                if key in normal:
                    assert mine.log_start_offsets[key] == start
            assert mine.recovery_points.items() <= other.recovery_points.items()

    def test_a_verified_source_is_a_verified_backup(self, corpus: Corpus, repository: Path) -> None:
        """Also the indexes of active segments are those of the log."""
        back_up(corpus("kafka43-crash"), repository)
        verifier = Verifier(Engine(str(repository)))
        assert [str(one) for key in verifier.partitions() for one in verifier.partition(key)] == []

    def test_an_active_segment_ends_with_its_last_whole_batch(
        self, source: Path, repository: Path
    ) -> None:
        log = max((source / "large-0").glob("*.log"))
        whole = log.stat().st_size
        with log.open("ab") as file:
            file.write(b"torn")
        os.utime(log, (1, 1))  # not just now, as in the middle of a write
        finished = list(making.make_point(Engine(str(source)), Backup(str(repository))))[-1]
        assert isinstance(finished, FinishedPoint)
        point = open_repository(str(repository)).point(finished.time_ms)
        (stored,) = [each for each in point.files if each.path == f"large-0/{log.name}"]
        assert stored.size == whole
        assert [each.path for each in point.left_out if each.path.endswith(".log")] == [str(log)]

    def test_damage_is_reported_and_copied(self, source: Path, repository: Path) -> None:
        log = max((source / "large-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        data[30_000] ^= 1
        log.write_bytes(data)
        rows = list(making.make_point(Engine(str(source)), Backup(str(repository))))
        (failure,) = failures_in(rows)
        assert str(log) in failure
        assert "position 20" in failure
        copy = Engine(str(repository)).log("large", 0).view().segments[0].files.log()
        assert copy.holds(bytes(data))
        again = list(making.make_point(Engine(str(source)), Backup(str(repository))))
        assert failures_in(again) == [failure]  # although it is not read again

    def test_the_source_is_only_read(self, source: Path, repository: Path) -> None:
        before = fingerprint(source)
        back_up(source, repository)
        back_up(source, repository, reread=True)
        assert differences(before, fingerprint(source)) == []

    def test_revive(self, source: Path, tmp_path: Path, repository: Path) -> None:
        back_up(source, repository)
        for link in (False, True):
            new = tmp_path / f"new{link}"
            list(revive(Engine(str(repository)), Revive(str(new), link=link)))
            assert contents(new / "data") == contents(source)

    def test_a_selection_has_internal_topics_too(self, source: Path, repository: Path) -> None:
        with LogManager(str(source)) as engine:
            engine.create_topic("__consumer_offsets", 1)
        back_up(source, repository, Selection.of("small"))
        assert set(Engine(str(repository)).topics()) == {"small", "__consumer_offsets"}
        assert back_up(source, repository).stored > 0
        with pytest.raises(LogDirError, match="neither empty nor a backup"):
            writable_repository(str(source))


class TestIncrements:
    def test_growth_costs_what_grew(self, source: Path, repository: Path) -> None:
        first = back_up(source, repository)
        before = stored_bytes(repository)
        with LogManager(str(source)) as engine:
            append(engine, "large", 1, first.size // 100)
        back_up(source, repository)
        assert stored_bytes(repository) - before < 0.1 * first.size  # of 200 kB: mostly manifest
        assert contents(repository) == contents(source)
        point = open_repository(str(repository)).point(open_repository(str(repository)).times()[-1])
        grown = next(
            each for each in point.files if each.path.endswith("large-0/" + "0" * 20 + ".log")
        )
        assert len(grown.pieces) == 2

    def test_small_pieces_are_joined(self, source: Path, repository: Path) -> None:
        for _ in range(20):
            with LogManager(str(source)) as engine:
                append(engine, "large", 1, 100)
            back_up(source, repository)
        point = open_repository(str(repository)).point(open_repository(str(repository)).times()[-1])
        assert max(len(each.pieces) for each in point.files) < 8
        assert contents(repository) == contents(source)
        assert check(repository) == 20

    def test_a_log_that_was_truncated_and_written_again(
        self, source: Path, repository: Path
    ) -> None:
        """As a follower does when its leader has other batches: the file stays the same one."""
        back_up(source, repository)
        log = max((source / "large-0").glob("*.log"))
        whole = log.read_bytes()
        with LogManager(str(source)) as engine:
            engine.writer("large", 0).truncate_to(5)
            append(engine, "large", 9, 20_000)
        assert log.read_bytes()[: len(whole)] != whole
        back_up(source, repository)
        assert contents(repository) == contents(source)

    def test_a_replaced_segment_is_noticed(self, source: Path, repository: Path) -> None:
        """By its inode, although name, size and time are the same."""
        back_up(source, repository)
        log = min((source / "small-0").glob("*.log"))
        status = log.stat()
        data = bytearray(log.read_bytes())
        data[-5] ^= 1
        log.unlink()
        log.write_bytes(data)
        os.utime(log, ns=(status.st_mtime_ns, status.st_mtime_ns))
        rows = list(making.make_point(Engine(str(source)), Backup(str(repository))))
        assert len(failures_in(rows)) == 1
        copy = Engine(str(repository)).log("small", 0).view().segments[0].files.log()
        assert copy.holds(bytes(data))

    def test_objects_of_a_run_without_a_point_are_used(
        self, source: Path, repository: Path
    ) -> None:
        back_up(source, repository)
        for manifest in (repository / "points").iterdir():
            manifest.unlink()
        before = {path.name: path.stat().st_ino for path in (repository / "objects").rglob("*.*")}
        back_up(source, repository)
        after = {path.name: path.stat().st_ino for path in (repository / "objects").rglob("*.*")}
        assert after == before

    def test_an_object_that_was_removed_is_stored_again(
        self, source: Path, repository: Path
    ) -> None:
        back_up(source, repository)
        for path in (repository / "objects" / "large-0").iterdir():
            path.unlink()
        assert failures_in(verify_points(str(repository)))
        back_up(source, repository)
        assert check(repository) == 2


class TestParts:
    """A large file becomes several objects, of which each begins with a batch."""

    PART = 8_000

    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A directory with a segment of 100 batches of 700 bytes, of which the index knows most."""
        monkeypatch.setattr(copier, "PART_BYTES", self.PART)
        monkeypatch.setattr(copier, "_MOST_BYTES", 2 * self.PART)
        monkeypatch.setattr(copier, "SMALL_BYTES", 100)
        monkeypatch.setattr(copier, "_READ_BYTES", 1000)
        path = tmp_path / "source"
        with LogManager(str(path)) as engine:
            engine.create_topic("large", 1, {"index.interval.bytes": "500"})
            append(engine, "large", 100, 620)
        return path

    def log(self, source: Path) -> Path:
        (log,) = (source / "large-0").glob("*.log")
        return log

    def pieces(self, repository: Path) -> Sequence[Piece]:
        found = open_repository(str(repository))
        files = found.point(found.times()[-1]).files
        (log,) = [file for file in files if file.path.endswith(".log")]
        return log.pieces

    def test_parts_begin_with_batches(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        pieces = self.pieces(repository)
        assert len(pieces) > self.log(source).stat().st_size // self.PART
        data, ends = self.log(source).read_bytes(), {0}
        while max(ends) < len(data):
            begin = max(ends)
            ends.add(begin + 12 + int.from_bytes(data[begin + 8 : begin + 12], "big"))
        assert {*accumulate(piece.size for piece in pieces)} <= ends
        assert contents(repository) == contents(source)
        with LogManager(str(source)) as engine:
            append(engine, "large", 20, 620)
        second = back_up(source, repository)
        assert second.stored < 20 * 750 + self.PART + 3000  # the last part is joined, no other
        assert self.pieces(repository)[: len(pieces) - 1] == pieces[:-1]
        assert contents(repository) == contents(source)
        assert check(repository) == 2

    @pytest.mark.parametrize("index", ["missing", "short", "hostile"])
    def test_an_index_that_is_wrong(self, source: Path, repository: Path, index: str) -> None:
        """Nothing sound is reported as damaged, and no object becomes too large."""
        (file,) = (source / "large-0").glob("*.index")
        if index == "missing":
            file.unlink()
        elif index == "short":
            file.write_bytes(file.read_bytes()[:80])
        else:  # ascending, but next to batches
            entries = zip(*[iter(struct.unpack(">198i", file.read_bytes()))] * 2, strict=True)
            wrong = [number for offset, position in entries for number in (offset, position + 1)]
            file.write_bytes(struct.pack(">198i", *wrong))
        back_up(source, repository)
        pieces = self.pieces(repository)
        assert len(pieces) > 3
        assert max(piece.size for piece in pieces) < 2 * self.PART + 2000
        assert contents(repository) == contents(source)

    def test_batches_that_only_seem_to_begin_a_part(
        self, source: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        boundary = LogBatches.boundary
        monkeypatch.setattr(
            LogBatches, "boundary", lambda self, position: boundary(self, position) + 3
        )
        back_up(source, repository)
        assert contents(repository) == contents(source)

    def test_damage_in_parts(self, source: Path, repository: Path) -> None:
        """Is reported as of one walk, also offsets that go back from one part to the next."""
        log = self.log(source)
        back_up(source, repository)
        cut = self.pieces(repository)[0].size
        data, request = bytearray(log.read_bytes()), Backup(str(repository), reread=True)
        data[cut + 100] ^= 1
        log.write_bytes(data)
        rows = list(making.make_point(Engine(str(source)), request))
        (failure,) = failures_in(rows)
        assert f"position {cut}" in failure
        data[cut + 100] ^= 1
        first, second = 0, cut
        length = 12 + int.from_bytes(data[8:12], "big")
        data[second : second + length] = data[first : first + length]  # offset 0 again
        log.write_bytes(data)
        rows = list(making.make_point(Engine(str(source)), request))
        assert any(f"position {cut}" in failure for failure in failures_in(rows))
        copy = Engine(str(repository)).log("large", 0).view().segments[0].files.log()
        assert copy.holds(bytes(data))

    def test_parts_of_a_run_without_a_point_are_used(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        for manifest in (repository / "points").iterdir():
            manifest.unlink()
        (large, *_) = (repository / "objects" / "large-0").iterdir()
        large.unlink()
        before = {path.name: path.stat().st_ino for path in (repository / "objects").rglob("*.*")}
        assert back_up(source, repository).stored < self.PART + 2000
        after = {path.name: path.stat().st_ino for path in (repository / "objects").rglob("*.*")}
        assert before.items() <= after.items()


def test_direct_writes_of_all_sizes() -> None:
    """On a file system that has them, and after it has refused one."""
    directory = Path(tempfile.mkdtemp(dir=Path.home()))
    try:
        for refused in (False, True):
            for sizes in ((0,), (1,), (4096,), (1 << 20,), (5000, 1 << 20, 3), (1 << 21, 4095)):
                file = WritableDirFd(directory).create("file")
                writer = UncachedWriter(file)
                if refused:
                    writer._use_cache()
                parts = [os.urandom(size) for size in sizes]
                for part in parts:
                    writer.write(part)
                writer.finish()
                assert (directory / "file").read_bytes() == b"".join(parts)
    finally:
        shutil.rmtree(directory)


class TestLiveSource:
    def test_segments_that_vanish_are_listed_again(
        self, source: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The broker deletes the first segments between the listing and the copying, which opens
        one after the other here."""
        monkeypatch.setattr(unit_threads, "processors", lambda: 1)
        copy = Copier.copy
        copied: list[str] = []

        def delete_first(self: Copier, file: Any, path: str, *args: Any, **kwargs: Any) -> Any:
            if not copied:
                for old in sorted((source / "small-0").glob("*.log"))[:3]:
                    for each in (source / "small-0").glob(f"{old.stem}.*"):
                        each.rename(f"{each}.deleted")
            copied.append(path)
            return copy(self, file, path, *args, **kwargs)

        monkeypatch.setattr(Copier, "copy", delete_first)
        back_up(source, repository)
        assert contents(repository) == contents(source)

    def test_everything_is_fixed_again_if_a_partition_disappears(
        self, source: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fix = fixing.fix
        times: list[int] = []

        def remove(*args: Any) -> Any:
            fixed = fix(*args)
            if not times:
                (source / "small-0").rename(source / f"small-0.{'a' * 32}-delete")
            times.append(len(fixed[0].partitions))
            return fixed

        monkeypatch.setattr(making, "fix", remove)
        back_up(source, repository)
        assert times == [2, 1]
        assert set(Engine(str(repository)).topics()) == {"large"}

    def test_no_group_is_ahead_of_its_log(
        self, source: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Internal topics end before all others, whatever is appended meanwhile."""
        with LogManager(str(source)) as engine:
            engine.create_topic("__consumer_offsets", 1)
            fixed = fixing._fixed
            order: list[str] = []

            def appending(found: Any, context: Any) -> Any:
                done = fixed(found, context)
                order.append(found.topic)
                append(engine, "large", 1)
                append(engine, "__consumer_offsets", 1)
                return done

            monkeypatch.setattr(fixing, "_fixed", appending)
            back_up(source, repository)
        assert order[0] == "__consumer_offsets"
        found = contents(repository)
        # Each of its records was appended after one of the other topic.
        assert len(found["__consumer_offsets", 0][0]) == 0
        assert len(found["large", 0][0]) == 10 + order.index("large")

    def test_beside_a_writer(self, source: Path, repository: Path) -> None:
        """Every point has a beginning of the log, and the marker of a clean shutdown never."""
        with LogManager(str(source)) as engine:
            ended = threading.Event()

            def write() -> None:
                while not ended.is_set():
                    append(engine, "small", 5)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                points = [back_up(source, repository) for _ in range(5)]
            finally:
                ended.set()
                writer.join()
            whole = contents(source)["small", 0][0]
        for point in points:
            found = contents(point.manifest)["small", 0][0]
            assert found == whole[: len(found)]
            assert not LogDir(f"{point.manifest}/0").is_clean
            assert Engine(point.manifest).log_dirs.problems == []
        assert check(repository) == 5

    def test_checkpoints_are_not_beyond_the_logs(self, source: Path, repository: Path) -> None:
        (source / "recovery-point-offset-checkpoint").write_text("0\n2\nlarge 0 99\ngone 0 5\n")
        back_up(source, repository)
        log_dir = Engine(str(repository)).log_dirs.dirs[0]
        assert log_dir.recovery_points == {("large", 0): 10}


class TestPoints:
    def test_at_selects_the_newest_before(self, source: Path, repository: Path) -> None:
        first = back_up(source, repository)
        with LogManager(str(source)) as engine:
            append(engine, "large", 1)
        second = back_up(source, repository)
        assert second.time_ms > first.time_ms
        for at_ms, expected in (
            (first.time_ms, first),
            (second.time_ms - 1, first),
            (second.time_ms, second),
            (0, first),
        ):
            found = Engine(str(repository), at_ms=at_ms)
            assert found.log_dirs.dirs[0].path == f"{expected.manifest}/0"
        assert len(contents(first.manifest)["large", 0][0]) == 10
        assert len(contents(f"{second.manifest}/0")["large", 0][0]) == 11

    def test_list(self, source: Path, repository: Path) -> None:
        made = [back_up(source, repository), back_up(source, repository, Selection.of("small"))]
        listed: list[Any] = list(list_points(str(repository)))
        assert [each.time_ms for each in listed] == [each.time_ms for each in made]
        assert [each.topics for each in listed] == [(), ("small",)]
        assert listed[0].new_bytes == made[0].stored
        assert [each.log_dirs for each in listed] == [(str(source),)] * 2

    def test_prune(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        shutil.rmtree(source / "large-0")
        last = back_up(source, repository)
        before = stored_bytes(repository)
        told = prune_points(str(repository), Keep(daily=7), dry_run=True)
        assert stored_bytes(repository) == before
        done = prune_points(str(repository), Keep(daily=7))
        assert done == told
        assert done.size > 190_000
        assert [each.time_ms for each in done.points if each.is_kept] == [last.time_ms]
        assert check(repository) == 1
        assert not (repository / "objects" / "large-0").exists()
        assert set(contents(repository)) == {("small", 0)}

    def test_prune_refuses_a_damaged_manifest(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        (manifest,) = (repository / "points").iterdir()
        manifest.write_bytes(manifest.read_bytes().replace(b'"small', b'"smell', 1))
        back = sorted(path for path in repository.rglob("*"))
        with pytest.raises(CorruptError, match="SHA-256"):
            prune_points(str(repository), Keep(last=1))
        assert sorted(path for path in repository.rglob("*")) == back
        with pytest.raises(CorruptError, match="SHA-256"):
            Engine(str(repository))

    def test_changed_bytes_are_found(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        (path,) = (repository / "objects" / "large-0").glob("*.log.*")
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        (failure,) = failures_in(verify_points(str(repository)))
        assert str(path) in failure
        path.write_bytes(data[:-1])
        assert len(failures_in(verify_points(str(repository)))) == 1
        with pytest.raises(CorruptError, match="the manifest says"):
            contents(repository)

    def test_a_backup_can_only_be_read(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        before = fingerprint(repository)
        for path in (repository, next((repository / "points").iterdir())):
            with pytest.raises((LogDirError, OSError)):
                LogManager(str(path))
        assert differences(before, fingerprint(repository)) == []

    def test_two_runs_exclude_each_other(self, source: Path, repository: Path) -> None:
        back_up(source, repository)
        code = "import sys; from kafkafs.storage.backup.open_repository import *\n"
        code += "held = writable_repository(sys.argv[1]); print('held', flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", code, repository],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(LogDirError, match=f"process {other.pid} is writing to this backup"):
                back_up(source, repository)
            with pytest.raises(LogDirError, match="is writing to this backup"):
                prune_points(str(repository), Keep(last=1))
            assert contents(repository) == contents(source)  # reading needs no lock
            other.kill()
        back_up(source, repository)  # the lock of a killed process is free

    def test_threads_store_the_same_bytes_at_once(self, repository: Path) -> None:
        """Equal files of two partitions have the same name in two folders."""
        with writable_repository(str(repository)) as writable:
            pairs = [(folder, str(stem)) for stem in range(40) for folder in ("a-0", "b-0")]
            with ThreadPoolExecutor(4) as executor:
                found = list(
                    executor.map(lambda pair: writable.put(pair[0], pair[1], b"bytes"), pairs)
                )
        assert {each.name for each in found} == open_repository(str(repository)).objects().keys()
        assert len(found) == len(pairs)

    def test_a_directory_with_other_things_is_refused(self, source: Path, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "letter").write_text("dear")
        with pytest.raises(LogDirError, match="neither empty nor a backup"):
            back_up(source, tmp_path / "other")
        assert [path.name for path in (tmp_path / "other").iterdir()] == ["letter"]
        with pytest.raises(LogDirError, match="would be in the log directory"):
            back_up(source, source / "backup")


class TestKeep:
    DAYS = tuple(
        milliseconds(f"2026-01-{day:02}T{hour:02}:00") for day in range(1, 32) for hour in (3, 15)
    )

    def test_rules(self) -> None:
        kept = Keep(daily=7, weekly=4).kept(self.DAYS)
        assert [milliseconds(f"2026-01-{day}T15:00") for day in (11, 18, *range(25, 32))] == sorted(
            kept
        )
        assert Keep(last=2).kept(self.DAYS).keys() == set(self.DAYS[-2:])
        assert len(Keep(monthly=5).kept(self.DAYS)) == 1
        assert len(Keep(hourly=5).kept(self.DAYS)) == 5

    @given(st.sets(st.integers(0, 10**13)), st.lists(st.integers(0, 5), min_size=5, max_size=5))
    def test_the_newest_is_always_kept(self, times: set[int], counts: list[int]) -> None:
        kept = Keep(*counts).kept(tuple(times))
        assert kept.keys() <= times
        assert not times or max(times) in kept
        assert len(kept) <= max(sum(counts), 1)


# -- manifests -------------------------------------------------------------------------------------

NAMES = st.text(
    st.characters(exclude_characters="/\0\\:", exclude_categories=["Cs"]), min_size=1
).filter(lambda name: name not in (".", ".."))
SIZES = st.integers(0, 2**40)


@st.composite
def points(draw: st.DrawFn) -> Point:
    objects = {
        name: StoredObject(name, draw(st.integers(1, 1000)), "ab" * 32)
        for name in draw(st.sets(st.tuples(NAMES, NAMES).map("/".join), max_size=3))
    }
    files = []
    for name in draw(st.sets(NAMES, max_size=4)):
        pieces = []
        for _ in range(draw(st.integers(0, 3)) if objects else 0):
            stored = objects[draw(st.sampled_from(sorted(objects)))]
            start = draw(st.integers(0, stored.size - 1))
            pieces.append(Piece(stored.name, start, draw(st.integers(1, stored.size - start))))
        size = sum(piece.size for piece in pieces)
        source = draw(st.none() | st.builds(SourceState, SIZES, SIZES, SIZES))
        files.append(StoredFile(name, size, draw(SIZES), pieces, source))
    log_dir = StoredLogDir(draw(st.text()), 0, 0, 0o755, files)
    noted = draw(st.lists(st.builds(Noted, st.text(), st.text()), max_size=2))
    return Point(draw(st.integers(0, 10**13)), [log_dir], objects, ("t",), noted, noted)


@given(points())
def test_a_manifest_is_parsed_as_it_was_formatted(point: Point) -> None:
    assert parse_manifest(format_manifest(point)) == point
    assert parse_point_name(point_name(point.time_ms)) == point.time_ms


FIRST_HALF = Piece("t-0/x", 0, 5)


def point_of(path: str = "t-0/a", size: int = 5, piece: Piece = FIRST_HALF) -> Point:
    """Returns a point of one file, of an object of 10 bytes."""
    objects = {"t-0/x": StoredObject("t-0/x", 10, "ab" * 32)}
    return Point(5, [StoredLogDir("/d", 0, 0, 0, [StoredFile(path, size, 0, [piece])])], objects)


@pytest.mark.parametrize(
    "point",
    [
        point_of(path="../etc/passwd"),
        point_of(path="/etc/passwd"),
        point_of(path="t-0/.."),
        point_of(path="a/b/c"),
        point_of(path=""),
        point_of(size=6),
        point_of(size=-5),
        point_of(piece=Piece("t-0/x", 6, 5)),
        point_of(piece=Piece("t-0/x", -1, 5)),
        point_of(piece=Piece("t-0/y", 0, 5)),
        point_of(size=0, piece=Piece("t-0/x", 0, 0)),
        replace(point_of(), objects={"../x": StoredObject("../x", 10, "ab" * 32)}),
        replace(point_of(), objects={"t-0/x": StoredObject("t-0/x", 10, "AB")}),
        replace(point_of(), log_dirs=[StoredLogDir("/d", -1, 0, 0, [])]),
        replace(point_of(), topics=cast("tuple[str, ...]", (5,))),
        replace(point_of(), left_out=[Noted("a", cast(str, 5))]),
    ],
)
def test_a_hostile_manifest_is_refused(point: Point) -> None:
    with pytest.raises(CorruptError):
        parse_manifest(format_manifest(point))


@given(st.data())
def test_a_damaged_manifest_is_refused(data: st.DataObject) -> None:
    whole = format_manifest(point_of())
    position = data.draw(st.integers(0, len(whole) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[position]))
    with pytest.raises(CorruptError):
        parse_manifest(whole[:position] + bytes([byte]) + whole[position + 1 :])
    with pytest.raises(CorruptError):
        parse_manifest(whole[:position])


@given(
    st.binary()
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(
        lambda value: json.dumps({"format": "kafkafs-backup-point", "version": value}).encode()
    )
)
def test_no_bytes_lead_to_another_error(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_manifest(data)


def test_the_files_of_a_point_are_like_those_of_a_disk(source: Path, repository: Path) -> None:
    back_up(source, repository)
    directory = Engine(str(repository)).log_dirs.dirs[0].directory
    small = directory.child("small-0")
    disk = {path.name: path for path in (source / "small-0").iterdir()}
    assert {entry.name for entry in small.list()} == set(disk)
    files, others = small.hold().files(".log")
    assert not others
    for name, status in files.items():
        assert (status is not None) == name.endswith(".log")
        file, data = small.open(name), disk[name].read_bytes()
        assert file.read(0, 1 << 30) == data
        assert file.read(3, 7) == data[3:10]
        buffer = bytearray(len(data) + 5)
        assert file.read_into(0, buffer) == len(data)
        assert file.size() == file.stat().st_size == len(data)
        assert file.stat().st_mtime_ns == disk[name].stat().st_mtime_ns
        assert small.stat(name).st_ino == file.identity[1]
    assert not small.hold().is_removed()
    with pytest.raises(SegmentGone):
        small.open("nothing")
    with pytest.raises(SegmentGone):
        directory.child("nothing").hold()
    with pytest.raises(CorruptError, match="not a regular file"):
        directory.open("small-0")
    assert parse_offsets(directory.read_small("recovery-point-offset-checkpoint", 1 << 20))
