"""The root directory of the mount, and `.kafkafs/` with the state of the mount as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from kafkafs.storage import METADATA_TOPIC, UnknownTopic, printable, reader_config

from ..catalog import Catalog
from ..documents import status
from ..documents.report import is_available
from ..node import DirectoryNode, File, Node, missing
from ..vfs import render
from ..vfs.errnos import NoSuchName, NotPermitted, Stale
from ..vfs.inodes import (
    CLUSTER_NUMBER,
    GROUPS_NUMBER,
    ROOT,
    SCHEMAS_NUMBER,
    SUBJECTS_NUMBER,
    InodeKind,
    pack,
)
from .deleted import DeletedDirectory, is_deleted_number
from .small_directory import SmallDirectory
from .small_files import ComputedFile, ControlFile, RecentLogFile
from .topic import CONFIG_FILE, TopicDirectory

ABOUT = ".kafkafs"
STATUS = "status.json"
METRICS = "metrics"
REPORT = "report.html"
LOG = "log"
CONTROL = "control"
DELETED = "deleted"
GROUPS = "groups"
CLUSTER = "cluster"
SCHEMAS = "schemas"
SUBJECTS = "subjects"


class Top(IntEnum):
    """The `number` in an inode number of InodeKind.TOP; the kernel prescribes that of the root."""

    ROOT = ROOT
    ABOUT = 2
    STATUS = 3
    CONFIG_FILE = 4
    METRICS = 5
    LOG = 6
    CONTROL = 7
    DELETED = 8
    GROUPS = GROUPS_NUMBER
    CLUSTER = CLUSTER_NUMBER
    REPORT = 9
    SCHEMAS = SCHEMAS_NUMBER
    SUBJECTS = SUBJECTS_NUMBER


# The names in `.kafkafs`, in listing order.
_NAMES: Final = {
    STATUS: Top.STATUS,
    CONFIG_FILE: Top.CONFIG_FILE,
    METRICS: Top.METRICS,
    GROUPS: Top.GROUPS,
    CLUSTER: Top.CLUSTER,
    SCHEMAS: Top.SCHEMAS,
    SUBJECTS: Top.SUBJECTS,
    REPORT: Top.REPORT,
    LOG: Top.LOG,
    CONTROL: Top.CONTROL,
    DELETED: Top.DELETED,
}
_OF_CHANGES: Final = (CONTROL, DELETED)


class RootDirectory(SmallDirectory):
    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, ROOT, ROOT)

    def child(self, name: str) -> DirectoryNode:
        if name == ABOUT:
            return AboutDirectory(self.catalog)
        try:
            self.catalog.topic(name)
        except UnknownTopic as error:
            raise NoSuchName(name, error.__str__) from None
        return TopicDirectory(self.catalog, name)

    def make_directory(self, name: str) -> DirectoryNode:
        """Creates a topic with one partition."""
        changes = self.catalog.changes
        if changes is None:
            raise NotPermitted("nothing can be created here")
        changes.topics.make(name)
        return TopicDirectory(self.catalog, name)

    def remove_directory(self, name: str) -> None:
        """Removes a topic without records."""
        changes = self.catalog.changes
        if changes is None or name == ABOUT:
            raise NotPermitted(f"{printable(name)} cannot be removed")
        directory = self.child(name)
        if isinstance(directory, TopicDirectory):
            directory.remove_topic()

    def children(self) -> Iterable[tuple[str, DirectoryNode]]:
        yield ABOUT, AboutDirectory(self.catalog)
        for topic in self.catalog.topics():
            yield topic, TopicDirectory(self.catalog, topic)


class AboutDirectory(SmallDirectory):
    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, pack(InodeKind.TOP, 0, Top.ABOUT), ROOT)

    def child(self, name: str) -> Node:
        catalog = self.catalog
        if name == STATUS:
            return self._computed(Top.STATUS, lambda: status.mount_status(catalog))
        if name == CONFIG_FILE:
            return self._computed(
                Top.CONFIG_FILE, lambda: render.properties(status.engine_configs(catalog))
            )
        if name == METRICS:
            from ..documents.exposition import exposition

            return self._computed(Top.METRICS, lambda: exposition(catalog))
        if name == GROUPS:
            from .groups import GroupsDirectory

            inode = pack(InodeKind.TOP, 0, Top.GROUPS)
            return GroupsDirectory(catalog, inode, self.inode)
        if name == CLUSTER and METADATA_TOPIC in catalog.engine.topics():
            from .cluster import ClusterDirectory

            return ClusterDirectory(catalog, self.inode)
        if name in (SCHEMAS, SUBJECTS) and self._has_registry:
            from .schemas import SchemasDirectory, SubjectsDirectory

            if name == SCHEMAS:
                return SchemasDirectory(catalog, pack(InodeKind.TOP, 0, Top.SCHEMAS), self.inode)
            return SubjectsDirectory(catalog, pack(InodeKind.TOP, 0, Top.SUBJECTS), self.inode)
        if name == REPORT and is_available():
            from .report import ReportFile

            return ReportFile(catalog, pack(InodeKind.TOP, 0, Top.REPORT))
        if name == LOG:
            return RecentLogFile(pack(InodeKind.TOP, 0, Top.LOG), catalog.recent_log)
        if name == CONTROL and catalog.changes is not None:
            inode = pack(InodeKind.TOP, 0, Top.CONTROL)
            return ControlFile(inode, catalog.started_ns, catalog.changes.control)
        if name == DELETED and catalog.changes is not None:
            inode = pack(InodeKind.TOP, 0, Top.DELETED)
            return DeletedDirectory(catalog, catalog.changes, inode, self.inode)
        raise missing(name, ABOUT, self._names())

    @property
    def _has_registry(self) -> bool:
        engine = self.catalog.engine
        return reader_config(engine.configs).kafkafs_schemas_topic in engine.topics()

    def _computed(self, number: Top, compute: Callable[[], bytes]) -> File:
        catalog = self.catalog
        inode = pack(InodeKind.TOP, 0, number)
        return ComputedFile(catalog.contents, inode, catalog.started_ns, compute)

    def children(self) -> Iterable[tuple[str, Node]]:
        return ((name, self.child(name)) for name in self._names())

    def _names(self) -> list[str]:
        changes = self.catalog.changes
        left_out = set() if changes is not None else set(_OF_CHANGES)
        if METADATA_TOPIC not in self.catalog.engine.topics():
            left_out.add(CLUSTER)
        if not self._has_registry:
            left_out |= {SCHEMAS, SUBJECTS}
        if not is_available():
            left_out.add(REPORT)
        return [name for name in _NAMES if name not in left_out]


def top_node(catalog: Catalog, number: int) -> Node:
    """Returns the node of an inode number of InodeKind.TOP. Raises Stale if there is none."""
    if number == Top.ROOT:
        return RootDirectory(catalog)
    about = AboutDirectory(catalog)
    if number == Top.ABOUT:
        return about
    if is_deleted_number(number):
        return _deleted(about).by_number(number)
    if number > CLUSTER_NUMBER:
        return _cluster_file(about, number)
    for name, each in _NAMES.items():
        if number == each:
            try:
                return about.child(name)
            except NoSuchName:
                break
    raise Stale


def _cluster_file(about: AboutDirectory, number: int) -> File:
    from .cluster import ClusterDirectory

    try:
        directory = about.child(CLUSTER)
    except NoSuchName:
        raise Stale from None
    assert isinstance(directory, ClusterDirectory)
    return directory.by_number(number)


def _deleted(about: AboutDirectory) -> DeletedDirectory:
    try:
        directory = about.child(DELETED)
    except NoSuchName:
        raise Stale from None
    assert isinstance(directory, DeletedDirectory)
    return directory
