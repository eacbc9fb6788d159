"""Opens and examines names in an open directory, without following links: POSIX's openat().

Linux and macOS have these calls. Windows has none of them: there, an open directory is represented
by its path, and each name is examined before it is opened. So an attacker who can replace a file by
a link between these two steps can lead a reader elsewhere; on the other systems this is impossible.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

#: A descriptor; where there is no openat(), a path.
OpenedDirectory = int | str

HAS_OPENAT: Final = os.open in os.supports_dir_fd

# Each system lacks some of these flags. O_NOINHERIT and O_BINARY are Windows' own: without the
# latter, its C library would convert line ends.
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOINHERIT", 0)
    | getattr(os, "O_BINARY", 0)
)
_NO_FOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_NO_ATIME: Final[int] = getattr(os, "O_NOATIME", 0)
_FILE: Final = _READ | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)
_GIVEN: Final = _FILE & ~_NO_FOLLOW
_DIRECTORY: Final = _READ | getattr(os, "O_DIRECTORY", 0)


if HAS_OPENAT:

    def open_root(path: str) -> OpenedDirectory:
        """Opens a directory by its path, which may be a link. Raises OSError, as do all functions
        here: ENOTDIR or ELOOP if the name belongs to something else."""
        return _open(path, _DIRECTORY, None)

    def open_directory(name: str, parent: OpenedDirectory) -> OpenedDirectory:
        """Opens the directory `name` in `parent`."""
        return _open(name, _DIRECTORY | _NO_FOLLOW, parent)

    def open_file(name: str, directory: OpenedDirectory) -> int:
        """Returns a descriptor for reading the file `name`. What it is must be checked by fstat;
        opening it does not block."""
        return _open(name, _FILE, directory)

    def lstat(name: str, directory: OpenedDirectory) -> os.stat_result:
        """Returns the status of `name` in `directory`."""
        assert isinstance(directory, int)
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def status_of(directory: OpenedDirectory) -> os.stat_result:
        """Returns the status of an open directory, whatever has its name now."""
        return os.stat(directory)

    def close(directory: OpenedDirectory) -> None:
        """Closes a directory."""
        assert isinstance(directory, int)
        os.close(directory)

else:

    def open_root(path: str) -> OpenedDirectory:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return path

    def open_directory(name: str, parent: OpenedDirectory) -> OpenedDirectory:
        status = lstat(name, parent)
        if is_link(status) or not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
        return _joined(parent, name)

    def open_file(name: str, directory: OpenedDirectory) -> int:
        if not stat.S_ISREG(lstat(name, directory).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return os.open(_joined(directory, name), _FILE)

    def lstat(name: str, directory: OpenedDirectory) -> os.stat_result:
        return os.lstat(_joined(directory, name))

    def status_of(directory: OpenedDirectory) -> os.stat_result:
        return os.stat(directory)

    def close(directory: OpenedDirectory) -> None:
        pass


def is_link(status: os.stat_result) -> bool:
    """Returns whether an `lstat` is that of a symbolic link, or of a junction, which is Windows'
    link to a directory."""
    tag = getattr(status, "st_reparse_tag", None)
    is_junction = tag is not None and tag == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return is_junction or stat.S_ISLNK(status.st_mode)


def is_name(text: str) -> bool:
    """Returns whether `text` is a single name in a directory, as far as its characters tell."""
    if text in ("", ".", "..") or "/" in text or "\0" in text:
        return False
    return HAS_OPENAT or not ("\\" in text or ":" in text)  # separators, too, on Windows


def _open(name: str, flags: int, directory: OpenedDirectory | None) -> int:
    """Calls `os.open` without touching the access time, where that is possible and allowed."""
    assert not isinstance(directory, str)
    try:
        return os.open(name, flags | _NO_ATIME, dir_fd=directory)
    except PermissionError as error:
        if error.errno != errno.EPERM:  # only EPERM means "not the owner"; EACCES would recur
            raise
        return os.open(name, flags, dir_fd=directory)


def _joined(directory: OpenedDirectory, name: str) -> str:
    assert isinstance(directory, str)
    return os.path.join(directory, name)


def open_given(path: str) -> int:
    """Opens a file that the user named, which may be a link. Returns its descriptor."""
    return os.open(path, _GIVEN)
