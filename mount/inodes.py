"""Inode numbers, computed from what they stand for.

    bits 58-62  kind      what the number means
    bits 36-57  place     the topic, or the partition and which of its histories
    bits  0-35  number    offset, time, base offset, or which of a directory's fixed names

A range of offsets has two numbers of any size. Those that are in use are remembered, and the inode
number of one says which it is, in all bits below the kind (`RecentPlaces`).

Listing ten million records so leaves nothing behind: a record's number follows from its offset, and
the record is found again from the number. Only places are stored, one for each topic and partition
in use.

36 bits hold offsets up to 6.8 × 10¹⁰. What is larger gets a place of its own for each 2³⁶ of them
(its *window*), so numbers stay exact up to Kafka's largest offset; a partition has one or two
windows unless its log is made up, and times one for two years. When all 2²² places are used up,
`TooManyInodes`: that takes a thousand partitions, looked at after each of four thousand passes of
the cleaner.

The kernel keeps what it read under an inode number, and some of it for ever. So whatever may show
other bytes later needs another number: a partition deleted and made again, a log cut back by a
follower, the files of a segment that the cleaner replaced. `Place.version` counts these.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from kafkafs.storage.format.names import FileKind, FileState, SegmentFileName

from .errnos import Stale, TooManyInodes

NUMBER_BITS: Final = 36
PLACE_BITS: Final = 22
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
MAX_PLACES: Final = 1 << PLACE_BITS
KIND_SHIFT: Final = NUMBER_BITS + PLACE_BITS

PlaceT = TypeVar("PlaceT", bound=Hashable)

#: The kernel's number for the top of a mount.
ROOT: Final = 1


class Kind(IntEnum):
    """What a number means. From SEGMENT_FILE on, below RANGE: one for each kind and state of such a
    file."""

    TOP = 0
    TOPIC = 1
    PARTITION = 2
    VALUE = 3
    KEY = 4
    JSON = 5
    TIME = 6
    OTHER_FILE = 7
    SEGMENT_FILE = 8
    RANGE = 28
    SCRATCH = 29
    KEYED = 30
    NEW_KEY = 31


_FILE_KINDS: Final = tuple(FileKind)
_FILE_STATES: Final = tuple(FileState)


class Inode(NamedTuple):
    """The three parts of an inode number."""

    kind: int
    place: int
    number: int


def pack(kind: int, place: int, number: int) -> int:
    """The inode number of its parts; `number` is cut to its lowest 36 bits."""
    return kind << KIND_SHIFT | place << NUMBER_BITS | number & NUMBER_MASK


def unpack(inode: int) -> Inode:
    return Inode(inode >> KIND_SHIFT, inode >> NUMBER_BITS & MAX_PLACES - 1, inode & NUMBER_MASK)


def segment_kind(name: SegmentFileName) -> int:
    """The kind of number for a segment's file; `number` is its base offset."""
    files = _FILE_KINDS.index(name.kind) * len(_FILE_STATES) + _FILE_STATES.index(name.state)
    return Kind.SEGMENT_FILE + files


def segment_file_name(kind: int, base_offset: int) -> SegmentFileName:
    """The name that `segment_kind` made `kind` of. Stale for a kind that it makes of none."""
    file_kind, state = divmod(kind - Kind.SEGMENT_FILE, len(_FILE_STATES))
    if not 0 <= file_kind < len(_FILE_KINDS):
        raise Stale
    return SegmentFileName(base_offset, _FILE_KINDS[file_kind], _FILE_STATES[state])


class Places(Generic[PlaceT]):
    """What places stand for. A place once given is never given to anything else."""

    def __init__(self) -> None:
        self._places: list[PlaceT] = []
        self._numbers: dict[PlaceT, int] = {}
        self._lock = threading.Lock()  # guards adding

    def number(self, place: PlaceT) -> int:
        """The number of `place`, a new one at first sight."""
        known = self._numbers.get(place)
        if known is not None:
            return known
        with self._lock:
            if place not in self._numbers:
                if len(self._places) >= MAX_PLACES:
                    raise TooManyInodes(f"all {MAX_PLACES} places are taken")
                self._places.append(place)
                self._numbers[place] = len(self._places) - 1
            return self._numbers[place]

    def __getitem__(self, number: int) -> PlaceT:
        """The place that was given `number`. Stale for one that was never given."""
        try:
            return self._places[number]
        except IndexError:
            raise Stale from None


class RecentPlaces(Generic[PlaceT]):
    """Places of which there may be any number: only those used last are remembered. No number is
    given twice, so a number that is forgotten stands for nothing; its place gets another one."""

    def __init__(self, most: int) -> None:
        """`most`: how many are remembered."""
        self._most = most
        self._numbers: OrderedDict[PlaceT, int] = OrderedDict()  # the place used last comes last
        self._places: dict[int, PlaceT] = {}
        self._next = 0
        self._lock = threading.Lock()  # guards all of it

    def number(self, place: PlaceT) -> int:
        """The number of `place`, a new one if it is not remembered."""
        with self._lock:
            if place in self._numbers:
                self._numbers.move_to_end(place)
                return self._numbers[place]
            number, self._next = self._next, self._next + 1
            self._numbers[place] = number
            self._places[number] = place
            if len(self._numbers) > self._most:
                _, forgotten = self._numbers.popitem(last=False)
                del self._places[forgotten]
            return number

    def __getitem__(self, number: int) -> PlaceT:
        """The place that has `number`. Raises Stale if it is not remembered."""
        with self._lock:
            try:
                place = self._places[number]
            except KeyError:
                raise Stale from None
            self._numbers.move_to_end(place)
            return place
