"""`kafkafs recover`: recovers log directories after a crash, or previews the recovery."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import dry_run_option, json_option
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import RecoveredPartition, RecoveryPlan, Selection, TopicPartition


@click.command(
    cls=Verb,
    short_help="Recover log directories after a crash.",
    examples=[
        (
            "kafkafs recover --dry-run /data",
            "preview what a broker or kafkafs would do on opening it",
        ),
        ("kafkafs recover /data1,/data2", "recover, and leave the directories cleanly shut down"),
        (
            "kafkafs recover --dry-run --json /data | jq 'select(.faults != [])'",
            "find the partitions that lost data",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@dry_run_option
@configs_option
@json_option("one JSON object per partition, one per line, even if it needs no recovery")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    dry_run: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Recover LOG_DIRS as Kafka does after an unclean shutdown: truncate torn writes, rebuild
    indexes and producer states, finish interrupted swaps and deletions. Print the actions for each
    partition.

    LOG_DIRS are always recovered as a whole; topics and partitions can be named only with
    --dry-run. Truncated data is also reported on stderr. No broker may be running on LOG_DIRS.
    """
    from kafkafs.storage import Recover, recover, recovered

    from ..support.driver import perform

    if selection and not dry_run:
        raise click.UsageError("partitions can only be named with --dry-run")
    request = Recover(selection, dry_run)
    found: list[RecoveredPartition] = []
    if dry_run:
        _warn_of_holders(log_dirs)
        code = perform(log_dirs, configs, request, recover, found.append)
        _warn_of_faults(found)
    else:
        plans: dict[TopicPartition, RecoveryPlan] = {}
        code = perform(
            log_dirs,
            configs,
            request,
            lambda engine, *_: recovered(plans, engine),
            found.append,
            recovered=plans.__setitem__,
        )
    if as_json:
        output.json_rows(found)
    else:
        output.binary().writelines(map(output.line, _lines(found)))
    return code


def _warn_of_holders(log_dirs: tuple[str, ...]) -> None:
    """Warns about processes that write to the directories."""
    from kafkafs.storage import DirFd, who_holds

    for path in log_dirs:
        pid = who_holds(DirFd(path)) if os.path.isdir(path) else 0
        if pid:
            why = f"process {pid} is writing to it; the preview assumes that it exits now"
            failures.warn(f"{path}: {why}")


def _warn_of_faults(found: Iterable[RecoveredPartition]) -> None:
    for each in found:
        for fault in each.faults:
            failures.warn(f"{each.topic}-{each.partition}: would be truncated: {fault}")


def _lines(found: Iterable[RecoveredPartition]) -> Iterator[str]:
    for each in found:
        if not each.actions:
            continue
        place = output.shown(f"{each.topic}-{each.partition}")
        yield f"{place}: offsets {each.start_offset} to {each.end_offset}"
        for action in each.actions:
            yield f"  {output.shown(action)}"
