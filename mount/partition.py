"""A partition as the mount sees it: its log, what of it is served, and its inode numbers.

A `MountedPartition` is one incarnation: a topic deleted and created again gets another one, with
numbers of its own. Within an incarnation, `Versions` count the changes that gave a name other
bytes, as far as a view shows them:

1. Log truncation (by a follower, on its leader's request): offsets may get other records.
2. Replaced segments (by the cleaner): `segments/` has the same names, offsets have new positions.

Deletion from the front makes no new version: the rest of the log is unchanged.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf
from time import monotonic
from typing import Final

from kafkafs.storage import CorruptError, Isolation, Log, View

from .vfs.errnos import Stale
from .vfs.inodes import NUMBER_BITS, NUMBER_MASK, InodeKind, Places, pack
from .vfs.key_names import CutKeys
from .vfs.timeouts import NOT_AT_ALL

logger = logging.getLogger(__name__)

# Maximum age of a view for looking up an offset that lies in it. Deletions are noticed that much
# later; the watch keeps the kernel from caching the name for longer.
FRESH_SECONDS: Final = 0.2


class Scope(IntEnum):
    """The changes after which an object of one kind gets a new number."""

    PARTITION = 0  # never
    RECORDS = 1  # log truncation
    FILES = 2  # also replaced segments
    DUMPS = 3  # as FILES, for the dumps of files


@dataclass(frozen=True, slots=True)
class InodePlace:
    """A partition in one of its versions. `window`: the bits of a number above the lowest 36."""

    partition: MountedPartition
    scope: Scope = Scope.PARTITION
    version: int = 0
    window: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a place for inode numbers. `incarnation`: how many topics of this name the mount
    has deleted; the kernel considers the inode of a directory that it removed dead."""

    name: str
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Versions:
    """How often `records` may have been rewritten, and `files` replaced."""

    records: int = 0
    files: int = 0

    def of(self, scope: Scope) -> int:
        if scope is Scope.PARTITION:
            return 0
        return self.records if scope is Scope.RECORDS else self.files


_FIRST_VERSIONS: Final = Versions()


@dataclass(frozen=True, slots=True)
class Seen:
    """A view, its versions, and how often up to then something was lost: removed or replaced, so
    that a valid name may have become invalid."""

    view: View
    versions: Versions
    losses: int = 0


class MountedPartition:
    """One incarnation of a partition. Any thread may use it."""

    def __init__(
        self,
        log: Log,
        isolation: Isolation,
        places: Places[InodePlace | Topic],
        *,
        is_writable: bool = False,
    ) -> None:
        self.log = log
        #: Whether the mount is writable.
        self.is_writable = is_writable
        # A reader of a broker's directory sees a deletion a moment later. On a writable mount, a
        # process that removed a record must not find it again.
        self._fresh_seconds = 0.0 if is_writable else FRESH_SECONDS
        self.topic = log.topic
        self.number = log.partition
        self.isolation = isolation
        self._places = places
        self._lock = threading.Lock()  # guards changing _seen, _logged
        self._logged = 0  # how many of the log's damages were logged
        self._seen: Seen | None = None
        self._seen_at = 0.0
        self.current_at = -inf  # when the catalog last found this incarnation to be current
        # Places by window and scope, for the fast path. Valid for the versions stored with them.
        self._known_places: tuple[Versions, dict[int, int]] = (_FIRST_VERSIONS, {})
        self._ends: tuple[View | None, dict[bool, int | None]] = (None, {})
        self.cut_keys = CutKeys()
        #: When a name that the kernel may cache was last looked up or listed, by `monotonic`.
        self.visited_at = 0.0
        #: The name in `offset` that was last looked up successfully.
        self.last_found = ""

    def __repr__(self) -> str:
        return f"Partition({self.topic!r}, {self.number})"

    @property
    def name(self) -> str:
        """The path of its directory: `orders/0`."""
        return f"{self.topic}/{self.number}"

    def entry_timeout(self, seconds: float) -> float:
        """Returns how long the kernel may cache a name: `seconds` if other processes change the
        log, 0 on a writable mount, where a removal takes effect at once for everybody."""
        return NOT_AT_ALL if self.is_writable else seconds

    def view(self) -> View:
        """Returns the current view. Raises UnknownPartition if the directory no longer exists."""
        return self.seen().view

    def seen_with(self, offset: int) -> Seen:
        """Returns a view to look `offset` up in: the last one if it is recent and covers it."""
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
        self._log_damage()  # the listing may have found some
        with self._lock:
            before = self._seen
            if before is None:
                self._seen = Seen(view, _FIRST_VERSIONS)
            elif before.view is not view:
                self._seen = _next(before, view)
            return self._seen or Seen(view, _FIRST_VERSIONS)

    @property
    def last_seen(self) -> Seen | None:
        """The last view, without a check for a newer one."""
        return self._seen

    @property
    def losses(self) -> int:
        """How often names cached by the kernel may have become invalid; always 0 on a writable
        mount, where no name is cached. Costs nothing."""
        if self.is_writable or self._seen is None:
            return 0
        return self._seen.losses

    @property
    def versions(self) -> Versions:
        """The versions of the last view."""
        return self._seen.versions if self._seen is not None else _FIRST_VERSIONS

    @property
    def has_view(self) -> bool:
        """Whether a view was ever made. The first one takes a scan of the log's end."""
        return self._seen is not None

    def bound(self, view: View) -> int:
        """Returns the offset where the served part of `view` ends."""
        return view.bound(self.isolation)

    def end(self, *, is_last: bool) -> int | None:
        """Returns the offset of the first or last record served now; None if there is none."""
        view = self.view()
        known_view, known = self._ends
        if known_view is not view:
            self._ends = known_view, known = view, {}
        if is_last not in known:
            known[is_last] = view.last(self.isolation) if is_last else view.first(self.isolation)
        return known[is_last]

    def place(self, scope: Scope, window: int = 0) -> int:
        """Returns the number of this partition's place for inode numbers of `scope`."""
        versions, known = self._known_places
        if versions is not self.versions:
            versions, known = self._known_places = self.versions, {}
        key = window << 2 | scope
        if key not in known:
            known[key] = self._places.number(InodePlace(self, scope, versions.of(scope), window))
        return known[key]

    def inode(self, kind: InodeKind | int, scope: Scope, number: int) -> int:
        """Returns an inode number for a `number` of any size."""
        return pack(kind, self.place(scope, number >> NUMBER_BITS), number & NUMBER_MASK)

    def check_current(self, place: InodePlace) -> None:
        """Raises Stale if `place` is outdated."""
        if place.version != self.versions.of(place.scope):
            raise Stale

    def note_damage(self, error: CorruptError) -> None:
        """Logs `error` and lists it in status.json, once for each position in a file."""
        if self.log.report(error):
            self._log_damage()

    def _log_damage(self) -> None:
        if self._logged == len(self.log.damage):
            return
        with self._lock:
            found = list(self.log.damage.values())[self._logged :]
            self._logged += len(found)
        for error in found:
            logger.warning("%s-%d: %s", self.topic, self.number, error)


def _next(before: Seen, view: View) -> Seen:
    """Returns what is seen when `view` succeeds `before`."""
    versions = _next_versions(before, view)
    lost = versions != before.versions or _begin(view) != _begin(before.view)
    return Seen(view, versions, before.losses + lost)


def _begin(view: View) -> tuple[int, int]:
    return view.start_offset, view.segments[0].base_offset if len(view.segments) else -1


def _next_versions(before: Seen, view: View) -> Versions:
    """Returns the versions of `view`, which succeeds `before`."""
    versions = before.versions
    if view.cuts != before.view.cuts or view.end_offset < before.view.end_offset:
        return Versions(versions.records + 1, versions.files + 1)
    kept = {segment.files.identity for segment in view.segments}
    first = view.segments[0].base_offset if len(view.segments) else view.end_offset
    for segment in before.view.segments:
        if segment.base_offset >= first and segment.files.identity not in kept:
            return replace(versions, files=versions.files + 1)
    return versions
