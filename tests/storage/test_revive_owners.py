"""Whom a revived directory belongs to: whoever owns the sources, so that Kafka may use it."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.durable import Calls, replaced
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.revive.request import Revive, ReviveNote
from kafkafs.storage.operations.revive.revive import revive
from tests.conftest import Corpora
from tests.faults import path_of

OWNER = (4711, 4712)


class Chowns(Calls):
    """Takes down what is given to whom, or refuses it as an unprivileged process is refused."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.given: dict[str, tuple[int, int]] = {}
        self._refuses = refuses

    def chown(self, name: str, user: int, group: int, directory: int) -> None:
        if self._refuses:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        self.given[os.path.normpath(f"{path_of(directory)}/{name}")] = (user, group)


@pytest.fixture
def source(corpora: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log directory that, as far as kafkafs sees, belongs to OWNER."""
    path = tmp_path / "old"
    shutil.copytree(corpora.path("groups43"), path)
    real = DirFd.stat

    def changed(self: DirFd, name: str | None = None) -> os.stat_result:
        found = real(self, name)
        if name is not None or self.path != str(path):
            return found
        named = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return os.stat_result([*found[:4], *OWNER, *found[6:]], named)

    monkeypatch.setattr(DirFd, "stat", changed)
    return path


def run(*sources: Path, new: Path, **options: Any) -> list[str]:
    """Returns the notes of a revival."""
    rows = revive(Engine(list(map(str, sources))), Revive(str(new), **options))
    return [row.note for row in rows if isinstance(row, ReviveNote)]


def test_all_of_it_is_given_to_the_sources_owner(source: Path, tmp_path: Path) -> None:
    chowns, new = Chowns(), tmp_path / "new"
    with replaced(chowns):
        notes = run(source, new=new)
    found = {path.removesuffix(".unfinished") for path in chowns.given}
    assert found - {str(new / ".lock")} == {str(new), *map(str, new.rglob("*"))}
    assert set(chowns.given.values()) == {OWNER}
    assert not any("chown" in note for note in notes)


def test_an_owner_that_cannot_be_set(source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new directory"
    with replaced(Chowns(refuses=True)):
        notes = run(source, new=new)
    assert notes[-1].endswith(f"run: chown -R 4711:4712 '{new}'")
    assert (new / "server.properties").exists()


def test_sources_of_different_owners(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    meta = (source / "meta.properties").read_text()
    another = re.sub("(?m)^directory.id=.*$", "directory.id=ZGlyZWN0b3J5LW9uZS4uLg", meta)
    (other / "meta.properties").write_text(another)
    chowns = Chowns()
    with replaced(chowns):
        notes = run(source, other, new=tmp_path / "new")
    assert "chown -R USER:GROUP" in notes[-1]
    assert not chowns.given


def test_what_belongs_to_the_same_user_is_not_given(corpora: Corpora, tmp_path: Path) -> None:
    chowns = Chowns()
    path = tmp_path / "old"
    shutil.copytree(corpora.path("groups43"), path)
    with replaced(chowns):
        notes = run(path, new=tmp_path / "new")
    assert not chowns.given
    assert not any("chown" in note for note in notes)


def test_links_to_the_sources_files_are_not_given(source: Path, tmp_path: Path) -> None:
    chowns = Chowns()
    with replaced(chowns):
        run(source, new=tmp_path / "new", link=True)
    files = [path for path in (tmp_path / "new" / "data").rglob("*") if path.is_file()]
    linked = {str(path) for path in files if path.stat().st_nlink > 1}
    assert linked
    assert not linked & set(chowns.given)
