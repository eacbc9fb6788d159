"""Declares configs and parses their texts: the rules behind the tables in `config`.

A table is a frozen dataclass whose fields are created by `define`; the field `retention_ms` is the
config `retention.ms`. Text is parsed as Kafka's ConfigDef does: surrounding blanks are ignored,
numbers are decimal, names and words are case-sensitive, `true` and `false` are not.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import ConfigError
from ..wording import did_you_mean, printable

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_KEY = "kafkafs"  # key of `define`'s entry in a field's metadata

# A rule converts stripped text to a value, or raises ValueError with what is allowed.
Rule = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class ServerName:
    """A broker config that is the default of a topic config; `factor` converts its unit to the
    topic's. With `is_limit`, every negative value means no limit, -1
    (KafkaConfig.logRetentionTimeMillis)."""

    name: str
    factor: int = 1
    is_limit: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """What a table declares of a config besides its default."""

    rule: Rule
    servers: tuple[ServerName, ...]
    written_rule: Rule  # for values that brokers of any version wrote


def define(
    default: T, rule: Rule, *servers: str | ServerName, written_rule: Rule | None = None
) -> T:
    """Declares a field of a table: its default, rule, and broker configs, in order of precedence.

    `written_rule`: a wider rule for values that an older broker accepted and wrote.
    """
    names = tuple(ServerName(name) if isinstance(name, str) else name for name in servers)
    declared = Declared(rule, names, written_rule or rule)
    made: T = dataclasses.field(default=default, metadata={_KEY: declared})
    return made


def declared(table: type) -> dict[str, Declared]:
    """Returns the configs of a table by name."""
    return {
        field.name.replace("_", "."): field.metadata[_KEY] for field in dataclasses.fields(table)
    }


def attribute(name: str) -> str:
    """Returns the field name of the config `name`."""
    return name.replace(".", "_")


def integer(at_least: int | None, at_most: int) -> Rule:
    """Returns a rule for whole numbers; `at_most` is the maximum of the Java type, unless the limit
    is lower."""
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
    """Returns a rule that allows one number in addition to `otherwise`."""

    def rule(text: str) -> int:
        if text == str(value):
            return value
        try:
            return int(otherwise(text))
        except ValueError as error:
            raise ValueError(f"{value}, or {error}") from None

    return rule


def ratio(text: str) -> float:
    """Parses a number from 0 to 1."""
    value = double(text)
    if not 0 <= value <= 1:
        raise ValueError("a number from 0 to 1")
    return value


def double(text: str) -> float:
    """Parses a number."""
    if _DOUBLE.fullmatch(text) is None:
        raise ValueError("a number")
    return float(text)


def boolean(text: str) -> bool:
    """Parses `true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def one_of(*words: str) -> Rule:
    """Returns a rule for one of these words."""

    def rule(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return rule


def list_of(*words: str) -> Rule:
    """Returns a rule for a comma-separated list of these words; of any words if none are given."""

    def rule(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(re.split(r"\s*,\s*", text))) if text else ()
        if words and not set(found) <= set(words):
            raise ValueError(f"a comma-separated list of: {', '.join(words)}")
        return found

    return rule


def read_value(name: str, text: str, rule: Rule) -> Any:
    """Parses the value `text` of the config `name`. Raises ConfigError if `rule` does not allow
    it."""
    try:
        return rule(text.strip())
    except ValueError as error:
        raise ConfigError(name, f"must be {error} (got {printable(text)!r})") from None


def text_of(value: bool | float | str | tuple[str, ...]) -> str:
    """Formats a value as Kafka writes it in properties."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def unknown(name: str, known: Iterable[str]) -> ConfigError:
    """Returns the error for an unknown name, suggesting the one that may have been meant."""
    return ConfigError(name, "no such config" + did_you_mean(name, known))
