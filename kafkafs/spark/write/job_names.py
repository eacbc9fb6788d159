"""Names of staged jobs, from which it can be found out whether the job's driver still runs.

    4f0c…@host@boot@4242@98765

The parts are a random one, the machine, its boot, and the pid and start time of the driver's JVM,
which runs at least as long as the job. The next write removes what a dead driver has left. Whether
a process of another machine runs is unknown, so its jobs are kept for a day after their last
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
    """Returns a new name for a job of this process's driver."""
    pid = _driver()
    return f"{uuid.uuid4().hex}@{_machine()}@{_boot()}@{pid}@{_started(pid)}"


def is_stale(job: str, changed_ms: int) -> bool:
    """Returns whether a job, last changed at `changed_ms`, was abandoned. A name of another form is
    not ours: False."""
    match = _NAME.fullmatch(job)
    if match is None:
        return False
    machine, boot, pid, started = match.groups()
    if machine != _machine():
        return time.time_ns() // 1_000_000 - changed_ms > _FOREIGN_MS
    return boot != _boot() or _started(int(pid)) != int(started)


def _driver() -> int:
    """Returns the pid of the driver's JVM: the nearest ancestor of this process that runs another
    program."""
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
    """Returns the start time of a process in clock ticks since the boot; -1 if it is not
    running."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else -1


def _stat(pid: int) -> list[str]:
    """Returns the fields after the program's name, which may contain anything; [] if there is no
    such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _machine() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())[:64]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
