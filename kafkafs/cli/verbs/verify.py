"""`kafkafs verify`: checks the files of log directories against Kafka's rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..support import failures, output
from ..support.params import (
    Config,
    Selected,
    configs_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.engine import Engine
    from kafkafs.storage.log_dirs.log_dir import PartitionDir
    from kafkafs.storage.segment.check.verify_index import Finding


@click.command(
    cls=Verb,
    short_help="Check logs, indexes, snapshots and checkpoints.",
    examples=[
        ("kafkafs verify /data", "check everything"),
        ("kafkafs verify /data1,/data2 orders payments/0", "check a topic and one partition"),
        ("kafkafs verify --json /data | jq -r .file | sort | uniq -c", "count findings by file"),
    ],
)
@log_dirs_argument
@selection_argument
@configs_option
@json_option("one JSON object per finding, one per line; position is -1 if unknown")
def command(
    log_dirs: tuple[str, ...],
    selection: tuple[Selected, ...],
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Check every file in LOG_DIRS, or only of the named topics and partitions, against Kafka's
    rules: logs, indexes, snapshots, leader epochs and checkpoints. Print each violation with file
    and position, and exit with code 1 if there are any.

    All batches are read and decoded. Nothing is changed. A running broker may change files during
    the check. Traces of a crash are reported, too, although `kafkafs recover` would repair them.
    """
    from ..support.opening import open_engine

    engine = open_engine(log_dirs, configs)
    partitions = _partitions(engine, selection)
    out = output.binary()
    count = 0
    code = 0
    for found in _findings(engine, partitions, everything=not selection):
        if isinstance(found, OSError):
            code = failures.tell(found)
            continue
        count += 1
        out.write(output.json_line(found.as_json()) if as_json else output.line(str(found)))
    if not as_json:
        wrong = f"{count} findings" if count else "nothing is wrong"
        out.write(output.line(f"{len(partitions)} partitions: {wrong}"))
    return 1 if count else code


def _partitions(engine: Engine, selection: Sequence[Selected]) -> list[PartitionDir]:
    from kafkafs.storage.log_dirs.selection import choose

    if not selection:
        return list(engine.log_dirs.partitions().values())
    return [engine.partition_dir(*key) for key in choose(engine.topics(), selection)]


def _findings(
    engine: Engine, partitions: Sequence[PartitionDir], everything: bool
) -> Iterator[Finding | OSError]:
    """Yields the findings in the partitions and, with `everything`, in the log directories' own
    files. Yields an OSError for a partition that cannot be read."""
    from kafkafs.storage.operations.verify import Verifier

    verifier = Verifier(engine)
    beside = list(
        verifier.directories()
    )  # always called: it reads what partitions are checked against
    if everything:
        yield from beside
    with output.bar("verifying partitions") as told:
        for number, partition in enumerate(partitions):
            told(number, len(partitions))
            try:
                yield from verifier.partition(partition)
            except OSError as error:
                yield error
