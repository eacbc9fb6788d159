"""Finds out why FUSE cannot mount on this machine, and what to do about it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

_DEVICE: Final = "/dev/fuse"
_STATUS: Final = "/proc/self/status"
_CAP_SYS_ADMIN: Final = 1 << 21
_CONTAINER: Final = (
    "in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN"
    " --security-opt apparmor:unconfined"
)


def fuse_obstacle() -> str:
    """Returns one line about what is missing and what to do; "" if nothing is missing."""
    if not os.path.exists(_DEVICE):
        return f"{_DEVICE} is missing: load the kernel's module with `modprobe fuse`; {_CONTAINER}"
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        why = f"{_DEVICE} cannot be opened: {error.strerror}"
        return f"{why}; give this user read and write access; {_CONTAINER}"
    if os.geteuid() == 0:
        if not _may_mount():
            return f"root may not mount here: CAP_SYS_ADMIN is missing; {_CONTAINER}"
    elif shutil.which("fusermount3") is None:
        return "the program fusermount3 is missing; install the package fuse3"
    return ""


def _may_mount() -> bool:
    """Returns whether this process has CAP_SYS_ADMIN."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path(_STATUS).read_text(), re.MULTILINE)
    return found is None or bool(int(found[1], 16) & _CAP_SYS_ADMIN)
