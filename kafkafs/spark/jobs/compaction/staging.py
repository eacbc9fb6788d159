"""The staging directories of a compaction: one next to each log directory, where no broker looks,
and on the same file system, so that finished segments only have to be renamed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from contextlib import suppress

from kafkafs.storage import (
    COMPACTION_SUFFIX,
    DirFd,
    LogDirError,
    SegmentGone,
    WritableDirFd,
    compaction_path,
    printable,
)

_WHOLE = "whole"


class Staging:
    """The staging directories of some log directories; only the holder of those may use them."""

    def __init__(self, log_dirs: Sequence[str], place: str | None) -> None:
        """`place`: a directory for all of them; None: next to each log directory."""
        self._roots = {path: WritableDirFd(_root(path, place)) for path in log_dirs}

    def begin(self, log_dir: str, kept: Collection[str]) -> WritableDirFd:
        """Creates the staging directory of a log directory if it is missing, and removes everything
        in it but the directories `kept`. Raises LogDirError if it is on another file system."""
        root = self._roots[log_dir]
        root.make_itself()
        if root.stat().st_dev != DirFd(log_dir).stat().st_dev:
            why = f"not on the file system of {printable(log_dir)}; choose a directory there"
            raise LogDirError(root.path, why)
        for entry in root.list():
            if entry.name not in kept:
                _remove(root, entry.name)
        root.make(_WHOLE)
        return root

    @staticmethod
    def whole(root: WritableDirFd) -> str:
        """Returns the path where passes over whole partitions write their output."""
        return root.path_of(_WHOLE)

    @staticmethod
    def large(root: WritableDirFd, name: str) -> WritableDirFd:
        """Returns the directory of a partition that is cleaned in pieces, without unfinished
        copies."""
        with suppress(FileExistsError):
            root.make(name)
        directory = root.child(name)
        for entry in directory.list():
            if entry.is_dir:
                directory.remove_directory(entry.name)
        return directory

    def remove(self) -> None:
        """Removes all staging directories."""
        for root in self._roots.values():
            above, name = os.path.split(root.path)
            with suppress(SegmentGone, LogDirError, FileNotFoundError):
                _remove(WritableDirFd(above), name)


def _root(log_dir: str, place: str | None) -> str:
    if place is None:
        return compaction_path(log_dir)
    name = os.path.basename(log_dir.rstrip("/"))
    digest = hashlib.sha256(log_dir.encode()).hexdigest()[:8]
    return os.path.join(os.path.abspath(place), f"{name}-{digest}.{COMPACTION_SUFFIX}")


def _remove(directory: WritableDirFd, name: str) -> None:
    with suppress(FileNotFoundError):
        directory.remove_directory(name)
