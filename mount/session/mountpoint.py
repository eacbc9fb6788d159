"""Checks mount points and unmounts what is mounted there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Sequence
from typing import Final

from kafkafs.storage import DirFd, StorageError, is_url, printable, who_holds

from .mount_table import Mounted, log_dirs_of, mounted_at

# How long a daemon may take to close its log directories after it was unmounted.
_ENDING_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02


class MountError(Exception):
    """A mount cannot be made or ended; `str()` is one line with the reason and the remedy."""


def check(log_dirs: Sequence[str], mountpoint: str) -> None:
    """Raises MountError if `log_dirs` cannot be mounted on `mountpoint`, even after `clear`."""
    shown = printable(mountpoint)
    mounted = mounted_at(mountpoint)
    if mounted is not None and mounted.is_kafkafs:
        what = f"{printable(mounted.source)} is mounted there"
        if mounted.is_dead():
            if mounted.is_ours:
                return  # what it covers is unknown until `clear` has removed it
            what = "left behind by a daemon that died"
        raise MountError(f"{shown}: {what}; `kafkafs umount {shown}` ends that")
    try:
        mode = os.stat(mountpoint).st_mode
    except FileNotFoundError:
        raise MountError(f"{shown}: no such directory; create it first") from None
    except OSError as error:
        raise MountError(f"{shown}: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise MountError(f"{shown}: not a directory")
    for log_dir in log_dirs:
        if not is_url(log_dir) and _is_inside(mountpoint, log_dir):
            where = printable(log_dir)
            raise MountError(f"{shown}: inside the log directory {where}; mount somewhere else")


def clear(mountpoint: str) -> bool:
    """Unmounts what a dead daemon of this user left at `mountpoint`; returns whether there was
    such a mount. Raises MountError on failure."""
    mounted = mounted_at(mountpoint)
    if mounted is None or not mounted.is_ours or not mounted.is_dead():
        return False
    # Lazily, because processes may still use it.
    _end(mounted, "-z", "-l")
    return True


def _is_inside(path: str, directory: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath([inner, outer]) == outer


def unmount(mountpoint: str) -> None:
    """Ends the mount at `mountpoint`, also one whose daemon died, and waits until the daemon of
    a writable one has released the log directories. Raises MountError if there is no mount, if it
    is in use, or if that takes too long."""
    shown = printable(mountpoint)
    mounted = mounted_at(mountpoint)
    if mounted is None or not mounted.is_kafkafs:
        raise MountError(f"{shown}: no kafkafs is mounted there")
    holders = _holders(mounted)
    _end(mounted)
    deadline = time.monotonic() + _ENDING_SECONDS
    for path, pid in holders:
        while _holder(path) == pid:
            if time.monotonic() > deadline:
                raise MountError(
                    f"{shown}: unmounted, but process {pid} is still writing to {printable(path)}"
                    " and holds its lock until it exits"
                )
            time.sleep(_LOOK_SECONDS)


def _holders(mounted: Mounted) -> list[tuple[str, int]]:
    """Returns the log directories that a mount of ours holds, with the pids of the holders."""
    status = mounted.status() if mounted.is_ours else None
    found = [(path, _holder(path)) for path in log_dirs_of(status or {})]
    return [(path, pid) for path, pid in found if pid]


def _holder(path: str) -> int:
    """Returns what `who_holds` returns; 0 also for a directory that cannot be examined."""
    try:
        return who_holds(DirFd(path))
    except (StorageError, OSError):
        return 0


def _end(mounted: Mounted, *lazily: str) -> None:
    """Unmounts. `lazily`: the options of fusermount3 and of umount for a lazy unmount."""
    program = shutil.which("fusermount3")
    command = [program, "-u", *lazily[:1]] if program else ["umount", *lazily[1:]]
    done = subprocess.run([*command, "--", mounted.point], capture_output=True, check=False)
    if done.returncode != 0:
        why = printable(" ".join(done.stderr.decode("utf-8", "replace").split()))
        raise MountError(f"{printable(mounted.point)}: {why or f'{command[0]} failed'}")
