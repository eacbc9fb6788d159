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

#: The machine is at rest when its processors are idle for this part of a look of so many seconds.
_AT_REST = 0.95
_LOOK = 0.2
#: The longest that is waited for that, in s.
_LONGEST_REST = 10.0
#: Memory that is then at hand: more than any of the contenders writes.
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


def settle(directory: Path) -> None:
    """Lets the machine come to rest: what was done before leaves pages to be written to the disk,
    and a broker's threads go on for a while. After _LONGEST_REST it is as it is.

    Then there is memory at hand for files in ``directory``: one is written and removed. What has
    been free for seconds a hypervisor may have taken back, and to get it again takes ten times what
    writing to it takes.
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
    """Ticks of all processors together since the machine started: of idling, and all."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


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
