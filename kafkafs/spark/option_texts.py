"""The texts of options: their names, and values of common forms. Names are case-insensitive, as in
Spark."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from kafkafs.storage import TIER_CONFIG, LogDirError, absolute_configs, local_path, location

LOGGER: Final = logging.getLogger("kafkafs.spark")

_MAX_LONG: Final = (1 << 63) - 1
# JavaUtils.timeStringAs; and the units of Spark's intervals, as in trigger(processingTime=…).
_UNITS_US: Final = {
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1),
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1000),
    **dict.fromkeys(("s", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000_000),
}


class OptionError(ValueError):
    """The option `name` does not exist or has an invalid value; `why` explains."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"option {self.name}: {self.why}"


@dataclass(frozen=True)
class Supported:
    """The names of options, spelled as documented.

    `names` are parsed. `ignored` concern the connection to a broker, and so do configs that start
    with one of `ignored_prefixes`. `refused` says why names are rejected.
    """

    names: tuple[str, ...]
    ignored: tuple[str, ...]
    ignored_prefixes: tuple[str, ...]
    refused: Mapping[str, str]

    def check_other(self, name: str) -> None:
        """Accepts a name that is none of `names`. Raises OptionError unless it can be ignored; logs
        a warning if it is an unknown config of Kafka's clients."""
        lower = name.lower()
        known = {each.lower(): each for each in (*self.names, *self.ignored)}
        for refused, why in self.refused.items():
            if lower == refused.lower():
                raise OptionError(refused, why)
        if lower in known or lower.startswith(self.ignored_prefixes):
            return
        close = get_close_matches(lower, known, n=1, cutoff=0.8)
        hint = f"; did you mean {known[close[0]]}?" if close else ""
        if not lower.startswith("kafka."):
            raise OptionError(name, f"there is no such option{hint}")
        _warn_once(f"option {name} is ignored: kafkafs does not know this config{hint}")


@cache
def _warn_once(message: str) -> None:
    """Logs a warning once in this process: Spark has the options of one query parsed often."""
    LOGGER.warning("%s", message)


class Texts:
    """The options as they were given.

    `configs`: those that are configs of the storage engine. `used`: all that are not ignored, by
    the documented spelling.
    """

    def __init__(self, given: Mapping[str, str], supported: Supported) -> None:
        """Raises OptionError for a name that is not supported."""
        self.configs: dict[str, str] = {}
        self.used: dict[str, str] = {}
        spelled = {name.lower(): name for name in supported.names}
        for name, value in given.items():
            lower = name.lower()
            if lower.startswith("kafkafs."):
                self.configs[lower] = value
            elif lower == "tier" and "tier" in spelled:
                self.configs[TIER_CONFIG] = value
            elif lower in spelled:
                self.used[spelled[lower]] = value
            else:
                supported.check_other(name)
        try:  # workers have their own working directories
            self.configs = absolute_configs(self.configs.items())
        except LogDirError as error:
            raise OptionError("kafkafs.prefer.dir", str(error)) from None
        self.used.update(self.configs)

    def get(self, name: str, parse: Callable[[str], Any]) -> Any:
        """Returns the parsed option, None if it was not given. Raises OptionError if `parse` raises
        ValueError."""
        text = self.used.get(name)
        if text is None:
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            raise OptionError(name, str(error)) from None


def paths_of(texts: Texts, how: str = '.load("/data")') -> tuple[str, ...]:
    """Returns the paths: `load("/a,/b")` sets `path`, `load(["/a", "/b"])` sets `paths` as JSON.
    `how` shows in an error how to name a path. Raises OptionError if there is none."""
    listed = texts.get("paths", json_list) or texts.get("path", lambda text: [text]) or []
    paths = [path.strip() for text in listed for path in text.split(",") if path.strip()]
    if not paths:
        raise OptionError("path", f"name the log directories: {how}")
    return tuple(_location_option("path", path) for path in paths)


def local_option(name: str, path: str) -> str:
    """Returns the local path of option `name`. Raises OptionError for a URL other than `file:`."""
    return _checked(name, path, local_path)


def _location_option(name: str, path: str) -> str:
    """Returns a path or URL of option `name` to read. Raises OptionError as `location` does."""
    return _checked(name, path, location)


def _checked(name: str, path: str, check: Callable[[str], str]) -> str:
    try:
        return check(path)
    except LogDirError as error:
        raise OptionError(name, str(error)) from None


def json_object(text: str, form: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(form) from None
    if not isinstance(parsed, dict):
        raise ValueError(form)
    return parsed


def json_list(text: str) -> list[str]:
    parsed = json.loads(text)
    if not isinstance(parsed, list) or not all(isinstance(item, str) for item in parsed):
        raise ValueError(f"not a JSON list of paths: {text}")
    return parsed


def is_int(value: object) -> bool:
    return type(value) is int and abs(value) <= _MAX_LONG


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"must be {' or '.join(choices)}, not {text!r}")
        return text.lower()

    return parse


def not_negative(text: str) -> int:
    return _number(text, 0)


def positive(text: str) -> int:
    return _number(text, 1)


def duration_ms(text: str) -> int:
    """Parses a duration as Spark's configs have it, a number of ms or with a unit, or as its
    intervals have it, such as "1 hour 30 minutes"."""
    plain = text.lower().removeprefix("interval ")
    parts = re.findall(r"([0-9]{1,12})\s*([a-z]+|$)|(\S)", plain, re.ASCII)
    units = [_UNITS_US.get(unit, 0) if unit or len(parts) == 1 else 0 for _, unit, _ in parts]
    if not all(units) or not any(number.strip("0") for number, _, _ in parts):
        form = "must be a time such as 500ms, 15m, 1 hour or 1 hour 30 minutes"
        raise ValueError(f"{form}, not {text!r}")
    total_us = sum(int(number) * unit for (number, _, _), unit in zip(parts, units, strict=True))
    return max(total_us // 1000, 1)


def _number(text: str, least: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII) or not least <= int(text) <= _MAX_LONG:
        raise ValueError(f"must be a whole number of at least {least}, not {text!r}")
    return int(text)


def schema_place(text: str) -> str:
    """Returns "registry", or an absolute path: workers have their own working directories."""
    if text == "registry":
        return text
    try:
        return os.path.abspath(local_path(text))
    except LogDirError as error:
        raise ValueError(str(error)) from None
