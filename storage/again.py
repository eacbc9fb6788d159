"""Reading again where a broker took a file away: its retention, its cleaner, a deleted topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from .errors import SegmentGone

T = TypeVar("T")

#: How often something is read before the error stands. A cleaner needs one more reading for each
#: swap; a file that is never there is not a live log's.
ATTEMPTS: Final = 8
# After the second reading a broker gets time to finish: it renames dozens of files one by one.
_PAUSES: Final = (0.0, *(0.002 * 2**n for n in range(ATTEMPTS - 2)))


def look_again(look: Callable[[], T]) -> T:
    """What `look` returns. Each time a file vanished under it, it is called again, and must take a
    new view of the log; SegmentGone after ATTEMPTS calls and an eighth of a second."""
    for pause in _PAUSES:
        try:
            return look()
        except SegmentGone:
            time.sleep(pause)
    return look()
