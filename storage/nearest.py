"""Suggests names similar to a misspelt one, for error messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nlargest
from itertools import pairwise
from typing import Final

# A log directory may have 100,000 topics, and difflib needs about 50 µs per comparison. So it
# compares only the names that share the most pairs of adjacent letters with the misspelt one.
_COMPARED: Final = 1000
_SHOWN: Final = 3
#: Names longer than this are compared by their beginnings.
_MAX_LENGTH: Final = 256


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Returns at most three of `names` that are similar to `name`, the likeliest first, ignoring
    case."""
    import difflib  # only a misspelt name needs it

    wanted = name[:_MAX_LENGTH].casefold()
    by_form = {each[:_MAX_LENGTH].casefold(): each for each in names}
    forms: Collection[str] = by_form
    if len(forms) > _COMPARED:
        pairs = set(pairwise(wanted))
        forms = nlargest(
            _COMPARED,
            forms,
            key=lambda form: 2 * len(pairs & set(pairwise(form))) - abs(len(form) - len(wanted)),
        )
    return [by_form[form] for form in difflib.get_close_matches(wanted, forms, _SHOWN)]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns `; did you mean orders?`, to be appended to a message; "" if no name is similar."""
    similar = nearest(name, names)
    if not similar:
        return ""
    *others, last = similar
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
