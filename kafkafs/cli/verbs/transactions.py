"""`kafkafs transactions`: lists open transactions and aborts hanging ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import PartitionTransaction, Selection


@click.command(
    cls=Verb,
    short_help="List open transactions, or abort those of a producer.",
    examples=[
        ("kafkafs transactions /data", "find the transactions that block read_committed consumers"),
        (
            "kafkafs transactions --json /data | jq 'select(.lastTimestamp < now*1000 - 9e5)'",
            "find those without a new record for 15 minutes",
        ),
        ("kafkafs transactions --abort 4711 /data orders/0", "abort a hanging transaction"),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "--abort",
    type=click.IntRange(min=0),
    metavar="PRODUCER_ID",
    help="Abort the open transactions of this producer.",
)
@configs_option
@as_of_option
@json_option("one JSON object per transaction, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    abort: int | None,
    configs: tuple[Config, ...],
    at: int | None,
    as_json: bool,
) -> int:
    """List the open transactions in LOG_DIRS, or only in the named topics and partitions, with
    producer, offset of the first record, and time of the last record. Consumers with
    read_committed cannot read beyond the first record of an open transaction.

    With --abort, abort the transactions of one producer and print them. kafkafs cannot tell whether
    the producer is still running. No broker may be running on LOG_DIRS.
    """
    from kafkafs.storage import Transactions, list_transactions

    from ..support.driver import perform

    if abort is not None and at is not None:
        raise click.UsageError("--at only lists transactions; it cannot be used with --abort")
    found: list[PartitionTransaction] = []
    request = Transactions(selection, abort)
    code = perform(log_dirs, configs, request, list_transactions, found.append, at=at)
    if as_json:
        output.json_rows(found)
    elif found:
        output.table(_rows(found), right=range(1, 5))
    return code


def _rows(found: Iterable[PartitionTransaction]) -> Iterator[tuple[str, ...]]:
    yield "TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "FIRST OFFSET", "LAST RECORD"
    for each in found:
        transaction = each.transaction
        yield (
            output.shown(each.topic),
            str(each.partition),
            str(transaction.producer_id),
            str(transaction.producer_epoch),
            str(transaction.first_offset),
            output.time_text(transaction.last_timestamp),
        )
