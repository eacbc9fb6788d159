"""Settings by name, as `-c NAME=VALUE` and `kafkafs.open(settings=…)` give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkafs.storage.errors import ConfigError

if TYPE_CHECKING:
    from kafkafs.storage.log.context import ReadLimits

# Setting to the field of `ReadLimits` that it sets. They limit the reader, which Kafka has no names
# for: what Kafka would configure was decided when the log was written.
_LIMITS: Final = {
    "kafkafs.max.batch.bytes": "max_batch_bytes",
    "kafkafs.cache.bytes": "cache_bytes",
    "kafkafs.open.files": "open_files",
}


def read_limits(settings: Iterable[tuple[str, str]]) -> ReadLimits:
    """The limits of a reader; of a setting given twice, the last counts. ConfigError names what
    does not exist, or what a value must be."""
    from kafkafs.storage.log.context import ReadLimits

    return ReadLimits(**{_field(name): _number(name, value) for name, value in settings})


def _field(name: str) -> str:
    if name not in _LIMITS:
        raise ConfigError(name, f"no such setting; there are {', '.join(_LIMITS)}")
    return _LIMITS[name]


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < int(value) < 2**31):
        raise ConfigError(name, f"must be a number from 1 to {2**31 - 1}, not {value!r}")
    return int(value)
