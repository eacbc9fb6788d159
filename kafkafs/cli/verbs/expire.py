"""`kafkafs expire`: runs one pass of retention, or previews it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import dry_run_option, human_option, json_option
from ..params.times import time_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import ExpiredSegment, Outlook, Selection


@click.command(
    cls=Verb,
    short_help="Delete the segments that retention would delete now.",
    examples=[
        ("kafkafs expire /data", "apply retention.ms, retention.bytes and log start offsets"),
        (
            "kafkafs expire --dry-run --all /data orders",
            "show why each segment is retained or deleted",
        ),
        (
            "kafkafs expire --dry-run --at 2030-01-01 -c retention.ms=86400000 /data orders/0",
            "preview another time and another config",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@dry_run_option
@time_option
@click.option("-a", "--all", "everything", is_flag=True, help="Show retained segments, too.")
@human_option
@configs_option
@json_option("one JSON object per segment, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    dry_run: bool,
    at: int | None,
    everything: bool,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Delete the segments in LOG_DIRS, or only in the named topics and partitions, that Kafka's
    retention would delete now, and print them.

    The files of a deleted segment are renamed to .deleted. If the directories are mounted with
    --rw, the mount removes the files after file.delete.delay.ms; otherwise they remain until
    `kafkafs purge`. With --dry-run, nothing is changed and a broker may be running.
    """
    from kafkafs.storage import Expire, expire

    from ..support.driver import perform

    if at is not None and not dry_run:
        raise click.UsageError("--at requires --dry-run")
    request = Expire(selection, at, dry_run, everything)
    found: list[ExpiredSegment] = []
    code = perform(log_dirs, configs, request, expire, found.append, at=at)
    if as_json:
        output.json_rows(found)
    elif found:
        output.table(_rows(found, human), right=(1, 2, 3))
    return code


def _rows(found: Iterable[ExpiredSegment], human: bool) -> Iterator[tuple[str, ...]]:
    yield "TOPIC", "PARTITION", "SEGMENT", "SIZE", "LARGEST TIMESTAMP", "DELETED BY"
    for each in found:
        yield (
            output.shown(each.topic),
            str(each.partition),
            str(each.base_offset),
            output.size_text(each.size, human),
            output.time_text(each.largest_timestamp),
            fate_text(each.outlook),
        )


def fate_text(future: Outlook) -> str:
    """Returns the rule that deletes a segment, or what retains it and until when."""
    if future.rule is not None:
        return str(future.rule)
    when = []
    if future.expires_at_ms is not None:
        when.append(f"expires at {output.time_text(future.expires_at_ms)}")
    if future.bytes_to_come is not None:
        when.append(f"expires after {future.bytes_to_come} more bytes")
    return "; ".join([f"retained: {future.hold}", *when])
