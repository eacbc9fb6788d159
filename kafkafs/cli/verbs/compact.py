"""`kafkafs compact`: compacts logs as Kafka's log cleaner does, or previews the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from ..support import failures, output
from ..support.params import (
    Config,
    Selected,
    configs_option,
    dry_run_option,
    human_option,
    json_option,
    log_dirs_argument,
    selection_argument,
    time_option,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import Engine
    from kafkafs.storage.log_manager import LogManager
    from kafkafs.storage.operations.compaction import Compaction, KeptKey

    from ..support.mounted_engine import MountedEngine

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

_NOT_COMPACTED = 'its cleanup.policy does not include "compact"'

# Processes one partition; returns None if its topic is not compacted.
Work = Callable[[tuple[str, int], Callable[[int, int], None]], "Compaction | None"]


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
    selection: tuple[Selected, ...],
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
    if at is not None and not dry_run:
        raise click.UsageError("--at requires --dry-run")
    if keys:
        return _tell_keys(log_dirs, _the_one(selection, dry_run), configs, at, as_json)
    if dry_run:
        found, code = _foretell(log_dirs, selection, configs, at, force)
    else:
        found, code = _compact(log_dirs, selection, configs, force)
    shown = [each for each in found if everything or each.is_change]
    if as_json:
        output.binary().writelines(output.json_line(each.as_json()) for each in shown)
    elif shown:
        lines = output.aligned(list(_rows(shown, human)), right=range(1, 8))
        output.binary().writelines(map(output.line, lines))
    elif force and not code:
        failures.warn("nothing to compact: no record would be discarded")
    return code


def _the_one(selection: Sequence[Selected], dry_run: bool) -> tuple[str, int]:
    if dry_run and len(selection) == 1 and selection[0][1] is not None:
        return selection[0][0], selection[0][1]
    raise click.UsageError("--keys requires --dry-run and exactly one TOPIC/PARTITION")


def _tell_keys(
    log_dirs: tuple[str, ...],
    key: tuple[str, int],
    configs: Iterable[Config],
    at: int | None,
    as_json: bool,
) -> int:
    from kafkafs.storage.clock import SystemClock
    from kafkafs.storage.log_dirs.selection import choose
    from kafkafs.storage.operations.compaction import foretell_keys

    from ..support.opening import open_engine

    engine = open_engine(log_dirs, configs)
    choose(engine.topics(), [key])
    now_ms = SystemClock().now_ms() if at is None else at
    out = output.binary()
    with output.bar("{}/{}".format(*key)) as told:
        for kept in foretell_keys(engine, key, now_ms, told):
            out.write(_key_json(kept) if as_json else _key_line(kept))
    return 0


def _key_json(kept: KeptKey) -> bytes:
    shown = output.bytes_as_json(kept.key)
    until = None if kept.until_ms < 0 else kept.until_ms
    return output.json_line(
        {"key": shown, "offset": kept.offset, "stays": kept.why, "until": until}
    )


def _key_line(kept: KeptKey) -> bytes:
    why = _KEY_STAYS.get(kept.why, _STAYS.get(kept.why, kept.why))
    until = f" {output.time_text(kept.until_ms)}" if kept.until_ms >= 0 else ""
    return output.line(f"{output.bytes_as_text(kept.key)}\t{kept.offset}\t{why}{until}")


Compactions = tuple[list["Compaction"], int]


def _foretell(
    log_dirs: tuple[str, ...],
    selection: Sequence[Selected],
    configs: Iterable[Config],
    at: int | None,
    force: bool,
) -> Compactions:
    """Returns the results that compaction would have, and the exit code."""
    from kafkafs.storage.clock import SystemClock
    from kafkafs.storage.log_dirs.selection import choose
    from kafkafs.storage.operations.compaction import foretell

    from ..support.opening import open_engine

    engine = open_engine(log_dirs, configs)
    now_ms = SystemClock().now_ms() if at is None else at
    return _each(
        choose(engine.topics(), selection),
        selection,
        lambda key, told: foretell(engine, key, now_ms, force, told),
    )


def _compact(
    log_dirs: tuple[str, ...],
    selection: Sequence[Selected],
    configs: Iterable[Config],
    force: bool,
) -> Compactions:
    """Compacts; returns the results and the exit code."""
    from kafkafs.storage.log_dirs.selection import choose
    from kafkafs.storage.operations.compaction import Compaction, compact

    from ..support.mounted_engine import change, words

    # The verb reports damage itself; the cleaner's log is for background cleaning.
    logging.getLogger("kafkafs").addHandler(logging.NullHandler())

    def here(engine: LogManager) -> Compactions:
        offset_map = engine.cleaner.new_map()
        return _each(
            choose(engine.topics(), selection),
            selection,
            lambda key, told: compact(engine, key, offset_map, force, told),
        )

    def there(mounted: MountedEngine) -> Compactions:
        rows, code = mounted.each(f"compact {words(selection)} all{' force' if force else ''}")
        return [Compaction.of_json(row) for row in rows], code

    return change(log_dirs, configs, here, there, check=partial(_check, selection))


def _check(selection: Sequence[Selected], engine: Engine) -> None:
    """Raises UnknownTopic or UnknownPartition if a named one does not exist, Failure if none of
    them is compacted."""
    from kafkafs.storage.cleaner.plan import COMPACT
    from kafkafs.storage.log_dirs.selection import choose

    keys = choose(engine.topics(), selection)
    policies = [engine.topic_config(topic).config.cleanup_policy for topic, _ in keys]
    if selection and not any(COMPACT in policy for policy in policies):
        names = ", ".join("{}-{}".format(*key) for key in keys)
        raise failures.Failure(f"{names}: {_NOT_COMPACTED}")


def _each(
    keys: Iterable[tuple[str, int]], selection: Sequence[Selected], work: Work
) -> Compactions:
    """Runs `work` on every partition; an error in one does not stop the others."""
    from ..support.opening import for_each_partition

    named = {topic for topic, _ in selection}
    found: list[Compaction] = []

    def do(key: tuple[str, int]) -> None:
        with output.bar("{}/{}".format(*key)) as told:
            done = work(key, told)
        if done is not None:
            found.append(done)
        elif key[0] in named:
            raise failures.Failure("{}-{}: {}".format(*key, _NOT_COMPACTED))

    return found, for_each_partition(keys, do, are_named=bool(selection))


def _rows(found: Iterable[Compaction], human: bool) -> Iterator[tuple[str, ...]]:
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


def _gone(each: Compaction) -> str:
    """Returns the discarded records by reason, or why nothing was cleaned."""
    went = [f"{count} {reason}" for reason, count in each.gone.items() if count]
    if each.markers_gone:
        went.append(f"{each.markers_gone} transaction markers")
    if each.passes == 0:
        went.append(_why_not(each))
    return ", ".join(went) or "nothing"


def _why_not(each: Compaction) -> str:
    if each.dirty_ratio == 0:
        return "nothing to clean"
    return f"not due: dirty ratio {each.dirty_ratio:.2f}, must exceed {each.min_ratio:.2f}"
