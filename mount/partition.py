"""A partition as the mount sees it: its log, what of it is served, and its inode numbers.

One `Partition` is one incarnation: when the topic is deleted and created again there is another,
with numbers of its own. Within one, `Versions` count what gave other bytes to the same name, as far
as a view shows it:

1. A log cut back (a follower did as its leader says): offsets may come to hold other records.
2. Segments replaced (the cleaner): the same names in `segments/`, the same offsets at other places.

Deletion from the front makes no new version: what is gone is gone, and the rest is as it was.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf
from time import monotonic
from typing import Final

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.log.log import Log
from kafkafs.storage.log.transactions import Isolation
from kafkafs.storage.log.view import View

from .changing.changes import Changes
from .errnos import Stale
from .inodes import NUMBER_BITS, NUMBER_MASK, Kind, Places, pack
from .key_names import CutKeys
from .lifetimes import NOT_AT_ALL

logger = logging.getLogger(__name__)

# How old a view may be in which an offset is looked up that lies in it. What it lost meanwhile is
# gone a little later; that the kernel does not believe it for longer is the watch's care.
FRESH_SECONDS: Final = 0.2


class Scope(IntEnum):
    """What numbers of one kind change with."""

    PARTITION = 0  # never
    RECORDS = 1  # a log cut back
    FILES = 2  # also segments replaced
    DUMPS = 3  # the same, of what is made from them


@dataclass(frozen=True, slots=True)
class Place:
    """A partition in one of its histories. `window`: the bits of a number above the fortieth."""

    partition: Partition
    scope: Scope = Scope.PARTITION
    version: int = 0
    window: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a place for inode numbers. `incarnation`: how many of that name were deleted by
    ourselves before; the kernel takes the inode of a directory that it removed for dead."""

    name: str
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Versions:
    """How often `records` may have become others, and `files` been replaced."""

    records: int = 0
    files: int = 0

    def of(self, scope: Scope) -> int:
        if scope is Scope.PARTITION:
            return 0
        return self.records if scope is Scope.RECORDS else self.files


_FIRST_VERSIONS: Final = Versions()


@dataclass(frozen=True, slots=True)
class Seen:
    """A view, the versions that it came with, and how often until then something was lost: removed
    or replaced, so that a name which was valid may not be."""

    view: View
    versions: Versions
    losses: int = 0


class Partition:
    """One incarnation of a partition. Any thread may use it."""

    def __init__(
        self,
        log: Log,
        isolation: Isolation,
        places: Places[Place | Topic],
        changes: Changes | None = None,
    ) -> None:
        """`changes`: what can be done to it; None on a mount that only reads."""
        self.log = log
        self.changes = changes
        # A reader of a broker's directory looks again after a moment. Who removed a record from his
        # own does not find it again.
        self._fresh_seconds = FRESH_SECONDS if changes is None else 0.0
        self.topic = log.topic
        self.number = log.partition
        self.isolation = isolation
        self._places = places
        self._lock = threading.Lock()  # guards changing _seen
        self._seen: Seen | None = None
        self._seen_at = 0.0
        self.current_at = -inf  # when the catalog found that this incarnation is the one there
        # Places by window and scope, as the hot road needs them. Good for the versions beside them.
        self._known_places: tuple[Versions, dict[int, int]] = (_FIRST_VERSIONS, {})
        self._ends: tuple[View | None, dict[bool, int | None]] = (None, {})
        self.cut_keys = CutKeys()
        #: When a name was last looked up or listed that the kernel may keep, by `monotonic`.
        self.visited_at = 0.0
        #: The name in `offset` that was looked up last, and found.
        self.found_last = ""

    def __repr__(self) -> str:
        return f"Partition({self.topic!r}, {self.number})"

    @property
    def name(self) -> str:
        """As in a path: `orders/0`."""
        return f"{self.topic}/{self.number}"

    def lifetime(self, seconds: float) -> float:
        """How long the kernel may believe a name that it could believe for `seconds` where others
        than ourselves change the log: what is removed here is gone for everybody at once."""
        return seconds if self.changes is None else NOT_AT_ALL

    def generation(self, inode: int) -> int:
        """Which of the inodes of that number a directory is: see `Deletions.bury`."""
        return 0 if self.changes is None else self.changes.deletions.generation(inode)

    def view(self) -> View:
        """What is in the partition now. UnknownPartition when its directory has gone."""
        return self.seen().view

    def seen_with(self, offset: int) -> Seen:
        """What to look `offset` up in: what was seen last, if it is young and may have it."""
        seen = self._seen
        if seen is not None and monotonic() - self._seen_at < self._fresh_seconds:
            view = seen.view
            if view.start_offset <= offset < view.bound(self.isolation):
                return seen
        return self.seen()

    def seen(self) -> Seen:
        now = monotonic()
        view = self.log.view()
        self._seen_at = now
        seen = self._seen
        if seen is not None and seen.view is view:
            return seen
        with self._lock:
            before = self._seen
            if before is None:
                self._seen = Seen(view, _FIRST_VERSIONS)
            elif before.view is not view:
                self._seen = _next(before, view)
            return self._seen or Seen(view, _FIRST_VERSIONS)

    @property
    def last_seen(self) -> Seen | None:
        """What was looked at last, without looking again."""
        return self._seen

    @property
    def versions(self) -> Versions:
        """Those of the view looked at last."""
        return self._seen.versions if self._seen is not None else _FIRST_VERSIONS

    @property
    def is_known(self) -> bool:
        """Whether a view was ever looked at. The first one costs a walk over the log's end."""
        return self._seen is not None

    def bound(self, view: View) -> int:
        """The offset where what is served of `view` ends."""
        return view.bound(self.isolation)

    def end(self, *, is_last: bool) -> int | None:
        """Offset of the first or the last record served now, None when there is none."""
        view = self.view()
        known_view, known = self._ends
        if known_view is not view:
            self._ends = known_view, known = view, {}
        if is_last not in known:
            known[is_last] = view.last(self.isolation) if is_last else view.first(self.isolation)
        return known[is_last]

    def place(self, scope: Scope, window: int = 0) -> int:
        """The number of this partition's place for inode numbers of `scope`."""
        versions, known = self._known_places
        if versions is not self.versions:
            versions, known = self._known_places = self.versions, {}
        key = window << 2 | scope
        if key not in known:
            known[key] = self._places.number(Place(self, scope, versions.of(scope), window))
        return known[key]

    def inode(self, kind: Kind | int, scope: Scope, number: int) -> int:
        """An inode number for a `number` of any size."""
        return pack(kind, self.place(scope, number >> NUMBER_BITS), number & NUMBER_MASK)

    def check_current(self, place: Place) -> None:
        """Stale when numbers of `place` are no longer given out."""
        if place.version != self.versions.of(place.scope):
            raise Stale

    def note_damage(self, error: CorruptError) -> None:
        """Log `error` and list it in status.json, once for each place in a file."""
        if self.log.report(error):
            logger.warning("%s-%d: %s", self.topic, self.number, error)


def _next(before: Seen, view: View) -> Seen:
    """What is seen when `view` follows upon `before`."""
    versions = _next_versions(before, view)
    lost = versions != before.versions or _begin(view) != _begin(before.view)
    return Seen(view, versions, before.losses + lost)


def _begin(view: View) -> tuple[int, int]:
    return view.start_offset, view.segments[0].base_offset if len(view.segments) else -1


def _next_versions(before: Seen, view: View) -> Versions:
    """The versions of `view`, which follows upon `before`."""
    versions = before.versions
    if view.cuts != before.view.cuts or view.end_offset < before.view.end_offset:
        return Versions(versions.records + 1, versions.files + 1)
    kept = {segment.files.identity for segment in view.segments}
    first = view.segments[0].base_offset if len(view.segments) else view.end_offset
    for segment in before.view.segments:
        if segment.base_offset >= first and segment.files.identity not in kept:
            return replace(versions, files=versions.files + 1)
    return versions
