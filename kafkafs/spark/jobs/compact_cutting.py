"""Which partitions a compaction cuts into pieces.

A partition that is cleaned as a whole takes one processor one pass. In pieces it is gone through in
three steps, which is more work, but any number of processors share it. So one is cut where its pass
would keep others waiting for longer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace
from typing import Final

#: One with less to go through is never worth it.
LEAST_BYTES: Final = 512 << 20
# In pieces a byte takes so many times what it takes in a pass: as measured, with two processors.
_WORK_IN_PIECES: Final = 1.25
# One with less than this part of what there is for each processor keeps nobody waiting for longer.
_LEAST_SHARE: Final = 0.25


def how_many_to_cut(sizes: Sequence[int], processors: int) -> int:
    """Of partitions with so many bytes, the largest first, how many of the first are to be cut for
    all to be done soonest."""
    least = max(LEAST_BYTES, sum(sizes) / processors * _LEAST_SHARE)
    most = sum(size > least for size in sizes)

    def cost(cut: int) -> float:
        in_pieces = sum(sizes[:cut]) * _WORK_IN_PIECES / processors
        return in_pieces + _until_all_are_done(sizes[cut:], processors)

    return min({most >> n for n in range(most.bit_length() + 1)}, key=lambda cut: (cost(cut), cut))


def _until_all_are_done(sizes: Sequence[int], processors: int) -> int:
    """When each processor takes the next one as soon as it has nothing to do; unit: a byte."""
    busy_until = [0] * processors
    for size in sizes:
        heapreplace(busy_until, busy_until[0] + size)
    return max(busy_until)
