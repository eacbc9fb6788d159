"""Places to mount on: what is wrong with one, what is mounted there, and ending that."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafkafs.storage.errors import printable

FILE_SYSTEM_TYPE: Final = "fuse.kafkafs"
_MOUNT_TABLE: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class MountError(Exception):
    """A mount that cannot be made or ended; `str()` is one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A line of the kernel's table of mounts."""

    point: str
    kind: str
    source: str


def mounted_at(point: str) -> Mounted | None:
    """What is mounted at `point`, the last one where there are several. Nothing below `point` is
    touched, as that may hang or fail with a daemon that does."""
    above, name = os.path.split(os.path.abspath(point))
    real = os.path.join(os.path.realpath(above), name)
    found = None
    with open(_MOUNT_TABLE, "rb") as lines:
        for line in lines:
            fields = line.split(b" ")
            if _text(fields[4]) == real:
                kind, source = fields[fields.index(b"-") + 1 :][:2]
                found = Mounted(real, _text(kind), _text(source))
    return found


def _text(field: bytes) -> str:
    """The kernel writes blanks, line breaks and backslashes as octal numbers."""
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), field))


def check(log_dirs: Sequence[str], mountpoint: str) -> None:
    """MountError when `mountpoint` is no place to mount `log_dirs` on."""
    shown = printable(mountpoint)
    mounted = mounted_at(mountpoint)
    if mounted is not None and mounted.kind == FILE_SYSTEM_TYPE:
        what = f"{printable(mounted.source)} is mounted there"
        if _is_dead(mountpoint):
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


def _is_dead(mountpoint: str) -> bool:
    """Whether nobody answers for a mount. Of `statvfs` the kernel remembers nothing."""
    try:
        os.statvfs(mountpoint)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def _is_inside(path: str, directory: str) -> bool:
    inner, outer = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath([inner, outer]) == outer


def unmount(mountpoint: str) -> None:
    """End the mount at `mountpoint`, also one whose daemon died. MountError when there is none, or
    when it is in use."""
    shown = printable(mountpoint)
    mounted = mounted_at(mountpoint)
    if mounted is None or mounted.kind != FILE_SYSTEM_TYPE:
        raise MountError(f"{shown}: no kafkafs is mounted there")
    program = shutil.which("fusermount3")
    command = [program, "-u"] if program else ["umount"]
    done = subprocess.run([*command, "--", mounted.point], capture_output=True, check=False)
    if done.returncode != 0:
        why = printable(" ".join(done.stderr.decode("utf-8", "replace").split()))
        raise MountError(f"{shown}: {why or f'{command[0]} failed'}")
