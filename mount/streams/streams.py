"""A partition as one stream of bytes: made piece by piece, readable at any position.

The length of a stream, and the record at a position, are not known before everything up to there
was rendered once (`sizes.py`). So a `StreamHandle` keeps

- a *window*: the consecutive pieces around the read position;
- *checkpoints*: positions at which rendering can start, each with its offset. Seeking forward
  renders and discards; seeking back starts at the nearest checkpoint before.

Invariants:

1. The window is what the source yields after some checkpoint; at its end the source continues.
2. A piece after a checkpoint is the same, byte for byte, whenever the source is started there:
   records do not change, and the view is pinned.
3. Damage has a position, that of the next readable byte. A read stops before it; the read that
   begins there fails once; from then on the damage is skipped.

One thread at a time produces (`_producing`); it hands over pieces under `_state`, which is never
held for longer than a copy. A thread in `keep_ahead` produces while the reader reads.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from kafkafs.storage import BUFFERS, CorruptError, StorageError, fresh

from ..vfs.errnos import DamageAhead, Outgrown, PastEnd
from ..vfs.handles import Data, Handle
from ..vfs.pending import Pending
from .reported import Reported

#: Bytes that are made ahead of a reader. The producing thread wakes up when less than half is left;
#: half must exceed most pieces, or the reader would arrive before the next piece is ready.
READ_AHEAD: Final = 24 << 20
#: A read this many bytes beyond the window and checkpoints first waits until the size is known.
FAR: Final = 64 << 20
# How long the producing thread waits for a pausing reader.
_PAUSE_SECONDS: Final = 0.1
# Bytes kept before the last read position, for readers that step back a little (less, tail).
_KEPT_BEHIND: Final = 1 << 20
# The page cache reads multiples of this.
_PAGE: Final = 4096
# How often a read that may be the page cache's is interrupted at damage. The page cache gives up
# after four.
_INTERRUPTIONS: Final = 16
# Initial distance of checkpoints; it doubles when there are too many.
_CHECKPOINT_DISTANCE: Final = 4 << 20
_MAX_CHECKPOINTS: Final = 4096


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """Some bytes of a stream. `restart`: where to start the source so that this piece comes first;
    -1 if that is impossible."""

    data: Data
    restart: int = -1


class StreamSource(Protocol):
    """The producer of a stream."""

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        """Yields the pieces from the very beginning (`restart` -1) or from a piece's `restart` on,
        and an error for bytes that cannot be read."""


class Size(Protocol):
    """What is known of the size of a stream."""

    @property
    def exact(self) -> int | None:
        """The size in bytes; None while it is not known."""

    @property
    def is_damaged(self) -> bool:
        """Whether bytes of the stream cannot be read; valid once `exact` is known."""

    def before(self, position: int) -> tuple[int, int]:
        """Returns the last position <= `position` where the source can be started, and its
        restart."""

    @property
    def reported(self) -> Reported:
        """Sizes reported before the size was known."""


class StreamHandle(Handle):
    """An open stream. Any thread may read.

    The kernel may cache the stream if its size is known when it is opened, and all bytes can be
    read: the page cache takes any short read for the end of the file. Reads of other streams bypass
    the page cache, except those of private mappings, splice(2) and sendfile(2): see
    `guards_page_cache`. sendfile(2) rejects a stream that is not seekable, such as one that is
    known to be damaged.

    If the size was not known, a bound was reported. No read returns the last byte before the bound
    if the stream is longer, so a program that stops at the bound has met an error.
    """

    #: Whether reads may come from the page cache although the stream bypasses it. A read that
    #: reaches damage is then interrupted some times. Programs repeat such a read; the page cache
    #: repeats it a few times and gives up with an error, instead of taking damage for the end of
    #: the file. If a program's own retries exhaust the interruptions, the page cache still gets a
    #: short read, and `was_cut`; it never gets the bytes after the damage.
    guards_page_cache = False

    def __init__(
        self,
        source: StreamSource,
        note_damage: Callable[[CorruptError], None],
        checkpoints: Checkpoints | None = None,
        size: Size | None = None,
    ) -> None:
        """`checkpoints`: known ones, which the handle extends. `size`: what is known of the
        stream's size, now or later."""
        self._size = size
        self._is_sized = size is not None and size.exact is not None and not size.is_damaged
        self.direct_io = not self._is_sized
        self.seekable = size is None or size.exact is None or not size.is_damaged
        self._source = source
        self._note_damage = note_damage
        self._producing = threading.Lock()
        self._pieces: Iterator[StreamPiece | CorruptError] | None = None  # under _producing
        self._checkpoints = checkpoints or Checkpoints()  # under _producing
        self._state = threading.Lock()  # guards what follows
        self._moved = threading.Condition(self._state)  # the reader moved
        self._window: deque[tuple[int, memoryview]] = deque()
        self._window_end = 0
        self._length: int | None = None  # once the end was seen
        self._damage: dict[int, CorruptError] = {}  # not yet raised, by position
        self._raised: set[int] = set()  # positions whose damage was raised
        self._cut_at = -1  # where damage ended the last read
        self._interrupted = (-1, 0)  # a position, and how often a read there was interrupted
        self._position = 0  # where the last read began; it ended, or should end, at _reached
        self._reached = 0
        self._closed = False

    def read(self, position: int, size: int) -> Data:
        """Reads bytes. Raises CorruptError once for each damage, if it is at `position`."""
        with self._producing:
            while (data := self.at_hand(position, size)) is None:
                self._seek(position)
                self._produce(position)
            return data

    def at_hand(self, position: int, size: int) -> Data | None:
        if self._is_sized:
            return self._exactly(position, size)
        return self._at_hand(position, size)

    def _exactly(self, position: int, size: int) -> Data | None:
        """Implements `at_hand` if the size is known and nothing is damaged."""
        served = min(size, self._known_end() - position)
        if served <= 0:
            return b""
        data = self._at_hand(position, served)
        if data is not None and len(data) < served:
            # A program would take that for the end of the file.
            what = f"a stream of {self._known_end()} bytes ends after {position + len(data)}"
            raise CorruptError(f"{what}: the log changed under it, or was damaged")
        return data

    def _known_end(self) -> int:
        """Returns where the stream ends; -1 while that is not known."""
        if self._length is not None:
            return self._length
        exact = self._size.exact if self._size is not None else None
        return -1 if exact is None else exact

    def is_far(self, position: int) -> bool:
        """Returns whether a read at `position` would first have to make much of the stream, and
        might find that it ends before."""
        if self._size is None or self._known_end() >= 0:
            return False
        return position - max(self._window_end, self._start_before(position)[0]) > FAR

    def _at_hand(self, position: int, size: int) -> Data | None:
        with self._state:
            self._position, self._reached = position, position + size
            if self._ahead() * 2 < READ_AHEAD:
                self._moved.notify()
            if position in self._damage:
                self._interrupt(position, size)
                self._raised.add(position)
                raise self._damage.pop(position)
            if self._size is None:
                return self._gather(position, position + size)
            return self._below_bound(self._size.reported, position, size)

    def _below_bound(self, reported: Reported, position: int, size: int) -> Data | None:
        """Does as `_gather`, for programs that may rely on a size that was only a bound."""
        is_known = self._known_end() >= 0
        if self.direct_io and is_known and self._known_end() < position:
            raise PastEnd(reported.name, position, self._known_end())
        if self.guards_page_cache and (passed := [at for at in self._damage if at < position]):
            raise fresh(self._damage[max(passed)])
        bound = reported.bound
        if bound is not None and position < bound <= position + size:
            if reported.is_outgrown or bound in self._damage:
                raise Outgrown(reported.name, bound)
            if not is_known:
                return None  # find out first whether the stream is longer
        data = self._gather(position, position + size)
        if data is not None and self.direct_io:
            end = position + len(data)
            self._cut_at = end if len(data) < size and end in self._damage else -1
            if self._cut_at >= 0:
                self._interrupt(position, size)
        return data

    def _interrupt(self, position: int, size: int) -> None:
        """Raises Interrupted if the read may be the page cache's, a limited number of times."""
        if not self.guards_page_cache or position % _PAGE or size % _PAGE:
            return
        at, count = self._interrupted
        self._interrupted = position, count + 1 if at == position else 1
        if self._interrupted[1] <= _INTERRUPTIONS:
            raise DamageAhead

    def was_cut(self, position: int, size: int) -> bool:
        """Returns whether a read was short because of damage after it."""
        return position + size == self._cut_at

    def wants_more(self) -> bool:
        """Returns whether more bytes should be made ahead of the reader."""
        with self._state:
            return self._is_near_reader() and self._ahead() * 2 < READ_AHEAD

    def keep_ahead(self, note_progress: Callable[[], object]) -> None:
        """Makes pieces ahead of the reader, until the stream ends or the reader pauses or seeks
        away. Calls `note_progress` after each."""
        try:
            while self._wait_for_space():
                with self._producing:
                    self._produce(self._position)
                note_progress()
        except (StorageError, OSError):
            return  # the read that arrives there will raise it again

    def _wait_for_space(self) -> bool:
        with self._state:
            if self._ahead() >= READ_AHEAD:
                self._moved.wait_for(
                    lambda: not self._is_near_reader() or self._ahead() * 2 < READ_AHEAD,
                    _PAUSE_SECONDS,
                )
            return self._is_near_reader() and self._ahead() < READ_AHEAD

    def close(self) -> None:
        with self._state:
            self._closed = True
            self._moved.notify()
        with self._producing:
            self._pieces = None
        with self._state:
            self._window.clear()

    # -- under _state ---------------------------------------------------------------------------

    def _ahead(self) -> int:
        return self._window_end - self._reached

    def _is_near_reader(self) -> bool:
        """Returns whether making more pieces leads to the position of the reader."""
        window_start = self._window[0][0] if self._window else self._window_end
        is_in_window = window_start <= self._position <= self._window_end
        return is_in_window and self._length is None and not self._closed

    def _gather(self, position: int, end: int) -> Data | None:
        """Returns the bytes of the window up to `end`, fewer before damage or the stream's end;
        None if the window does not have them all."""
        stop = min((at for at in self._damage if position < at < end), default=end)
        if self._length is not None and position >= self._length:
            return b""
        if self._length is not None:
            stop = min(stop, self._length)
        if stop > self._window_end or not self._window or position < self._window[0][0]:
            return None
        parts = []
        for start, data in self._window:
            if start >= stop:
                break
            if start + len(data) > position:
                parts.append(data[max(position - start, 0) : stop - start])
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _trim(self, position: int) -> None:
        keep = position - _KEPT_BEHIND
        while self._window and self._window[0][0] + len(self._window[0][1]) <= keep:
            self._window.popleft()

    # -- under _producing -----------------------------------------------------------------------

    def _seek(self, position: int) -> None:
        """Restarts the source if that is nearer to `position` than continuing, or if `position` is
        before the window."""
        start, restart = self._start_before(position)
        window_start = self._window[0][0] if self._window else self._window_end
        if self._pieces is not None and (window_start <= position and start <= self._window_end):
            return
        with self._state:
            self._window.clear()
            self._window_end = start
            self._length = None
        self._pieces = self._source.pieces(restart)

    def _start_before(self, position: int) -> tuple[int, int]:
        found = self._checkpoints.before(position)
        return found if self._size is None else max(found, self._size.before(position))

    def _produce(self, position: int) -> None:
        """Makes one more piece, or finds the end. Drops what lies well before `position`."""
        if self._pieces is None:
            self._seek(self._window_end)
        assert self._pieces is not None
        try:
            piece = next(self._pieces, None)
        except (StorageError, OSError):
            self._pieces = None  # a generator that raised yields nothing more
            raise
        if isinstance(piece, CorruptError):
            self._note_damage(piece)
            with self._state:
                if self._window_end not in self._raised:
                    self._damage.setdefault(self._window_end, piece)
            return
        if piece is None:
            with self._state:
                self._length = self._window_end
            return
        self._checkpoints.add(self._window_end, piece.restart)
        with self._state:
            if len(piece.data):
                self._window.append((self._window_end, memoryview(piece.data).cast("B")))
                self._window_end += len(piece.data)
            self._trim(position)
        if self._size is not None:
            self._size.reported.note_reached(self._window_end)


class PreparedSource(StreamSource, Protocol):
    """A source that needs preparation before it yields pieces."""

    def pending(self) -> Pending | None:
        """Returns the preparation; None if it is done. Costs nothing."""


class PreparedStreamHandle(StreamHandle):
    """A stream of a `PreparedSource`. A read prepares the source, or waits until it is prepared."""

    def __init__(
        self,
        source: PreparedSource,
        note_damage: Callable[[CorruptError], None],
        size: Size | None = None,
    ) -> None:
        super().__init__(source, note_damage, size=size)
        self.pending = source.pending


def _joined(parts: list[memoryview]) -> memoryview:
    joined = BUFFERS.acquire(sum(map(len, parts)))
    at = 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined


class Checkpoints:
    """Ascending positions, each with its restart for the source. The first is the beginning."""

    def __init__(self, most: int = _MAX_CHECKPOINTS) -> None:
        """`most`: the maximum number of positions."""
        self._most = most
        self._positions = [0]
        self._restarts = [-1]
        self._distance = _CHECKPOINT_DISTANCE

    def before(self, position: int) -> tuple[int, int]:
        """Returns the last position <= `position`, and its restart."""
        at = bisect_right(self._positions, position) - 1
        return self._positions[at], self._restarts[at]

    def copy(self) -> Checkpoints:
        """Returns a copy that may be extended."""
        copy = Checkpoints(self._most)
        copy._positions, copy._restarts = self._positions.copy(), self._restarts.copy()
        copy._distance = self._distance
        return copy

    def add(self, position: int, restart: int) -> None:
        if restart < 0 or position < self._positions[-1] + self._distance:
            return
        if len(self._positions) >= self._most:
            del self._positions[1::2], self._restarts[1::2]
            self._distance *= 2
        self._positions.append(position)
        self._restarts.append(restart)
