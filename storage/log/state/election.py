"""Which of several replicas of a partition a leader election chooses, and where another diverges.

The most up-to-date replica is the one with the higher latest leader epoch, then the one with the
higher log end offset, as voters compare logs (KIP-595, OffsetAndEpoch.compareTo). A follower that
missed a change of leader truncates itself to the end of the last epoch that both have (KIP-101,
LeaderEpochFileCache.endOffsetFor).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...format.layout import MAX_OFFSET
from .epochs import LeaderEpochFileCache


class ReplicaEnd(NamedTuple):
    """What an election compares: a replica's leader epochs, and its log end offset."""

    epochs: LeaderEpochFileCache
    end_offset: int


def elect(replicas: Sequence[ReplicaEnd]) -> int:
    """Returns the index of the most up-to-date replica, the first among equals."""
    ranks = [(replica.epochs.latest, replica.end_offset) for replica in replicas]
    return ranks.index(max(ranks))


def truncation_offset(leader: LeaderEpochFileCache, follower: LeaderEpochFileCache) -> int:
    """Returns the offset to which a follower truncates itself, MAX_OFFSET if it does not."""
    if not leader.entries or not follower.entries:
        return MAX_OFFSET
    known = [entry.epoch for entry in leader.entries if entry.epoch <= follower.latest]
    if not known:  # the leader's log begins after the follower's epochs
        return leader.entries[0].start_offset
    common = known[-1]
    ends = [e.start_offset for e in leader.entries if e.epoch > common][:1] or [MAX_OFFSET]
    ends += [e.start_offset for e in follower.entries if e.epoch > common][:1]
    return min(ends)
