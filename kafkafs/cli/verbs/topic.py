"""`kafkafs topic`: the command group, and `topic list`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, topics_argument
from ..params.configs import configs_option, tier_options
from ..params.flags import human_option, json_option
from ..params.times import as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config
from . import topic_change, topic_config

if TYPE_CHECKING:
    from kafkafs.storage import RemotePart, TopicSummary


@click.group(short_help="List, create, delete and configure topics.")
def command() -> None:
    """List, create, delete and configure topics."""


command.add_command(topic_change.create)
command.add_command(topic_change.delete)
command.add_command(topic_config.command)


@command.command(
    "list",
    cls=Verb,
    short_help="List topics with partitions, offsets, sizes and ids.",
    examples=[
        ("kafkafs topic list /data", "list every partition"),
        ("kafkafs topic list -h /data1,/data2 orders", "list one topic, with readable sizes"),
        (
            "kafkafs topic list --json /data | jq 'select(any(.partitions[]; .size > 1e9)).topic'",
            "find topics with a partition of more than a gigabyte",
        ),
    ],
)
@log_dirs_argument
@topics_argument(required=False)
@human_option
@configs_option
@tier_options
@as_of_option
@json_option("one JSON object per topic, one per line")
def list_command(
    log_dirs: tuple[str, ...],
    topics: tuple[str, ...],
    human: bool,
    configs: tuple[Config, ...],
    at: int | None,
    as_json: bool,
) -> int:
    """List the partitions in LOG_DIRS, or only those of each TOPIC, with log start offset, last
    stable offset, log end offset, number of segments, size in bytes, and topic id.

    With --tier, LOCAL is the local log start offset, and REMOTE the last offset in remote storage.

    Stray partitions, which the broker's cluster does not know, are listed last and marked. Their
    topic is shown as the name of the directory: for partition 0 of a stray topic,
    `kafkafs cat LOG_DIRS NAME/0/records.jsonl` prints the records.

    A partition that cannot be read is reported on stderr, with exit code 1.
    """
    from kafkafs.storage import ListTopics, list_topics

    from ..support.driver import perform

    found: list[TopicSummary] = []
    code = perform(log_dirs, configs, ListTopics(topics), list_topics, found.append, at=at)
    if as_json:
        output.json_rows(found)
    else:
        rows = list(_rows(found, human))
        output.table(rows, right=range(1, len(rows[0]) - 1))
    return code


def _places(found: RemotePart) -> tuple[str, str]:
    """Returns where the local log begins, and where remote storage ends."""
    latest = "-" if found.latest_offset < 0 else str(found.latest_offset)
    return str(found.local_start_offset), latest


def _rows(found: Iterable[TopicSummary], human: bool) -> Iterator[tuple[str, ...]]:
    found = list(found)
    tiered = any(each.remote.latest_offset >= 0 for topic in found for each in topic.partitions)
    places = ("LOCAL", "REMOTE") if tiered else ()
    yield "TOPIC", "PARTITION", "START", *places, "STABLE", "END", "SEGMENTS", "SIZE", "TOPIC ID"
    for topic in found:
        for each in topic.partitions:
            yield (
                output.shown(topic.topic),
                str(each.partition),
                str(each.start_offset),
                *(_places(each.remote) if tiered else ()),
                str(each.last_stable_offset),
                str(each.end_offset),
                str(each.segments),
                output.size_text(each.size, human),
                (topic.topic_id or "-") + (" (stray)" if topic.is_stray else ""),
            )
