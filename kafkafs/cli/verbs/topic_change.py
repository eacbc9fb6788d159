"""`kafkafs topic create` and `kafkafs topic delete`."""

from __future__ import annotations

from typing import Any

import click

from ..params.arguments import log_dirs_argument, topics_argument
from ..params.configs import configs_option, short_configs_option, topic_config_option
from ..params.flags import dry_run_option, json_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config


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
            "kafkafs topic create --register /data orders",
            "create a topic that the stopped single node of /data has when it starts again",
        ),
        (
            "kafkafs topic create --cluster-id CLUSTER --node-id 1 --topic-id ID /new orders",
            "create a topic of the cluster in a new log directory for that broker",
        ),
    ],
)
@log_dirs_argument
@click.argument("topic")
@click.option(
    "-p",
    "--partitions",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Create this many partitions.",
)
@topic_config_option("--config", "Set a topic config; repeatable.")
@click.option("--topic-id", default="", metavar="ID", help="Use this id instead of a new one.")
@click.option(
    "--unregistered",
    is_flag=True,
    help="Create it even if a KRaft broker would rename its partitions to -stray.",
)
@click.option(
    "--register",
    is_flag=True,
    help="Register it in the metadata log in LOG_DIRS, whose node must be the only voter.",
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
@dry_run_option
@short_configs_option
@json_option("the topic as a JSON object; with --dry-run, the records of --register")
def create(
    log_dirs: tuple[str, ...],
    topic: str,
    partitions: int,
    config: tuple[Config, ...],
    topic_id: str,
    unregistered: bool,
    register: bool,
    cluster_id: str | None,
    node_id: int | None,
    dry_run: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Create TOPIC in LOG_DIRS. Directories that do not exist are created.

    Each partition is placed in the directory with the fewest partitions. Topic configs are stored
    in the file kafkafs.topics there; change them with `kafkafs topic config`. No broker may be
    running on LOG_DIRS.

    A KRaft broker renames partitions that its cluster's metadata does not contain to -stray and
    does not serve them. A topic is therefore created in the directories of a KRaft cluster only if
    the cluster knows it by TOPIC and --topic-id, or with --unregistered.

    --register makes the topic known to the cluster: the broker has it when it starts. For that, the
    node of LOG_DIRS must be stopped, and be a broker that is also the only voter of its metadata
    quorum, as a single node with process.roles=broker,controller is; give all of its log.dirs. With
    several voters it is refused, since other controllers decide then what the metadata log holds.
    The configs are stored in the cluster's metadata. With --dry-run, the records are printed that
    would be appended to them. `kafkafs revive --in-place` registers a topic that exists already.
    """
    from kafkafs.storage import (
        CreateTopic,
        MetadataRecordRow,
        MetaProperties,
        Unregistered,
        create_topic,
    )

    from ..support.driver import perform

    owner = None
    if cluster_id is not None and node_id is not None:
        owner = MetaProperties(1, cluster_id, node_id)
    elif cluster_id is not None or node_id is not None:
        raise click.UsageError("--cluster-id and --node-id must be given together")
    if register and (unregistered or owner is not None):
        raise click.UsageError("--register is for the directories of a cluster that knows them")
    request = CreateTopic(
        topic, partitions, dict(config), topic_id, unregistered, register, dry_run
    )
    request.check_new(dict(configs))
    if owner is not None and not (topic_id or unregistered):
        raise Unregistered(topic, log_dirs[0], has_metadata=False)

    def put(made: Any) -> None:
        if as_json or isinstance(made, MetadataRecordRow):
            output.binary().write(output.json_line(made.as_json()))
            return
        known = ", known to the cluster" if made.is_registered else ""
        text = f"{made.topic}: {made.partitions} partitions, topic id {made.topic_id}{known}"
        output.binary().write(output.line(text))

    creates = not (register or dry_run)
    return perform(log_dirs, configs, request, create_topic, put, owner=owner, creates=creates)


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
@click.option(
    "--keep-remote",
    is_flag=True,
    help="Delete also topics of which remote storage has segments; these stay there.",
)
@configs_option
def delete(
    log_dirs: tuple[str, ...],
    topics: tuple[str, ...],
    keep_remote: bool,
    configs: tuple[Config, ...],
) -> int:
    """Delete each TOPIC in LOG_DIRS with all its records.

    The directories of its partitions are renamed to end in -delete. Until they are removed,
    `kafkafs undelete` can restore the topic. A broker removes them when it starts, a mount that
    deleted them after file.delete.delay.ms, and `kafkafs purge` immediately. No broker may be
    running on LOG_DIRS.

    Remote storage (tiered storage) is not changed: a topic that has or may have segments there is
    only deleted with --keep-remote. A broker deletes them with the topic.
    """
    from kafkafs.storage import DeleteTopics, RemovedTopic, delete_topics

    from ..support.driver import perform

    def put(removed: RemovedTopic) -> None:
        if removed.warning:
            failures.warn(removed.warning)
        output.binary().write(output.line(f"{removed.topic}: deleted"))

    return perform(log_dirs, configs, DeleteTopics(topics, keep_remote), delete_topics, put)
