"""Options that override configs, among them where remote storage and schemas are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, cast

import click

from ..support.words import Config
from .completion import complete_config
from .function import Function

ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")


def configs_option(function: Function) -> Function:
    """Adds `configs`: pairs of name and value. The engine checks whether the config exists."""
    return _configs_option("-c", "--config")(function)


def short_configs_option(function: Function) -> Function:
    """Adds `configs` only as `-c`, for the verb whose `--config` is a config of the topic."""
    return _configs_option("-c")(function)


def _configs_option(*names: str) -> Callable[[Function], Function]:
    return click.option(
        *names,
        "configs",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_split_run_configs,
        shell_complete=lambda ctx, parameter, incomplete: complete_config(incomplete),
        help="Override a broker or topic config for this run; repeatable.",
    )


def topic_config_option(name: str, help_text: str) -> Callable[[Function], Function]:
    """Returns a repeatable option NAME=VALUE for topic configs; its value is a tuple of pairs."""
    return click.option(
        name,
        metavar="NAME=VALUE",
        multiple=True,
        callback=_split_configs,
        shell_complete=lambda ctx, parameter, incomplete: complete_config(incomplete, topic=True),
        help=help_text,
    )


def reading_options(function: Function) -> Function:
    """Adds `configs` and `isolation`, for verbs that read records."""
    isolated = click.option(
        "--isolation",
        type=click.Choice(ISOLATION_LEVELS),
        default=ISOLATION_LEVELS[0],
        show_default=True,
        help="Whether to hide or show records of open and aborted transactions.",
    )
    return configs_option(tier_options(isolated(function)))


def tier_options(function: Function) -> Function:
    """Adds where remote storage is to `configs`, which the verb must have."""
    options = (
        click.option(
            "--tier",
            metavar="DIR",
            help="Also read the segments in the remote storage at DIR, a path or URL (KIP-405).",
        ),
        click.option(
            "--tier-layout",
            type=click.Choice(("auto", "local", "aiven")),
            help="Which plugin wrote DIR: Kafka's LocalTieredStorage or Aiven's.  [default: auto]",
        ),
        click.option(
            "--tier-key",
            "tier_keys",
            metavar="[ID=]FILE",
            multiple=True,
            help="The RSA private key (PEM) of encrypted objects; repeatable with key ids.",
        ),
    )

    @wraps(function)
    def with_tier(
        *args: Any,
        tier: str | None,
        tier_layout: str | None,
        tier_keys: tuple[str, ...],
        **others: Any,
    ) -> Any:
        given = (tier, tier_layout, ",".join(tier_keys))
        others["configs"] = (*others["configs"], *_tier_configs(*given))
        return function(*args, **others)

    for option in reversed(options):
        with_tier = option(with_tier)
    return cast(Function, with_tier)


def _tier_configs(tier: str | None, layout: str | None, keys: str) -> tuple[Config, ...]:
    if not (tier or layout or keys):
        return ()
    from kafkafs.storage import (
        TIER_CONFIG,
        TIER_KEYS_CONFIG,
        TIER_LAYOUT_CONFIG,
        LogDirError,
        absolute_configs,
    )

    given = ((TIER_CONFIG, tier), (TIER_LAYOUT_CONFIG, layout), (TIER_KEYS_CONFIG, keys))
    try:
        return tuple(absolute_configs((name, text) for name, text in given if text).items())
    except LogDirError as error:
        raise click.UsageError(str(error)) from None


def schema_option(function: Function) -> Function:
    """Adds schemas given as files to `configs`, which the verb must have: as kafkafs.schemas, after
    those that are in it already."""
    option = click.option(
        "--schema",
        "schemas",
        metavar="TOPIC=FILE",
        multiple=True,
        callback=_absolute_schemas,
        help="Decode values with the schema in FILE (.avsc, .proto, .json, or a descriptor set). "
        "TOPIC:key=FILE is for keys, id:N=FILE and guid:UUID=FILE for what names them, @FILE has "
        "such lines; repeatable.",
    )

    @wraps(function)
    def with_schemas(*args: Any, schemas: tuple[str, ...], **others: Any) -> Any:
        others["configs"] = _with_schemas(others["configs"], schemas)
        return function(*args, **others)

    return cast(Function, option(with_schemas))


def _absolute_schemas(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    if not values:
        return ()
    from kafkafs.storage import SCHEMAS_CONFIG, LogDirError, absolute_configs

    try:
        return tuple(absolute_configs([(SCHEMAS_CONFIG, ",".join(values))]).values())
    except LogDirError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _with_schemas(configs: tuple[Config, ...], schemas: tuple[str, ...]) -> tuple[Config, ...]:
    if not schemas:
        return configs
    from kafkafs.storage import SCHEMAS_CONFIG

    others = [each for each in configs if each[0] != SCHEMAS_CONFIG]
    before = [text for name, text in configs if name == SCHEMAS_CONFIG]
    return (*others, (SCHEMAS_CONFIG, ",".join((*before, *schemas))))


def _split_run_configs(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Config, ...]:
    """Also makes paths in them absolute: the working directory of a mount's daemon is the root."""
    found = _split_configs(ctx, parameter, values)
    if not found:
        return found
    from kafkafs.storage import LogDirError, absolute_configs

    try:
        return tuple(absolute_configs(found).items())
    except LogDirError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


def _split_configs(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Config, ...]:
    return tuple(map(_split_config, values))


def _split_config(value: str) -> Config:
    name, equals, text = value.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{value!r} is not NAME=VALUE")
    return name.strip(), text.strip()
