"""`kafkafs history`: lists all versions of a key that are still on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, topic_or_partition_argument
from ..params.configs import reading_options
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import KeyVersion, Selection


@click.command(
    cls=Verb,
    short_help="List all versions of a key that are still on the disk.",
    examples=[
        ("kafkafs history /data orders order-7", "list every value that order-7 has had"),
        (
            "kafkafs history --json /data orders/0 order-7 | jq 'select(.served | not)'",
            "show only what the log no longer serves",
        ),
        (
            "kafkafs history --json /data orders order-7 | jq -r '.value // empty' | tail -1",
            "print the last value, even if a tombstone followed",
        ),
    ],
)
@log_dirs_argument
@topic_or_partition_argument
@click.argument("key", callback=lambda ctx, parameter, value: os.fsencode(value or ""))
@reading_options
@as_of_option
@json_option(
    "JSON lines like records.jsonl, with served, state, file and position (of the batch) added"
)
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    key: bytes,
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
    as_json: bool,
) -> int:
    """List all versions of KEY that are still on the disk, by partition and offset: those that the
    log serves, and those below the log start offset, in deleted segments, or in segments that
    compaction has replaced and that wait for their removal. A tombstone is a version without a
    value. A record in several files is listed once; of different records with the same offset,
    which a truncated log leaves, each is listed.

    Deleted partitions, also those of a topic that no longer exists or was created again, are
    searched until their directories are removed, and so are those that a broker set aside as stray.
    Versions from an earlier life of the topic are listed before those of the present one.

    All partitions of the topic are searched, because a producer may use another partitioner than
    Kafka's, and because partitions may have been added. If a file is damaged, the damage is
    reported, the rest is listed, and the exit code is 1, as it is if there is no version.

    With --at, only versions that the partition had at that time are listed, as the disk has them
    now: a partition that was deleted since is a deleted one.
    """
    from kafkafs.storage import History, Isolation, history

    from ..support.driver import perform
    from ..support.failures import Failure

    rows: list[KeyVersion] = []
    count = 0

    def put(row: KeyVersion) -> None:
        nonlocal count
        count += 1
        if as_json:
            output.binary().write(output.json_line(row.as_json()))
        else:
            rows.append(row)

    request = History(selection, key, Isolation(isolation))
    code = perform(log_dirs, configs, request, history, put, at=at)
    if not count:
        name = str(selection).rstrip("/")
        raise Failure(f"{name}: no record with key {output.bytes_as_text(key)} is on the disk")
    if rows:
        output.table(_rows(rows), right=(1,))
    return code


def _file(found: KeyVersion) -> str:
    """Returns the file's name, with that of its directory if it is not the partition's own."""
    directory, name = os.path.split(found.file)
    above = os.path.basename(directory)
    return name if above == f"{found.topic}-{found.partition}" else f"{above}/{name}"


def _rows(found: Iterable[KeyVersion]) -> Iterator[tuple[str, ...]]:
    yield "PARTITION", "OFFSET", "TIMESTAMP", "STATE", "FILE", "VALUE"
    for each in found:
        value = each.record.value
        yield (
            output.shown(f"{each.topic}/{each.partition}"),
            str(each.record.offset),
            output.time_text(each.record.timestamp),
            str(each.state),
            _file(each),
            "(tombstone)" if value is None else output.bytes_as_text(value),
        )
