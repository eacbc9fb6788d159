"""The wording of messages: texts made safe for one line, ranges of numbers, and the names that a
misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Final

# Ranges listed for a topic with gaps between its partition numbers.
_RANGES_SHOWN: Final = 8
# A log directory may have 100,000 topics, and difflib needs about 50 µs per comparison. So it
# compares only the names that share the most pairs of adjacent letters with the misspelt one.
_NAMES_COMPARED: Final = 1000
#: Names shown of many.
NAMES_SHOWN: Final = 3
# Names listed where none is similar.
_NAMES_LISTED: Final = 8
#: Names longer than this are compared by their beginnings.
_MAX_NAME_LENGTH: Final = 256


def ranges(numbers: Sequence[int]) -> str:
    """Formats ascending numbers as ranges: `0 to 2`, `0, 4 to 6`; of many ranges, only the first
    ones."""
    starts = [numbers[0], *(high for low, high in pairwise(numbers) if high != low + 1)]
    ends = [*(low for low, high in pairwise(numbers) if high != low + 1), numbers[-1]]
    spans = [
        f"{start}" if start == end else f"{start} to {end}"
        for start, end in zip(starts, ends, strict=True)
    ]
    more = ", …" if len(spans) > _RANGES_SHOWN else ""
    return ", ".join(spans[:_RANGES_SHOWN]) + more


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Returns at most three of `names` that are similar to `name`, the likeliest first, ignoring
    case."""
    import difflib  # only a misspelt name needs it

    wanted = name[:_MAX_NAME_LENGTH].casefold()
    by_form = {each[:_MAX_NAME_LENGTH].casefold(): each for each in names}
    forms: Collection[str] = by_form
    if len(forms) > _NAMES_COMPARED:
        pairs = set(pairwise(wanted))
        forms = nlargest(
            _NAMES_COMPARED,
            forms,
            key=lambda form: 2 * len(pairs & set(pairwise(form))) - abs(len(form) - len(wanted)),
        )
    return [by_form[form] for form in difflib.get_close_matches(wanted, forms, NAMES_SHOWN)]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns `; did you mean orders?`, to be appended to a message; "" if no name is similar."""
    similar = nearest(name, names)
    if not similar:
        return ""
    *others, last = similar
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def first_of(names: Sequence[str]) -> str:
    """Returns the first names, joined by commas, and how many more there are."""
    more = len(names) - _NAMES_LISTED
    return ", ".join(names[:_NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")


def printable(text: str) -> str:
    """Returns `text` on one line, safe for a terminal and a UTF-8 log, whatever it contains.

    Line breaks, control characters and bytes that are not UTF-8 (surrogates, in Python's file
    names) are escaped.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that os.fsdecode could not decode
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
