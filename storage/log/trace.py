"""What a lookup did, step by step: values that ``explain`` prints.

A lookup that is given a list appends one of these at each step; without a list it keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..format.batch import BatchHeader


class Verdict(StrEnum):
    """Why a walk went past a batch, or stopped at it."""

    TAKEN = "taken"
    ENDS_BEFORE = "its last offset is below the one looked for"
    BEGINS_AFTER = "its base offset is above the one looked for"
    TOO_OLD = "its greatest timestamp is below the one looked for"
    CONTROL = "a control batch"
    ABORTED = "a batch of an aborted transaction"
    NO_RECORD = "no record in it qualifies"
    EMPTY = "a batch without records"


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """The segment to search. ``largest_timestamp`` is what decided in a lookup by time, ms, else
    -1; ``skipped``: how many older segments were passed over for being too old."""

    base_offset: int
    file: str
    largest_timestamp: int = -1
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class TimeIndexStep:
    """Greatest time index entry below the time; ``slot`` -1: none, start at the base offset."""

    file: str
    slot: int
    entries: int
    timestamp: int
    offset: int
    relative_offset: int


@dataclass(frozen=True, slots=True)
class OffsetIndexStep:
    """Greatest offset index entry at or below ``target``; ``slot`` -1: none, start at position 0.

    ``refused``: the entry named no batch that fits, so the walk starts at position 0 instead."""

    file: str
    slot: int
    entries: int
    target: int
    offset: int
    relative_offset: int
    position: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A batch that the walk came to."""

    batch: BatchHeader
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class FoundStep:
    """The record. ``row``: its index among the records of its batch."""

    offset: int
    timestamp: int
    row: int


@dataclass(frozen=True, slots=True)
class BrokerStep:
    """What a broker answers to the same question about a time, where it is not our answer:
    ``offset`` -1 for "none"."""

    offset: int
    why: str


Step = SegmentStep | TimeIndexStep | OffsetIndexStep | WalkStep | FoundStep | BrokerStep
Trace = list[Step]
