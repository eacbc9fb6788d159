"""Compares the set of kept offsets with Python's sets, and bounds its memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.cleaner import kept_offsets
from kafkafs.storage.cleaner.kept_offsets import KeptOffsets
from kafkafs.storage.format.layout import MAX_OFFSET
from kafkafs.storage.format.records.batch import Int64s


def int64s(offsets: list[int]) -> Int64s:
    return np.array(offsets, dtype=np.int64)


def kept_of(*parts: list[int]) -> KeptOffsets:
    kept = KeptOffsets()
    for part in parts:
        kept.add(int64s(part))
    kept.finish()
    return kept


CLOSE = st.integers(0, 300)
ANY = st.integers(0, MAX_OFFSET)
OFFSETS = st.sets(st.one_of(CLOSE, ANY), max_size=60).map(sorted)


@given(OFFSETS, OFFSETS, st.integers(1, 12), st.integers(1, 9))
@example([0, MAX_OFFSET], [0, 1, MAX_OFFSET - 1, MAX_OFFSET], 8, 1)
@example([5, 6, 7, 2**32 + 5, 2**33], [5, 6, 7, 8, 2**32 + 5, 2**32 + 6, 2**33], 8, 8)
def test_as_a_set(offsets: list[int], asked: list[int], chunk: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_offsets, "_CHUNK_OFFSETS", chunk)
        kept = kept_of(*(offsets[at : at + at_once] for at in range(0, len(offsets), at_once)))
    assert len(kept) == len(offsets)
    for questions in (asked, offsets, sorted({*asked, *offsets})):
        found = kept.mask(int64s(questions))
        assert found.tolist() == [offset in set(offsets) for offset in questions]
    for offset in asked:
        assert (offset in kept) == (offset in set(offsets))
        assert kept.ceiling(offset) == min((o for o in offsets if o >= offset), default=None)
    ranges = list(pairwise(asked))
    lows, highs = (int64s([each[end] for each in ranges]) for end in (0, 1))
    found = kept.any_between(lows, highs)
    assert found.tolist() == [any(a <= o <= z for o in offsets) for a, z in ranges]


@given(st.sets(st.integers(0, 500), min_size=1), st.integers(0, 500), st.integers(0, 80))
def test_a_run_without_gaps(offsets: set[int], first: int, rows: int) -> None:
    kept = kept_of(sorted(offsets))
    run = list(range(first, first + rows))
    assert kept.mask(int64s(run)).tolist() == [offset in offsets for offset in run]


@pytest.mark.parametrize("wrong", [[3], [2], [5, 5], [6, 4]])
def test_offsets_must_rise(wrong: list[int]) -> None:
    kept = KeptOffsets()
    kept.add(int64s([1, 3]))
    with pytest.raises(ValueError, match="do not ascend"):
        kept.add(int64s(wrong))


class TestMemory:
    def test_records_that_lie_close_take_a_bit_each(self) -> None:
        offsets = np.arange(0, 3_000_000, 3, dtype=np.int64)
        kept = KeptOffsets()
        kept.add(offsets)
        kept.finish()
        assert kept.nbytes <= 3_000_000 // 8 + len(offsets) // 65536 + 1

    @pytest.mark.parametrize(("gap", "most"), [(40, 4), (65537, 4), (1 << 31, 8), (1 << 42, 8)])
    def test_gaps_take_nothing(self, gap: int, most: int) -> None:
        offsets = np.arange(200_000, dtype=np.int64) * gap
        kept = KeptOffsets()
        kept.add(offsets)
        kept.finish()
        assert kept.nbytes <= most * len(offsets)
        assert kept.mask(offsets).all()
        assert not kept.mask(offsets + 1).any()

    def test_no_more_chunks_than_offsets_give(self) -> None:
        """Small additions are stored together."""
        kept = KeptOffsets()
        for offset in range(0, 200_000, 2):
            kept.add(int64s([offset]))
        kept.finish()
        assert kept.nbytes <= 200_000 // 8 + 8
