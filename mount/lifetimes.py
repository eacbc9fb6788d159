"""How long, in seconds, the kernel may believe what it was told."""

from __future__ import annotations

from typing import Final

#: For what cannot change; where it goes the kernel is told.
FOR_EVER: Final = float(10 * 365 * 86400)
#: A removed or replaced name is believed for less than a second, of which this is a half and the
#: look-out for changes (`serving/watch.py`) the other.
BRIEFLY: Final = 0.5
#: For what is asked for each time.
NOT_AT_ALL: Final = 0.0
#: For who opens what he has just looked up.
AT_ONCE: Final = 0.01
