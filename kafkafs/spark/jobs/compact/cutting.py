"""Selects the partitions that a compaction cleans in pieces.

Cleaning a whole partition occupies one processor for one pass. In pieces it takes three steps and
more work, but any number of processors share it. A partition is therefore divided if its single
pass would keep other processors waiting for longer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from typing import Final

#: Smaller partitions are never divided.
LEAST_BYTES: Final = 512 << 20
# The cost of a byte in pieces relative to a single pass, measured with two processors.
_WORK_IN_PIECES: Final = 1.25
# A partition below this part of a processor's average load keeps no other processor waiting.
_LEAST_SHARE: Final = 0.25


def how_many_to_cut(sizes: Sequence[int], processors: int) -> int:
    """Returns how many of the first partitions, given by size with the largest first, to divide so
    that all are done soonest."""
    least = max(LEAST_BYTES, sum(sizes) / processors * _LEAST_SHARE)
    most = sum(size > least for size in sizes)

    def cost(cut: int) -> float:
        in_pieces = sum(sizes[:cut]) * _WORK_IN_PIECES / processors
        return in_pieces + _until_all_are_done(sizes[cut:], processors)

    return min({most >> n for n in range(most.bit_length() + 1)}, key=lambda cut: (cost(cut), cut))


def _until_all_are_done(sizes: Sequence[int], processors: int) -> int:
    """Returns the total time if each idle processor takes the next partition; unit: the time for a
    byte."""
    busy_until = [0] * processors
    for size in sizes:
        heapreplace(busy_until, busy_until[0] + size)
    return max(busy_until)
