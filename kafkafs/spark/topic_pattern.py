r"""Compiles the patterns of `subscribePattern`, which have the syntax of java.util.regex.

PySpark runs a data source in Python workers, which cannot call the JVM. But topics' names have only
65 different characters, so a Java pattern can be rewritten for Python's `re`: every character and
every class becomes the set of those characters that it matches. The rest of the syntax has the
same meaning in both languages, or is rejected: `\1`, `\k`, `\G`, `\R`, `\X`, `\N`, the flags
`x`, `u` and `U`, look-behind without a fixed width, and properties other than POSIX classes and
general categories. A pattern never selects other topics than in Spark's own source.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, NoReturn

_NAME: Final = frozenset(string.ascii_letters + string.digits + "._-")  # Topic.LEGAL_CHARS
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_DIGITS: Final = frozenset(string.digits)
_NONE: Final[AbstractSet[str]] = frozenset()
_PREDEFINED: Final[dict[str, AbstractSet[str]]] = {
    "d": _DIGITS,
    "D": _NAME - _DIGITS,
    "w": _WORD,
    "W": _NAME - _WORD,
    **dict.fromkeys("shv", _NONE),
    **dict.fromkeys("SHV", _NAME),
}
_POSIX: Final[dict[str, AbstractSet[str]]] = {
    "Lower": frozenset(string.ascii_lowercase),
    "Upper": frozenset(string.ascii_uppercase),
    "Alpha": frozenset(string.ascii_letters),
    "Alnum": frozenset(string.ascii_letters) | _DIGITS,
    "Digit": _DIGITS,
    "XDigit": frozenset(string.hexdigits),
    "Punct": frozenset("._-"),
    **dict.fromkeys(("ASCII", "Graph", "Print"), _NAME),
    **dict.fromkeys(("Blank", "Cntrl", "Space"), _NONE),
}
_CATEGORIES: Final = frozenset(
    each[:length]
    for each in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Pd", "Ps", "Pe", "Pc", "Po")
    for length in (1, 2)
)
# Control characters by their escapes; no topic's name has any of them.
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX: Final = {"x": r"\{[0-9a-fA-F]{1,6}\}|[0-9a-fA-F]{2}", "u": r"[0-9a-fA-F]{4}"}
_MAX_REPEAT_DIGITS: Final = 5  # a topic's name has at most 249 characters


def compile_topic_pattern(text: str) -> re.Pattern[str]:
    """Returns the pattern for `search`, which selects a topic if it matches anywhere in its name.

    Raises ValueError if Java rejects it, or if it cannot be rewritten with the same meaning.
    """
    if not text:
        raise ValueError("the pattern is empty")
    try:
        return re.compile(_Rewriting(text).result(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not supported: {error}") from None


class _Rewriting:
    """The rewriting of one pattern, from left to right as in java.util.regex.Pattern.

    `_next` is the position of the next of `_tokens`: single characters, or `Q` and a character that
    was quoted by `\\Q…\\E`. The token after the last one is "".
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _unquoted(text)
        self._next = 0

    def result(self) -> str:
        found = self._alternatives(False)
        if self._peek():
            self._refuse("a ) without its (")
        return found

    def _alternatives(self, ignores_case: bool) -> str:
        """Rewrites up to the end of a group or of the pattern."""
        found: list[str] = []
        while (token := self._peek()) not in ("", ")"):
            if token == "|":
                found.append(self._take())
                continue
            if token in ("*", "+", "?", "{"):
                self._refuse(f"{token} with nothing to repeat")
            if (flags := self._inline_flags()) is not None:
                ignores_case = flags(ignores_case)
                continue
            found += (self._atom(ignores_case), self._quantifier())
        return "".join(found)

    def _atom(self, ignores_case: bool) -> str:
        token = self._take()
        if token in ("^", "$", "."):
            return token
        if token == "(":
            return self._group(ignores_case)
        if token == "[":
            return _as_python(self._class(ignores_case))
        if token != "\\":
            return _as_python(_one(token[-1], ignores_case))
        anchor = self._peek()
        if anchor in ("A", "Z", "z", "B") or (anchor == "b" and self._peek(1) != "{"):
            return "\\" + self._take().replace("z", "Z")
        return _as_python(self._escaped(ignores_case))

    def _quantifier(self) -> str:
        found = ""
        if self._peek() in ("*", "+", "?"):
            found = self._take()
        elif self._peek() == "{":
            found = self._rest(rf"\{{[0-9]{{1,{_MAX_REPEAT_DIGITS}}}(,[0-9]{{0,5}})?\}}")
            if not found:
                self._refuse("a { that is not followed by numbers and }")
        if found and self._peek() in ("?", "+"):
            found += self._take()
        return found

    # -- groups -----------------------------------------------------------------------------------

    def _group(self, ignores_case: bool) -> str:
        """Rewrites a group after its `(`. Captured groups are not referred to."""
        kind = "?:"
        if self._peek() == "?":
            kind = self._rest(r"\?(?:<?[=!]|[:>])")
            if not kind and (name := self._rest(r"\?<[a-zA-Z][a-zA-Z0-9]*>")):
                kind = f"?P{name[1:]}"
            if not kind:
                ignores_case = self._flags(self._rest(r"\?[a-zA-Z-]*:"))(ignores_case)
                kind = "?:"
        found = self._alternatives(ignores_case)
        if self._peek() != ")":
            self._refuse("a ( without its )")
        self._take()
        return f"({kind}{found})"

    def _inline_flags(self) -> Callable[[bool], bool] | None:
        """Returns what `(?i)` and its like do to `ignores_case` in the rest of their group; None
        if there are none next."""
        found = self._rest(r"\(\?[a-zA-Z-]+\)")
        return self._flags(found[1:]) if found else None

    def _flags(self, text: str) -> Callable[[bool], bool]:
        """`text` is `?FLAGS-FLAGS:`. The flags d, m and s concern line ends, which no name has."""
        on, _, off = text[1:-1].partition("-")
        if not text or not set(on + off) <= set("idms"):
            self._refuse("a group of an unknown kind, or a flag other than i, d, m and s")
        return lambda before: (before or "i" in on) and "i" not in off

    # -- classes ----------------------------------------------------------------------------------

    def _class(self, ignores_case: bool) -> AbstractSet[str]:
        """Parses a class after its `[`, and returns the names' characters that it matches. Rejects
        combinations whose meaning depends on the version of Java."""
        is_negated = self._peek() == "^"
        if is_negated:
            self._take()
        found, is_simple = self._operand(ignores_case)
        while self._rest("&&"):
            other, is_other_simple = self._operand(ignores_case)
            if is_negated or not (is_simple and is_other_simple):
                self._refuse("&& combined with ^ or with a union in one class")
            found &= other
        if is_negated and not is_simple:
            self._refuse("a class within a class that starts with ^")
        if self._take() != "]":
            self._refuse("a [ without its ]")
        return _NAME - found if is_negated else found

    def _operand(self, ignores_case: bool) -> tuple[AbstractSet[str], bool]:
        """Parses up to `&&` or `]`; returns also whether there is either just one nested class or
        none."""
        if self._peek() in ("", "]", "&"):  # &&& is not && and &
            self._refuse("a class that starts with ] or &")
        found: AbstractSet[str] = frozenset()
        nested = items = 0
        while self._peek() not in ("", "]") and not self._peek() == "&" == self._peek(1):
            items += 1
            if self._peek() == "[":
                self._take()
                nested += 1
                found |= self._class(ignores_case)
            else:
                found |= self._class_item(ignores_case)
        if not items:
            self._refuse("&& without a class on both sides")
        return found, not nested or items == 1

    def _class_item(self, ignores_case: bool) -> AbstractSet[str]:
        """Parses a character, a range of characters, or an escaped class."""
        first = self._class_char(ignores_case)
        if not isinstance(first, str):
            return first
        if self._peek() != "-" or self._peek(1) in ("[", "]"):
            return _one(first, ignores_case)
        self._take()
        last = self._class_char(ignores_case)
        if not isinstance(last, str) or last < first:
            self._refuse("a range of characters that ends before it starts")
        return _cased({char for char in _NAME if first <= char <= last}, ignores_case)

    def _class_char(self, ignores_case: bool) -> str | AbstractSet[str]:
        token = self._take()
        if not token:
            self._refuse("a [ without its ]")
        return self._escape(ignores_case) if token == "\\" else token[-1]

    # -- escapes ----------------------------------------------------------------------------------

    def _escaped(self, ignores_case: bool) -> AbstractSet[str]:
        found = self._escape(ignores_case)
        return _one(found, ignores_case) if isinstance(found, str) else found

    def _escape(self, ignores_case: bool) -> str | AbstractSet[str]:
        """Parses what follows a backslash: a character, or a class as a set."""
        if code := self._rest(r"0(?:[0-3][0-7]{2}|[0-7]{1,2})"):
            return chr(int(code, 8))
        token = self._take()[-1:]
        if token in _HEX and (code := self._rest(_HEX[token])):
            return self._char(int(code.strip("{}"), 16))
        if token in _CONTROLS:
            return _CONTROLS[token]
        if token == "c" and (control := self._take()[-1:]):
            return chr(ord(control) ^ 64)
        if token in _PREDEFINED:
            return _PREDEFINED[token]
        if token in ("p", "P"):
            found = self._property(ignores_case)
            return found if token == "p" else _NAME - found
        if not token or token in string.ascii_letters + string.digits:
            self._refuse(f"the escape \\{token}")
        return token

    def _char(self, code: int) -> str:
        if code > 0x10FFFF:
            self._refuse(f"the character {code:x}")
        return chr(code)

    def _property(self, ignores_case: bool) -> AbstractSet[str]:
        r"""Parses a property after `\p`."""
        name = self._rest(r"\{\w+\}|[A-Z]").strip("{}")
        found = _POSIX.get(name)
        if found is None:
            category = name.removeprefix("Is")
            if category not in _CATEGORIES:
                self._refuse(f"the property {name or 'without a name'}")
            found = {each for each in _NAME if unicodedata.category(each).startswith(category)}
        if ignores_case and found != _cased(found, True):
            self._refuse(f"the property {name} without regard to case")
        return found

    # -- tokens -----------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        index = self._next + ahead
        return self._tokens[index] if index < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _rest(self, syntax: str) -> str:
        """Takes what matches next, of unquoted characters; returns "" if nothing does."""
        unquoted = "".join(token if len(token) == 1 else "\0" for token in self._tokens)
        found = re.compile(syntax, re.ASCII).match(unquoted, self._next)
        if found is None:
            return ""
        self._next = found.end()
        return found[0]

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(f"{self._text!r}: {what} is not supported")


def _unquoted(text: str) -> list[str]:
    """Returns the tokens of a pattern: its characters, those between `\\Q` and `\\E` after a Q."""
    found: list[str] = []
    is_quoted = False
    position = 0
    while position < len(text):
        two = text[position : position + 2]
        if two == ("\\E" if is_quoted else "\\Q"):
            is_quoted = not is_quoted
            position += 2
        elif is_quoted:
            found.append("Q" + two[0])
            position += 1
        else:
            step = 2 if two[0] == "\\" else 1
            found += two[:step]
            position += step
    return found


def _one(char: str, ignores_case: bool) -> AbstractSet[str]:
    return _cased({char}, ignores_case)


def _cased(chars: AbstractSet[str], ignores_case: bool) -> AbstractSet[str]:
    """Returns the characters of names in a set, with `ignores_case` in both cases."""
    return (chars | _swapped(chars) if ignores_case else chars) & _NAME


def _swapped(chars: AbstractSet[str]) -> AbstractSet[str]:
    return {char.swapcase() for char in chars if char.isascii()}


def _as_python(chars: AbstractSet[str]) -> str:
    """Returns a class of Python's `re` that matches these characters of names."""
    if not chars:
        return r"[^\0-\U0010ffff]"
    if chars == _NAME:
        return "."
    if len(chars) == 1:
        return re.escape(*chars)
    return f"[{''.join(map(re.escape, sorted(chars)))}]"
