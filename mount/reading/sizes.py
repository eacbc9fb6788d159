"""How large a stream is: exactly, once all its parts were measured, and until then no more than a
bound.

The bound is what keeps a stream from looking empty, or shorter than it is, while its size is not
known: what was measured, and for the rest the bytes in the log times what a sample of it, or what
was measured so far, became. It is mostly a half too large. Where records behind the sample turn out
to be of another kind it may be too small, and is corrected as measuring, or a reader, comes there;
reads of a stream without a known size never end at it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from time import monotonic
from typing import Final, Protocol

from kafkafs.storage.errors import CorruptError, StorageError

from .stream_index import Measured, Part, StreamIndex
from .streams import Piece, Source

# Where nothing is known of a log its bytes become at most so many times as many; nearly always.
_UNSAMPLED: Final = 16.0
# How much more than the sample the rest may become.
_MARGIN: Final = 1.5
_SAMPLES: Final = 8
# For what a few records may take more than the sample.
_SLACK_BYTES: Final = 1 << 16
# Bytes of a log measured in a second, before that is known. Who waits in vain, waits no longer
# than for a second.
_FIRST_SPEED: Final = 500e6
# Of a speed that was measured so much counts.
_LEARNING: Final = 0.5
# Measuring fewer bytes tells nothing of the speed.
_TELLING_BYTES: Final = 1 << 20


class MeasurableSource(Source, Protocol):
    """A stream that consists of `head`, parts, and `tail`."""

    @property
    def head(self) -> bytes: ...
    @property
    def tail(self) -> bytes: ...
    @property
    def parts(self) -> Sequence[Part]: ...

    def part_pieces(self, part: Part, begin: int) -> Iterator[Piece | CorruptError]:
        """The pieces of a part from an offset on."""

    def sample(self, part: Part) -> float | None:
        """How many bytes one byte of the log becomes where the part begins; None if it has no
        record."""


class Speeds:
    """Bytes of logs measured in a second, by kind of stream. Threads may share it."""

    def __init__(self) -> None:
        self._speeds: dict[object, float] = {}

    def of(self, kind: object) -> float:
        return self._speeds.get(kind, _FIRST_SPEED)

    def learn(self, kind: object, count: int, seconds: float) -> None:
        if count >= _TELLING_BYTES and seconds > 0:
            old, new = self.of(kind), count / seconds
            self._speeds[kind] = old + _LEARNING * (new - old) if kind in self._speeds else new


class StreamSize:
    """The size of a stream whose bytes are fixed. Any thread may use it."""

    def __init__(
        self,
        source: MeasurableSource,
        index: StreamIndex,
        pin: Callable[[], MeasurableSource],
        note_damage: Callable[[CorruptError], None],
        kind: object,
        speeds: Speeds,
        ceiling: Callable[[], int] | None = None,
    ) -> None:
        """`source` is asked for its parts only, `pin` gives the same stream with its files held
        open. `kind`: streams that are measured at one speed. `ceiling`: what bounds the size in
        place of a sample."""
        self._source = source
        self._index = index
        self._pin = pin
        self._note_damage = note_damage
        self._kind = kind
        self._speeds = speeds
        self._ceiling = ceiling
        self._measuring = threading.Lock()  # held while a part is measured; before _state
        self._pass: Generator[int] | None = None  # under _measuring
        self._state = threading.Lock()  # guards what follows
        self._parts: list[Measured | None] = [None] * len(source.parts)
        self._starts = [len(source.head)]  # of the first parts, and where the next one begins
        self._ratio: float | None = None
        self._reached = 0
        #: In bytes; None until it is known.
        self.exact: int | None = None
        #: Whether bytes of the stream cannot be read; good where `exact` is known.
        self.is_damaged = False
        self.look()

    # -- what is known --------------------------------------------------------------------------

    def look(self) -> int | None:
        """The size, if that is known by now. Costs nothing."""
        if self.exact is not None:
            return self.exact
        with self._state:
            for number, part in enumerate(self._source.parts):
                if self._parts[number] is None:
                    is_empty = not part.log_bytes
                    self._parts[number] = Measured(part.end) if is_empty else self._index.find(part)
            self._add_starts()
            if len(self._starts) > len(self._parts):
                self.is_damaged = any(each is not None and each.is_damaged for each in self._parts)
                self.exact = self._starts[-1] + len(self._source.tail)
        return self.exact

    def _add_starts(self) -> None:
        while len(self._starts) <= len(self._parts):
            known = self._parts[len(self._starts) - 1]
            if known is None:
                return
            self._starts.append(self._starts[-1] + known.length)

    def size(self) -> int:
        """The size, or the bound where that is not known. Costs nothing."""
        exact = self.look()
        if exact is not None:
            return exact
        with self._state:
            return max(self._bound(), int(self._reached * _MARGIN))

    def _bound(self) -> int:
        if self._ceiling is not None:
            return self._ceiling()
        known = left = 0
        ratio = _UNSAMPLED if self._ratio is None else self._ratio
        for part, measured in zip(self._source.parts, self._parts, strict=True):
            if measured is None:
                left += part.log_bytes
                continue
            known += measured.length
            if self._ratio is not None and part.log_bytes:
                became = measured.length / part.log_bytes
                ratio = max(ratio, became if became <= ratio else became * _MARGIN)
        ends = len(self._source.head) + len(self._source.tail)
        return known + int(left * ratio) + ends + _SLACK_BYTES

    def note_reached(self, position: int) -> None:
        """A reader found that the stream has so many bytes at least."""
        self._reached = max(self._reached, position)

    def before(self, position: int) -> tuple[int, int]:
        """The last place at or before `position` where the source can be started, and with which
        restart."""
        with self._state:
            number = min(bisect_right(self._starts, position), len(self._parts)) - 1
            if number < 0:
                return 0, -1
            start, measured = self._starts[number], self._parts[number]
            within = measured.before(position - start) if measured is not None else None
            if within is not None:
                return start + within[0], within[1]
            return (start, self._source.parts[number].begin) if number else (0, -1)

    def seconds_left(self) -> float:
        """How long measuring the rest will take, about. Costs nothing."""
        if self.look() is not None:
            return 0.0
        with self._state:
            pairs = zip(self._source.parts, self._parts, strict=True)
            left = sum(self._left(part) for part, known in pairs if known is None)
        return left / self._speeds.of(self._kind)

    def _left(self, part: Part) -> float:
        """The bytes of the log that are to be measured of a part."""
        known = self._index.prefix(part)
        share = (part.end - known.end) / max(part.end - part.begin, 1)
        return part.log_bytes * share

    # -- finding it, in a thread ----------------------------------------------------------------

    @property
    def needs_sample(self) -> bool:
        return self.look() is None and self._ratio is None and self._ceiling is None

    def sample(self) -> None:
        """Looks at a few records for a tighter bound. Raises SegmentGone, OSError."""
        if not self.needs_sample:
            return
        source = self._pin()
        unknown = [
            part
            for part, known in zip(source.parts, self._parts, strict=True)
            if known is None and part.begin < part.end
        ]
        step = max(len(unknown) // _SAMPLES, 1)
        found = [source.sample(part) for part in unknown[::step]]
        ratios = [ratio for ratio in found if ratio is not None]
        with self._state:
            self._ratio = max(ratios) * _MARGIN if ratios else _UNSAMPLED

    def measure(self, seconds: float) -> bool:
        """Measures for about so long; True if the size is known then. Raises SegmentGone and
        OSError; damage is no error, as the bytes that can be read are counted."""
        with self._measuring:
            deadline = monotonic() + seconds
            if self.look() is not None:
                self._stop()
                return True
            if self._pass is None:
                self._pass = self._measured_pieces()
            started, count = monotonic(), 0
            try:
                for read in self._pass:
                    count += read
                    if monotonic() >= deadline:
                        return False
            except (StorageError, OSError):
                self._pass = None
                raise
            finally:
                self._speeds.learn(self._kind, count, monotonic() - started)
            self._pass = None
            return self.look() is not None

    def _measured_pieces(self) -> Generator[int]:
        """Measures part by part; after each piece, how many bytes of the log it took, about."""
        source = self._pin()
        for number, part in enumerate(source.parts):
            if self._parts[number] is not None or self._index.find(part) is not None:
                continue
            measured = self._index.prefix(part)
            left, records = self._left(part), max(part.end - measured.end, 1)
            at = measured.end
            for piece in source.part_pieces(part, measured.end):
                if isinstance(piece, CorruptError):
                    self._note_damage(piece)
                    measured.is_damaged = True
                    continue
                measured.add(memoryview(piece.data).nbytes, piece.restart)
                if piece.restart > at:
                    yield int(left * (piece.restart - at) / records)
                    at = piece.restart
                else:
                    yield 0
            measured.end = part.end
            self._index.keep(part, measured)
            with self._state:
                self._parts[number] = measured
            yield int(left * max(part.end - at, 0) / records)

    @property
    def is_measuring(self) -> bool:
        """Whether there is anything for `stop` to give up."""
        return self._pass is not None

    def stop(self) -> None:
        """Gives up what is being measured; parts that were measured stay known. May wait for a
        piece to be made."""
        with self._measuring:
            self._stop()

    def _stop(self) -> None:
        passing, self._pass = self._pass, None
        if passing is not None:
            passing.close()
