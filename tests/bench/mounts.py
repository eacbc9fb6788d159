"""Mounts file systems for a while: kafkafs, and those it is compared with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount and the process that serves it."""

    path: Path
    pid: int

    def resident_bytes(self) -> int:
        """Returns the daemon's resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s*(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


@contextmanager
def kafkafs(log_dir: Path, *options: str) -> Iterator[Mounted]:
    """Mounts `log_dir` as a user would, with the command's `options`."""
    command = [sys.executable, "-m", "kafkafs", "mount", "--foreground", *options, str(log_dir)]
    with _mounted(command) as mounted:
        yield mounted


@contextmanager
def static(size: int = 0, files: int = 0) -> Iterator[Mounted]:
    """Mounts `static_fs` with files of `size` bytes and `files` small ones."""
    module = ["-m", "tests.bench.static_fs", "--size", str(size), "--files", str(files)]
    with _mounted([sys.executable, *module]) as mounted:
        yield mounted


@contextmanager
def pass_through(source: Path) -> Iterator[Mounted]:
    """Mounts `pass_through` on the directory `source`."""
    command = [sys.executable, "-m", "tests.bench.pass_through", str(source)]
    with _mounted(command) as mounted:
        yield mounted


@contextmanager
def _mounted(command: Sequence[str]) -> Iterator[Mounted]:
    """Runs `command`, which mounts a file system on the directory given as its last argument."""
    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-") as directory:
        process = subprocess.Popen([*command, directory], stderr=subprocess.DEVNULL)
        try:
            _wait_for(directory, process)
            yield Mounted(Path(directory), process.pid)
        finally:
            subprocess.run(["umount", directory], check=False, stderr=subprocess.DEVNULL)
            process.terminate()
            process.wait()


def _wait_for(directory: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while not os.path.ismount(directory):
        if process.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"{process.args!r} did not mount")
        time.sleep(0.005)
