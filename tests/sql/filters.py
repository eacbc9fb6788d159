"""Conditions of random shape, for pyarrow and for Polars."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def combined(comparisons: st.SearchStrategy[T], max_leaves: int = 5) -> st.SearchStrategy[T]:
    """Draws conditions that combine up to about `max_leaves` comparisons with &, | and ~."""
    return st.recursive(
        comparisons,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=max_leaves,
    )
