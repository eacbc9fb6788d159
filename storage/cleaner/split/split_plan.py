"""Plans how a cleaner pass is divided among many processes (see `split_pass`): which ranges of the
log they read, and which segments are merged. Reads only indexes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Final

from ...config.kafka import TopicConfig
from ...log.state.producer_state import ProducerStateEntry
from ...segment.segment import Segment
from ..cleaning import legacy_horizon_ms
from ..offset_map import SLOT_BYTES
from ..plan import LogToClean, SegmentToClean, group, segments_of
from .key_entries import HashKey, new_hash_key

# The keys of a slice whose map mostly fits in a processor's cache.
_SLICE_KEYS: Final = 1 << 17
_MOST_SLICES: Final = 1 << 12
#: The load factor of a slice's map.
LOAD_FACTOR: Final = 0.9


@dataclass(frozen=True, slots=True)
class Shape:
    """How a pass is divided: ranges of about `range_bytes` of `.log`, and all hashes in `slices`,
    which `parts` share evenly."""

    hash_key: HashKey
    range_bytes: int
    slices: int
    parts: int

    @classmethod
    def of(cls, offsets: int, range_bytes: int, memory_bytes: int, parts: int) -> Shape:
        """Returns the shape for a number of dirty offsets, which is at least the number of keys.
        The map of a slice takes at most `memory_bytes`. The number of parts is `parts` or a
        multiple of it, which occupies as many processors."""
        by_memory = -(-int(offsets * SLOT_BYTES / LOAD_FACTOR) // memory_bytes)
        parts = max(parts, 1)
        parts *= max(-(-by_memory // parts), 1)
        more = max(min(offsets // parts // _SLICE_KEYS, _MOST_SLICES // parts), 1)
        return cls(new_hash_key(), max(range_bytes, 1), parts * more, parts)

    @property
    def tag(self) -> str:
        """Part of file names, so that files of different shapes are not confused."""
        return hashlib.sha256(self.as_json()).hexdigest()[:8]

    def as_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, data: bytes) -> Shape:
        """Parses the output of `as_json`. Raises ValueError for anything else."""
        try:
            found = json.loads(data)
            low, high = found.pop("hash_key")
            return cls((int(low), int(high)), **found)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"not the shape of a pass: {error}") from None


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """The batches of a segment of `size` bytes whose last offsets are in [`start`, `end`): about
    `nbytes` of it."""

    base_offset: int
    size: int
    start: int
    end: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """The input of one `write_keys`, about `size` bytes."""

    number: int
    group: int
    pieces: tuple[SplitPiece, ...]
    size: int


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """Segments that are merged into one: base offset and size of each. `begun`: the transactions
    that are open before them, see `OpenTransactions`."""

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
    """What every piece needs: the data of `LogToClean`, the shape, the number of ranges, and the
    offsets at which groups begin, followed by the first uncleanable one."""

    config: TopicConfig
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    legacy_horizon_ms: int
    producers: tuple[ProducerStateEntry, ...]
    shape: Shape
    ranges: int
    bounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RangeTransactions:
    """The transactions that a range began and ended, see `OpenTransactions`."""

    begun: Mapping[int, int]
    ended: frozenset[int]

    def added_to(self, before: Mapping[int, int]) -> dict[int, int]:
        """Returns the transactions that are open after the range, given those open before it."""
        left = {each: at for each, at in before.items() if each not in self.ended}
        return {**self.begun, **left}

    def as_json(self) -> bytes:
        return json.dumps([list(self.begun.items()), sorted(self.ended)]).encode()

    @classmethod
    def of_json(cls, data: bytes) -> RangeTransactions:
        begun, ended = json.loads(data)
        return cls(dict(begun), frozenset(ended))


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass divided into pieces."""

    split: SplitPass
    ranges: tuple[LogRange, ...]
    groups: tuple[SegmentGroup, ...]

    @classmethod
    def of(cls, log: LogToClean, shape: Shape) -> Plan:
        """Plans a pass. Reads only the sizes of the log's indexes, and one entry for each cut."""
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

    def with_transactions(self, transactions: Sequence[RangeTransactions]) -> Plan:
        """Returns the plan with the transactions of its groups, which `copy_range` needs, from the
        results of all ranges in order."""
        begun: dict[int, int] = {}
        at_start: dict[int, dict[int, int]] = {}
        for each, found in zip(self.ranges, transactions, strict=True):
            at_start.setdefault(each.group, dict(begun))
            begun = found.added_to(begun)
        groups = tuple(replace(each, begun=at_start[each.number]) for each in self.groups)
        return replace(self, groups=groups)


def fingerprint(log: LogToClean) -> str:
    """Returns a hash that differs whenever the results of `write_keys` and `decide_range` could."""
    segments = [s.segment for s in segments_of(log.view) if s.base_offset < log.first_uncleanable]
    what = [(s.base_offset, *s.files.identity, *s.state) for s in segments]
    text = repr((what, log.first_dirty, log.first_uncleanable, log.config)).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def _ranges(
    groups: Sequence[Sequence[SegmentToClean]], range_bytes: int
) -> Iterator[tuple[int, list[SplitPiece]]]:
    """Yields the group number and the pieces of each range; no range spans two groups."""
    for number, segments in enumerate(groups):
        pieces: list[SplitPiece] = []
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


def _numbered(found: Iterable[tuple[int, list[SplitPiece]]]) -> Iterator[LogRange]:
    for number, (of_group, pieces) in enumerate(found):
        yield LogRange(number, of_group, tuple(pieces), _bytes(pieces))


def _cut(segment: Segment, range_bytes: int) -> Iterator[SplitPiece]:
    """Divides a segment into pieces of about `range_bytes`, cut after batches that its index
    contains; wrong entries only change the sizes of the pieces."""
    base, end, size = segment.base_offset, segment.next_base, segment.size
    parts = max(-(-size // range_bytes), 1)
    index = segment.offset_index() if parts > 1 else None
    found = set()
    for part in range(1, parts if index is not None else 1):
        assert index is not None
        found.add(index.lookup_position(size * part // parts, size).offset + 1)
    inner = sorted(offset for offset in found if base < offset < end)
    for low, high in pairwise([base, *inner, end]):
        yield SplitPiece(base, size, low, high, size // (len(inner) + 1))


def _bytes(pieces: Iterable[SplitPiece]) -> int:
    return sum(piece.nbytes for piece in pieces)
