"""`.kafkafs/cluster/`: the cluster as its metadata log records it, and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from kafkafs.storage import (
    ClusterSubject,
    ListClusterChanges,
    PartitionFailed,
    cluster_state,
    list_cluster_changes,
)

from ..catalog import Catalog
from ..node import Attributes, DirectoryNode, DirEntryRun, directory_attributes, entries_of, missing
from ..vfs import render
from ..vfs.errnos import Stale
from ..vfs.inodes import CLUSTER_NUMBER, InodeKind, pack
from .small_files import ComputedFile

_LOG: Final = "log.jsonl"


def _document(catalog: Catalog, subject: ClusterSubject) -> bytes:
    """Returns `.kafkafs/cluster/<subject>.json`."""
    state = cluster_state(catalog.engine)
    image, rows = state.image, [row.as_json() for row in state.rows(subject)]
    problems = list(image.problems)
    if subject is ClusterSubject.SUMMARY:
        return render.status({**rows[0], "problems": problems})
    return render.status(
        {
            "offset": image.offset,
            "timestamp": image.timestamp,
            subject.value: rows,
            "problems": problems,
        }
    )


def _changes(catalog: Catalog) -> bytes:
    """Returns `.kafkafs/cluster/log.jsonl`. The last lines are about what could not be read."""
    rows = list_cluster_changes(catalog.engine, ListClusterChanges())
    return b"".join(
        render.json_line(
            {"problem": row.error} if isinstance(row, PartitionFailed) else row.as_json()
        )
        for row in rows
    )


def _documents() -> dict[str, Callable[[Catalog], bytes]]:
    """Returns the functions that render the files, by name in listing order."""
    subjects = {
        f"{subject}.json": partial(_document, subject=subject) for subject in ClusterSubject
    }
    return {**subjects, _LOG: _changes}


class ClusterDirectory(DirectoryNode):
    """A directory with a file for each subject. Only directories with a log of the cluster's
    metadata have it."""

    def __init__(self, catalog: Catalog, parent_inode: int) -> None:
        self._catalog = catalog
        self.inode = pack(InodeKind.TOP, 0, CLUSTER_NUMBER)
        self.parent_inode = parent_inode

    def attributes(self) -> Attributes:
        return directory_attributes(self.inode, self._catalog.started_ns)

    def child(self, name: str) -> ComputedFile:
        documents = _documents()
        if name not in documents:
            raise missing(name, "cluster", documents)
        number = CLUSTER_NUMBER + 1 + list(documents).index(name)
        compute = partial(documents[name], self._catalog)
        inode = pack(InodeKind.TOP, 0, number)
        return ComputedFile(self._catalog.contents, inode, self._catalog.started_ns, compute)

    def child_may_block(self, name: str) -> bool:
        return True

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        return entries_of(((name, self.child(name)) for name in _documents()), start)

    def by_number(self, number: int) -> ComputedFile:
        """Returns the file with an inode's `number`. Raises Stale."""
        names = list(_documents())
        if not CLUSTER_NUMBER < number <= CLUSTER_NUMBER + len(names):
            raise Stale
        return self.child(names[number - CLUSTER_NUMBER - 1])
