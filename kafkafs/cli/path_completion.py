"""Completing a path inside log directories, as a shell completes one on disk."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from time import monotonic
from typing import Final

from click.shell_completion import CompletionItem

from kafkafs.mount.errnos import TreeError
from kafkafs.mount.nodes.node import Directory
from kafkafs.storage.errors import StorageError

from .opening import open_engine, open_tree

# More than anybody looks through; and a partition may have millions.
_MAX_ITEMS: Final = 500
_MAX_SECONDS: Final = 1.0


def paths_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """The paths that begin with `incomplete`, one level deep. None where anything is wrong, as
    nobody would see a message, or where a partition would have to be read for them."""
    above, slash, start = incomplete.rpartition("/")
    deadline = monotonic() + _MAX_SECONDS
    found: list[CompletionItem] = []
    try:
        directory = open_tree(log_dirs).resolve(above)
        if not isinstance(directory, Directory) or directory.reads_much:
            return []
        for run in directory.runs(0):
            is_directory = stat.S_ISDIR(run.mode)
            names = (row[0].decode("utf-8", "surrogateescape") for row in run.rows)
            found += [
                _item(above + slash + name, is_directory)
                for name in names
                if name.startswith(start) and (start or name[0] != ".")
            ]
            if len(found) >= _MAX_ITEMS or monotonic() > deadline:
                break
    except (StorageError, TreeError, OSError):
        return found
    return found[:_MAX_ITEMS]


def topics_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """The topics whose names begin with `incomplete`; none where anything is wrong."""
    names = _topics(log_dirs)
    return [_item(topic, False) for topic in names if topic.startswith(incomplete)][:_MAX_ITEMS]


def partitions_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Topics as directories of their partitions, or the partitions of the topic in `incomplete`."""
    topic, slash, start = incomplete.partition("/")
    found = _topics(log_dirs)
    if not slash:
        return [_item(name, True) for name in found if name.startswith(topic)][:_MAX_ITEMS]
    numbers = map(str, found.get(topic, ()))
    fitting = [f"{topic}/{number}" for number in numbers if number.startswith(start)]
    return [_item(path, False) for path in fitting[:_MAX_ITEMS]]


def _topics(log_dirs: tuple[str, ...]) -> Mapping[str, list[int]]:
    try:
        return open_engine(log_dirs).topics()
    except (StorageError, OSError):
        return {}


def _item(path: str, is_directory: bool) -> CompletionItem:
    if is_directory:
        return CompletionItem(f"{path}/", type="part")
    return CompletionItem(path)
