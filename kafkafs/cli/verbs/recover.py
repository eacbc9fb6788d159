"""`kafkafs recover`: recovers log directories after a crash, or previews the recovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..support import failures, output
from ..support.params import (
    Config,
    Selected,
    configs_option,
    dry_run_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log.load.log_loader import RecoveryPlan
    from kafkafs.storage.log_dirs.engine import Engine

Plans = dict[tuple[str, int], "RecoveryPlan"]


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
    selection: tuple[Selected, ...],
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
    plans: Plans = {}
    code = 0
    if dry_run:
        code = _foretell(log_dirs, selection, configs, plans)
    else:
        code = _recover(log_dirs, configs, plans)
    out = output.binary()
    if as_json:
        out.writelines(output.json_line(_json(*key, plan)) for key, plan in plans.items())
    else:
        out.writelines(map(output.line, _lines(plans)))
    return code


def _foretell(
    log_dirs: tuple[str, ...],
    selection: Sequence[Selected],
    configs: Iterable[Config],
    plans: Plans,
) -> int:
    """Adds the plan of every partition to `plans`; returns the exit code."""
    from kafkafs.storage.log_dirs.selection import choose

    from ..support.opening import for_each_partition, open_engine

    engine = open_engine(log_dirs, configs)
    _warn_of_holders(engine)

    def make(key: tuple[str, int]) -> None:
        plans[key] = _planned(engine, *key)

    keys = choose(engine.topics(), selection)
    listed = output.progress(keys, "reading partitions")
    code = for_each_partition(listed, make, are_named=bool(selection))
    for key, plan in plans.items():
        for fault in plan.faults:
            failures.warn(f"{key[0]}-{key[1]}: would be truncated: {fault}")
    return code


def _recover(log_dirs: tuple[str, ...], configs: Iterable[Config], plans: Plans) -> int:
    """Recovers the directories and adds their plans to `plans`; returns the exit code."""
    from ..support.opening import open_engine, writing

    open_engine(log_dirs, configs).close()  # raises for a wrong path, which writing would create
    found: Plans = {}
    with writing(log_dirs, configs, recovered=found.__setitem__) as engine:
        problems = engine.failures
        plans.update(sorted(found.items()))
    for problem in problems:
        failures.warn(problem)
    return 1 if problems else 0


def plan_for(engine: Engine, topic: str, number: int, is_clean: bool | None = None) -> RecoveryPlan:
    """Returns what opening a partition for writing would do to it, without changing anything. If
    `is_clean` is None, the directory's own state is used."""
    from kafkafs.storage.clock import SystemClock
    from kafkafs.storage.config.kafka import broker_config
    from kafkafs.storage.log.load import log_loader as recovery

    found = engine.partition_dir(topic, number)
    log_dir = found.log_dir
    return recovery.plan(
        found.directory,
        log_dir.recovery_points.get((topic, number), 0),
        log_dir.log_start_offsets.get((topic, number), 0),
        log_dir.is_clean if is_clean is None else is_clean,
        engine.topic_config(topic).config,
        SystemClock().now_ms(),
        engine.context.limits,
        broker_config(engine.settings).producer_id_expiration_ms,
    )


def _planned(engine: Engine, topic: str, number: int) -> RecoveryPlan:
    """Returns the plan for a partition; plans again if a running broker removes one of its
    files."""
    from kafkafs.storage.errors import SegmentGone
    from kafkafs.storage.io.retry import look_again

    def plan() -> RecoveryPlan:
        try:
            return plan_for(engine, topic, number)
        except FileNotFoundError as error:
            raise SegmentGone(str(error.filename)) from None

    try:
        return look_again(plan)
    except SegmentGone:
        engine.partition_dir(topic, number)  # UnknownPartition if it was deleted
        raise


def _warn_of_holders(engine: Engine) -> None:
    """Warns about processes that write to the directories."""
    from kafkafs.storage.io.lock import who_holds

    for log_dir in engine.log_dirs.dirs:
        pid = who_holds(log_dir.directory)
        if pid:
            why = f"process {pid} is writing to it; the preview assumes that it exits now"
            failures.warn(f"{log_dir.path}: {why}")


def _json(topic: str, number: int, plan: RecoveryPlan) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": number,
        "startOffset": plan.start_offset,
        "endOffset": plan.end_offset,
        "recoveryPoint": plan.recovery_point,
        "segments": len(plan.segments),
        "actions": [str(action) for action in plan.actions],
        "faults": [
            {"file": fault.file, "position": fault.position, "what": fault.what}
            for fault in plan.faults
        ],
    }


def _lines(plans: Plans) -> Iterator[str]:
    for (topic, number), plan in plans.items():
        if not plan.actions:
            continue
        place = output.shown(f"{topic}-{number}")
        yield f"{place}: offsets {plan.start_offset} to {plan.end_offset}"
        for action in plan.actions:
            yield f"  {output.shown(str(action))}"
