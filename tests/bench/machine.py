"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import tempfile
import time
from pathlib import Path

from tests.broker.kafka import VERSION as KAFKA_VERSION

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
    """Facts by name, in the order in which to show them."""
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
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def last_core() -> int:
    """The core for work that is to have one alone; the first one has the interrupts."""
    return max(os.sched_getaffinity(0))


def touch_memory(directory: Path, size: int) -> None:
    """Has so many bytes of memory at hand for files there, by writing one and removing it: what has
    been free for seconds a hypervisor may have taken back, and to get it again takes ten times what
    writing to it takes."""
    part = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(size // len(part)):
            file.write(part)


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _first_line(*command: str) -> str:
    """The line that has the version in it; programs print it on either stream."""
    done = subprocess.run(
        command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = [line for line in done.stdout.splitlines() if re.search(r"\d+\.\d+", line)]
    return lines[0].strip() if lines else "?"
