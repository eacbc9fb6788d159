"""Opens a repository where it is: in a local directory, at a URL, or, to be read, in an archive."""

from __future__ import annotations

from ..io.local_path import is_url
from ..io.opening import check_is_local, open_directory
from ..io.remote.settings import DEFAULTS, RemoteSettings
from .layout import is_repository
from .repository import Repository
from .writable_repository import WritableRepository


def open_repository(path: str, settings: RemoteSettings = DEFAULTS) -> Repository:
    """Opens a repository for reading. Raises LogDirError if there is none, CorruptError if its
    format is unknown."""
    return Repository(path, open_directory(path, settings))


def has_repository(path: str, settings: RemoteSettings = DEFAULTS) -> bool:
    """Returns whether there is a repository at a path. Raises OSError if that cannot be told."""
    return is_repository(open_directory(path, settings))


def writable_repository(path: str, settings: RemoteSettings = DEFAULTS) -> WritableRepository:
    """Opens a repository for this process alone; creates it if the directory is missing or empty.
    Raises LogDirError if it is another directory, cannot be written to, or if another process is
    writing to it."""
    if is_url(path):
        from .remote_repository import RemoteRepository

        return RemoteRepository(path, settings)
    from .local_repository import LocalRepository

    check_is_local(path)
    return LocalRepository(path)
