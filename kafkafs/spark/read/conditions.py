"""Reads from the text of a filter which topics, partitions and offsets can contain its records.

Only comparisons of `topic`, `partition`, `offset` and `timestamp` with literals that are joined by
AND are understood. The result is a necessary condition: Spark applies the whole filter to what is
read, so whatever is not understood only makes the read larger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kafkafs.storage import MAX_OFFSET, CorruptError, Isolation, TopicPartition, View

#: Evaluates an SQL literal as a timestamp in microseconds; None if that is impossible.
Instant = Callable[[str], int | None]

_NEVER: Final = -(1 << 63)


class Interval(NamedTuple):
    """The integers from `low` to `high`, both included."""

    low: int = 0
    high: int = MAX_OFFSET

    def within(self, low: int, high: int) -> Interval:
        return Interval(max(self.low, low), min(self.high, high))

    def describe(self, name: str) -> Iterator[str]:
        """Yields comparisons for people to read."""
        if self.low == self.high:
            yield f"{name} = {self.low}"
            return
        if self.low > 0:
            yield f"{name} >= {self.low}"
        if self.high < MAX_OFFSET:
            yield f"{name} <= {self.high}"


_ANY: Final = Interval()


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the records of a filter have in common. `topics`, and `numbers` of partitions: None for
    any. `from_ms`: their least timestamp, in ms. There is no greatest: earlier timestamps may
    follow later ones, so records at any offset may be below it."""

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    partitions: Interval = _ANY
    offsets: Interval = _ANY
    from_ms: int = _NEVER

    def __str__(self) -> str:
        parts = [] if self.topics is None else [f"topic in {', '.join(sorted(self.topics))}"]
        if self.numbers is not None:
            parts.append(f"partition in {', '.join(map(str, sorted(self.numbers)))}")
        parts += self.partitions.describe("partition")
        parts += self.offsets.describe("offset")
        if self.from_ms != _NEVER:
            parts.append(f"timestamp >= {self.from_ms} ms")
        return " and ".join(parts)

    def selects(self, key: TopicPartition) -> bool:
        """Returns whether a partition can have such records."""
        topic, partition = key
        is_named = self.numbers is None or partition in self.numbers
        is_named = is_named and (self.topics is None or topic in self.topics)
        return is_named and self.partitions.low <= partition <= self.partitions.high

    def narrow(self, view: View, start: int, end: int, isolation: Isolation) -> tuple[int, int]:
        """Returns the part of the offsets [`start`, `end`) that can have such records."""
        start, end = max(start, self.offsets.low), min(end, self.offsets.high + 1)
        if start < end and self.from_ms != _NEVER:
            try:
                first = view.offset_for_time(self.from_ms, isolation)
            except CorruptError:  # reading reports it
                return start, end
            start = end if first is None else max(start, first)
        return start, end


#: Nothing is known about the records.
ANYTHING: Final = Conditions()


class _Token(NamedTuple):
    kind: str  # word, number, string or mark
    text: str


_TOKENS: Final = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|`(?P<quoted>\w+)`|(?P<number>[0-9]+)(?![\w.])"
    r"|(?P<string>'[^'\\]*')|(?P<mark><=>|<=|>=|<>|!=|==|[=<>(),.+*/%-]))",
    re.ASCII,
)
_SWAPPED: Final = {"=": "=", "==": "==", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def conditions_of(where: str, instant: Instant) -> Conditions:
    """Returns the conditions of a filter in SQL."""
    tokens = _tokens(where)
    found = ANYTHING
    for conjunct in _conjuncts(tokens or []):
        found = _with(found, conjunct, instant)
    return found


def names_in(where: str) -> set[str] | None:
    """Returns all words of a filter in SQL, in lower case; None if it is not understood."""
    tokens = _tokens(where)
    if tokens is None:
        return None
    return {token.text.lower() for token in tokens if token.kind == "word"}


def _tokens(where: str) -> list[_Token] | None:
    """Splits the text; returns None if there is anything unknown in it, such as a comment."""
    text = where.rstrip()
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or "--" in text or "/*" in text:
            return None
        kind = str(match.lastgroup)
        tokens.append(_Token("word" if kind == "quoted" else kind, match[kind]))
        at = match.end()
    return tokens


def _conjuncts(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    """Yields what AND joins, or nothing if the text may have another structure."""
    words = [token.text.upper() if token.kind == "word" else token.text for token in tokens]
    if "CASE" in words:
        return
    depth = begin = 0
    is_between = False
    parts: list[Sequence[_Token]] = []
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth < 0 or (word == "OR" and not depth):
            return
        if depth:
            continue
        if word == "AND" and not is_between:
            parts.append(tokens[begin:at])
            begin = at + 1
        is_between = (is_between and word != "AND") or word == "BETWEEN"
    if depth:
        return
    for part in (*parts, tokens[begin:]):
        if len(part) > 2 and _closes(part) == len(part) - 1:
            yield from _conjuncts(part[1:-1])
        else:
            yield part


def _closes(tokens: Sequence[_Token]) -> int:
    """Returns the index of the mark that closes the first one, -1 if it opens nothing."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if not depth:
            return at or -1
    return -1


def _with(found: Conditions, tokens: Sequence[_Token], instant: Instant) -> Conditions:
    """Returns the conditions with those of a conjunct added, if it is understood."""
    words = [token.text.upper() for token in tokens]
    if len(words) > 2 and tokens[0].kind != "word" and words[-2] in _SWAPPED:
        tokens = [tokens[-1], _Token("mark", _SWAPPED[words[-2]]), *tokens[:-2]]
        words = [token.text.upper() for token in tokens]
    if len(words) < 3 or tokens[0].kind != "word":
        return found
    column, operator, values = words[0].lower(), words[1], tokens[2:]
    if operator == "IN" and words[2] == "(" and words[-1] == ")":
        return _with_values(found, column, values[1:-1])
    if operator == "BETWEEN" and "AND" in words:
        middle = words.index("AND")
        found = _compared(found, column, ">=", tokens[2:middle], instant)
        return _compared(found, column, "<=", tokens[middle + 1 :], instant)
    return _compared(found, column, operator, values, instant)


def _with_values(found: Conditions, column: str, tokens: Sequence[_Token]) -> Conditions:
    """Adds that a column has one of the literals in a list."""
    values, commas = tokens[::2], tokens[1::2]
    kinds = {token.kind for token in values}
    if len(values) != len(commas) + 1 or any(comma.text != "," for comma in commas):
        return found
    if column == "topic" and kinds == {"string"}:
        return _of_topics(found, (token.text[1:-1] for token in values))
    if kinds == {"number"}:
        numbers = frozenset(int(token.text) for token in values)
        if column == "partition":
            known = found.numbers
            return replace(found, numbers=numbers if known is None else known & numbers)
        return _of_numbers(found, column, min(numbers), max(numbers))
    return found


def _compared(
    found: Conditions, column: str, operator: str, value: Sequence[_Token], instant: Instant
) -> Conditions:
    """Adds that a column has a value with this relation to a literal."""
    kinds = [token.kind for token in value]
    is_equal = operator in ("=", "==")
    if column == "topic" and is_equal and kinds == ["string"]:
        return _of_topics(found, [value[0].text[1:-1]])
    if column == "timestamp" and (is_equal or operator in (">", ">=")):
        is_typed = len(value) == 2 and value[0].text.upper() in ("DATE", "TIMESTAMP")
        if value and value[-1].kind == "string" and (len(value) == 1 or is_typed):
            least = instant(" ".join(token.text for token in value))
            if least is not None:
                return replace(found, from_ms=max(found.from_ms, least // 1000))
    if kinds == ["number"]:
        number = int(value[0].text)
        low = number + (operator == ">") if is_equal or operator in (">", ">=") else 0
        high = number - (operator == "<") if is_equal or operator in ("<", "<=") else MAX_OFFSET
        return _of_numbers(found, column, low, high)
    return found


def _of_topics(found: Conditions, topics: Iterable[str]) -> Conditions:
    these = frozenset(topics)
    return replace(found, topics=these if found.topics is None else found.topics & these)


def _of_numbers(found: Conditions, column: str, low: int, high: int) -> Conditions:
    if column == "partition":
        return replace(found, partitions=found.partitions.within(low, high))
    if column == "offset":
        return replace(found, offsets=found.offsets.within(low, high))
    return found
