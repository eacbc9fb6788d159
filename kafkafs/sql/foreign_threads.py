"""Scans that threads of Arrow and DuckDB read.

These threads read ahead, and continue for a moment after a query has ended early, with an error or
a LIMIT. A thread that enters Python while the interpreter exits aborts the process, so all scans
end before that.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

# How often it is checked whether scans are being read, and for how long.
_CHECK_SECONDS: Final = 0.01
_WAIT_SECONDS: Final = 10.0
# How long Arrow's threads may take to free batches that were read ahead, which enters Python, too.
_FREEING_SECONDS: Final = 0.2


class _Scan:
    """`is_read`: a thread is reading it."""

    is_read = False


class Scans:
    """The scans that have begun and not ended. Each operation on the dict is atomic: a scan may be
    ended by the garbage collector, at any time."""

    def __init__(self) -> None:
        self._open: dict[int, _Scan] = {}
        self._is_over = False
        self._is_cut = False  # whether a scan ended early

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches. Raises InterruptedError when the interpreter exits."""
        scan = _Scan()
        self._open[id(scan)] = scan
        is_whole = False
        try:
            while True:
                scan.is_read = True
                if self._is_over:
                    raise InterruptedError
                batch = next(batches, None)
                if batch is None:
                    is_whole = True
                    return
                scan.is_read = False
                yield batch
        finally:
            self._open.pop(id(scan), None)
            self._is_cut |= not is_whole

    def end(self) -> None:
        """Ends the scans, and waits until no thread reads one. One that no thread reads any more,
        because its consumer has enough, may stay open."""
        self._is_over = True
        self._is_cut |= bool(self._open)
        quiet, limit = 0, time.monotonic() + _WAIT_SECONDS
        while self._open and quiet < 2 and time.monotonic() < limit:
            time.sleep(_CHECK_SECONDS)  # a thread that is about to read gets to it
            is_read = any(scan.is_read for scan in list(self._open.values()))
            quiet = 0 if is_read else quiet + 1
        if self._is_cut:
            time.sleep(_FREEING_SECONDS)


#: The scans of this process.
SCANS: Final = Scans()
atexit.register(SCANS.end)
