"""`kafkafs recover`: recovers log directories after a crash, or previews the recovery."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from kafkafs.storage import TopicPartition

from ..support import failures, output
from ..support.params import (
    configs_option,
    dry_run_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import RecoveryPlan, Selection
    from kafkafs.storage.operations.recover import RecoveredPartition

Found = tuple[list["RecoveredPartition"], int]


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
    if selection and not dry_run:
        raise click.UsageError("partitions can only be named with --dry-run")
    if dry_run:
        found, code = _previewed(log_dirs, configs, selection)
    else:
        found, code = _recovered(log_dirs, configs)
    if as_json:
        output.json_rows(found)
    else:
        output.binary().writelines(map(output.line, _lines(found)))
    return code


def _previewed(
    log_dirs: tuple[str, ...], configs: tuple[Config, ...], selection: Selection
) -> Found:
    from kafkafs.storage.operations.recover import Recover, recover

    from ..support.driver import perform

    _warn_of_holders(log_dirs)
    found: list[RecoveredPartition] = []
    code = perform(log_dirs, configs, Recover(selection), recover, found.append)
    for each in found:
        for fault in each.faults:
            failures.warn(f"{each.topic}-{each.partition}: would be truncated: {fault}")
    return found, code


def _recovered(log_dirs: tuple[str, ...], configs: tuple[Config, ...]) -> Found:
    """Recovers the directories by opening them."""
    from kafkafs.storage.operations.recover import RecoveredPartition

    from ..support.opening import open_engine, writing

    open_engine(log_dirs, configs).close()  # raises for a wrong path, which writing would create
    plans: dict[TopicPartition, RecoveryPlan] = {}
    with writing(log_dirs, configs, recovered=plans.__setitem__) as engine:
        problems = engine.failures
        found = [RecoveredPartition.of(key, plan) for key, plan in sorted(plans.items())]
    for problem in problems:
        failures.warn(problem)
    return found, 1 if problems else 0


def _warn_of_holders(log_dirs: tuple[str, ...]) -> None:
    """Warns about processes that write to the directories."""
    from kafkafs.storage import DirFd, who_holds

    for path in log_dirs:
        pid = who_holds(DirFd(path)) if os.path.isdir(path) else 0
        if pid:
            why = f"process {pid} is writing to it; the preview assumes that it exits now"
            failures.warn(f"{path}: {why}")


def _lines(found: Iterable[RecoveredPartition]) -> Iterator[str]:
    for each in found:
        if not each.actions:
            continue
        place = output.shown(f"{each.topic}-{each.partition}")
        yield f"{place}: offsets {each.start_offset} to {each.end_offset}"
        for action in each.actions:
            yield f"  {output.shown(action)}"
