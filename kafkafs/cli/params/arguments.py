"""Arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from kafkafs.storage import TopicPartition

from ..support.words import plain_path
from .completion import (
    complete_group,
    complete_log_dirs,
    complete_partition,
    complete_subject,
    complete_topic,
    complete_tree_path,
)
from .function import Function
from .paths import split_paths

if TYPE_CHECKING:
    from kafkafs.storage import Selection


def log_dirs_argument(function: Function) -> Function:
    """Adds `log_dirs`: a tuple of paths, separated by commas as in Kafka's log.dirs."""
    return click.argument(
        "log_dirs", metavar="LOG_DIRS", callback=split_log_dirs, shell_complete=complete_log_dirs
    )(function)


def other_log_dirs_argument(function: Function) -> Function:
    """Adds `other`: the log directories to compare with, as `log_dirs`."""
    return click.argument(
        "other",
        metavar="OTHER_LOG_DIRS",
        callback=split_log_dirs,
        shell_complete=complete_log_dirs,
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


def split_log_dirs(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    paths = split_paths(ctx, parameter, value)
    if value is not None and not paths:
        raise click.BadParameter("no directory given")
    return paths


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
