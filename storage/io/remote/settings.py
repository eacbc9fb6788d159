"""How directories that are not local are read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {"": 1, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([KMGTkmgt]?)(?:i?[Bb])?")


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """``list_ms``: how long a listing counts. ``timeout_ms``: of one attempt of a request.
    ``memory_bytes``: blocks kept in memory. ``cache_dir``: the directory for blocks, up to
    ``cache_bytes``, and for indexes of archives; "" keeps none on the disk."""

    list_ms: int = 30_000
    timeout_ms: int = 30_000
    memory_bytes: int = 128 << 20
    cache_dir: str = ""
    cache_bytes: int = 0


DEFAULTS: Final = RemoteSettings()


def cache_of(text: str) -> tuple[str, int]:
    """Returns directory and bytes of ``DIR,SIZE``, as in `/var/cache/kafkafs,4GiB`. Raises
    ValueError."""
    directory, comma, size = text.rpartition(",")
    match = _SIZE.fullmatch(size.strip())
    if not comma or not directory.strip() or match is None:
        raise ValueError("must be DIR,SIZE, as in /var/cache/kafkafs,4GiB")
    unit = _UNITS[match.group(2).lower()]
    return os.path.abspath(directory.strip()), int(match.group(1)) << (unit if unit > 1 else 0)
