"""The layout of a repository.

    kafkafs-backup.json                       format, version and id; last thing made of a new one
    points/20261126T190000.123Z.json          a manifest for each point in time, in UTC
    objects/orders-0/00000000000000000000.log.0-900.3f2a…    bytes [0, 900) of a file
    objects/packs/3f2a…                       small files and pieces, one after the other
    unfinished/                               what a run is writing
    kafkafs-backup.lock                       the lock of a run that writes to an object store

The name of an object ends with the beginning of its SHA-256. Objects and manifests never change:
each gets its name when it is complete and durable, a manifest after all its objects. An object
store shows no object before it is, so there is nothing unfinished there.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ..clock import time_text
from ..errors import CorruptError, LogDirError, SegmentGone
from ..io.directory import Directory

MARKER: Final = "kafkafs-backup.json"
POINTS: Final = "points"
OBJECTS: Final = "objects"
UNFINISHED: Final = "unfinished"
#: In an object store; on a disk, it is the file that a log directory has, too.
STORE_LOCK: Final = "kafkafs-backup.lock"
#: The directory of `OBJECTS` with what is too small for an object each.
PACKS: Final = "packs"

_POINT: Final = re.compile(r"([0-9]{8}T[0-9]{6})\.([0-9]{3})Z\.json")


def point_name(time_ms: int) -> str:
    """Returns the name of the manifest of a point in time, in ms since 1970."""
    text = time_text(time_ms)
    return f"{text.replace('-', '').replace(':', '')}.json"


def parse_point_name(name: str) -> int | None:
    """Returns the time of a manifest's name; None if it is not one."""
    match = _POINT.fullmatch(name)
    if match is None:
        return None
    try:
        time = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    found = int(time.timestamp()) * 1000 + int(match[2])
    return found if point_name(found) == name else None


def is_repository(directory: Directory) -> bool:
    """Returns whether a directory is a repository. Raises OSError if that cannot be told."""
    try:
        directory.stat(MARKER)
    except (SegmentGone, LogDirError, CorruptError):
        return False
    return True
