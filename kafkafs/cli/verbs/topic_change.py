"""`kafkafs topic create` and `kafkafs topic delete`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..support import (failures, output)
from ..support.params import (configs_option, json_option, log_dirs_argument, short_configs_option, topic_config_option, topics_argument)
from ..support.verb import (Verb)
from ..support.words import (Config)

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import (Engine)

    from ..support.mounted_engine import (MountedEngine)


@click.command(
    "create",
    cls=Verb,
    short_help="Create a topic.",
    examples=[
        ("kafkafs topic create /data orders", "create a topic with one partition"),
        (
            "kafkafs topic create -p 3 --config retention.ms=86400000 /data orders",
            "create three partitions that retain records for a day",
        ),
        (
            "kafkafs topic create --cluster-id CLUSTER --node-id 1 --topic-id ID /new orders",
            "create a topic of the cluster in a new log directory for that broker",
        ),
    ],
)
@log_dirs_argument
@click.argument("topic")
@click.option("-p", "--partitions", type=int, default=1, show_default=True, metavar="N")
@topic_config_option("--config", "Set a topic config; repeatable.")
@click.option("--topic-id", default="", metavar="ID", help="Use this id instead of a new one.")
@click.option(
    "--unregistered",
    is_flag=True,
    help="Create it even if a KRaft broker would rename its partitions to -stray.",
)
@click.option(
    "--cluster-id", metavar="ID", help="Cluster id for new log directories; requires --node-id."
)
@click.option(
    "--node-id",
    type=click.IntRange(min=0),
    metavar="N",
    help="Node id for new log directories; requires --cluster-id.",
)
@short_configs_option
@json_option("the topic as a JSON object")
def create(
    log_dirs: tuple[str, ...],
    topic: str,
    partitions: int,
    config: tuple[Config, ...],
    topic_id: str,
    unregistered: bool,
    cluster_id: str | None,
    node_id: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> None:
    """Create TOPIC in LOG_DIRS. Directories that do not exist are created.

    Each partition is placed in the directory with the fewest partitions. Topic configs are stored
    in the file kafkafs.topics there; change them with `kafkafs topic config`. No broker may be
    running on LOG_DIRS.

    A KRaft broker renames partitions that its cluster's metadata does not contain to -stray and
    does not serve them. A topic is therefore created in the directories of a KRaft cluster only if
    the cluster knows it by TOPIC and --topic-id, or with --unregistered.
    """
    from kafkafs.storage.errors import (LogDirLocked, Unregistered)
    from kafkafs.storage.format.files.checkpoints import (MetaProperties)

    from ..support import (mounted_engine)
    from ..support.opening import (writing)

    owner = None
    if cluster_id is not None and node_id is not None:
        owner = MetaProperties(1, cluster_id, node_id)
    elif cluster_id is not None or node_id is not None:
        raise click.UsageError("--cluster-id and --node-id must be given together")
    _check_new(log_dirs, configs, topic, partitions, dict(config), topic_id, unregistered)
    if owner is not None and not (topic_id or unregistered):
        raise Unregistered(topic, log_dirs[0], has_metadata=False)
    try:
        with writing(log_dirs, configs, owner=owner) as engine:
            made_id = engine.create_topic(
                topic, partitions, dict(config), topic_id, unregistered=unregistered
            )
    except LogDirLocked:
        mounted = mounted_engine.holding(log_dirs, configs)
        if mounted is None or owner is not None:
            raise
        asked: dict[str, Any] = {"partitions": partitions, "settings": dict(config)}
        asked |= {"topicId": topic_id, "unregistered": unregistered}
        (made,) = mounted.ask(f"create-topic {json.dumps({'topic': topic, **asked})}")
        made_id = made["topicId"]
    facts = {"topic": topic, "topicId": made_id, "partitions": partitions}
    text = f"{topic}: {partitions} partitions, topic id {made_id}"
    output.binary().write(output.json_line(facts) if as_json else output.line(text))


def _check_new(
    log_dirs: Sequence[str],
    configs: Iterable[Config],
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    topic_id: str,
    unregistered: bool,
) -> None:
    """Raises a StorageError if the new topic is invalid. The directories are only read, so that a
    command with invalid arguments changes nothing; new directories have no topics yet."""
    from kafkafs.storage.config.kafka import (Configs, checked_topic_config, run_settings)
    from kafkafs.storage.topics.topics import (refuse_in_engine, refuse_new_topic)

    from ..support.opening import (open_engine)

    refuse_new_topic(topic, partitions, topic_id)
    checked_topic_config(Configs(run=run_settings(configs), topic_file=config))
    there = [path for path in log_dirs if os.path.isdir(path) and os.listdir(path)]
    if there:
        with closing(open_engine(tuple(there), configs)) as looking:
            numbers = range(partitions)
            refuse_in_engine(looking, topic, numbers, topic_id, unregistered=unregistered)
            looking.check_topic_settings(topic, config)


@click.command(
    "delete",
    cls=Verb,
    short_help="Delete topics.",
    examples=[
        ("kafkafs topic delete /data orders payments", "delete two topics with all their records")
    ],
)
@log_dirs_argument
@topics_argument(required=True)
@configs_option
def delete(log_dirs: tuple[str, ...], topics: tuple[str, ...], configs: tuple[Config, ...]) -> int:
    """Delete each TOPIC in LOG_DIRS with all its records.

    The directories of its partitions are renamed to end in -delete. Until they are removed,
    `kafkafs undelete` can restore the topic. A broker removes them when it starts, a mount that
    deleted them after file.delete.delay.ms, and `kafkafs purge` immediately. No broker may be
    running on LOG_DIRS.
    """
    from kafkafs.storage.topics.topics import (changeable_partitions)

    from ..support.mounted_engine import (change)
    from ..support.opening import (open_engine)

    def there(mounted: MountedEngine) -> int:
        return _delete_each(topics, partial(_ask_to_delete, mounted))

    with closing(open_engine(log_dirs, configs)) as looking:
        if not any(_can_be_deleted(looking, topic) for topic in topics):
            # Invalid arguments must fail before anything is changed.
            return _delete_each(topics, partial(changeable_partitions, looking))
    return change(
        log_dirs, configs, lambda engine: _delete_each(topics, engine.delete_topic), there
    )


def _ask_to_delete(mounted: MountedEngine, topic: str) -> None:
    (row,) = mounted.ask(f"delete-topic {topic}")
    if "warning" in row:
        failures.warn(row["warning"])


def _can_be_deleted(engine: Engine, topic: str) -> bool:
    from kafkafs.storage.errors import (StorageError)
    from kafkafs.storage.topics.topics import (changeable_partitions)

    try:
        return bool(changeable_partitions(engine, topic))
    except StorageError:
        return False


def _delete_each(topics: tuple[str, ...], delete: Callable[[str], object]) -> int:
    """Deletes every topic, reporting errors without stopping, and returns the exit code."""
    from kafkafs.storage.errors import (SettingsStay, StorageError)

    code = 0
    for topic in dict.fromkeys(topics):
        try:
            try:
                delete(topic)
            except SettingsStay as left:
                failures.warn(str(left))
            output.binary().write(output.line(f"{topic}: deleted"))
        except (StorageError, OSError, failures.Failure) as error:
            code = failures.tell(error)
    return code
