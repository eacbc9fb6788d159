"""Keeps the output of operations out of log directories."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ..errors import CorruptError, LogDirError, SegmentGone
from ..format.files.names import META_PROPERTIES_FILE
from ..io.directory import Directory
from ..io.disk import DirFd
from ..io.local_path import is_url
from ..wording import printable


def refuse_in_log_dir(path: str, sources: Sequence[Directory]) -> None:
    """Raises LogDirError if a directory, at an absolute path or a URL, is or would be in a log
    directory, of `sources` or any other: a broker does not open one that contains directories of
    other kinds. A URL is only compared with those of `sources`."""
    if is_url(path):
        for each in sources:
            if f"{path}/".startswith(f"{each.path.rstrip('/')}/"):
                raise LogDirError(path, f"would be in the log directory {printable(each.path)}")
        return
    known = [_identity(each) for each in sources]
    above = posixpath.realpath(path)
    while True:
        if _identity(DirFd(above)) in known or _has(DirFd(above), META_PROPERTIES_FILE):
            why = f"would be in the log directory {printable(above)}"
            raise LogDirError(path, f"{why}, which no broker opens then")
        below, above = above, posixpath.dirname(above)
        if above == below:
            return


def _identity(directory: Directory) -> tuple[int, int] | None:
    try:
        status = directory.stat()
    except (SegmentGone, LogDirError):
        return None
    return status.st_dev, status.st_ino


def _has(directory: Directory, name: str) -> bool:
    try:
        directory.stat(name)
    except (SegmentGone, LogDirError, CorruptError):
        return False
    return True
