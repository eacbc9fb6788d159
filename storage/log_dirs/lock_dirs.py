"""Log directories locked for writing, and the cluster and node they belong to.

A missing directory is created; each is locked. All of them must belong to one node of one cluster,
which `meta.properties` records, or is written to record (MetaPropertiesEnsemble).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..errors import LogDirError, SegmentGone
from ..format.files.checkpoints import MetaProperties, format_meta_properties, parse_meta_properties
from ..format.files.names import META_PROPERTIES_FILE
from ..format.primitives import random_uuid_text
from ..io.directory import Directory
from ..io.disk import DirFd
from ..io.durable import WritableDirFd
from ..io.lock import LOCK_FILE, DirectoryLock
from ..io.opening import check_is_local
from ..io.small_file import read_value
from ..wording import printable
from .log_dir import MAX_PROPERTIES_BYTES, check_is_log_dir, owner_differences

_META_VERSION = 1
_NODE_ID = 1  # of a new directory; the id that people usually assign first
# What may be in a directory that counts as empty: a file system's own entry, and remains of an
# earlier attempt to open it.
_NOTHING = ("lost+found", LOCK_FILE, f"{META_PROPERTIES_FILE}.tmp")


class LockedLogDir:
    """A log directory, or an empty one that will become one, held until `release`."""

    def __init__(self, path: str) -> None:
        """Raises LogDirLocked if another process holds it, LogDirError if it is not a log
        directory."""
        check_is_local(path)
        self.directory = WritableDirFd(path)
        self.directory.make_itself()
        if not _is_empty(self.directory):
            check_is_log_dir(self.directory)
        self._lock = DirectoryLock(self.directory)

    def release(self) -> None:
        """Releases the lock. Idempotent."""
        self._lock.release()

    def meta(self) -> MetaProperties | None:
        """Returns the owner, None if it has none yet. Raises CorruptError if it cannot be read."""
        return _meta(self.directory)

    def write_meta(self, meta: MetaProperties, now_ms: int) -> None:
        data = format_meta_properties(meta, now_ms)
        self.directory.write_atomically(META_PROPERTIES_FILE, data)


def refuse_paths(paths: str | Sequence[str], required: MetaProperties | None) -> list[str]:
    """Raises what `hold` and `identify` would, as far as reading alone can tell, so that wrong
    arguments do not change any directory. Returns the paths of those that already are log
    directories."""
    there: list[Directory] = []
    known: dict[Hashable, str] = {}
    for path in _listed(paths):
        check_is_local(path)
        directory = DirFd(path)
        identity = _identity(directory)
        known_by = path.rstrip("/") if identity is None else identity
        _refuse_twice(path, known_by, known)
        known[known_by] = path
        if identity is not None:
            there.append(directory)
    old = [each for each in there if not _is_empty(each)]
    for each in old:
        check_is_log_dir(each)
    _owner([(each.path, _meta(each)) for each in there], required)
    return [each.path for each in old]


def hold(paths: str | Sequence[str], undo: ExitStack) -> list[LockedLogDir]:
    """Locks all log directories, given as a list of paths or as in Kafka's `log.dirs`; `undo`
    releases each of them."""
    held: list[LockedLogDir] = []
    known: dict[Hashable, str] = {}
    for path in _listed(paths):
        _refuse_twice(path, _identity(DirFd(path)), known)
        held.append(LockedLogDir(path))
        undo.callback(held[-1].release)
        known[_identity(held[-1].directory)] = path
    return held


def identify(held: Sequence[LockedLogDir], required: MetaProperties | None, now_ms: int) -> None:
    """Assigns directories without an owner to the owner of the others, else to `required`, else to
    a new cluster. Raises LogDirError if they do not all belong to one node, or not to
    `required`."""
    metas = [each.meta() for each in held]
    paths = [each.directory.path for each in held]
    owner = _owner(zip(paths, metas, strict=True), required)
    for each, meta in zip(held, metas, strict=True):
        if meta is None:
            each.write_meta(replace(owner, directory_id=random_uuid_text()), now_ms)


def _listed(paths: str | Sequence[str]) -> list[str]:
    listed = paths.split(",") if isinstance(paths, str) else paths
    found = [path for path in map(str.strip, listed) if path]
    if not found:
        raise LogDirError(str(paths), "no log directory given")
    return found


def _meta(directory: Directory) -> MetaProperties | None:
    """Returns the owner, None if it has none yet. Raises CorruptError if it cannot be read."""
    try:
        return read_value(
            directory, META_PROPERTIES_FILE, MAX_PROPERTIES_BYTES, parse_meta_properties
        )
    except SegmentGone:
        return None


def _owner(
    found: Iterable[tuple[str, MetaProperties | None]], required: MetaProperties | None
) -> MetaProperties:
    """Returns the owner of directories, given by path and `meta.properties` (None if missing).
    Raises LogDirError if they do not all belong to one node, or not to `required`."""
    known = [(path, meta) for path, meta in found if meta is not None]
    new = MetaProperties(_META_VERSION, random_uuid_text(), _NODE_ID, is_own=True)
    owner = known[0][1] if known else required or new
    ids: dict[str, str] = {}
    for path, meta in known:
        for what, its, expected in owner_differences(meta, required or owner):
            why = f"belongs to {what} {printable(its)}, not {printable(expected)}"
            as_first = "" if required else f" as {printable(known[0][0])}"
            raise LogDirError(path, why + as_first)
        first = ids.setdefault(meta.directory_id, path)
        if meta.directory_id and first is not path:
            raise LogDirError(path, f"has the directory.id of {printable(first)}: one is a copy")
    return owner


def _identity(directory: Directory) -> Hashable:
    """Returns device and inode, None if the path does not exist."""
    try:
        status = directory.stat()
    except SegmentGone:
        return None
    return status.st_dev, status.st_ino


def _refuse_twice(path: str, identity: Hashable, known: Mapping[Hashable, str]) -> None:
    """Raises LogDirError for a directory whose identity is already `known`, by another path."""
    if identity in known:
        raise LogDirError(path, f"the same directory as {printable(known[identity])}; give it once")


def _is_empty(directory: Directory) -> bool:
    return all(entry.name in _NOTHING for entry in directory.list())
