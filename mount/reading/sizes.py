"""How large a stream is: exactly, once all its parts were measured, and until then no more than a
bound.

The bound keeps a stream from looking empty, or shorter than it is, while its size is not known. It
is what was measured, and for the rest the bytes in the log times what samples of it, or what was
measured so far, became, and half as much again. The first bound that is reported stays until the
size is known.

Where the records between the samples are of another kind, even that is too small. A program that
reads no further than the reported size would then lose the rest without an error. So whoever
reaches the reported size of a stream that goes on gets an error (`StreamHandle`), the stream is
*outgrown*, and its name leads to another file with a larger bound.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from time import monotonic
from typing import Final, Protocol

from kafkafs.storage.errors import CorruptError, StorageError

from .reported import Reported
from .stream_index import Measured, Part, StreamIndex
from .streams import Piece, Source

# Where nothing is known of a log its bytes become at most so many times as many; nearly always.
_UNSAMPLED: Final = 16.0
# How much more than the samples the rest may become.
_MARGIN: Final = 1.5
_SAMPLES: Final = 8
# For what a few records may take more than the samples.
_SLACK_BYTES: Final = 1 << 16
# Bytes of log and stream together that are measured in a second, before that is known. A program
# that waits in vain waits no longer than a second.
_FIRST_SPEED: Final = 1e9
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

    def sample(self, part: Part, begin: int) -> float | None:
        """How many bytes one byte of the log becomes at an offset of the part; None if no record
        follows in it."""


class Speeds:
    """Bytes measured in a second, by kind of stream: those of the log and of what becomes of it, as
    either may be much larger than the other. Threads may share it."""

    def __init__(self) -> None:
        self._speeds: dict[object, float] = {}

    def of(self, kind: object) -> float:
        return self._speeds.get(kind, _FIRST_SPEED)

    def learn(self, kind: object, count: int, seconds: float) -> None:
        if count >= _TELLING_BYTES and seconds > 0:
            old, new = self.of(kind), count / seconds
            self._speeds[kind] = old + _LEARNING * (new - old) if kind in self._speeds else new


def _spread(parts: Sequence[Part], count: int) -> Iterator[tuple[Part, int]]:
    """Some places that are about as many bytes of the log from each other: parts, and offsets in
    them. The first is the beginning."""
    total, before, taken = sum(part.log_bytes for part in parts), 0, 0
    for part in parts:
        while taken < count and total * taken < count * (before + part.log_bytes):
            within = (total * taken / count - before) / part.log_bytes
            yield part, part.begin + int(within * (part.end - part.begin))
            taken += 1
        before += part.log_bytes


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
        reported: Reported,
        ceiling: Callable[[], int] | None = None,
    ) -> None:
        """`source` is asked for its parts only, `pin` gives the same stream with its files held
        open. `kind`: streams that are measured at one speed. `reported`: what was said of the size
        before now. `ceiling`: what bounds the size in place of a sample."""
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
        #: What programs were told before the size was known.
        self.reported = reported
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
                exact = self._starts[-1] + len(self._source.tail)
                self.reported.note_reached(exact)
                self.exact = exact
        return self.exact

    def _add_starts(self) -> None:
        while len(self._starts) <= len(self._parts):
            known = self._parts[len(self._starts) - 1]
            if known is None:
                return
            self._starts.append(self._starts[-1] + known.length)
            self.reported.note_reached(self._starts[-1])

    def size(self) -> int:
        """The size, or what now bounds it where that is not known. Costs nothing."""
        exact = self.look()
        if exact is not None:
            return exact
        with self._state:
            return self.reported.bound_from(self._bound())

    def report(self) -> int:
        """The same for programs that will go by it: a bound stays as it is until the size is
        known. Costs nothing."""
        exact = self.look()
        return exact if exact is not None else self.reported.report(self.size())

    def _bound(self) -> int:
        if self._ceiling is not None:
            return self._ceiling()
        known, left = self._known(), self._unknown_log_bytes()
        return known + int(left * self._expected_ratio() * _MARGIN) + _SLACK_BYTES

    def _known(self) -> int:
        """Bytes of the stream that were measured."""
        ends = len(self._source.head) + len(self._source.tail)
        return ends + sum(each.length for each in self._parts if each is not None)

    def _unknown_log_bytes(self) -> int:
        pairs = zip(self._source.parts, self._parts, strict=True)
        return sum(part.log_bytes for part, measured in pairs if measured is None)

    def _expected_ratio(self) -> float:
        """What one byte of the log becomes: the most of the samples, or what was measured if that
        is more."""
        if self._ratio is None:
            return _UNSAMPLED
        pairs = [pair for pair in zip(self._source.parts, self._parts, strict=True) if pair[1]]
        taken = sum(part.log_bytes for part, _ in pairs)
        made = sum(measured.length for _, measured in pairs if measured is not None)
        return max(self._ratio, made / max(taken, 1))

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
            if self._ceiling is not None:
                made = max(self._ceiling() - self._known(), 0)
            else:
                made = int(left * self._expected_ratio())
        return (left + made) / self._speeds.of(self._kind)

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
        found = [source.sample(part, begin) for part, begin in _spread(unknown, _SAMPLES)]
        ratios = [ratio for ratio in found if ratio is not None]
        with self._state:
            self._ratio = max(ratios, default=_UNSAMPLED)

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
                for worked in self._pass:
                    count += worked
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
        """Measures part by part; after each piece, how many bytes it has and took of the log."""
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
                made = memoryview(piece.data).nbytes
                measured.add(made, piece.restart)
                self._note_measured(number, measured.length)
                if piece.restart > at:
                    made += int(left * (piece.restart - at) / records)
                    at = piece.restart
                yield made
            measured.end = part.end
            self._index.keep(part, measured)
            with self._state:
                self._parts[number] = measured
            yield int(left * max(part.end - at, 0) / records)

    def _note_measured(self, number: int, length: int) -> None:
        """A part has so many bytes at least."""
        with self._state:
            if number < len(self._starts):
                self.reported.note_reached(self._starts[number] + length)

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
