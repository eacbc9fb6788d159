"""Reading again where a broker took a file away: its retention, its cleaner, a deleted topic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from .errors import SegmentGone

T = TypeVar("T")

#: How often one file may vanish before the error stands. A cleaner needs one more reading for each
#: swap; a file that is never there is not a live log's.
ATTEMPTS: Final = 8
#: How many files may vanish in all, each after another reading: retention renames one file at a
#: time, and a broker under load may need seconds for those of a partition.
VANISHED: Final = 100
_LONGEST_PAUSE: Final = 0.064


def look_again(look: Callable[[], T]) -> T:
    """What `look` returns. Each time a file vanished under it, it is called again, and must take a
    new view of the log. SegmentGone when one file vanished ATTEMPTS times or VANISHED did, after
    an eighth of a second or after 6 s."""
    vanished: Counter[str] = Counter()
    while True:
        try:
            return look()
        except SegmentGone as error:
            vanished[error.file] += 1
            if vanished[error.file] == ATTEMPTS or vanished.total() == VANISHED:
                raise
        # From the second reading on a broker gets time to finish.
        if vanished.total() > 1:
            time.sleep(min(0.002 * 2 ** (vanished.total() - 2), _LONGEST_PAUSE))
