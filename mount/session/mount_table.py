"""Reads the kernel's table of mounts and the status of kafkafs mounts in it."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

FILE_SYSTEM_TYPE: Final = "fuse.kafkafs"
_MOUNT_TABLE: Final = "/proc/self/mountinfo"
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_USER: Final = re.compile(rb"(?:^|,)user_id=(\d+)(?:,|$)")
_STATUS: Final = ".kafkafs/status.json"
_MAX_STATUS_BYTES: Final = 64 << 20
_MAX_COMMAND_BYTES: Final = 64 << 10
# How long a mount may take to answer.
_PATIENCE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Mounted:
    """A line of the table. `user_id`: the user who made a FUSE mount, -1 for other mounts."""

    point: str
    kind: str
    source: str
    user_id: int = -1

    @property
    def is_kafkafs(self) -> bool:
        return self.kind == FILE_SYSTEM_TYPE

    @property
    def is_ours(self) -> bool:
        """Whether it is a kafkafs mount of this user. Those of others are not trusted."""
        return self.is_kafkafs and self.user_id == os.geteuid()

    def is_dead(self) -> bool:
        """Returns whether its daemon has died. The kernel does not cache `statvfs`."""

        def dead() -> bool:
            try:
                os.statvfs(self.point)
            except OSError as error:
                return error.errno == errno.ENOTCONN
            return False

        return bool(_within(_PATIENCE_SECONDS, dead))

    def status(self) -> dict[str, Any] | None:
        """Returns its `status.json`; None if it does not answer, or with something else."""
        found = _within(_PATIENCE_SECONDS, lambda: _status(self.point))
        return found if isinstance(found, dict) else None


def mounts() -> list[Mounted]:
    """Returns the visible mounts: where several are stacked, the last. None on other systems than
    Linux."""
    if sys.platform != "linux":
        return []  # FUSE mounts are made only there
    found: dict[str, Mounted] = {}
    with open(_MOUNT_TABLE, "rb") as lines:
        for line in lines:
            fields = line.rstrip(b"\n").split(b" ")
            kind, source, options = fields[fields.index(b"-") + 1 :][:3]
            user = _USER.search(options)
            point = _text(fields[4])
            found[point] = Mounted(point, _text(kind), _text(source), int(user[1]) if user else -1)
    return list(found.values())


def mounted_at(point: str) -> Mounted | None:
    """Returns the mount at `point`. Accesses nothing below `point`, since that may hang or fail if
    its daemon does."""
    above, name = os.path.split(os.path.abspath(point))
    real = os.path.join(os.path.realpath(above), name)
    return next((mounted for mounted in mounts() if mounted.point == real), None)


def is_ending(pid: int) -> bool:
    """Returns whether a process is a mount's daemon that has no mount (any more, or yet). Judged by
    this user's mounts."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(_MAX_COMMAND_BYTES)
    except OSError:
        return False
    if b"kafkafs" not in command or b"mount" not in command:
        return False
    alive = (mounted for mounted in mounts() if mounted.is_ours and not mounted.is_dead())
    found = (mounted.status() for mounted in alive)
    return all(status is not None and status.get("pid") != pid for status in found)


def log_dirs_of(status: dict[str, Any]) -> list[str]:
    """Returns the log directories that a writable mount holds, from its status; [] for others."""
    dirs = status.get("logDirs")
    if status.get("writable") is not True or not isinstance(dirs, list):
        return []
    paths = [each.get("path") for each in dirs if isinstance(each, dict)]
    return [path for path in paths if isinstance(path, str)]


def _status(point: str) -> object:
    try:
        with open(os.path.join(point, _STATUS), "rb") as file:
            return json.loads(file.read(_MAX_STATUS_BYTES))
    except (OSError, ValueError):
        return None


def _within(seconds: float, ask: Callable[[], T]) -> T | None:
    """Returns the result of `ask`, None if that takes longer. If `ask` blocks for ever, as on a
    daemon that was stopped, its thread is abandoned and ends with this process."""
    answers: list[T] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


def _text(field: bytes) -> str:
    """Decodes a field: the kernel writes blanks, line breaks and backslashes as octal numbers."""
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), field))
