"""The size of a stream: exact once all its parts are measured, and a bound until then.

The bound keeps a stream of unknown size from looking empty or too short. It is the length of the
measured parts plus, for the rest, its bytes in the log times the expansion of samples or of the
measured parts, and half as much again. The first bound reported stays until the size is known.

If the records between the samples are of another kind, even that is too small. A program that reads
no further than the reported size would then lose the rest without an error. So a read that reaches
the reported size of a longer stream fails (`StreamHandle`), the stream is *outgrown*, and its name
leads to another file with a larger bound.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from time import monotonic
from typing import Final, Protocol

from kafkafs.storage import CorruptError, StorageError

from .reported import MARGIN, UNSAMPLED_RATIO, Reported
from .stream_index import MeasuredPart, Part, StreamIndex
from .streams import StreamPiece, StreamSource

_SAMPLES: Final = 8
# Allowance for a few records that expand more than the samples.
_SLACK_BYTES: Final = 1 << 16
# The assumed speed in bytes per second, of log and stream together, before it is measured. If it is
# too high, a program waits in vain, but no longer than a second.
_FIRST_SPEED: Final = 1e9
# The weight of the newest measurement of the speed.
_LEARNING: Final = 0.5
# Measurements of fewer bytes are not used for the speed.
_TELLING_BYTES: Final = 1 << 20


class MeasurableSource(StreamSource, Protocol):
    """A stream that consists of `head`, `parts`, and `tail`."""

    @property
    def head(self) -> bytes: ...
    @property
    def tail(self) -> bytes: ...
    @property
    def parts(self) -> Sequence[Part]: ...

    def part_pieces(self, part: Part, begin: int) -> Iterator[StreamPiece | CorruptError]:
        """Yields the pieces of a part from offset `begin` on."""

    def sample(self, part: Part, begin: int) -> float | None:
        """Returns the bytes made of one byte of the log at offset `begin` of the part; None if no
        record follows in it."""


class Speeds:
    """Bytes measured per second, by kind of stream: bytes of the log plus those of the stream, as
    either may be much larger than the other. Threads may share it."""

    def __init__(self) -> None:
        self._speeds: dict[object, float] = {}

    def of(self, kind: object) -> float:
        return self._speeds.get(kind, _FIRST_SPEED)

    def note(self, kind: object, count: int, seconds: float) -> None:
        if count >= _TELLING_BYTES and seconds > 0:
            old, new = self.of(kind), count / seconds
            self._speeds[kind] = old + _LEARNING * (new - old) if kind in self._speeds else new


def _spread(parts: Sequence[Part], count: int) -> Iterator[tuple[Part, int]]:
    """Yields `count` places about equally many log bytes apart, each a part and an offset in it.
    The first is the beginning."""
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
        """`source` is used for its parts only; `pin` returns the same stream with its files held
        open. `kind`: groups streams measured at the same speed. `reported`: sizes reported so far.
        `ceiling`: gives a bound of the size, in place of samples."""
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
        self._parts: list[MeasuredPart | None] = [None] * len(source.parts)
        self._starts = [len(source.head)]  # of the first known parts, then the end of the last
        self._ratio: float | None = None
        #: Sizes reported before the size was known.
        self.reported = reported
        #: In bytes; None until it is known.
        self.exact: int | None = None
        #: Whether bytes of the stream cannot be read; valid once `exact` is known.
        self.is_damaged = False
        self.look()

    # -- what is known --------------------------------------------------------------------------

    def look(self) -> int | None:
        """Returns the size if all parts are measured by now. Costs nothing."""
        if self.exact is not None:
            return self.exact
        with self._state:
            for number, part in enumerate(self._source.parts):
                if self._parts[number] is None:
                    self._parts[number] = (
                        MeasuredPart(part.end) if part.is_empty else self._index.find(part)
                    )
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
        """Returns the size, or its current bound while it is not known. Costs nothing."""
        exact = self.look()
        if exact is not None:
            return exact
        with self._state:
            return self.reported.bound_from(self._bound())

    def report(self) -> int:
        """Returns the same for programs that will rely on it: a bound, once reported, stays the
        same until the size is known. Costs nothing."""
        exact = self.look()
        return exact if exact is not None else self.reported.report(self.size())

    def _bound(self) -> int:
        if self._ceiling is not None:
            return self._ceiling()
        known, left = self._known(), self._unknown_log_bytes()
        return known + int(left * self._expected_ratio() * MARGIN) + _SLACK_BYTES

    def _known(self) -> int:
        """Returns how many bytes of the stream were measured."""
        ends = len(self._source.head) + len(self._source.tail)
        return ends + sum(each.length for each in self._parts if each is not None)

    def _unknown_log_bytes(self) -> int:
        pairs = zip(self._source.parts, self._parts, strict=True)
        return sum(part.log_bytes for part, measured in pairs if measured is None)

    def _expected_ratio(self) -> float:
        """Returns the bytes made of one byte of the log: the maximum of the samples and of the
        average of the measured parts."""
        if self._ratio is None:
            return UNSAMPLED_RATIO
        pairs = [pair for pair in zip(self._source.parts, self._parts, strict=True) if pair[1]]
        taken = sum(part.log_bytes for part, _ in pairs)
        made = sum(measured.length for _, measured in pairs if measured is not None)
        return max(self._ratio, made / max(taken, 1))

    def before(self, position: int) -> tuple[int, int]:
        """Returns the last position <= `position` where the source can be started, and its
        restart."""
        with self._state:
            number = min(bisect_right(self._starts, position), len(self._parts)) - 1
            if number < 0:
                return 0, -1
            # Parts before it without a byte may have damage, which belongs to this position, too.
            number = bisect_left(self._starts, self._starts[number])
            start, measured = self._starts[number], self._parts[number]
            within = measured.before(position - start) if measured is not None else None
            if within is not None:
                return start + within[0], within[1]
            return (start, self._source.parts[number].begin) if number else (0, -1)

    def seconds_left(self) -> float:
        """Estimates the seconds needed to measure the rest. Costs nothing."""
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
        """Returns how many log bytes of a part remain to be measured."""
        known = self._index.prefix(part)
        share = (part.end - known.end) / max(part.end - part.begin, 1)
        return part.log_bytes * share

    # -- finding it, in a thread ----------------------------------------------------------------

    @property
    def needs_sample(self) -> bool:
        return self.look() is None and self._ratio is None and self._ceiling is None

    def sample(self) -> None:
        """Reads a few records for a tighter bound. Raises SegmentGone or OSError."""
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
            self._ratio = max(ratios, default=UNSAMPLED_RATIO)

    def measure(self, seconds: float) -> bool:
        """Measures for about so many seconds; returns whether the size is known then. Raises
        SegmentGone or OSError; damage is no error, as the readable bytes are counted."""
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
                self._speeds.note(self._kind, count, monotonic() - started)
            self._pass = None
            return self.look() is not None

    def _measured_pieces(self) -> Generator[int]:
        """Measures part by part; yields the bytes of each piece plus those it took of the log."""
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
                    measured.note_damage()
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
        """Notes that a part has at least `length` bytes."""
        with self._state:
            if number < len(self._starts):
                self.reported.note_reached(self._starts[number] + length)

    @property
    def is_measuring(self) -> bool:
        """Whether there is anything for `stop` to abort."""
        return self._pass is not None

    def stop(self) -> None:
        """Aborts measuring; completed parts stay known. May wait for a piece to be made."""
        with self._measuring:
            self._stop()

    def _stop(self) -> None:
        passing, self._pass = self._pass, None
        if passing is not None:
            passing.close()
