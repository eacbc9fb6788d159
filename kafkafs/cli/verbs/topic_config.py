"""`kafkafs topic config`: shows or changes the configs of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..support import (failures, output)
from ..support.params import (complete_config, complete_topic, configs_option, json_option, log_dirs_argument, topic_config_option)
from ..support.verb import (Verb)
from ..support.words import (Config)

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import (Engine)
    from kafkafs.storage.log_manager import (LogManager)

    from ..support.mounted_engine import (MountedEngine)

Row = tuple[str, str, str]


@click.command(
    "config",
    cls=Verb,
    short_help="Show or change the configs of a topic.",
    examples=[
        ("kafkafs topic config /data orders", "show the configs that differ from the defaults"),
        ("kafkafs topic config --all /data orders", "show the defaults, too"),
        (
            "kafkafs topic config --add-config retention.ms=86400000 /data orders",
            "retain records for a day",
        ),
        (
            "kafkafs topic config --delete-config retention.ms /data orders",
            "retain them as long as the defaults say",
        ),
    ],
)
@log_dirs_argument
@click.argument("topic", shell_complete=complete_topic)
@topic_config_option("--add-config", "Set a config; repeatable.")
@click.option(
    "--delete-config",
    metavar="NAME",
    multiple=True,
    shell_complete=lambda ctx, parameter, incomplete: [
        CompletionItem(item.value.rstrip("=")) for item in complete_config(incomplete, topic=True)
    ],
    help="Remove a config, so that its default applies; repeatable.",
)
@click.option("-a", "--all", "everything", is_flag=True, help="Show defaults, too.")
@configs_option
@json_option("the configs as a JSON object")
def command(
    log_dirs: tuple[str, ...],
    topic: str,
    add_config: tuple[Config, ...],
    delete_config: tuple[str, ...],
    everything: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Show the configs of TOPIC and the source of each; with --add-config or --delete-config,
    change them first.

    Changes are stored in the file kafkafs.topics in LOG_DIRS and take precedence over the cluster's
    metadata. To make changes, no broker may be running on LOG_DIRS. An invalid config is reported
    on stderr, with exit code 1.
    """
    from ..support.opening import (open_engine)

    changes = {**dict(add_config), **dict.fromkeys(delete_config)}
    if changes:
        found = _changed(log_dirs, topic, changes, configs)
    else:
        found = open_engine(log_dirs, configs).topic_config(topic).as_json()
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
    configs: tuple[Config, ...],
) -> dict[str, Any]:
    """Makes the changes and returns the resulting configs as JSON."""
    from kafkafs.storage.config.topic_file import (changed_settings)
    from kafkafs.storage.topics.topics import (changeable_partitions)

    from ..support.mounted_engine import (change)

    def check(engine: Engine) -> None:
        changeable_partitions(engine, topic)
        configs = changed_settings(engine.log_dirs.topic_settings(topic), changes)
        engine.check_topic_settings(topic, configs, carried_over=True)

    def here(engine: LogManager) -> dict[str, Any]:
        return engine.set_topic_config(topic, changes).as_json()

    def there(mounted: MountedEngine) -> dict[str, Any]:
        asked = json.dumps({"topic": topic, "changes": dict(changes)})
        (found,) = mounted.ask(f"configure-topic {asked}")
        return found

    return change(log_dirs, configs, here, there, check=check)


def _shown(configs: Mapping[str, Mapping[str, str]], everything: bool) -> Iterator[Row]:
    """Yields name, value and source of each config that is not a default, or of all."""
    for name, made in configs.items():
        if made["source"] != "default" or everything:
            yield name, made["value"], made["source"]
