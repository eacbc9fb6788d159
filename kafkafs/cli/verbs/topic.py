"""`kafkafs topic`: the command group, and `topic list`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..support.params import (configs_option, human_option, json_option, log_dirs_argument, topics_argument)
from ..support.verb import (Verb)
from ..support.words import (Config)
from . import (topic_change, topic_config)

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import (Engine)


@click.group(short_help="List, create, delete and configure topics.")
def command() -> None:
    """List, create, delete and configure topics."""


command.add_command(topic_change.create)
command.add_command(topic_change.delete)
command.add_command(topic_config.command)


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A row of `topic list`; `size` is the total size of the .log files in bytes."""

    topic: str
    partition: int
    start_offset: int
    last_stable_offset: int
    end_offset: int
    segments: int
    size: int

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "startOffset": self.start_offset,
            "lastStableOffset": self.last_stable_offset,
            "endOffset": self.end_offset,
            "segments": self.segments,
            "size": self.size,
        }


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
@json_option("one JSON object per topic, one per line")
def list_topics(
    log_dirs: tuple[str, ...],
    topics: tuple[str, ...],
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """List the partitions in LOG_DIRS, or only those of each TOPIC, with log start offset, last
    stable offset, log end offset, number of segments, size in bytes, and topic id.

    Stray partitions, which the broker's cluster does not know, are listed last and marked. Their
    topic is shown as the name of the directory: for partition 0 of a stray topic,
    `kafkafs cat LOG_DIRS NAME/0/records.jsonl` prints the records.

    A partition that cannot be read is reported on stderr, with exit code 1.
    """
    from ..support.opening import (open_engine)
    from ..support.output import (binary, json_line, line)

    engine = open_engine(log_dirs, configs)
    chosen = _chosen(engine, topics)
    summaries, failed = _summarize(engine, chosen, are_named=bool(topics))
    out = binary()
    if as_json:
        for topic in chosen:
            out.write(json_line(_topic_json(engine, topic, summaries)))
    else:
        out.writelines(line(text) for text in _table(engine, summaries, human))
    return failed


def _chosen(engine: Engine, names: Sequence[str]) -> list[str]:
    """Returns topics, followed by stray partitions by directory name."""
    for name in names:
        engine.numbers_of(name)  # raises UnknownTopic if it does not exist
    there = [*engine.topics(), *sorted(name for name, _ in engine.log_dirs.strays())]
    return [topic for topic in there if not names or topic in names]


def _summarize(
    engine: Engine, topics: Sequence[str], *, are_named: bool
) -> tuple[list[PartitionSummary], int]:
    """Returns the summaries of all readable partitions, and the exit code."""
    from ..support.opening import (for_each_partition)
    from ..support.output import (progress)

    there = {**engine.topics(), **{name: [number] for name, number in engine.log_dirs.strays()}}
    partitions = [(topic, number) for topic in topics for number in there.get(topic, ())]
    summaries: list[PartitionSummary] = []
    code = for_each_partition(
        progress(partitions, "reading partitions"),
        lambda key: summaries.append(_summary(engine, *key)),
        are_named=are_named,
    )
    return summaries, code


def _summary(engine: Engine, topic: str, number: int) -> PartitionSummary:
    view = engine.log(topic, number).view()
    return PartitionSummary(
        topic=topic,
        partition=number,
        start_offset=view.start_offset,
        last_stable_offset=view.last_stable_offset,
        end_offset=view.end_offset,
        segments=len(view.segments),
        size=view.size,
    )


def _topic_json(
    engine: Engine, topic: str, summaries: Sequence[PartitionSummary]
) -> dict[str, Any]:
    return {
        "topic": topic,
        "topicId": _topic_id(engine, topic) or None,
        "isStray": _is_stray(engine, topic),
        "partitions": [summary.as_json() for summary in summaries if summary.topic == topic],
    }


def _is_stray(engine: Engine, topic: str) -> bool:
    return topic not in engine.topics() and any(
        name == topic for name, _ in engine.log_dirs.strays()
    )


def _topic_id(engine: Engine, topic: str) -> str:
    """Returns the topic's id, "" if it has none or was deleted in the meantime."""
    from kafkafs.storage.errors import (UnknownTopic)

    try:
        return engine.topic_id(topic)
    except UnknownTopic:
        return ""


def _table(engine: Engine, summaries: Sequence[PartitionSummary], human: bool) -> Iterator[str]:
    from ..support.output import (aligned, shown, size_text)

    ids = {topic: _topic_id(engine, topic) for topic in {summary.topic for summary in summaries}}
    rows = [("TOPIC", "PARTITION", "START", "STABLE", "END", "SEGMENTS", "SIZE", "TOPIC ID")]
    for summary in summaries:
        rows.append(
            (
                shown(summary.topic),
                str(summary.partition),
                str(summary.start_offset),
                str(summary.last_stable_offset),
                str(summary.end_offset),
                str(summary.segments),
                size_text(summary.size, human),
                (ids[summary.topic] or "-")
                + (" (stray)" if _is_stray(engine, summary.topic) else ""),
            )
        )
    yield from aligned(rows, right=range(1, 7))
