"""Completes words of the command line from the log directories given earlier on it."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem


def complete_log_dirs(
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
    from ..support.path_completion import paths_from

    log_dirs = ctx.params.get("log_dirs")
    return paths_from(log_dirs, incomplete) if log_dirs else []


def complete_topic(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a topic of the log directories given earlier."""
    from ..support.path_completion import topics_from

    log_dirs = ctx.params.get("log_dirs")
    return topics_from(log_dirs, incomplete) if log_dirs else []


def complete_partition(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a topic, or after `TOPIC/` a partition, of the log directories given earlier."""
    from ..support.path_completion import partitions_from

    log_dirs = ctx.params.get("log_dirs")
    return partitions_from(log_dirs, incomplete) if log_dirs else []


def complete_group(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a group of the log directories given earlier."""
    from ..support.path_completion import groups_from

    log_dirs = ctx.params.get("log_dirs")
    return groups_from(log_dirs, incomplete) if log_dirs else []


def complete_subject(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes a subject of the schema registry in the log directories given earlier."""
    from ..support.path_completion import subjects_from

    log_dirs = ctx.params.get("log_dirs")
    return subjects_from(log_dirs, incomplete) if log_dirs else []


def complete_config(incomplete: str, topic: bool = False) -> list[CompletionItem]:
    """Completes the name of a config, or only of a topic config."""
    from kafkafs.storage import CONFIG_NAMES, TOPIC_CONFIG_NAMES

    names = TOPIC_CONFIG_NAMES if topic else CONFIG_NAMES
    fitting = [name for name in sorted(names) if name.startswith(incomplete)]
    return [CompletionItem(f"{name}=", type="part") for name in fitting]
