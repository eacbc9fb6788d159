"""Retries reads whose files a live broker's retention, cleaner or topic deletion removed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from ..errors import SegmentGone

T = TypeVar("T")

#: How often one file may vanish before the error is raised. A cleaner costs one more reading per
#: swap; a file that is never there does not belong to a live log.
ATTEMPTS: Final = 8
#: How many files may vanish in all, each causing another reading: retention renames one file at a
#: time, and a broker under load may need seconds for all files of a partition.
VANISHED: Final = 100
_LONGEST_PAUSE: Final = 0.064


def retry_if_gone(look: Callable[[], T]) -> T:
    """Returns what `look` returns. Calls it again each time a file vanishes under it; each call
    must take a new view of the log. Raises SegmentGone if one file vanished ATTEMPTS times or
    VANISHED files vanished in all, after an eighth of a second or after 6 s."""
    vanished: Counter[str] | None = None  # most calls succeed at once
    while True:
        try:
            return look()
        except SegmentGone as error:
            vanished = Counter() if vanished is None else vanished
            vanished[error.file] += 1
            if vanished[error.file] == ATTEMPTS or vanished.total() == VANISHED:
                raise
        # From the second retry on, the broker gets time to finish.
        if vanished.total() > 1:
            time.sleep(min(0.002 * 2 ** (vanished.total() - 2), _LONGEST_PAUSE))
