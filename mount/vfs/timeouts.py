"""FUSE's entry_timeout and attr_timeout: for how many seconds the kernel may cache an answer."""

from __future__ import annotations

from typing import Final

#: For what cannot change; the kernel is notified when it is removed.
FOR_EVER: Final = float(10 * 365 * 86400)
#: A removed or replaced name stays valid for less than a second: half of it is this, the other half
#: is the interval of the watch for changes (`fuse/watch.py`).
BRIEFLY: Final = 0.5
#: For what must be looked up each time.
NOT_AT_ALL: Final = 0.0
#: For an open() right after a lookup().
AT_ONCE: Final = 0.01
