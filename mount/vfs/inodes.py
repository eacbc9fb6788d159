"""Inode numbers, computed from the objects that they identify.

    bits 58-62  kind      the meaning of the number
    bits 36-57  place     the topic, or the partition and its version
    bits  0-35  number    an offset, a time, a base offset, or one of a directory's fixed names

A range of offsets has two numbers of any size. Ranges in use are remembered, and the inode number
of a range identifies one of them by all bits below the kind (`RecentPlaces`).

So listing ten million records allocates nothing: a record's number follows from its offset, and
the record is found again from the number. Only places are stored, one for each topic and partition
in use.

36 bits hold offsets up to 6.8 × 10¹⁰. Each further 2³⁶ of them (a *window*) has a place of its own,
so numbers stay exact up to Kafka's largest offset. A partition has one or two windows unless its
log is made up, and a window of times covers two years. `TooManyInodes` is raised when all 2²²
places are used: that takes a thousand partitions, viewed after each of four thousand cleanings.

The kernel caches the content of an inode, some of it forever. So an object whose bytes may change
needs a new number: a partition deleted and created again, a log truncated by a follower, the files
of a segment that the cleaner replaced. `InodePlace.version` counts these.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from kafkafs.storage import FileKind, FileState, SegmentFileName

from .errnos import Stale, TooManyInodes

NUMBER_BITS: Final = 36
PLACE_BITS: Final = 22
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
MAX_PLACES: Final = 1 << PLACE_BITS
KIND_SHIFT: Final = NUMBER_BITS + PLACE_BITS

PlaceT = TypeVar("PlaceT", bound=Hashable)

#: The kernel's inode number for the root of a mount.
ROOT: Final = 1
#: Of InodeKind.TOP: the number of `.kafkafs/groups`, and the place of what is in it.
GROUPS_NUMBER: Final = 20
GROUPS_PLACE: Final = 2
#: The number of `.kafkafs/cluster`; those of the files in it follow.
CLUSTER_NUMBER: Final = 21
#: The numbers of `.kafkafs/schemas` and `.kafkafs/subjects`, and the place of what is in them.
SCHEMAS_NUMBER: Final = 10
SUBJECTS_NUMBER: Final = 11
SCHEMAS_PLACE: Final = 3


class InodeKind(IntEnum):
    """The meaning of a number. The values from SEGMENT_FILE up to RANGE stand for a segment file's
    kind and state."""

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
    """Returns the inode number made of its parts; `number` is cut to its lowest 36 bits."""
    return kind << KIND_SHIFT | place << NUMBER_BITS | number & NUMBER_MASK


def unpack(inode: int) -> Inode:
    return Inode(inode >> KIND_SHIFT, inode >> NUMBER_BITS & MAX_PLACES - 1, inode & NUMBER_MASK)


def segment_kind(name: SegmentFileName) -> int:
    """Returns the kind for a segment's file, whose `number` is its base offset."""
    files = _FILE_KINDS.index(name.kind) * len(_FILE_STATES) + _FILE_STATES.index(name.state)
    return InodeKind.SEGMENT_FILE + files


def segment_file_name(kind: int, base_offset: int) -> SegmentFileName:
    """Inverts `segment_kind`. Raises Stale if `kind` is not that of a segment's file."""
    file_kind, state = divmod(kind - InodeKind.SEGMENT_FILE, len(_FILE_STATES))
    if not 0 <= file_kind < len(_FILE_KINDS):
        raise Stale
    return SegmentFileName(base_offset, _FILE_KINDS[file_kind], _FILE_STATES[state])


class Places(Generic[PlaceT]):
    """Places by number. A place's number is never reused."""

    def __init__(self) -> None:
        self._places: list[PlaceT] = []
        self._numbers: dict[PlaceT, int] = {}
        self._lock = threading.Lock()  # guards adding

    def number(self, place: PlaceT) -> int:
        """Returns the number of `place`, assigning one at first use."""
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
        """Returns the place with `number`. Raises Stale if there is none."""
        try:
            return self._places[number]
        except IndexError:
            raise Stale from None


class RecentPlaces(Generic[PlaceT]):
    """An unlimited set of places, of which only the most recently used are remembered. Numbers are
    never reused: a forgotten number is invalid, and its place gets a new one."""

    def __init__(self, most: int) -> None:
        """`most`: how many places are remembered."""
        self._most = most
        self._numbers: OrderedDict[PlaceT, int] = OrderedDict()  # least recently used first
        self._places: dict[int, PlaceT] = {}
        self._next = 0
        self._lock = threading.Lock()  # guards the above

    def number(self, place: PlaceT) -> int:
        """Returns the number of `place`, a new one if it is not remembered."""
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
        """Returns the place with `number`. Raises Stale if it is not remembered."""
        with self._lock:
            try:
                place = self._places[number]
            except KeyError:
                raise Stale from None
            self._numbers.move_to_end(place)
            return place
