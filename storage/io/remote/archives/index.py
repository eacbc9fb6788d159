"""Where the indexes of archives are kept, so that a large archive is read through only once.

They lie in the cache that the configs of the run name, or else in the user's (XDG_CACHE_HOME,
~/.cache). An index is made under a name of its own and gets its place when it is complete, so that
neither a killed process nor two at once leave half of one. What is there is believed, as the
directory is the user's alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ..settings import RemoteSettings

#: In place of a path, for an index that is not kept.
NOWHERE: Final = ":memory:"
_SUFFIX: Final = ".index.sqlite"
# The bytes of all indexes; the one that was used last stays in any case.
_MOST_BYTES: Final = 1 << 30


def index_path(number: int, settings: RemoteSettings) -> str:
    """Returns where the index of the archive with this number is kept, NOWHERE if there is no
    directory for it."""
    above = settings.cache_dir or _users_cache()
    if not above:
        return NOWHERE
    directory = os.path.join(above, "archives")
    if settings.cache_dir:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    elif not _is_private(directory):
        return NOWHERE
    return os.path.join(directory, f"{number:016x}{_SUFFIX}")


@contextmanager
def making(path: str) -> Iterator[str]:
    """Yields the path of a new index, which gets its place after the block."""
    temporary = f"{path}.{os.urandom(8).hex()}.tmp"
    try:
        yield temporary
        with suppress(FileNotFoundError):  # some archives need no index
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.remove(temporary)
        raise
    _remove_oldest(os.path.dirname(path))


def note_use(path: str) -> None:
    """Makes the index the last one that was used."""
    with suppress(OSError):
        os.utime(path)


def _users_cache() -> str:
    """Returns the user's cache directory for kafkafs, "" if that is unknown."""
    above = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(above, "kafkafs") if os.path.isabs(above) else ""


def _is_private(directory: str) -> bool:
    """Makes the directory, if possible; returns whether only this user can write to it."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.stat(directory)
    except OSError:
        return False
    if not hasattr(os, "geteuid"):  # Windows, where a user's directories are private
        return os.access(directory, os.W_OK)
    is_own = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o022
    return is_own and os.access(directory, os.W_OK)


def _remove_oldest(directory: str) -> None:
    """Removes the indexes, also unfinished ones, that exceed what all may have together."""
    with suppress(OSError), os.scandir(directory) as scan:
        found = [(entry.stat(), entry.path) for entry in scan if _SUFFIX in entry.name]
        found.sort(key=lambda each: each[0].st_mtime_ns, reverse=True)
        total = found[0][0].st_size if found else 0
        for status, path in found[1:]:
            total += status.st_size
            if total > _MOST_BYTES:
                os.remove(path)
