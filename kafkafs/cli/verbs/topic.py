"""`kafkafs topic`: the command group, and `topic list`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..support import output
from ..support.params import (
    as_of_option,
    configs_option,
    human_option,
    json_option,
    log_dirs_argument,
    topics_argument,
)
from ..support.verb import Verb
from ..support.words import Config
from . import topic_change, topic_config

if TYPE_CHECKING:
    from kafkafs.storage import TopicSummary


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
        output.table(_rows(found, human), right=range(1, 7))
    return code


def _rows(found: Iterable[TopicSummary], human: bool) -> Iterator[tuple[str, ...]]:
    yield "TOPIC", "PARTITION", "START", "STABLE", "END", "SEGMENTS", "SIZE", "TOPIC ID"
    for topic in found:
        for each in topic.partitions:
            yield (
                output.shown(topic.topic),
                str(each.partition),
                str(each.start_offset),
                str(each.last_stable_offset),
                str(each.end_offset),
                str(each.segments),
                output.size_text(each.size, human),
                (topic.topic_id or "-") + (" (stray)" if topic.is_stray else ""),
            )
