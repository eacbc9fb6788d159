"""`kafkafs expire`: runs one pass of retention, or previews it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..support import output
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
    from kafkafs.storage.log.delete.retention import Outlook
    from kafkafs.storage.log_manager import LogManager
    from kafkafs.storage.operations.expiring import SegmentFuture

    from ..support.mounted_engine import MountedEngine


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
    selection: tuple[Selected, ...],
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
    if at is not None and not dry_run:
        raise click.UsageError("--at requires --dry-run")
    if dry_run:
        futures, code = _foretell(log_dirs, selection, configs, at)
    else:
        futures, code = _expire(log_dirs, selection, configs)
    shown = [future for future in futures if everything or future.goes]
    if as_json:
        output.binary().writelines(output.json_line(future.as_json()) for future in shown)
    elif shown:
        lines = output.aligned(list(_rows(shown, human)), right=(1, 2, 3))
        output.binary().writelines(map(output.line, lines))
    return code


Futures = tuple[list["SegmentFuture"], int]


def _foretell(
    log_dirs: tuple[str, ...],
    selection: Sequence[Selected],
    configs: Iterable[Config],
    at: int | None,
) -> Futures:
    """Returns the outlook of every segment, and the exit code."""
    from kafkafs.storage.clock import SystemClock
    from kafkafs.storage.log_dirs.selection import choose
    from kafkafs.storage.operations.expiring import foretell

    from ..support.opening import open_engine

    engine = open_engine(log_dirs, configs)
    now_ms = SystemClock().now_ms() if at is None else at
    keys = output.progress(choose(engine.topics(), selection), "reading partitions")
    return _each(keys, lambda key: foretell(engine, key, now_ms), are_named=bool(selection))


def _expire(
    log_dirs: tuple[str, ...], selection: Sequence[Selected], configs: Iterable[Config]
) -> Futures:
    """Deletes segments; returns what happened to every segment, and the exit code."""
    from kafkafs.storage.log_dirs.selection import choose
    from kafkafs.storage.operations.expiring import SegmentFuture, expire

    from ..support.mounted_engine import change, words

    def here(engine: LogManager) -> Futures:
        keys = output.progress(choose(engine.topics(), selection), "deleting segments")
        return _each(keys, lambda key: expire(engine, key))

    def there(mounted: MountedEngine) -> Futures:
        rows, code = mounted.each(f"expire {words(selection)} all")
        return [SegmentFuture.of_json(row) for row in rows], code

    return change(
        log_dirs, configs, here, there, check=lambda engine: choose(engine.topics(), selection)
    )


def _each(
    keys: Iterable[tuple[str, int]],
    work: Callable[[tuple[str, int]], list[SegmentFuture]],
    *,
    are_named: bool = True,
) -> Futures:
    """Runs `work` on every partition; an error in one does not stop the others. `are_named` is as
    in `for_each_partition`."""
    from ..support.opening import for_each_partition

    futures: list[SegmentFuture] = []
    code = for_each_partition(keys, lambda key: futures.extend(work(key)), are_named=are_named)
    return futures, code


def _rows(futures: Iterable[SegmentFuture], human: bool) -> Iterator[tuple[str, ...]]:
    yield "TOPIC", "PARTITION", "SEGMENT", "SIZE", "LARGEST TIMESTAMP", "DELETED BY"
    for future in futures:
        yield (
            output.shown(future.topic),
            str(future.partition),
            str(future.base_offset),
            output.size_text(future.size, human),
            output.time_text(future.largest_timestamp),
            fate_text(future.outlook),
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
