"""Makes the `lstat` of a file or directory that has no inode: of an archive, a server, a backup."""

from __future__ import annotations

import os

_BLOCK: int = 512  # the unit of st_blocks


def made_status(
    mode: int,
    identity: tuple[int, int],
    size: int,
    mtime_ns: int,
    owner: tuple[int, int] = (0, 0),
) -> os.stat_result:
    """Returns the status of something with one name. `mode`: its kind and permissions; `identity`:
    device and inode; `mtime_ns`: also the time of the last access and change, in ns since 1970;
    `owner`: user and group."""
    device, inode = identity
    seconds = mtime_ns // 1_000_000_000
    fields = (mode, inode, device, 1, *owner, size, seconds, seconds, seconds)
    exact = {f"st_{kind}time_ns": mtime_ns for kind in "amc"}
    floats = {f"st_{kind}time": mtime_ns / 1e9 for kind in "amc"}
    return os.stat_result(fields, exact | floats | {"st_blocks": -(-size // _BLOCK)})
