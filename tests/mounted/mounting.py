"""Mounts in separate processes, which end with the test whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import warm_python
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.warm_python import WarmProcess

ROOT = Path(__file__).parent.parent.parent
_SERVE = """
import functools, json, sys
from kafkafs.mount.options import parse_options
from kafkafs.mount.session.session import mount
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
if sys.argv[5]:
    from pathlib import Path
    from tests.mounted.held import hold_sizes_back
    hold_sizes_back(Path(sys.argv[5]))
options = parse_options(sys.argv[3])
configs = json.loads(sys.argv[4])
engine = functools.partial(Engine, configs=configs, at_ms=options.at_ms)
if options.writable:
    wanted = {"maintain": options.maintain, "unregistered": options.unregistered}
    engine = functools.partial(LogManager, configs=configs, **wanted)
mount(sys.argv[1].split(","), sys.argv[2], options, foreground=True, make_engine=engine)
"""


def errno_of(call: Callable[..., object], *arguments: object) -> int:
    """Returns the errno that a call fails with, or 0."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno or -1
    return 0


@dataclass(slots=True)
class Mount:
    """A mount at `point`. `log` is its daemon's log."""

    point: Path
    daemon: WarmProcess
    log: Path
    expects_warnings: bool = False
    expects_errors: bool = False

    def lines(self, level: str) -> list[str]:
        """Returns the lines logged at `level`. A test that reads warnings expects them."""
        self.expects_warnings = True
        found = self.log.read_text(encoding="utf-8").splitlines()
        return [line for line in found if f" {level}: " in f" {line}"]

    def memory_kb(self, what: str) -> int:
        """Returns a value of the daemon's /proc status: VmRSS, VmHWM."""
        status = Path(f"/proc/{self.daemon.pid}/status").read_text(encoding="utf-8")
        (line,) = [line for line in status.splitlines() if line.startswith(f"{what}:")]
        return int(line.split()[1])

    def cpu_seconds(self) -> float:
        """Returns the processor time that the daemon has used, in user and kernel mode."""
        stat = Path(f"/proc/{self.daemon.pid}/stat").read_text(encoding="utf-8")
        fields = stat.rpartition(")")[2].split()  # from the third on, see proc(5)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> int:
        """Ends the daemon with SIGTERM; returns its exit status."""
        if self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(PATIENCE_SECONDS)


def start(
    log_dirs: Sequence[Path | str],
    point: Path,
    options: str,
    log: Path,
    settings: Mapping[str, str] | None = None,
    holding: Path | None = None,
) -> Mount:
    """Starts a daemon without waiting for it. `settings` are those of `-c`. While the file
    `holding` exists, the daemon finds no size of a stream."""
    with log.open("wb") as file:
        dirs = ",".join(map(str, log_dirs))
        arguments = [dirs, str(point), options, json.dumps(dict(settings or {}))]
        arguments.append(str(holding or ""))
        daemon = warm_python.start(_SERVE, arguments, file)
    return Mount(point, daemon, log)


@contextmanager
def mounted(
    log_dirs: Sequence[Path | str],
    place: Path,
    options: str = "",
    settings: Mapping[str, str] | None = None,
    holding: Path | None = None,
) -> Iterator[Mount]:
    """Mounts the directories at `place/mnt` during the block. The daemon must exit with status 0
    and must not have logged warnings that the test does not expect."""
    point = place / "mnt"
    point.mkdir()
    mount = start(log_dirs, point, options, place / "log", settings, holding)
    try:
        wait_until(lambda: os.path.ismount(point) or mount.daemon.poll() is not None)
        text = mount.log.read_text(encoding="utf-8")
        assert os.path.ismount(point), f"the daemon ended with {mount.daemon.returncode}: {text}"
        yield mount
        assert mount.end() == 0, mount.log.read_text(encoding="utf-8")
        assert not os.path.ismount(point)
        logged = mount.log.read_text(encoding="utf-8")
        assert mount.expects_warnings or "WARNING" not in logged, logged
        assert mount.expects_errors or "ERROR" not in logged, logged
    finally:
        clear(mount)


@contextmanager
def waiting_for(told: Path, script: str, data: Path) -> Iterator[Mount]:
    """Mounts `data` with a script that waits for the file `told`, or reads from it how far it may
    continue. May return before it is mounted."""
    point, log = told.parent / "mnt", told.parent / "log"
    point.mkdir()
    with log.open("wb") as file:
        arguments = [str(data), str(point), str(told)]
        mount = Mount(point, warm_python.start(script, arguments, file), log)
    try:
        yield mount
    finally:
        clear(mount)


def clear(mount: Mount) -> None:
    """Removes a mount, however it ended."""
    if mount.daemon.poll() is None:
        mount.daemon.kill()
        mount.daemon.wait()
    if is_mounted(mount.point):
        subprocess.run(["umount", "-l", mount.point], check=True)


def is_mounted(point: Path) -> bool:
    """Returns whether something is mounted, even if its daemon is dead."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return any(line.split()[4] == str(point) for line in mounts.splitlines())


def sh(command: str, cwd: Path) -> str:
    """Returns the output of a shell command. Raises AssertionError with its errors if it fails."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=cwd,
        check=False,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
