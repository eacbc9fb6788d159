"""Finds the log directory that a path is inside of: output does not belong there."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kafkafs.storage import META_PROPERTIES_FILE


def log_dir_around(place: str, log_dirs: Iterable[str]) -> str | None:
    """Returns the log directory that a path is or would be in: one of `log_dirs`, or any other."""
    known = {os.path.realpath(path) for path in log_dirs}
    above = os.path.realpath(place)
    while True:
        if above in known or os.path.lexists(os.path.join(above, META_PROPERTIES_FILE)):
            return above
        below, above = above, os.path.dirname(above)
        if above == below:
            return None
