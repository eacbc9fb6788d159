"""Freed memory is kept for a while and then returned to the system."""

from __future__ import annotations

import subprocess
import sys

# Simulates the heap use of streams and caches: temporary chunks, with smaller permanent ones in
# between that are too large for the gaps left by importing. Prints the resident memory in kB with
# the chunks, after freeing them, and after trimming.
_PROGRAM = """
import re
from pathlib import Path
from kafkafs.mount.fuse import memory

def resident():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\\s*(\\d+)", status)[1])

memory.retain_freed()
pieces = [(bytearray(b"x") * (1 << 20), bytearray(b"x") * 100_000) for _ in range(100)]
print(resident())
stays = [smaller for _, smaller in pieces]
del pieces
print(resident())
memory.trim()
print(resident())
"""


def test_what_is_free_is_kept_until_it_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True)
    used, kept, given = map(int, done.stdout.split())
    assert kept > used - 10_000
    assert given < used - 90_000


def test_a_little_is_not_given_back() -> None:
    program = _PROGRAM.replace("range(100)", "range(10)")
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    used, kept, given = map(int, done.stdout.split())
    assert min(kept, given) > used - 3_000
