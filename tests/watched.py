"""Runs a module as `python -m` does, and ends it at its first attempt to write to a file.

`python -m tests.watched MODULE ARGUMENTS…` uses an audit hook: Python reports every file that it
opens and every name that it changes before doing so. Exits with status 3 and a line on stderr that
says what was attempted.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "fcntl.flock",
    "fcntl.lockf",
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.removexattr",
    "os.rename",
    "os.rmdir",
    "os.setxattr",
    "os.symlink",
    "os.truncate",
    "os.utime",
}
STATUS = 3
#: The kernel's read-ahead for a mount is set here; it does not belong to a log directory.
READ_AHEAD = re.compile(r"/sys/class/bdi/\d+:\d+/read_ahead_kb")


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook. It cannot be removed, hence the separate process."""
    writes = event == "open" and arguments[2] & WRITING and not _is_elsewhere(arguments[0])
    if writes or event in CHANGES:
        print(f"attempted: {event} {arguments}", file=sys.stderr, flush=True)
        os._exit(STATUS)


def _is_elsewhere(path: Any) -> bool:
    return path == os.devnull or READ_AHEAD.fullmatch(str(path)) is not None


if __name__ == "__main__":
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.addaudithook(watch)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
