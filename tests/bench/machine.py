"""Describes the machine that the figures were measured on, and waits until it is idle."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.broker.jvm import VERSION as KAFKA_VERSION

#: The machine is idle if its processors are, for this part of a sample of this many seconds.
_AT_REST = 0.95
_LOOK = 0.2
#: The longest wait for that, in s.
_LONGEST_REST = 10.0
#: Memory to make available then: more than any contender writes.
_TOUCHED_BYTES = 1 << 30
_PACKAGES = (
    "aiokafka",
    "cramjam",
    "crc32c",
    "isal",
    "lz4",
    "numpy",
    "pyarrow",
    "pyfuse3",
    "zstandard",
)


def describe() -> dict[str, str]:
    """Returns facts by name, in display order."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "kafka": KAFKA_VERSION,
        "kcat": _first_line("kcat", "-V"),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def last_core() -> int:
    """Returns the core for work that needs one for itself; the first core handles interrupts."""
    return max(os.sched_getaffinity(0))


def settle(directory: Path) -> None:
    """Waits until the machine is idle, at most _LONGEST_REST: earlier work leaves pages to write
    back, and a broker's threads continue for a while.

    Then makes memory available for files in ``directory`` by writing one and removing it. A
    hypervisor may have reclaimed memory that was free for seconds, and getting it back takes ten
    times as long as writing to it.
    """
    os.sync()
    latest = time.monotonic() + _LONGEST_REST
    while not _is_at_rest() and time.monotonic() < latest:
        pass
    part = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_TOUCHED_BYTES // len(part)):
            file.write(part)


def _is_at_rest() -> bool:
    idle, total = _processor_time()
    time.sleep(_LOOK)
    later_idle, later_total = _processor_time()
    return later_idle - idle >= _AT_REST * (later_total - total)


def _processor_time() -> tuple[int, int]:
    """Returns the ticks of all processors since boot: idle ones, and all."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _first_line(*command: str) -> str:
    """Returns the line that contains the version; programs print it to either stream."""
    if shutil.which(command[0]) is None:
        return "missing"
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = [line for line in done.stdout.splitlines() if re.search(r"\d+\.\d+", line)]
    return lines[0].strip() if lines else "?"
