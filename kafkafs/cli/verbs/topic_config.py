"""`kafkafs topic config`: shows or changes the configs of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..support import failures, output
from ..support.params import (
    Setting,
    assignment_option,
    complete_setting,
    complete_topic,
    json_option,
    log_dirs_argument,
    settings_option,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import Engine
    from kafkafs.storage.log_manager import LogManager

    from ..support.mounted_engine import MountedEngine

Row = tuple[str, str, str]


@click.command(
    "config",
    cls=Verb,
    short_help="Show or change the configs of a topic.",
    examples=[
        ("kafkafs topic config /data orders", "show the configs that differ from the defaults"),
        ("kafkafs topic config --all /data orders", "show the defaults, too"),
        (
            "kafkafs topic config --set retention.ms=86400000 --unset flush.ms /data orders",
            "change configs",
        ),
    ],
)
@log_dirs_argument
@click.argument("topic", shell_complete=complete_topic)
@assignment_option("--set", "Set a config; repeatable.")
@click.option(
    "--unset",
    metavar="NAME",
    multiple=True,
    shell_complete=lambda ctx, parameter, incomplete: [
        CompletionItem(item.value.rstrip("=")) for item in complete_setting(incomplete, topic=True)
    ],
    help="Remove a config, so that its default applies; repeatable.",
)
@click.option("-a", "--all", "everything", is_flag=True, help="Show defaults, too.")
@settings_option
@json_option("the configs as a JSON object")
def command(
    log_dirs: tuple[str, ...],
    topic: str,
    set: tuple[Setting, ...],
    unset: tuple[str, ...],
    everything: bool,
    settings: tuple[Setting, ...],
    as_json: bool,
) -> int:
    """Show the configs of TOPIC and the source of each; with --set or --unset, change them first.

    Changes are stored in the file kafkafs.topics in LOG_DIRS and take precedence over the cluster's
    metadata. To make changes, no broker may be running on LOG_DIRS. An invalid config is reported
    on stderr, with exit code 1.
    """
    from ..support.opening import open_engine

    changes = {**dict(set), **dict.fromkeys(unset)}
    if changes:
        found = _changed(log_dirs, topic, changes, settings)
    else:
        found = open_engine(log_dirs, settings).topic_config(topic).as_json()
    shown = list(_shown(found["settings"], everything))
    if as_json:
        facts = {name: {"value": value, "source": source} for name, value, source in shown}
        output.binary().write(output.json_line(facts))
    elif shown:
        rows = [("NAME", "VALUE", "SOURCE"), *shown]
        output.binary().writelines(map(output.line, output.aligned(rows)))
    for problem in found["problems"]:
        failures.warn(problem)
    return 1 if found["problems"] else 0


def _changed(
    log_dirs: tuple[str, ...],
    topic: str,
    changes: Mapping[str, str | None],
    settings: tuple[Setting, ...],
) -> dict[str, Any]:
    """Makes the changes and returns the resulting configs as JSON."""
    from kafkafs.storage.config.topic_file import changed_settings
    from kafkafs.storage.topics.topics import changeable_partitions

    from ..support.mounted_engine import change

    def check(engine: Engine) -> None:
        changeable_partitions(engine, topic)
        settings = changed_settings(engine.log_dirs.topic_settings(topic), changes)
        engine.check_topic_settings(topic, settings, carried_over=True)

    def here(engine: LogManager) -> dict[str, Any]:
        return engine.set_topic_config(topic, changes).as_json()

    def there(mounted: MountedEngine) -> dict[str, Any]:
        asked = json.dumps({"topic": topic, "changes": dict(changes)})
        (found,) = mounted.ask(f"configure-topic {asked}")
        return found

    return change(log_dirs, settings, here, there, check=check)


def _shown(settings: Mapping[str, Mapping[str, str]], everything: bool) -> Iterator[Row]:
    """Yields name, value and source of each config that is not a default, or of all."""
    for name, made in settings.items():
        if made["source"] != "default" or everything:
            yield name, made["value"], made["source"]
