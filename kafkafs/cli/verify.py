"""`kafkafs verify`: whether the files are what Kafka's rules say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from . import failures, output
from .params import (
    Choice,
    Setting,
    choice_argument,
    json_option,
    log_dirs_argument,
    settings_option,
)
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.engine import Engine
    from kafkafs.storage.log_dir import PartitionDir
    from kafkafs.storage.segment.verify_index import Finding


@click.command(
    cls=Verb,
    short_help="Check logs, indexes, snapshots, epochs and checkpoints.",
    examples=[
        ("kafkafs verify /data", "everything"),
        ("kafkafs verify /data1,/data2 orders payments/0", "a topic, and one partition"),
        ("kafkafs verify --json /data | jq -r .file | sort | uniq -c", "findings by file"),
    ],
)
@log_dirs_argument
@choice_argument
@settings_option
@json_option("one JSON object a line for each finding; position -1 where there is none")
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    settings: tuple[Setting, ...],
    as_json: bool,
) -> int:
    """Hold every file in LOG_DIRS, or of what is named, against Kafka's rules, and print where
    they are broken: file, position, and what is wrong there. Then the exit code is 1.

    All batches are read and decoded. Nothing is changed. A broker that is running may change files
    while they are looked at; what a crash left is found, though `kafkafs recover` knows what to do.
    """
    from .opening import open_engine

    engine = open_engine(log_dirs, settings)
    partitions = _partitions(engine, chosen)
    out = output.binary()
    count = 0
    code = 0
    for found in _findings(engine, partitions, everything=not chosen):
        if isinstance(found, OSError):
            code = failures.tell(found)
            continue
        count += 1
        out.write(output.json_line(found.as_json()) if as_json else output.line(str(found)))
    if not as_json:
        wrong = f"{count} findings" if count else "nothing is wrong"
        out.write(output.line(f"{len(partitions)} partitions: {wrong}"))
    return 1 if count else code


def _partitions(engine: Engine, chosen: Sequence[Choice]) -> list[PartitionDir]:
    from kafkafs.storage.choice import choose

    if not chosen:
        return list(engine.log_dirs.partitions().values())
    return [engine.partition_dir(*key) for key in choose(engine.topics(), chosen)]


def _findings(
    engine: Engine, partitions: Sequence[PartitionDir], everything: bool
) -> Iterator[Finding | OSError]:
    """What is wrong in the partitions and, with `everything`, beside them; or cannot be read."""
    from kafkafs.storage.verify import Verifier

    verifier = Verifier(engine)
    beside = list(verifier.directories())  # in any case: it reads what partitions are held against
    if everything:
        yield from beside
    with output.bar("verifying partitions") as told:
        for number, partition in enumerate(partitions):
            told(number, len(partitions))
            try:
                yield from verifier.partition(partition)
            except OSError as error:
                yield error
