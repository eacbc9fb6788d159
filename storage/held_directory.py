"""Log directories that nobody else can write to, and whose they are.

Each is made where there is none, and locked. All of them belong to one node of one cluster: what
`meta.properties` says, or is made to say (MetaPropertiesEnsemble).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from .disk import Directory
from .durable import WritableDirectory
from .errors import LogDirError, SegmentGone, printable
from .format.checkpoints import MetaProperties, format_meta_properties, parse_meta_properties
from .format.names import META_PROPERTIES_FILE
from .format.uuids import random_uuid_text
from .lock import LOCK_FILE, DirectoryLock
from .log_dir import MAX_PROPERTIES_BYTES, check_is_log_dir
from .small_file import read_value

_META_VERSION = 1
_NODE_ID = 1  # of a directory that belongs to nobody; the first that people give
# What an empty directory may hold: a file system's own, and what an earlier try to open it left.
_NOTHING = ("lost+found", LOCK_FILE, f"{META_PROPERTIES_FILE}.tmp")


class HeldDirectory:
    """A log directory, or an empty one that is to be one, held until `release`."""

    def __init__(self, path: str) -> None:
        """LogDirLocked when somebody else holds it, LogDirError when it is something else."""
        self.directory = WritableDirectory(path)
        self.directory.make_itself()
        if not _is_empty(self.directory):
            check_is_log_dir(self.directory)
        self._lock = DirectoryLock(self.directory)

    def release(self) -> None:
        """Lets others have it. Harmless when repeated."""
        self._lock.release()

    def meta(self) -> MetaProperties | None:
        """Whose it is, None when it is nobody's yet. CorruptError where that cannot be read."""
        name, limit = META_PROPERTIES_FILE, MAX_PROPERTIES_BYTES
        try:
            return read_value(self.directory, name, limit, parse_meta_properties)
        except SegmentGone:
            return None

    def write_meta(self, meta: MetaProperties, now_ms: int) -> None:
        data = format_meta_properties(meta, now_ms)
        self.directory.write_atomically(META_PROPERTIES_FILE, data)


def hold(paths: str | Sequence[str], undo: ExitStack) -> list[HeldDirectory]:
    """All log directories, a list of paths or as in Kafka's `log.dirs`; each is released by
    `undo`."""
    listed = paths.split(",") if isinstance(paths, str) else paths
    held: list[HeldDirectory] = []
    for path in filter(None, map(str.strip, listed)):
        if any(_same_directory(path, other.directory) for other in held):
            raise LogDirError(path, "given twice")
        held.append(HeldDirectory(path))
        undo.callback(held[-1].release)
    if not held:
        raise LogDirError(str(paths), "no log directory given")
    return held


def identify(held: Sequence[HeldDirectory], wanted: MetaProperties | None, now_ms: int) -> None:
    """Gives those that are nobody's yet to the owner of the others, or to `wanted`, or else to a
    new cluster. LogDirError when they are not all one node's, or not `wanted`'s."""
    metas = [each.meta() for each in held]
    first = next((meta for meta in metas if meta is not None), None)
    owner = first or wanted or MetaProperties(_META_VERSION, random_uuid_text(), _NODE_ID)
    ids: set[str] = set()
    for each, meta in zip(held, metas, strict=True):
        if meta is None:
            meta = replace(owner, directory_id=random_uuid_text())
            each.write_meta(meta, now_ms)
        _refuse_stranger(each, meta, owner if wanted is None else wanted)
        if meta.directory_id in ids:
            why = f"directory.id {printable(meta.directory_id)} is that of another one, too"
            raise LogDirError(each.directory.path, why)
        ids.update(filter(None, [meta.directory_id]))


def _refuse_stranger(held: HeldDirectory, meta: MetaProperties, owner: MetaProperties) -> None:
    for what, found, expected in (
        ("cluster", meta.cluster_id, owner.cluster_id),
        ("node", meta.node_id, owner.node_id),
    ):
        if found != expected:
            why = f"of {what} {printable(str(found))}, not {printable(str(expected))}"
            raise LogDirError(held.directory.path, why)


def _same_directory(path: str, other: Directory) -> bool:
    """Whether `path` leads to the directory `other`; not, where there is nothing."""
    try:
        status, known = Directory(path).stat(), other.stat()
    except SegmentGone:
        return False
    return (status.st_dev, status.st_ino) == (known.st_dev, known.st_ino)


def _is_empty(directory: Directory) -> bool:
    return all(entry.name in _NOTHING for entry in directory.list())
