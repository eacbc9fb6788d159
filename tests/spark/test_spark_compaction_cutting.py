"""Tests which partitions compaction cuts into pieces."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.spark.jobs.compaction.pieces import LEAST_BYTES, how_many_to_cut
from kafkafs.storage.cleaner.split.split_plan import Shape

GIB = 1 << 30


@pytest.mark.parametrize(
    ("sizes", "processors", "cut"),
    [
        ([], 2, 0),
        ([LEAST_BYTES], 2, 0),  # too small
        ([LEAST_BYTES + 1], 2, 1),  # the other processor would wait
        ([LEAST_BYTES + 1], 1, 0),  # there is no other
        ([GIB] * 2, 2, 0),  # one for each processor
        ([GIB] * 8, 2, 0),
        ([GIB] * 9, 2, 0),  # the ninth keeps one waiting, for less than cutting would cost
        ([1000 * GIB] * 10, 1000, 10),
        ([100 * GIB, *[GIB] * 8], 4, 1),  # only the one that stands out
    ],
)
def test_those_that_would_keep_processors_waiting(
    sizes: list[int], processors: int, cut: int
) -> None:
    assert how_many_to_cut(sizes, processors) == cut


@pytest.mark.parametrize(
    ("offsets", "parts", "found"), [(24_000_000, 4, 8), (24_000_000, 5, 5), (10, 4, 4), (10, 0, 1)]
)
def test_parts_that_fit_into_memory_are_a_multiple(offsets: int, parts: int, found: int) -> None:
    """All processors have work until the end."""
    assert Shape.of(offsets, 1 << 20, 128 << 20, parts).parts == found


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 4))
def test_it_takes_no_longer_than_cutting_none_or_all(counts: list[int], processors: int) -> None:
    """Compares with the best distribution of whole partitions; largest-first takes at most 4/3 of
    its time."""
    sizes = sorted((count * GIB for count in counts), reverse=True)
    cut = how_many_to_cut(sizes, processors)
    taken = in_pieces(sizes[:cut], processors) + best(sizes[cut:], processors)
    assert taken <= best(sizes, processors) * (4 / 3)
    could = sum(size > sum(sizes) / processors / 4 for size in sizes)
    all_cut = in_pieces(sizes[:could], processors) + best(sizes[could:], processors) * (4 / 3)
    assert taken <= all_cut


def in_pieces(sizes: list[int], processors: int) -> float:
    return 1.25 * sum(sizes) / processors


def best(sizes: list[int], processors: int) -> int:
    """Returns the shortest time for whole partitions, by trying all distributions."""
    return min(
        max(
            (sum(s for s, at in zip(sizes, ways, strict=True) if at == p) for p in set(ways)),
            default=0,
        )
        for ways in product(range(processors), repeat=len(sizes))
    )
