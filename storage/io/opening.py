"""Opens a directory where it is: on this machine, in an archive, or on a server."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ..errors import LogDirError
from .directory import Directory
from .disk import DirFd
from .local_path import absolute_path, is_url, location, split_archive
from .remote.settings import DEFAULTS, RemoteSettings

if TYPE_CHECKING:
    from .remote.archives.archive import ArchiveFile
    from .remote.source import SnapshotNode, Source

# Sources kept for the next who opens them, as Spark's tasks do, so that each is listed once.
_KEPT: Final = 8


def open_directory(path: str, settings: RemoteSettings = DEFAULTS) -> Directory:
    """Returns the directory at a local path or URL, which may lead into an archive: a tar or zip is
    a directory, and `x.tar.gz/inner` one in it. While an archive's only entry is a directory that
    holds directories, that one is meant, and `inner` may be in it.

    A local directory is not checked for existence until its first use. Raises LogDirError for what
    is not an archive, or a URL that cannot be opened; OSError.
    """
    found = split_archive(path)
    if is_url(path):
        return _remote(location(path), settings)
    if found is not None and os.path.isfile(found[0]):
        from .remote.archives.archive import LocalArchiveFile

        return _in_archive(LocalArchiveFile(found[0]), found[1], settings)
    return DirFd(path)


def is_local(path: str) -> bool:
    """Returns whether a path is neither a URL nor leads into an archive, so that it can be written
    to."""
    if is_url(path):
        return False
    found = split_archive(path)
    return found is None or not os.path.isfile(found[0])


def is_directory(path: str) -> bool:
    """Returns whether a path could be that of a directory: it is a local one, or not local."""
    return not is_local(path) or os.path.isdir(path)


def check_is_local(path: str) -> None:
    """Raises LogDirError unless `is_local`."""
    if not is_local(path):
        what = "a URL" if is_url(path) else "an archive"
        raise LogDirError(path, f"is read-only: {what}; this command changes local directories")


def _remote(path: str, settings: RemoteSettings) -> Directory:
    from .remote.directory import RemoteDirectory
    from .remote.store import ObjectStore

    found = split_archive(path)
    if found is not None:
        store = ObjectStore(found[0], settings)
        node = store.object_here()
        if node is not None:
            from .remote.archives.archive import ObjectArchiveFile

            return _in_archive(ObjectArchiveFile(found[0], node, store), found[1], settings)
    return RemoteDirectory(_kept((path, settings), lambda: ObjectStore(path, settings)))


def _in_archive(file: ArchiveFile, inner: str, settings: RemoteSettings) -> Directory:
    from .remote.archives.archive import Archive
    from .remote.directory import RemoteDirectory

    key = (absolute_path(file.path), file.version, settings)
    archive = _kept(key, lambda: Archive(file, settings))
    root, parts = archive.snapshot().root, [part for part in inner.split("/") if part]
    if not parts or root.get(parts) is None:
        parts = [*_only_directory(root), *parts]
    return RemoteDirectory(archive, parts)


def _only_directory(node: SnapshotNode) -> Iterator[str]:
    """Yields the names that lead from an archive's root to the directory that it is of."""
    while node.children is not None and len(node.children) == 1:
        [(name, child)] = node.children.items()
        if not any(each.children is not None for each in (child.children or {}).values()):
            return
        yield name
        node = child


_sources: OrderedDict[object, Source] = OrderedDict()
_guard = threading.Lock()  # guards _sources


def _kept(key: object, make: Callable[[], Source]) -> Source:
    """Returns the source of a key, made if it is not among those used last."""
    with _guard:
        found = _sources.pop(key, None)
    found = make() if found is None else found
    with _guard:
        _sources[key] = found
        while len(_sources) > _KEPT:
            _sources.popitem(last=False)
    return found


def forget(location: str) -> None:
    """Makes this process list a URL, and what is below it, again when it is opened next."""
    with _guard:
        for key, source in list(_sources.items()):
            if f"{source.location}/".startswith(f"{location}/"):
                del _sources[key]
