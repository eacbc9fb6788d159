"""A daemon that does not find the size of any stream while a file exists.

It simulates a log so large that finding its sizes takes long, however fast the machine is.
"""

from __future__ import annotations

from pathlib import Path
from time import sleep

import pytest

from kafkafs.mount.streams.sizes import StreamSize
from kafkafs.mount.streams.stream_index import MeasuredPart, Part, StreamIndex


def hold_sizes_back(while_it_exists: Path) -> None:
    """Patches all streams of this process."""
    patch = pytest.MonkeyPatch()
    find, measure = StreamIndex.find, StreamSize.measure

    def held_find(self: StreamIndex, part: Part) -> MeasuredPart | None:
        return None if while_it_exists.exists() else find(self, part)

    def held_measure(self: StreamSize, seconds: float) -> bool:
        if not while_it_exists.exists():
            return measure(self, seconds)
        sleep(0.01)
        return False

    patch.setattr(StreamIndex, "find", held_find)
    patch.setattr(StreamSize, "measure", held_measure)
