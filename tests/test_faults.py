"""The model of disk faults itself: the states that it claims are those that the tests get."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.io.durable import SyncFailed, WritableDirFd, replaced
from tests.faults import (
    SECTOR,
    Content,
    CrashState,
    FailingCalls,
    RecordingCalls,
    crash_states,
)


def trees(recording: RecordingCalls, done: int, samples: int = 20) -> list[dict[str, bytes | None]]:
    """Returns what a power cut may leave after the first `done` operations."""
    return [state.tree() for state in crash_states(recording, samples, prefixes=[done])]


def tree_of(path: Path) -> dict[str, bytes | None]:
    return {
        str(found.relative_to(path)): None if found.is_dir() else found.read_bytes()
        for found in path.rglob("*")
    }


class TestFailingCalls:
    def test_one_call_fails_and_the_others_do_not(self, tmp_path: Path) -> None:
        directory = WritableDirFd(tmp_path)
        calls = FailingCalls(1, errno.ENOSPC, {"pwritev"})
        with replaced(calls):
            file = directory.create("f")
            file.write(0, b"12")
            with pytest.raises(OSError, match="No space left") as caught:
                file.write(2, b"34")
            assert caught.value.filename == str(tmp_path / "f")
            assert file.read(0, 10) == b"123"
            file.write(2, b"56")
        assert file.read(0, 10) == b"1256"
        assert calls.made == ["pwritev"] * 3
        assert calls.failed == [f"pwritev {tmp_path / 'f'}"]

    def test_every_kind_can_fail(self, tmp_path: Path) -> None:
        def run(name: str) -> None:
            (tmp_path / name).mkdir()
            directory = WritableDirFd(tmp_path / name)
            directory.write_atomically("a", b"x")
            directory.create("a").set_mtime_ns(0)
            directory.remove("a")
            directory.make("d")
            directory.remove_directory("d")

        with replaced(counted := FailingCalls(-1, errno.EIO)):
            run("counted")
        kinds = {"open", "pwritev", "ftruncate", "fsync", "rename", "unlink", "mkdir", "rmdir"}
        assert set(counted.made) == kinds | {"utime"}
        for number, kind in enumerate(counted.made):
            with (
                replaced(calls := FailingCalls(number, errno.EIO)),
                pytest.raises(OSError, match="Input/output") as caught,
            ):
                run(f"{number}")
            assert caught.value.errno == errno.EIO
            assert isinstance(caught.value, SyncFailed) is (kind == "fsync")
            assert [failed.split()[0] for failed in calls.failed] == [kind]

    def test_a_lasting_fault(self, tmp_path: Path) -> None:
        directory = WritableDirFd(tmp_path)
        with replaced(FailingCalls(1, errno.EROFS, {"open"}, lasting=True)):
            for _ in range(3):
                with pytest.raises(OSError, match="Read-only"):
                    directory.create("f")


class TestPowerCuts:
    def recorded(self, root: Path) -> tuple[WritableDirFd, RecordingCalls]:
        return WritableDirFd(root), RecordingCalls(root)

    def test_a_new_file_is_certain_when_it_and_its_name_are_synced(self, tmp_path: Path) -> None:
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            file = directory.create("f")
            file.write(0, b"abc")
            file.sync()
            directory.sync()
        assert trees(recording, 0) == [{}]
        assert {"f": b""} in trees(recording, 1)
        assert {} in trees(recording, 1)
        assert {"f": b"abc"} in trees(recording, 2)
        assert {"f": b"\0\0\0"} in trees(recording, 2)
        assert all(tree in ({}, {"f": b"abc"}) for tree in trees(recording, 3))
        assert trees(recording, 4) == [{"f": b"abc"}]

    def test_content_is_torn_by_sector(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"o" * 3 * SECTOR)
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            directory.writable("f").write(0, b"n" * 3 * SECTOR)
        found = set()
        for tree in trees(recording, 1, 200):
            content = tree["f"]
            assert content is not None
            sectors = [content[at : at + SECTOR] for at in range(0, len(content), SECTOR)]
            assert all(sector in (b"o" * SECTOR, b"n" * SECTOR) for sector in sectors)
            found.add(b"".join(sector[:1] for sector in sectors))
        assert found == {bytes([a, b, c]) for a in b"on" for b in b"on" for c in b"on"}

    def test_an_append_is_cut_anywhere(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"12345")
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            file = directory.writable("f")
            file.write(5, b"678")
            file.write(8, b"9")
        contents = {tree["f"] for tree in trees(recording, 2, 300)}
        assert {b"123456789"[:size] for size in range(5, 10)} <= contents
        assert b"12345\0\0\0" in contents
        assert all(content is not None and content[:5] == b"12345" for content in contents)

    def test_a_truncation_is_kept_or_lost(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"12345")
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            file = directory.writable("f")
            file.truncate(2)
            file.sync()
        assert {b"12345", b"12"} <= {tree["f"] for tree in trees(recording, 1)}
        assert trees(recording, 2) == [{"f": b"12"}]

    def test_names_come_in_order_and_each_directory_on_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"1")
        (tmp_path / "d").mkdir()
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            directory.rename("a", "b")
            directory.create("c")
            directory.child("d").create("e")
            directory.remove("b")
        found = {tuple(sorted(tree)) for tree in trees(recording, 4, 50)}
        here = [("a", "d"), ("b", "d"), ("b", "c", "d"), ("c", "d")]
        assert found == {
            tuple(sorted((*names, *more))) for names in here for more in ((), ("d/e",))
        }

    def test_every_directory_may_be_the_only_one_that_is_kept_or_lost(self, tmp_path: Path) -> None:
        for name in ("d", "e", "f"):
            (tmp_path / name).mkdir()
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            for name in ("d", "e", "f"):
                directory.child(name).create("a")
        found = {tuple(sorted(tree)) for tree in trees(recording, 3, samples=0)}
        kept = [set(), {"d/a"}, {"e/a"}, {"f/a"}]
        assert found == {
            tuple(sorted({"d", "e", "f"} | names))
            for some in kept
            for names in (some, {"d/a", "e/a", "f/a"} - some)
        }

    def test_a_file_that_is_moved_is_never_lost(self, tmp_path: Path) -> None:
        for name in ("d", "e"):
            (tmp_path / name).mkdir()
        (tmp_path / "d" / "f").write_bytes(b"moved")
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            directory.child("e").create("before")
            directory.child("e").take("f", directory.child("d"))
            directory.child("e").create("after")
            directory.child("d").sync()
        here, there = {"d/f"}, {"e/before", "e/f"}
        found = {frozenset(tree) - {"d", "e"} for tree in trees(recording, 4, 50)}
        assert found == {
            frozenset(names)
            for names in (here, here | {"e/before"}, here | there, here | there | {"e/after"})
        } | {frozenset(there), frozenset(there | {"e/after"})}
        synced = {frozenset(tree) - {"d", "e"} for tree in trees(recording, 5, 50)}
        assert synced == {frozenset(there), frozenset(there | {"e/after"})}

    def test_an_atomic_write_is_the_old_or_the_new_at_every_moment(self, tmp_path: Path) -> None:
        (tmp_path / "c").write_bytes(b"o" * 2000)
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            directory.write_atomically("c", b"n" * 3000)
            recording.mark("returned")
        states = list(crash_states(recording, samples=30))
        assert {state.tree()["c"] for state in states} == {b"o" * 2000, b"n" * 3000}
        assert {state.tree()["c"] for state in states if state.marks} == {b"n" * 3000}

    def test_one_without_its_fsync_is_found_out(self, tmp_path: Path) -> None:
        (tmp_path / "c").write_bytes(b"o" * 2000)
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            directory.create("c.tmp").write(0, b"n" * 3000)
            directory.rename("c.tmp", "c")
            directory.sync()
        contents = {state.tree()["c"] for state in crash_states(recording)}
        assert b"" in contents
        assert b"\0" * 3000 in contents

    def test_directories_that_are_made_and_removed(self, tmp_path: Path) -> None:
        directory, recording = self.recorded(tmp_path)
        with replaced(recording):
            made = directory.make("d")
            made.create("f")
            made.sync()
            directory.sync()
            directory.remove_directory("d")
        assert {} in trees(recording, 3)
        assert trees(recording, 4) == [{"d": None, "d/f": b""}]
        last = trees(recording, 6)
        assert {} in last
        assert {"d": None} in last
        assert {"d": None, "d/f": b""} in last

    def test_a_state_is_written_as_it_is(self, tmp_path: Path) -> None:
        tree: dict[str, bytes | None] = {"d": None, "d/f": b"x" + bytes(100_000), "e": b""}
        target = tmp_path / "target"
        target.mkdir()
        names = {
            name: None if each is None else Content.of(each, len(each))
            for name, each in tree.items()
        }
        state = CrashState(0, "made up", (), names)
        state.write_to(target)
        assert state.tree() == tree
        assert tree_of(target) == tree
        assert os.stat(target / "d" / "f").st_blocks * 512 < 50_000


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["create", "write", "cut", "rename", "remove", "make", "sync"]),
            st.sampled_from(["a", "b", "d/a", "d/b"]),
            st.integers(0, 1500),
        ),
        max_size=15,
    )
)
def test_all_kept_is_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "a").write_bytes(b"there before")
    recording = RecordingCalls(root)
    with replaced(recording):
        for what, path, number in steps:
            change(root, what, path, number)
    states = list(crash_states(recording, prefixes=[len(recording.operations)]))
    assert states[0].how == "all kept"
    assert states[0].tree() == tree_of(root)


def change(root: Path, what: str, path: str, number: int) -> None:
    """Takes one step, if it is possible now."""
    above, _, name = path.rpartition("/")
    if what == "make":
        if not (root / "d").exists():
            WritableDirFd(root).make("d")
        return
    if not (root / above).exists():
        return
    directory = WritableDirFd(root / above)
    if what == "create":
        directory.create(name).write(number, b"x" * number)
    elif what == "sync":
        directory.sync()
    elif (root / path).exists():
        if what == "write":
            directory.writable(name).write(number, b"y" * 700)
        elif what == "cut":
            directory.writable(name).truncate(number)
        elif what == "rename":
            directory.rename(name, "b")
        else:
            directory.remove(name)
