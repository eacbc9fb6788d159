"""Tests directories opened for writing: created, locked, and all of the same node."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError, LogDirError, LogDirLocked
from kafkafs.storage.format.files.checkpoints import MetaProperties, parse_meta_properties
from kafkafs.storage.log_dirs.lock_dirs import LockedLogDir, hold, identify
from kafkafs.storage.log_manager import LogManager
from tests.logs import write_log_dir

NOW = 1_700_000_000_000


def identified(*paths: Path, wanted: MetaProperties | None = None) -> list[MetaProperties]:
    """Holds, identifies and releases the directories; returns what their files say."""
    with ExitStack() as undo:
        identify(hold([str(path) for path in paths], undo), wanted, NOW)
    return [parse_meta_properties((path / "meta.properties").read_bytes()) for path in paths]


def test_new_directories_are_made_and_belong_to_one_new_cluster(tmp_path: Path) -> None:
    one, two = identified(tmp_path / "a" / "b", tmp_path / "c")
    assert (one.version, one.node_id, len(one.cluster_id)) == (1, 1, 22)
    assert (two.cluster_id, two.node_id) == (one.cluster_id, one.node_id)
    assert one.directory_id != two.directory_id
    assert not (tmp_path / "c" / ".lock").exists()
    # A second time nothing changes.
    assert identified(tmp_path / "a" / "b", tmp_path / "c") == [one, two]
    [other] = identified(tmp_path / "d")
    assert other.cluster_id != one.cluster_id


def test_a_new_directory_joins_the_others(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "old", {}, node_id=7)
    new, old = identified(tmp_path / "new", tmp_path / "old")
    assert (new.cluster_id, new.node_id) == (old.cluster_id, 7)


def test_whose_a_new_directory_is_can_be_said(tmp_path: Path) -> None:
    wanted = MetaProperties(1, "abcdefghijklmnopqrstuQ", 3)
    [made] = identified(tmp_path / "new", wanted=wanted)
    assert (made.cluster_id, made.node_id) == (wanted.cluster_id, 3)
    with pytest.raises(LogDirError, match="belongs to node 3, not 4"):
        identified(tmp_path / "new", wanted=MetaProperties(1, "abcdefghijklmnopqrstuQ", 4))


def test_directories_that_do_not_belong_together(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "one", {})
    write_log_dir(tmp_path / "two", {}, cluster_id="other", directory_id="QUFBQUFBQUFBQUFBQUFBQQ")
    one, two = re.escape(f"{tmp_path}/one"), re.escape(f"{tmp_path}/two")
    with pytest.raises(LogDirError, match=f"{two}: belongs to cluster other, not a2Fm.* as {one}$"):
        identified(tmp_path / "one", tmp_path / "two")
    write_log_dir(tmp_path / "two", {})
    with pytest.raises(LogDirError, match=rf"{two}: has the directory\.id of {one}: one is a copy"):
        identified(tmp_path / "one", tmp_path / "two")
    # Both were released.
    identified(tmp_path / "one")


def test_one_directory_given_twice(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "one", {})
    (tmp_path / "link").symlink_to("one")
    link, one = re.escape(f"{tmp_path}/link"), re.escape(f"{tmp_path}/one")
    with pytest.raises(LogDirError, match=f"{link}: the same directory as {one}; give it once"):
        identified(tmp_path / "one", tmp_path / "link")
    with pytest.raises(LogDirError, match=f"{one}/: the same directory as {one}; give it once"):
        LogManager(f"{tmp_path}/one,{tmp_path}/one/")
    with pytest.raises(LogDirError, match=r"/new/: the same directory as .*/new; give it once"):
        LogManager(f"{tmp_path}/new,{tmp_path}/new/")
    assert not (tmp_path / "new").exists()
    with pytest.raises(LogDirError, match="no log directory given"), ExitStack() as undo:
        hold(" , ", undo)


def test_a_directory_that_is_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    (tmp_path / "file").touch()
    for name in ("home", "file"):
        with pytest.raises((LogDirError, NotADirectoryError)):
            LockedLogDir(str(tmp_path / name))
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter"]


def test_an_empty_file_system_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert identified(tmp_path)[0].node_id == 1


def test_a_damaged_meta_properties_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=9\n")
    with pytest.raises(CorruptError, match=r"meta\.properties.*version 9"):
        identified(tmp_path)


def test_held_is_held(tmp_path: Path) -> None:
    held = LockedLogDir(str(tmp_path))
    with pytest.raises(LogDirLocked, match="this process"):
        LockedLogDir(str(tmp_path))
    held.release()
    held.release()
    LockedLogDir(str(tmp_path)).release()
