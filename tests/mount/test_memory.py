"""Memory that was used is kept for a while and then given back."""

from __future__ import annotations

import subprocess
import sys

# What streams and caches do to a heap: pieces that come and go, and smaller things that stay
# between them, too large for the gaps that importing left. Prints kB of resident memory with the
# pieces, without them, and when they were given back.
_PROGRAM = """
import re
from pathlib import Path
from kafkafs.mount.fuse import memory

def resident():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\\s*(\\d+)", status)[1])

memory.keep()
pieces = [(bytearray(b"x") * (1 << 20), bytearray(b"x") * 100_000) for _ in range(100)]
print(resident())
stays = [smaller for _, smaller in pieces]
del pieces
print(resident())
memory.give_back()
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
