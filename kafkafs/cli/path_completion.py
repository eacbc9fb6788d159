"""Completing a path inside log directories, as a shell completes one on disk."""

from __future__ import annotations

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
# For finding names, where the log is large or its disk slow. A shell shows nothing meanwhile.
_MAX_SECONDS: Final = 0.1


def paths_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """The paths that begin with `incomplete`, one level deep: those that can be found at once. None
    where anything is wrong, as nobody would see a message."""
    above, slash, start = incomplete.rpartition("/")
    found: dict[str, None] = {}
    try:
        directory = open_tree(log_dirs).resolve(above)
        if isinstance(directory, Directory) and directory.pending() is None:
            deadline = monotonic() + _MAX_SECONDS
            for name in directory.matching(start):
                if start or name[0] != ".":
                    found[above + slash + name] = None
                if len(found) >= _MAX_ITEMS or monotonic() > deadline:
                    break
    except (StorageError, TreeError, OSError):
        pass
    return [_item(path) for path in found]


def topics_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """The topics whose names begin with `incomplete`; none where anything is wrong."""
    names = _topics(log_dirs)
    return [_item(topic) for topic in names if topic.startswith(incomplete)][:_MAX_ITEMS]


def partitions_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Topics as directories of their partitions, or the partitions of the topic in `incomplete`."""
    topic, slash, start = incomplete.partition("/")
    found = _topics(log_dirs)
    if not slash:
        return [_item(f"{name}/") for name in found if name.startswith(topic)][:_MAX_ITEMS]
    numbers = map(str, found.get(topic, ()))
    fitting = [f"{topic}/{number}" for number in numbers if number.startswith(start)]
    return [_item(path) for path in fitting[:_MAX_ITEMS]]


def _topics(log_dirs: tuple[str, ...]) -> Mapping[str, list[int]]:
    try:
        return open_engine(log_dirs).topics()
    except (StorageError, OSError):
        return {}


def _item(path: str) -> CompletionItem:
    return CompletionItem(path, type="part" if path.endswith("/") else "plain")
