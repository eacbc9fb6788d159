"""Completes paths inside log directories, as a shell completes paths on disk."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Final

from click.shell_completion import CompletionItem

from kafkafs.mount.node import DirectoryNode
from kafkafs.mount.vfs.errnos import TreeError
from kafkafs.storage import StorageError

from .opening import open_engine, open_tree

# More than anyone reads; a partition may have millions.
_MAX_ITEMS: Final = 500
# Limits the search in a large log or on a slow disk; the shell shows nothing while it waits.
_MAX_SECONDS: Final = 0.1


def paths_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Returns the paths that begin with `incomplete`, one level deep, as far as they are found in
    time. Returns nothing on errors, because no message would be seen."""
    above, slash, start = incomplete.rpartition("/")
    found: dict[str, None] = {}
    try:
        directory = open_tree(log_dirs).resolve(above)
        if isinstance(directory, DirectoryNode) and directory.pending() is None:
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
    """Returns the topics whose names begin with `incomplete`; none on errors."""
    names = _topics(log_dirs)
    return [_item(topic) for topic in names if topic.startswith(incomplete)][:_MAX_ITEMS]


def partitions_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Returns topics with a trailing slash, or the partitions of the topic in `incomplete`."""
    topic, slash, start = incomplete.partition("/")
    found = _topics(log_dirs)
    if not slash:
        return [_item(f"{name}/") for name in found if name.startswith(topic)][:_MAX_ITEMS]
    numbers = map(str, found.get(topic, ()))
    fitting = [f"{topic}/{number}" for number in numbers if number.startswith(start)]
    return [_item(path) for path in fitting[:_MAX_ITEMS]]


def groups_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Returns the groups whose names begin with `incomplete`; none on errors."""
    from kafkafs.storage import GroupsReader

    try:
        names = GroupsReader(open_engine(log_dirs)).image().groups
    except (StorageError, OSError):
        return []
    return [_item(name) for name in names if name.startswith(incomplete)][:_MAX_ITEMS]


def subjects_from(log_dirs: tuple[str, ...], incomplete: str) -> list[CompletionItem]:
    """Returns the subjects whose names begin with `incomplete`; none on errors."""
    from kafkafs.storage import registry_of

    try:
        names = registry_of(open_engine(log_dirs)).subjects
    except (StorageError, OSError):
        return []
    return [_item(name) for name in names if name.startswith(incomplete)][:_MAX_ITEMS]


def _topics(log_dirs: tuple[str, ...]) -> Mapping[str, list[int]]:
    try:
        return open_engine(log_dirs).topics()
    except (StorageError, OSError):
        return {}


def _item(path: str) -> CompletionItem:
    return CompletionItem(path, type="part" if path.endswith("/") else "plain")
