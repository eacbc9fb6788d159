"""The names that a misspelt one may have meant, for the messages of errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nlargest
from itertools import pairwise
from typing import Final

# A log directory may have 100,000 topics, and difflib needs some 50 µs for each name that it
# compares. So it compares only those that have the most pairs of neighbouring letters in common
# with the misspelt one.
_COMPARED: Final = 1000
_SHOWN: Final = 3
#: Names longer than this are compared by their beginnings.
_MAX_LENGTH: Final = 256


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """At most three of `names` that are like `name`, the likeliest first. Case does not count."""
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
    """`; did you mean orders?`, to be put behind a message; "" if no name is similar."""
    similar = nearest(name, names)
    if not similar:
        return ""
    *others, last = similar
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
