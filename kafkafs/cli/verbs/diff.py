"""`kafkafs diff`: compares two copies of log directories."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from kafkafs.storage import printable

from ..params.arguments import log_dirs_argument, other_log_dirs_argument, selection_argument
from ..params.configs import configs_option, tier_options
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Difference, Selection

# As diff(1) exits.
_DIFFERENT: Final = 1
_TROUBLE: Final = 2


class Trouble(failures.Failure):
    """The comparison failed, as opposed to: it found a difference."""

    exit_code = _TROUBLE


class DiffVerb(Verb):
    """A verb whose errors are trouble."""

    def invoke(self, ctx: click.Context) -> int:
        try:
            code: int = super().invoke(ctx)
            return code
        except failures.Failure as error:
            raise Trouble(error.message) from error


@click.command(
    cls=DiffVerb,
    short_help="Compare replicas, or a backup with its source.",
    examples=[
        ("kafkafs diff /backup /data", "check whether a backup has everything"),
        ("kafkafs diff /broker1 /broker2 orders payments/0", "compare replicas of partitions"),
        (
            "kafkafs diff --json /a /b | jq 'select(.difference == \"content\")'",
            "list the offsets where both have a record, but different ones",
        ),
        ("kafkafs diff /a1,/a2 /b && echo equal", "exit codes are those of diff(1)"),
        (
            "kafkafs diff --at 2026-09-03 /backup /data",
            "compare a backup with its source at the time of the backup",
        ),
    ],
)
@log_dirs_argument
@other_log_dirs_argument
@selection_argument
@click.option(
    "--bytes",
    "compares_batches",
    is_flag=True,
    help="Report equal records in different batches, too, as compression or compaction leaves.",
)
@configs_option
@tier_options
@as_of_option
@json_option("one JSON object per difference, one per line")
def command(
    log_dirs: tuple[str, ...],
    other: tuple[str, ...],
    selection: Selection,
    compares_batches: bool,
    configs: tuple[Config, ...],
    at: int | None,
    as_json: bool,
) -> int:
    """Compare the topics and partitions in LOG_DIRS with those in OTHER_LOG_DIRS: ids of cluster
    and topics, partition counts, configs, offsets, and every record. Print each difference: what
    only one of them has, and why the other lacks it (retention, compaction, damage, or because it
    ends earlier); where both have different records at an offset; and the first offset from which
    on the two histories contradict each other, with the leader epochs there.

    A topic that was deleted and created again has another id: this is said first, with both ids,
    and the leader epochs of such two lives of a topic are not compared.

    Equal records count as equal in whatever batches they are, unless --bytes is given. What both
    have in equal bytes is not decoded. Nothing is changed; brokers may be running on either.

    The exit code is 0 if there is no difference, 1 if there are some, and 2 if something could not
    be read.
    """
    from kafkafs.storage import Diff, PartitionFailed, configs_of_both, diff

    from ..support.driver import progress_bars
    from ..support.opening import open_engine

    out = output.binary()
    names = ",".join(log_dirs), ",".join(other)
    code = 0
    mine, its = configs_of_both(dict(configs), log_dirs, other)
    with (
        closing(open_engine(log_dirs, tuple(mine.items()), at)) as first,
        closing(open_engine(other, tuple(its.items()), at)) as second,
        progress_bars() as progress,
    ):
        for row in diff((first, second), Diff(selection, compares_batches), progress):
            if isinstance(row, PartitionFailed):
                failures.report_row(row)
                code = _TROUBLE
                continue
            code = code or _DIFFERENT
            line = output.line(printable(_text(row, names)))
            out.write(output.json_line(row.as_json()) if as_json else line)
        for engine in (first, second):
            code = _TROUBLE if failures.report_configs(engine) else code
    return code


def _text(row: Difference, names: tuple[str, str]) -> str:
    """Describes a difference in one line."""
    from kafkafs.storage import DifferenceKind

    kind = row.kind
    where = row.topic if row.partition < 0 else f"{row.topic}/{row.partition}"
    place = f"{where}: " if where else ""
    has = [
        f"{'no value' if value is None else value} in {name}"
        for value, name in zip((row.first, row.second), names, strict=True)
    ]
    both = ", ".join(has)
    match kind:
        case DifferenceKind.TOPIC | DifferenceKind.PARTITION:
            return f"{place}only in {names[row.only_in]}"
        case DifferenceKind.TOPIC_ID:
            return f"{place}two lives of the topic: topic id {both}"
        case DifferenceKind.CONFIG:
            return f"{place}config {row.name}: {both}"
        case DifferenceKind.DIVERGENCE:
            epochs = f"{row.first} in both" if row.first == row.second else both
            leader = f"; {names[row.leader]} is more up to date" if row.leader >= 0 else ""
            return f"{place}the copies diverge at offset {row.start}: leader epoch {epochs}{leader}"
        case DifferenceKind.RECORDS:
            missing = f"{row.absence} in {names[1 - row.only_in]}"
            return f"{place}{_offsets(row)} only in {names[row.only_in]}: {missing}"
        case DifferenceKind.CONTENT:
            return f"{place}{_offsets(row)} different records"
        case DifferenceKind.EPOCH:
            return f"{place}{_offsets(row)} equal records of different leader epochs"
        case DifferenceKind.BATCHES:
            return f"{place}{_offsets(row)} equal records in different batches"
    return f"{place}{kind}: {both}"


def _offsets(row: Difference) -> str:
    last = row.end - 1
    if last == row.start:
        return f"offset {row.start}:"
    offsets = f"offsets {row.start} to {last}"
    return f"{offsets}:" if row.records < 0 else f"{offsets} ({row.records} records):"
