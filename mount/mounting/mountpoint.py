"""Places to mount on: what is wrong with one, and ending what is mounted there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Sequence
from typing import Final

from kafkafs.storage.disk import Directory
from kafkafs.storage.errors import StorageError, printable
from kafkafs.storage.lock import who_holds

from .mount_table import Mounted, log_dirs_of, mounted_at

# How long a daemon that was unmounted may take to write what it has to.
_ENDING_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.02


class MountError(Exception):
    """A mount that cannot be made or ended; `str()` is one line that says why and what to do."""


def check(log_dirs: Sequence[str], mountpoint: str) -> None:
    """MountError when `mountpoint` is no place to mount `log_dirs` on, also not after `clear`."""
    shown = printable(mountpoint)
    mounted = mounted_at(mountpoint)
    if mounted is not None and mounted.is_kafkafs:
        what = f"{printable(mounted.source)} is mounted there"
        if mounted.is_dead():
            if mounted.is_ours:
                return  # of what lies below nothing can be known yet
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
        if _is_inside(mountpoint, log_dir):
            where = printable(log_dir)
            raise MountError(f"{shown}: inside the log directory {where}; mount somewhere else")


def clear(mountpoint: str) -> bool:
    """Takes away what a daemon of this user's that died left behind at `mountpoint`; whether there
    was such a thing. MountError when that cannot be done."""
    mounted = mounted_at(mountpoint)
    if mounted is None or not mounted.is_ours or not mounted.is_dead():
        return False
    # Lazily: whoever is still in there keeps only himself.
    _end(mounted, "-z", "-l")
    return True


def _is_inside(path: str, directory: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath([inner, outer]) == outer


def unmount(mountpoint: str) -> None:
    """End the mount at `mountpoint`, also one whose daemon died, and wait until a writable one's
    daemon has let go of the log directories. MountError when there is none, when it is in use, or
    when that takes too long."""
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
                    f"{shown}: unmounted, but process {pid} is still writing to {printable(path)},"
                    " and holds it until it ends"
                )
            time.sleep(_LOOK_SECONDS)


def _holders(mounted: Mounted) -> list[tuple[str, int]]:
    """The log directories that a mount of ours holds, each with the process that does."""
    status = mounted.status() if mounted.is_ours else None
    found = [(path, _holder(path)) for path in log_dirs_of(status or {})]
    return [(path, pid) for path, pid in found if pid]


def _holder(path: str) -> int:
    """As `who_holds`; 0 for a directory that cannot be looked at, too."""
    try:
        return who_holds(Directory(path))
    except (StorageError, OSError):
        return 0


def _end(mounted: Mounted, *lazily: str) -> None:
    """`lazily`: fusermount3's option for it, and umount's."""
    program = shutil.which("fusermount3")
    command = [program, "-u", *lazily[:1]] if program else ["umount", *lazily[1:]]
    done = subprocess.run([*command, "--", mounted.point], capture_output=True, check=False)
    if done.returncode != 0:
        why = printable(" ".join(done.stderr.decode("utf-8", "replace").split()))
        raise MountError(f"{printable(mounted.point)}: {why or f'{command[0]} failed'}")
