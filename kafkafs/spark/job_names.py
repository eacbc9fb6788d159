"""Names of staged jobs, which tell whether the one whose job it was is still alive.

    4f0c…@host@boot@4242@98765

A random part, the machine, its boot, and the process with the time of its start: the driver's JVM,
which lives as long as the job can. What a dead one has left is removed by the next write; of
another machine's process nobody can tell, so its jobs are left alone for a day after their last
change.
"""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from pathlib import Path

_FOREIGN_MS = 86_400_000
_NAME = re.compile(r"[0-9a-f]{32}@([^@]+)@([0-9a-f-]+)@([0-9]+)@([0-9]+)")


def new_job() -> str:
    """A name for a job of the driver that this process works for."""
    pid = _driver()
    return f"{uuid.uuid4().hex}@{_machine()}@{_boot()}@{pid}@{_started(pid)}"


def is_stale(job: str, changed_ms: int) -> bool:
    """Whether nobody goes on with a job, in which something was changed last at `changed_ms`. What
    has another name is not ours."""
    match = _NAME.fullmatch(job)
    if match is None:
        return False
    machine, boot, pid, started = match.groups()
    if machine != _machine():
        return time.time_ns() // 1_000_000 - changed_ms > _FOREIGN_MS
    return boot != _boot() or _started(int(pid)) != int(started)


def _driver() -> int:
    """The process that the Python workers of the driver come from: the nearest above this one that
    runs another program."""
    pid, program = os.getpid(), _program(os.getpid())
    while pid > 1:
        above = int(_stat(pid)[1])
        if above <= 1:
            break
        pid = above
        if _program(pid) != program:
            return pid
    return os.getpid()


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _started(pid: int) -> int:
    """When a process began, in ticks since the boot; -1 when there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else -1


def _stat(pid: int) -> list[str]:
    """The fields behind the program's name, which may hold anything; none without a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _machine() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())[:64]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
