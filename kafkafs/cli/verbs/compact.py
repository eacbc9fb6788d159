"""`kafkafs compact`: compacts logs as Kafka's log cleaner does, or previews the result."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import dry_run_option, human_option, json_option
from ..params.times import time_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Compact, CompactedLog, KeptKey, Selection

# Why records are retained, for the table.
_STAYS = {
    "newest": "newest of their keys",
    "tombstone": "tombstones before their delete horizons",
    "active": "in the active segment",
    "lag": "waiting for min.compaction.lag.ms",
    "unstable": "above the last stable offset",
    "older_stays": "after a segment that is held back",
    "uncleaned": "not cleaned",
}

_KEY_STAYS = {"newest": "newest of its key", "tombstone": "tombstone until"}


@click.command(
    cls=Verb,
    short_help="Compact the logs that are due for cleaning.",
    examples=[
        (
            "kafkafs compact --dry-run /data",
            "preview what would be discarded from which log, even while a broker runs",
        ),
        ("kafkafs compact /data", "compact; no broker may be running on the directory"),
        (
            "kafkafs compact --all --dry-run /data orders",
            "include the logs that are not due, with their dirty ratio and the required one",
        ),
        (
            "kafkafs compact --force /data orders/0",
            "clean one partition, due or not",
        ),
        (
            "kafkafs compact -n --keys /data orders/0",
            "list each retained key and why it is retained",
        ),
        (
            "kafkafs compact -n --at 2030-01-01 -c cleanup.policy=compact /data orders/0",
            "preview another time and another config",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@dry_run_option
@click.option("-f", "--force", is_flag=True, help="Include logs that are not due.")
@time_option
@click.option(
    "-k", "--keys", is_flag=True, help="With --dry-run: list the retained keys, one per line."
)
@click.option("-a", "--all", "everything", is_flag=True, help="Show logs that do not change, too.")
@human_option
@configs_option
@json_option("one JSON object per log, one per line")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    dry_run: bool,
    force: bool,
    at: int | None,
    keys: bool,
    everything: bool,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Compact the logs in LOG_DIRS, or only in the named topics and partitions, that Kafka's log
    cleaner would clean now. Print segments, records and bytes before and after, and how many
    records were discarded and retained, by reason.

    A log is due if its topic's cleanup.policy includes "compact" and its dirty ratio exceeds
    min.cleanable.dirty.ratio, or if a record is older than max.compaction.lag.ms. The active
    segment is never cleaned. If the policy also includes "delete", retention runs before and after.

    --dry-run --keys with one TOPIC/PARTITION lists each key that compaction would retain, due or
    not: the key, the offset of its newest record, and why that record is retained; for a tombstone
    also its delete horizon.
    """
    from kafkafs.storage import Compact, compact

    from ..support.driver import perform

    if at is not None and not dry_run:
        raise click.UsageError("--at requires --dry-run")
    request = Compact(selection, at, dry_run, force, everything)
    if keys:
        return _print_keys(log_dirs, configs, request, as_json)
    # The verb reports damage itself; the cleaner's log is for background cleaning.
    logging.getLogger("kafkafs").addHandler(logging.NullHandler())
    found: list[CompactedLog] = []
    code = perform(log_dirs, configs, request, compact, found.append, at=at)
    if as_json:
        output.json_rows(found)
    elif found:
        output.table(_rows(found, human), right=range(1, 8))
    elif force and not code:
        failures.warn("nothing to compact: no record would be discarded")
    return code


def _print_keys(
    log_dirs: tuple[str, ...], configs: tuple[Config, ...], request: Compact, as_json: bool
) -> int:
    from kafkafs.storage import retained_keys

    from ..support.driver import perform

    names = request.selection.names
    if request.writes or len(names) != 1 or names[0][1] is None:
        raise click.UsageError("--keys requires --dry-run and exactly one TOPIC/PARTITION")
    out = output.binary()

    def put(kept: KeptKey) -> None:
        out.write(output.json_line(kept.as_json()) if as_json else _key_line(kept))

    return perform(log_dirs, configs, request, retained_keys, put, at=request.at_ms)


def _key_line(kept: KeptKey) -> bytes:
    why = _KEY_STAYS.get(kept.why, _STAYS.get(kept.why, kept.why))
    until = f" {output.time_text(kept.until_ms)}" if kept.until_ms >= 0 else ""
    return output.line(f"{output.bytes_as_text(kept.key)}\t{kept.offset}\t{why}{until}")


def _rows(found: Iterable[CompactedLog], human: bool) -> Iterator[tuple[str, ...]]:
    after = "AFTER"
    yield (
        "TOPIC",
        "PARTITION",
        "SEGMENTS",
        after,
        "RECORDS",
        after,
        "BYTES",
        after,
        "DISCARDED",
        "RETAINED",
    )
    for each in found:
        before, now = each.before, each.after
        yield (
            output.shown(each.topic),
            str(each.partition),
            str(before.segments),
            str(now.segments),
            str(before.records),
            str(now.records),
            output.size_text(before.bytes, human),
            output.size_text(now.bytes, human),
            _gone(each),
            ", ".join(f"{count} {_STAYS[why]}" for why, count in each.stays.items()) or "nothing",
        )


def _gone(each: CompactedLog) -> str:
    """Returns the discarded records by reason, or why nothing was cleaned."""
    went = [f"{count} {reason}" for reason, count in each.gone.items() if count]
    if each.markers_gone:
        went.append(f"{each.markers_gone} transaction markers")
    if each.passes == 0:
        went.append(_why_not(each))
    return ", ".join(went) or "nothing"


def _why_not(each: CompactedLog) -> str:
    if each.dirty_ratio == 0:
        return "nothing to clean"
    return f"not due: dirty ratio {each.dirty_ratio:.2f}, must exceed {each.min_ratio:.2f}"
