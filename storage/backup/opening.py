"""Opens a path given as a log directory: one as it is there, or one of a backup's point in time.

The path of a backup stands for its newest point, or the newest one at or before a time. The path of
a manifest stands for that point, and with a number after it, as in `…Z.json/1`, for one of its log
directories, from 0 on: so another process opens the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..errors import LogDirError
from ..io.directory import Directory
from ..io.opening import open_directory
from ..io.remote.settings import DEFAULTS, RemoteSettings
from .layout import POINTS, is_repository, parse_point_name

if TYPE_CHECKING:  # what only a backup needs is imported when there is one
    from .manifest import Point
    from .repository import Repository

_MANIFEST: Final = re.compile(
    rf"(?P<path>(?:.*/)?){POINTS}/(?P<name>[0-9T.]+Z\.json)(?:/(?P<number>0|[1-9][0-9]{{0,3}}))?/*",
    re.DOTALL,
)
# A point of several log directories is parsed once for all of them.
_POINTS_KEPT: Final = 2


def expand(path: str, at_ms: int | None, settings: RemoteSettings = DEFAULTS) -> Sequence[str]:
    """Returns the paths of the log directories that a path stands for: itself, unless it is that of
    a backup or of a manifest. Raises LogDirError, or CorruptError for a damaged backup."""
    found = _parse(path, settings)
    if found is None:
        if not is_repository(open_directory(path, settings)):
            return [path]
        from .open_repository import open_repository

        repository = open_repository(path, settings)
        time_ms = repository.time_at(at_ms)
        manifest = repository.manifest_path(time_ms)
        count = len(repository.point(time_ms).log_dirs)
    else:
        repository_path, time_ms, number = found
        if number is not None:
            return [path]
        manifest = path.rstrip("/")
        count = len(_point(repository_path, time_ms, settings)[1].log_dirs)
    if count == 0:
        raise LogDirError(manifest, "this point in time has no log directory")
    return [f"{manifest}/{number}" for number in range(count)]


def open_log_dir(path: str, settings: RemoteSettings = DEFAULTS) -> Directory:
    """Returns the directory of a path that `expand` returned; `settings` are for a URL or an
    archive. Raises LogDirError, or CorruptError for a damaged backup."""
    found = _parse(path, settings)
    if found is None:
        return open_directory(path, settings)
    from .stored_files import PointDirectory, PointFiles

    repository_path, time_ms, number = found
    repository, point = _point(repository_path, time_ms, settings)
    return PointDirectory(path, PointFiles(repository, point, number or 0))


def _parse(path: str, settings: RemoteSettings) -> tuple[str, int, int | None] | None:
    """Returns the repository, the time and the number of the log directory (None if not given) of
    the path of a manifest; None for any other path."""
    match = _MANIFEST.fullmatch(path)
    if match is None:
        return None
    time_ms, above = parse_point_name(match["name"]), match["path"]
    repository = "." if above is None else above.rstrip("/") or "/"
    if time_ms is None or not is_repository(open_directory(repository, settings)):
        return None
    number = match["number"]
    return repository, time_ms, None if number is None else int(number)


@lru_cache(maxsize=_POINTS_KEPT)
def _point(path: str, time_ms: int, settings: RemoteSettings) -> tuple[Repository, Point]:
    from .open_repository import open_repository

    repository = open_repository(path, settings)
    return repository, repository.point(time_ms)
