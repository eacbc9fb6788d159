"""Arguments and options that several verbs share, with their shell completion."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from kafkafs.storage import TopicPartition

from .words import Config, plain_path

if TYPE_CHECKING:
    from kafkafs.storage import Selection

Function = TypeVar("Function", bound=Callable[..., Any])

ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")


class LocalPath(click.Path):
    """A path. `file:///data` means /data; any other URL is a usage error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(local_path(value, param, ctx), param, ctx)


class ReadablePath(click.Path):
    """A path that is only read: also a URL, or a path in an archive."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(readable_path(value, param, ctx), param, ctx)


class LocalFile(click.File):
    """An open file, whose path is parsed as by `LocalPath`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_open = not isinstance(value, str)
        path = value if is_open else local_path(value, param, ctx)
        return super().convert(path, param, ctx)


def local_path(value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """Calls `storage.local_path` and turns its LogDirError into a usage error."""
    from kafkafs.storage import LogDirError
    from kafkafs.storage import local_path as checked

    try:
        return checked(value)
    except LogDirError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def readable_path(value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
    """Calls `storage.location` and turns its LogDirError into a usage error."""
    from kafkafs.storage import LogDirError, location

    try:
        return location(value)
    except LogDirError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def log_dirs_argument(function: Function) -> Function:
    """Adds `log_dirs`: a tuple of paths, separated by commas as in Kafka's log.dirs."""
    return click.argument(
        "log_dirs", metavar="LOG_DIRS", callback=split_log_dirs, shell_complete=_complete_log_dirs
    )(function)


def other_log_dirs_argument(function: Function) -> Function:
    """Adds `other`: the log directories to compare with, as `log_dirs`."""
    return click.argument(
        "other",
        metavar="OTHER_LOG_DIRS",
        callback=split_log_dirs,
        shell_complete=_complete_log_dirs,
    )(function)


def paths_argument(*, required: bool) -> Callable[[Function], Function]:
    """Adds `paths`: any number of paths below the mount's root; "" is the root itself."""
    return click.argument(
        "paths",
        nargs=-1,
        required=required,
        metavar="PATH..." if required else "[PATH]...",
        callback=lambda ctx, parameter, values: tuple(map(plain_path, values)),
        shell_complete=complete_tree_path,
    )


def partition_argument(function: Function) -> Function:
    """Adds `partition`: a topic and a number."""
    return click.argument(
        "partition",
        metavar="TOPIC/PARTITION",
        callback=lambda ctx, parameter, value: value and _split_partition(value),
        shell_complete=complete_partition,
    )(function)


def selection_argument(function: Function) -> Function:
    """Adds `selection`, a Selection of any number of topics and partitions."""
    return click.argument(
        "selection",
        nargs=-1,
        metavar="[TOPIC[/PARTITION]]...",
        callback=lambda ctx, parameter, values: _parse_selection(*values),
        shell_complete=complete_partition,
    )(function)


def topic_or_partition_argument(function: Function) -> Function:
    """Adds `selection`, a Selection of one topic or partition."""
    return click.argument(
        "selection",
        metavar="TOPIC[/PARTITION]",
        callback=lambda ctx, parameter, value: value and _parse_selection(value),
        shell_complete=complete_partition,
    )(function)


def topics_argument(*, required: bool) -> Callable[[Function], Function]:
    """Adds `topics`: any number of names."""
    return click.argument(
        "topics",
        nargs=-1,
        required=required,
        metavar="TOPIC..." if required else "[TOPIC]...",
        shell_complete=complete_topic,
    )


def groups_argument(function: Function) -> Function:
    """Adds `groups`: any number of names."""
    return click.argument(
        "groups",
        nargs=-1,
        metavar="[GROUP]...",
        shell_complete=complete_group,
    )(function)


def subjects_argument(function: Function) -> Function:
    """Adds `subjects`: any number of names."""
    return click.argument(
        "subjects",
        nargs=-1,
        metavar="[SUBJECT]...",
        shell_complete=complete_subject,
    )(function)


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


def since_until_options(function: Function) -> Function:
    """Adds `since` and `until`: milliseconds since 1970, None if not given."""
    for name, what in (("--until", "before the first"), ("--since", "from the first")):
        function = click.option(
            name,
            metavar="TIME",
            callback=parse_time,
            help=f"Only list records {what} one at or after TIME (same formats as time/TIME).",
        )(function)
    return function


def from_until_options(function: Function) -> Function:
    """Adds `since_ms` and `until_ms`: milliseconds since 1970, None if not given."""
    for option, name, what in (
        ("--until", "until_ms", "before the first"),
        ("--from", "since_ms", "from the first"),
    ):
        function = click.option(
            option,
            name,
            metavar="TIME",
            callback=parse_time,
            help=f"Only records {what} one at or after TIME (ms since 1970 or ISO 8601).",
        )(function)
    return function


def time_option(function: Function) -> Function:
    """Adds `at` for verbs with --dry-run: milliseconds since 1970, None if not given."""
    return _at_option("With --dry-run: preview the result as of TIME")(function)


def as_of_option(function: Function) -> Function:
    """Adds `at` for verbs that only read."""
    return _at_option("Show the state as of TIME")(function)


def no_as_of_option(why: str) -> Callable[[Function], Function]:
    """Refuses --at, and says why, for verbs that read files and not records."""

    def refuse(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"--at cannot be used: {why}")

    return click.option("--at", hidden=True, expose_value=False, callback=refuse)


def _at_option(what: str) -> Callable[[Function], Function]:
    return click.option(
        "--at",
        metavar="TIME",
        callback=parse_time,
        help=f"{what} (ms since 1970 or ISO 8601).",
    )


def dry_run_option(function: Function) -> Function:
    """Adds `dry_run`, a flag."""
    return click.option(
        "-n",
        "--dry-run",
        is_flag=True,
        help="Print what would be done; change nothing and take no lock.",
    )(function)


def human_option(function: Function) -> Function:
    """Adds `human`, a flag for `output.size_text`."""
    return click.option(
        "-h", "--human-readable", "human", is_flag=True, help="Print sizes like 7.5K, 12M, 3.0G."
    )(function)


def json_option(what: str) -> Callable[[Function], Function]:
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what}.")


def _split_partition(value: str) -> TopicPartition:
    names = _parse_selection(value).names
    if len(names) != 1 or names[0][1] is None:
        raise click.BadParameter(f"{value!r} is not TOPIC/PARTITION")
    return names[0][0], names[0][1]


def _parse_selection(*values: str) -> Selection:
    from kafkafs.storage import Selection

    try:
        return Selection.of(*(plain_path(part) for value in values for part in value.split(",")))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def split_log_dirs(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    paths = split_paths(ctx, parameter, value)
    if value is not None and not paths:
        raise click.BadParameter("no directory given")
    return paths


def split_paths(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Splits paths and URLs separated by commas; returns () if there is no value."""
    given = (path.strip() for path in (value or "").split(","))
    return tuple(readable_path(path, parameter, ctx) for path in given if path)


def _split_configs(
    _ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[Config, ...]:
    return tuple(map(_split_config, values))


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


def parse_time(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    from kafkafs.storage import milliseconds

    if value is None:
        return None
    try:
        return milliseconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _split_config(value: str) -> Config:
    name, equals, text = value.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{value!r} is not NAME=VALUE")
    return name.strip(), text.strip()


def _complete_log_dirs(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    given, comma, last = incomplete.rpartition(",")
    if not comma:
        return [CompletionItem(incomplete, type="dir")]
    return [CompletionItem(f"{given},{path}", type="part") for path in _directories(last)]


def _directories(prefix: str) -> list[str]:
    """Returns the directories whose paths begin with `prefix`, as a shell completes them."""
    above, start = os.path.split(prefix)
    try:
        with os.scandir(above or ".") as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return []
    fitting = sorted(name for name in names if name.startswith(start))
    return [f"{os.path.join(above, name)}/" for name in fitting if start or name[0] != "."]


def complete_tree_path(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a path inside the log directories given earlier on the command line."""
    from .path_completion import paths_from

    log_dirs = ctx.params.get("log_dirs")
    return paths_from(log_dirs, incomplete) if log_dirs else []


def complete_topic(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a topic of the log directories given earlier."""
    from .path_completion import topics_from

    log_dirs = ctx.params.get("log_dirs")
    return topics_from(log_dirs, incomplete) if log_dirs else []


def complete_partition(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a topic, or after `TOPIC/` a partition, of the log directories given earlier."""
    from .path_completion import partitions_from

    log_dirs = ctx.params.get("log_dirs")
    return partitions_from(log_dirs, incomplete) if log_dirs else []


def complete_group(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a group of the log directories given earlier."""
    from .path_completion import groups_from

    log_dirs = ctx.params.get("log_dirs")
    return groups_from(log_dirs, incomplete) if log_dirs else []


def complete_subject(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a subject of the schema registry in the log directories given earlier."""
    from .path_completion import subjects_from

    log_dirs = ctx.params.get("log_dirs")
    return subjects_from(log_dirs, incomplete) if log_dirs else []


def complete_config(incomplete: str, topic: bool = False) -> list[CompletionItem]:
    """Completes the name of a config, or only of a topic config."""
    from kafkafs.storage import CONFIG_NAMES, TOPIC_CONFIG_NAMES

    names = TOPIC_CONFIG_NAMES if topic else CONFIG_NAMES
    fitting = [name for name in sorted(names) if name.startswith(incomplete)]
    return [CompletionItem(f"{name}=", type="part") for name in fitting]
