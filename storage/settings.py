"""How a setting is declared and its text read: the rules behind the tables in `config`.

A table is a frozen dataclass whose fields are made by `setting`; the field `retention_ms` is the
setting `retention.ms`. Text is read as Kafka's ConfigDef reads it: blanks around it do not count,
numbers are decimal, names and words are case-sensitive, `true` and `false` are not.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import ConfigError, printable
from .nearest import did_you_mean

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_KEY = "kafkafs"  # of what `setting` keeps in a field's metadata

# A rule turns stripped text into a value, or raises ValueError saying what would be allowed.
Rule = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class ServerName:
    """A broker's setting that is the default of a topic's; `factor` turns its unit into ours. With
    `is_limit` every negative value means no limit, -1 (KafkaConfig.logRetentionTimeMillis)."""

    name: str
    factor: int = 1
    is_limit: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """What a table says of a setting beside its default."""

    rule: Rule
    servers: tuple[ServerName, ...]
    written_rule: Rule  # for what brokers of any version wrote


def setting(
    default: T, rule: Rule, *servers: str | ServerName, written_rule: Rule | None = None
) -> T:
    """A field of a table: its default, rule, and brokers' settings, the first of which counts.

    `written_rule`: a wider rule, where older brokers allowed more, for what one of them wrote.
    """
    names = tuple(ServerName(name) if isinstance(name, str) else name for name in servers)
    declared = Declared(rule, names, written_rule or rule)
    made: T = dataclasses.field(default=default, metadata={_KEY: declared})
    return made


def declared(table: type) -> dict[str, Declared]:
    """The settings of a table by name."""
    return {
        field.name.replace("_", "."): field.metadata[_KEY] for field in dataclasses.fields(table)
    }


def attribute(name: str) -> str:
    """The field of setting `name`."""
    return name.replace(".", "_")


def integer(at_least: int | None, at_most: int) -> Rule:
    """A whole number; `at_most` is where its Java type ends, if nothing else ends it."""
    low = at_least if at_least is not None else -at_most - 1
    if at_least is None:
        allowed = "a whole number"
    elif at_most in (INT_MAX, LONG_MAX):
        allowed = f"a whole number, at least {at_least}"
    else:
        allowed = f"a whole number from {at_least} to {at_most}"

    def rule(text: str) -> int:
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not low <= value <= at_most:
            raise ValueError(allowed)
        return value

    return rule


def either(value: int, otherwise: Rule) -> Rule:
    """One number more than `otherwise` allows."""

    def rule(text: str) -> int:
        if text == str(value):
            return value
        try:
            return int(otherwise(text))
        except ValueError as error:
            raise ValueError(f"{value}, or {error}") from None

    return rule


def ratio(text: str) -> float:
    """A number from 0 to 1."""
    value = double(text)
    if not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return value


def double(text: str) -> float:
    """A number."""
    if _DOUBLE.fullmatch(text) is None:
        raise ValueError("a number")
    return float(text)


def boolean(text: str) -> bool:
    """`true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def one_of(*words: str) -> Rule:
    """One of these words."""

    def rule(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return rule


def list_of(*words: str) -> Rule:
    """Any of these words, joined by commas; any words at all when none are given."""

    def rule(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(re.split(r"\s*,\s*", text))) if text else ()
        if words and not set(found) <= set(words):
            raise ValueError(f"words out of {', '.join(words)}, joined by commas")
        return found

    return rule


def read_value(name: str, text: str, rule: Rule) -> Any:
    """The value that `text` gives the setting `name`. ConfigError when `rule` does not allow it."""
    try:
        return rule(text.strip())
    except ValueError as error:
        raise ConfigError(name, f"{printable(text)!r} is not {error}") from None


def text_of(value: bool | float | str | tuple[str, ...]) -> str:
    """A value as Kafka writes it in properties."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def unknown(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is in no table, with the one that may have been meant."""
    return ConfigError(name, "no such setting" + did_you_mean(name, known))
