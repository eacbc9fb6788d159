"""Tests the segments of a view: what is known of the timestamps of rolled ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.file_cache import FileCache
from kafkafs.storage.log.read.segments import RolledTimestamps, Segments
from kafkafs.storage.segment.segment import Segment, SegmentFiles


def segments(count: int) -> list[Segment]:
    """Makes segments without files; the base offset of each is its number."""
    directory = DirFd("/nowhere")
    return [
        Segment(SegmentFiles(directory, base, (1, base), FileCache(1)), 1, 1, base + 1)
        for base in range(count)
    ]


@given(
    largest=st.lists(st.integers(-1, 20) | st.just(2**63 - 1), max_size=20),
    asked=st.lists(st.tuples(st.integers(-1, 21), st.integers(0, 20)), max_size=20),
)
def test_the_first_segment_that_reaches_a_time(
    largest: list[int], asked: list[tuple[int, int]]
) -> None:
    looked_at: list[int] = []

    def find_largest(segment: Segment) -> int:
        looked_at.append(segment.base_offset)
        return largest[segment.base_offset]

    known = RolledTimestamps(segments(len(largest)))
    furthest = -1
    for timestamp, index in asked:
        expected = next(
            (at for at in range(index, len(largest)) if largest[at] >= timestamp),
            max(index, len(largest)),
        )
        assert known.first_reaching(timestamp, index, find_largest) == expected
        furthest = max(furthest, expected)
        assert max(looked_at, default=-1) <= furthest  # none after an answer
    once = [at for at in looked_at if largest[at] < 2**63 - 1]
    assert len(once) == len(set(once))


def test_what_is_known_of_rolled_segments_is_shared() -> None:
    first = Segments(segments(3))
    (other,) = segments(1)
    second = first.with_active(other)
    assert list(second) == [*first[:2], other]
    assert second.rolled is first.rolled
    assert second.timestamps is first.timestamps
    assert second.floor_index(7) == 2
