"""Tests log directories: their contents, their faults, and directories that are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError, LogDirError, UnknownPartition, UnknownTopic
from kafkafs.storage.format.files.names import PartitionState
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log_dirs.log_dir import LogDir
from kafkafs.storage.log_dirs.log_dirs import LogDirs
from tests import answers

META = "version=1\nnode.id=1\ncluster.id=c\n"
CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
UUID = "6a08f8af448249df8321444637a2de96"


def make(path: Path, *partitions: str, meta: str = META) -> Path:
    """Makes a log directory as a broker does, old enough for its listing to be trusted."""
    path.mkdir(exist_ok=True)
    (path / "meta.properties").write_text(meta)
    for name in CHECKPOINTS:
        (path / name).touch()
    for name in partitions:
        (path / name).mkdir()
        (path / name / "00000000000000000000.log").touch()
    age(path)
    return path


def age(path: Path) -> None:
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns - 10**10))


def names(log_dir: LogDir) -> list[str]:
    return [partition.name for partition in log_dir.partitions()]


@pytest.mark.parametrize("name", sorted(set(answers.CORPORA) - {"kafka43-two-dirs"}))
def test_a_brokers_directory_has_its_partitions_and_no_problems(
    name: str, corpus: Callable[[str], Path]
) -> None:
    log_dirs = LogDirs(str(corpus(name)))
    assert log_dirs.problems == []
    assert set(answers.partitions(name)) <= set(log_dirs.partitions())
    ids = answers.topic_ids(name)
    for partition in log_dirs.partitions().values():
        if partition.topic != "__cluster_metadata":
            assert partition.topic_id() in (ids[partition.topic], "")  # 2.8 wrote no such files


def test_what_a_broker_left_in_the_small_files(corpus: Callable[[str], Path]) -> None:
    log_dir = LogDir(str(corpus("kafka43-clean")))
    assert log_dir.log_start_offsets == {("emptied", 0): 40, ("trimmed", 0): 1433}
    assert log_dir.high_watermarks["orders", 0] == 6674
    assert log_dir.recovery_points["orders", 0] == 6674
    assert set(log_dir.cleaner_offsets) == {("compacted", 0)}
    assert (log_dir.meta.version, log_dir.meta.node_id) == (1, 1)
    assert log_dir.is_clean
    deleted = [part for part in log_dir.partitions() if part.state is PartitionState.DELETE]
    assert [(part.topic, part.partition) for part in deleted] == [("gone", 0)]
    assert ("gone", 0) not in LogDirs(str(corpus("kafka43-clean"))).partitions()


def test_a_crashed_brokers_directory_is_not_clean(corpus: Callable[[str], Path]) -> None:
    assert not LogDir(str(corpus("kafka43-crash"))).is_clean


def test_two_directories_are_served_as_one(corpus: Callable[[str], Path]) -> None:
    root = corpus("kafka43-two-dirs")
    log_dirs = LogDirs(f"{root}/dir1,{root}/dir2")
    assert log_dirs.problems == []
    assert set(answers.partitions("kafka43-two-dirs")) <= set(log_dirs.partitions())
    assert {partition.log_dir.path for partition in log_dirs.partitions().values()} == {
        f"{root}/dir1",
        f"{root}/dir2",
    }
    assert list(log_dirs.topics()) == sorted(log_dirs.topics())


def test_partitions_are_sorted_by_number_and_found(tmp_path: Path) -> None:
    make(tmp_path, "t-10", "t-9", "a-b-0", f"t-11.{UUID}-future", f"s-0.{UUID}-stray")
    log_dirs = LogDirs(str(tmp_path))
    assert log_dirs.topics() == {"a-b": [0], "t": [9, 10]}
    found = log_dirs.partition("t", 9)
    assert (found.path, found.name) == (f"{tmp_path}/t-9", "t-9")
    assert [entry.name for entry in found.directory.list()] == ["00000000000000000000.log"]
    with pytest.raises(UnknownPartition, match="t has no partition 11"):
        log_dirs.partition("t", 11)
    with pytest.raises(UnknownTopic, match="no topic s"):
        log_dirs.partition("s", 0)


def test_new_and_deleted_partitions_are_seen(tmp_path: Path) -> None:
    log_dir = LogDir(str(make(tmp_path, "t-0")))
    log_dirs = LogDirs([str(tmp_path)])
    before = log_dirs.partition("t", 0)
    assert names(log_dir) == ["t-0"]
    (tmp_path / "t-1").mkdir()
    assert names(log_dir) == ["t-0", "t-1"]
    (tmp_path / "t-0").rename(tmp_path / f"t-0.{UUID}-delete")
    assert names(log_dir) == [f"t-0.{UUID}-delete", "t-1"]
    with pytest.raises(UnknownPartition):
        log_dirs.partition("t", 0)
    (tmp_path / "t-0").mkdir()
    assert log_dirs.partition("t", 0) != before


def test_an_unchanged_directory_is_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dirs = LogDirs(str(make(tmp_path, "t-0")))
    partitions = log_dirs.partitions()
    monkeypatch.setattr(DirFd, "list", None)
    assert log_dirs.partitions() is partitions


def test_opening_a_directory_lists_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "t-0")
    monkeypatch.setattr(DirFd, "list", None)
    LogDir(str(tmp_path))


def test_a_new_checkpoint_makes_no_new_partitions(tmp_path: Path) -> None:
    log_dirs = LogDirs(str(make(tmp_path, "t-0")))
    partitions = log_dirs.partitions()
    (tmp_path / "replication-offset-checkpoint.tmp").touch()
    (tmp_path / "replication-offset-checkpoint.tmp").rename(tmp_path / CHECKPOINTS[3])
    assert log_dirs.partitions() is partitions


def test_checkpoints_are_read_again_when_replaced(tmp_path: Path) -> None:
    log_dir = LogDir(str(make(tmp_path, "t-0")))
    assert log_dir.log_start_offsets == {}
    (tmp_path / "new").write_text("0\n1\nt 0 5\n")
    (tmp_path / "new").rename(tmp_path / "log-start-offset-checkpoint")
    assert log_dir.log_start_offsets == {("t", 0): 5}


def test_small_files_that_are_absent_or_torn_are_problems_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path, "t-0")
    (tmp_path / "cleaner-offset-checkpoint").unlink()
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"\0" * 30)
    (tmp_path / "meta.properties").write_text("version=3\n")
    log_dirs = LogDirs(str(tmp_path))
    assert log_dirs.topics() == {"t": [0]}
    assert log_dirs.dirs[0].log_start_offsets == {}
    meta, log_start, cleaner = log_dirs.problems
    assert meta.endswith(": position 0: meta.properties has version 3, expected 0 or 1")
    assert "/log-start-offset-checkpoint: position 0: not a number from" in log_start
    assert cleaner == f"{tmp_path}/cleaner-offset-checkpoint: missing"


def test_what_looks_like_a_partition_and_is_none_is_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    log_dir = LogDir(str(make(tmp_path / "dir", "t-0")))
    root = Path(log_dir.path)
    (root / "linked-0").symlink_to(outside)
    (root / "lost+found").mkdir()
    (root / "evil\n\x1b[2J-0").mkdir()
    (root / "file-0").touch()
    (root / "remote-log-index-cache").mkdir()
    (root / os.fsdecode(b"\xff-0")).mkdir()
    assert names(log_dir) == ["t-0"]
    assert sorted(log_dir.problems) == [
        f"{root}/\\xff-0: not a valid partition directory name, not served",
        f"{root}/evil\\n\\x1b[2J-0: not a valid partition directory name, not served",
        f"{root}/linked-0: a symbolic link, which is not followed",
        f"{root}/lost+found: not a valid partition directory name, not served",
    ]


def test_a_directory_that_goes_away_leaves_the_others(tmp_path: Path) -> None:
    one, two = make(tmp_path / "1", "t-0"), make(tmp_path / "2", "u-0")
    log_dirs = LogDirs([str(one), str(two)])
    assert list(log_dirs.topics()) == ["t", "u"]
    one.rename(tmp_path / "away")
    assert list(log_dirs.topics()) == ["u"]
    assert log_dirs.problems[0] == f"{one}: the directory no longer exists"
    two.rename(tmp_path / "away too")
    with pytest.raises(LogDirError, match="the directory no longer exists"):
        log_dirs.topics()


def test_a_part_of_a_backup_is_a_log_directory(tmp_path: Path) -> None:
    make(tmp_path, "t-0")
    for name in ("meta.properties", *CHECKPOINTS):
        (tmp_path / name).unlink()
    log_dirs = LogDirs(str(tmp_path))
    assert log_dirs.topics() == {"t": [0]}
    assert log_dirs.problems[0] == f"{tmp_path}/meta.properties: missing"
    assert log_dirs.partition("t", 0).topic_id() == ""
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\ntopic")
    with pytest.raises(CorruptError, match=r"t-0/partition\.metadata: position 11"):
        log_dirs.partition("t", 0).topic_id()


def test_a_directory_that_a_broker_has_just_formatted_is_empty(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(META)
    assert LogDirs(str(tmp_path)).topics() == {}


class TestWhatIsNoLogDirectory:
    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(LogDirError, match=r"/no: no such directory$"):
            LogDir(f"{tmp_path}/no")

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "f").touch()
        with pytest.raises(LogDirError, match=r"/f: a regular file, not a directory$"):
            LogDir(f"{tmp_path}/f")

    def test_an_empty_directory_or_any_other(self, tmp_path: Path) -> None:
        what = "not a Kafka log directory: it has neither meta.properties nor a directory"
        with pytest.raises(LogDirError, match=what):
            LogDir(str(tmp_path))
        (tmp_path / "python-3").mkdir()
        (tmp_path / "python-3" / "README").touch()
        with pytest.raises(LogDirError, match=what):
            LogDir(str(tmp_path))

    def test_the_directory_of_a_partition(self, tmp_path: Path) -> None:
        make(tmp_path, "t-0")
        with pytest.raises(LogDirError, match="of one partition; give the log directory above it"):
            LogDir(f"{tmp_path}/t-0")

    def test_a_directory_of_log_directories(self, tmp_path: Path) -> None:
        one, two = make(tmp_path / "1", "t-0"), make(tmp_path / "2", "u-0")
        described = r"holds some: 1 \(node 1 of cluster c, 1 topic\), 2 \(node 1 of cluster c, 1 to"
        with pytest.raises(LogDirError, match=described) as caught:
            LogDir(str(tmp_path))
        assert str(caught.value).endswith(
            f"; give {one},{two} to read them together, or one of them"
        )

    def test_backups_of_several_days(self, tmp_path: Path) -> None:
        """They have the same partitions of one broker, so they do not belong together."""
        one = make(tmp_path / "monday", "t-0")
        make(tmp_path / "tuesday", "t-0")
        with pytest.raises(LogDirError, match=f"; give one of them, as in `kafkafs ls {one}`$"):
            LogDir(str(tmp_path))

    def test_the_same_directory_twice(self, tmp_path: Path) -> None:
        one = make(tmp_path / "1", "t-0")
        (tmp_path / "link").symlink_to(one)
        with pytest.raises(LogDirError, match=f"link: the same directory as {one}; give it once"):
            LogDirs(f"{one},{tmp_path}/link")

    @pytest.mark.parametrize("paths", ["", " , ", []])
    def test_none_given(self, paths: str | list[str]) -> None:
        with pytest.raises(LogDirError, match="no log directory given"):
            LogDirs(paths)
