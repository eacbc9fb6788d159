"""`kafkafs why`: explains why each segment of a partition still exists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kafkafs.storage import TopicPartition

from ..params.arguments import log_dirs_argument, partition_argument
from ..params.configs import configs_option, tier_options
from ..params.flags import human_option, json_option
from ..params.times import as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import ExplainedPartition, SegmentWhy, Standing


@click.command(
    cls=Verb,
    short_help="Explain why each segment of a partition still exists.",
    examples=[
        (
            "kafkafs why /data orders/0",
            "show which rule deletes each segment and when, or what retains it",
        ),
        (
            "kafkafs why --at 2030-01-01 -c min.compaction.lag.ms=86400000 /data orders/0",
            "the same for another time and another config",
        ),
        (
            "kafkafs why --json /data orders/0 | jq '.compaction | .dirtyRatio, .isEligible'",
            "show how dirty the log is, and whether it is eligible for cleaning",
        ),
    ],
)
@log_dirs_argument
@partition_argument
@as_of_option
@human_option
@configs_option
@tier_options
@json_option("one JSON object, like why.json in a mount; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    partition: TopicPartition,
    at: int | None,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Explain why each segment of TOPIC/PARTITION still exists: which retention rule deletes it and
    when, or what retains it. If cleanup.policy includes "compact", also show whether it is clean,
    can be cleaned or is held back, and why, and when cleaning may delete the next of its tombstones
    and transaction markers (the delete horizon).

    Nothing is changed. A broker may be running.
    """
    from kafkafs.storage import Why, why

    from ..support.driver import perform

    rows: list[ExplainedPartition] = []
    code = perform(log_dirs, configs, Why(*partition), why, rows.append, at=at)
    if as_json:
        output.json_rows(rows)
        return code
    for found in rows:
        output.binary().writelines(map(output.line, _lines(found)))
        if found.segments:
            output.table(_rows(found, human), right=(0, 1, 2))
    return code


def _lines(found: ExplainedPartition) -> Iterator[str]:
    """Yields lines about the whole partition."""
    view = found.view
    yield (
        f"{output.shown(view.topic)}/{view.partition}: offsets {view.start_offset} to"
        f" {view.end_offset}, cleanup.policy {','.join(found.config.cleanup_policy)}"
    )
    planned = found.plan
    if planned is not None:
        verdict = "is eligible" if planned.is_eligible else "is not eligible"
        yield (
            f"cleaner: the log {verdict} for cleaning now: dirty ratio {planned.ratio:.4f}, must"
            f" exceed {planned.min_ratio}; first dirty offset {planned.first_dirty},"
            f" first uncleanable offset {planned.first_uncleanable}"
        )
        if planned.overdue_at_ms is not None:
            yield f"cleaner: overdue from {output.time_text(planned.overdue_at_ms)} on"
    held = found.transaction
    if held is not None:
        yield (
            f"oldest open transaction: producer {held.producer_id} epoch {held.producer_epoch}"
            f" from offset {held.first_offset}, started about {output.time_text(held.timestamp)}"
        )


def _rows(found: ExplainedPartition, human: bool) -> Iterator[tuple[str, ...]]:
    compacts = found.plan is not None
    tiered = any(each.is_remote for each in found.segments)
    where = ("PLACE",) if tiered else ()
    heads = ("SEGMENT", "SIZE", "LARGEST TIMESTAMP", *where, "RETENTION")
    yield (*heads, "COMPACTION", "DELETE HORIZON") if compacts else heads
    for each in found.segments:
        segment = each.outlook.segment
        row = (
            str(segment.base_offset),
            output.size_text(segment.size, human),
            output.time_text(each.largest_timestamp),
            *(("remote" if each.is_remote else "local",) if tiered else ()),
            _retention(each),
        )
        yield (*row, *_compaction(each.standing)) if each.standing is not None else row


def _retention(found: SegmentWhy) -> str:
    from .expire import fate_text

    text = fate_text(found.outlook)
    return f"expired: {text}" if found.outlook.rule is not None else text


def _compaction(standing: Standing) -> tuple[str, str]:
    from kafkafs.storage import Bound

    words = {Bound.CLEAN: "clean", Bound.DIRTY: "dirty"}
    text = words.get(standing.bound, f"held back: {standing.bound}")
    if standing.cleanable_at_ms is not None:
        text += f"; until {output.time_text(standing.cleanable_at_ms)}"
    if standing.producer_id is not None:
        text += f"; producer {standing.producer_id}"
    if standing.is_being_written:
        text += "; a cleaner is rewriting it"
    goes = standing.tombstones_go_at_ms
    return text, "-" if goes is None else output.time_text(goes)
