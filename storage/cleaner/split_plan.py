"""How a pass of the cleaner is cut into pieces that many processes do (`split_pass`): which ranges
of the log they learn, and which segments become one. Reads indexes and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Final

from ..config import TopicConfig
from ..log.producer_state import ProducerState
from ..segment.segment import Segment
from .cleaning import legacy_horizon_ms
from .key_entries import HashKey, new_hash_key
from .offset_map import SLOT_BYTES
from .plan import LogToClean, SegmentToClean, group, segments_of

# Keys of a slice whose map mostly stays in a processor's cache.
_SLICE_KEYS: Final = 1 << 17
_MOST_SLICES: Final = 1 << 12
#: Of the map of a slice.
LOAD_FACTOR: Final = 0.9


@dataclass(frozen=True, slots=True)
class Shape:
    """How a pass is cut: ranges of about `range_bytes` of `.log`, and all hashes in `slices`, which
    `parts` share evenly."""

    hash_key: HashKey
    range_bytes: int
    slices: int
    parts: int

    @classmethod
    def of(cls, offsets: int, range_bytes: int, memory_bytes: int, parts: int) -> Shape:
        """For so many dirty offsets, which are no fewer than keys. The map of a slice takes no more
        than `memory_bytes`; `parts`, or a multiple of them, which keeps as many processors busy."""
        by_memory = -(-int(offsets * SLOT_BYTES / LOAD_FACTOR) // memory_bytes)
        parts = max(parts, 1)
        parts *= max(-(-by_memory // parts), 1)
        more = max(min(offsets // parts // _SLICE_KEYS, _MOST_SLICES // parts), 1)
        return cls(new_hash_key(), max(range_bytes, 1), parts * more, parts)

    @property
    def tag(self) -> str:
        """In the names of files, so that none of another shape is taken for one of this."""
        return hashlib.sha256(self.as_json()).hexdigest()[:8]

    def as_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, data: bytes) -> Shape:
        """What `as_json` gave; ValueError for anything else."""
        try:
            found = json.loads(data)
            low, high = found.pop("hash_key")
            return cls((int(low), int(high)), **found)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"not the shape of a pass: {error}") from None


@dataclass(frozen=True, slots=True)
class Piece:
    """The batches of a segment, which has `size` bytes, with last offsets in [`start`, `end`):
    about `nbytes` of them."""

    base_offset: int
    size: int
    start: int
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """What one `learn` goes over, about so many bytes."""

    number: int
    group: int
    pieces: tuple[Piece, ...]
    size: int


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Segments that become one: base offset and bytes of each. `begun`: the transactions that are
    open in front of them, as of `OpenTransactions`."""

    number: int
    segments: tuple[tuple[int, int], ...]
    begun: Mapping[int, int]

    @property
    def bases(self) -> list[int]:
        return [base for base, _ in self.segments]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.segments)


@dataclass(frozen=True, slots=True)
class SplitPass:
    """What every piece knows: what `LogToClean` says, how it is cut, in how many ranges, and the
    offsets at which groups begin, the first uncleanable one behind them."""

    config: TopicConfig
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    legacy_horizon_ms: int
    producers: tuple[ProducerState, ...]
    shape: Shape
    ranges: int
    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Learned:
    """What a range did to transactions: as of `OpenTransactions`."""

    begun: Mapping[int, int]
    ended: frozenset[int]

    def added_to(self, before: Mapping[int, int]) -> dict[int, int]:
        """The transactions that are open behind the range, of those in front of it."""
        left = {each: at for each, at in before.items() if each not in self.ended}
        return {**self.begun, **left}

    def as_json(self) -> bytes:
        return json.dumps([list(self.begun.items()), sorted(self.ended)]).encode()

    @classmethod
    def of_json(cls, data: bytes) -> Learned:
        begun, ended = json.loads(data)
        return cls(dict(begun), frozenset(ended))


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass that is to be done in pieces."""

    split: SplitPass
    ranges: tuple[LogRange, ...]
    groups: tuple[SegmentGroup, ...]

    @classmethod
    def of(cls, log: LogToClean, shape: Shape) -> Plan:
        """Reads no more of the log than its indexes' sizes, and an entry for each cut."""
        segments = [s for s in segments_of(log.view) if s.base_offset < log.first_uncleanable]
        groups = group(segments, log.first_uncleanable, log.first_uncleanable, log.config)
        ranges = tuple(_numbered(_ranges(groups, shape.range_bytes)))
        split = SplitPass(
            config=log.config,
            first_dirty=log.first_dirty,
            first_uncleanable=log.first_uncleanable,
            now_ms=log.now_ms,
            legacy_horizon_ms=legacy_horizon_ms(segments, log.first_dirty, log.config),
            producers=tuple(log.producers()),
            shape=shape,
            ranges=len(ranges),
            bounds=(*(each[0].base_offset for each in groups), log.first_uncleanable),
        )
        named = [tuple((s.base_offset, s.size) for s in each) for each in groups]
        return cls(split, ranges, tuple(SegmentGroup(n, each, {}) for n, each in enumerate(named)))

    def with_transactions(self, learned: Sequence[Learned]) -> Plan:
        """The same once all ranges, in order, were learned: now groups can be copied."""
        begun: dict[int, int] = {}
        at_start: dict[int, dict[int, int]] = {}
        for each, found in zip(self.ranges, learned, strict=True):
            at_start.setdefault(each.group, dict(begun))
            begun = found.added_to(begun)
        groups = tuple(replace(each, begun=at_start[each.number]) for each in self.groups)
        return replace(self, groups=groups)


def fingerprint(log: LogToClean) -> str:
    """Differs whenever what is learned and decided of a log could."""
    segments = [s.segment for s in segments_of(log.view) if s.base_offset < log.first_uncleanable]
    what = [(s.base_offset, *s.files.identity, *s.state) for s in segments]
    text = repr((what, log.first_dirty, log.first_uncleanable, log.config)).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def _ranges(
    groups: Sequence[Sequence[SegmentToClean]], range_bytes: int
) -> Iterator[tuple[int, list[Piece]]]:
    """The number of its group and the pieces of each range; no range is of two groups."""
    for number, segments in enumerate(groups):
        pieces: list[Piece] = []
        for segment in segments:
            if pieces and _bytes(pieces) + segment.size > range_bytes:
                yield number, pieces
                pieces = []
            *first, last = _cut(segment.segment, range_bytes)
            for piece in first:
                yield number, [*pieces, piece]
                pieces = []
            pieces.append(last)
        if pieces:
            yield number, pieces


def _numbered(found: Iterable[tuple[int, list[Piece]]]) -> Iterator[LogRange]:
    for number, (of_group, pieces) in enumerate(found):
        yield LogRange(number, of_group, tuple(pieces), _bytes(pieces))


def _cut(segment: Segment, range_bytes: int) -> Iterator[Piece]:
    """A segment in pieces of about so many bytes, cut behind batches that its index names; wrong
    entries make pieces of other sizes."""
    base, end, size = segment.base_offset, segment.next_base, segment.size
    parts = max(-(-size // range_bytes), 1)
    index = segment.offset_index() if parts > 1 else None
    found = set()
    for part in range(1, parts if index is not None else 1):
        assert index is not None
        found.add(index.lookup_position(size * part // parts, size).offset + 1)
    inner = sorted(offset for offset in found if base < offset < end)
    for low, high in pairwise([base, *inner, end]):
        yield Piece(base, size, low, high, size // (len(inner) + 1))


def _bytes(pieces: Iterable[Piece]) -> int:
    return sum(piece.nbytes for piece in pieces)
