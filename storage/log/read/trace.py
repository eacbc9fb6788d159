"""The steps of a lookup, as values that ``explain`` prints.

A lookup that is given a list appends each of its steps to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...format.records.batch import BatchHeader


class Verdict(StrEnum):
    """Why a walk passed or ended at a batch."""

    TAKEN = "taken"
    ENDS_BEFORE = "its last offset is below the target"
    BEGINS_AFTER = "its base offset is above the target"
    TOO_OLD = "its greatest timestamp is below the target"
    CONTROL = "a control batch"
    ABORTED = "a batch of an aborted transaction"
    NO_RECORD = "no record in it qualifies"
    EMPTY = "a batch without records"


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """The segment to search. ``largest_timestamp``: the one used in a lookup by timestamp, ms, else
    -1; ``skipped``: the number of older segments that were too old."""

    base_offset: int
    file: str
    largest_timestamp: int = -1
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class TimeIndexStep:
    """Greatest time index entry below the target; ``slot`` -1: none, start at the base offset."""

    file: str
    slot: int
    entries: int
    timestamp: int
    offset: int
    relative_offset: int


@dataclass(frozen=True, slots=True)
class OffsetIndexStep:
    """Greatest offset index entry at or below ``target``; ``slot`` -1: none, start at position 0.

    ``refused``: no matching batch was at the entry's position, so the walk starts at 0."""

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
    """A batch that the walk reached."""

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
    """A broker's answer to the same lookup by timestamp, if it differs from ours: ``offset`` -1 for
    "none"."""

    offset: int
    why: str


Step = SegmentStep | TimeIndexStep | OffsetIndexStep | WalkStep | FoundStep | BrokerStep
Trace = list[Step]
