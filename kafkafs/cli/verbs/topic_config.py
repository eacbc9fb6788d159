"""`kafkafs topic config`: shows or changes the configs of a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ..params.arguments import log_dirs_argument
from ..params.completion import complete_config, complete_topic
from ..params.configs import configs_option, topic_config_option
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import TopicConfigs

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
@as_of_option
@json_option("the configs as a JSON object")
def command(
    log_dirs: tuple[str, ...],
    topic: str,
    add_config: tuple[Config, ...],
    delete_config: tuple[str, ...],
    everything: bool,
    configs: tuple[Config, ...],
    at: int | None,
    as_json: bool,
) -> int:
    """Show the configs of TOPIC and the source of each; with --add-config or --delete-config,
    change them first.

    Changes are stored in the file kafkafs.topics in LOG_DIRS and take precedence over the cluster's
    metadata. To make changes, no broker may be running on LOG_DIRS. An invalid config is reported
    on stderr, with exit code 1.
    """
    from ..support.driver import perform

    changes = {**dict(add_config), **dict.fromkeys(delete_config)}
    rows: list[TopicConfigs] = []
    if changes and at is not None:
        raise click.UsageError("--at only shows configs; it cannot be used with changes")
    if changes:
        from kafkafs.storage import ConfigureTopic, configure_topic

        change = ConfigureTopic(topic, changes)
        code = perform(log_dirs, configs, change, configure_topic, rows.append)
    else:
        from kafkafs.storage import DescribeConfigs, describe_configs

        request = DescribeConfigs(topic)
        code = perform(log_dirs, configs, request, describe_configs, rows.append, at=at)
    for found in rows:
        shown = list(_shown(found.configs, everything))
        if as_json:
            facts = {name: {"value": value, "source": source} for name, value, source in shown}
            output.binary().write(output.json_line(facts))
        elif shown:
            output.table([("NAME", "VALUE", "SOURCE"), *shown])
        for problem in found.problems:
            failures.warn(problem)
            code = 1
    return code


def _shown(configs: Mapping[str, Mapping[str, str]], everything: bool) -> Iterator[Row]:
    """Yields name, value and source of each config that is not a default, or of all."""
    for name, made in configs.items():
        if made["source"] != "default" or everything:
            yield name, made["value"], made["source"]
