"""`kafkafs transactions`: lists open transactions and aborts hanging ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

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
    from kafkafs.storage.log.state.producers import OpenTransaction

Found = list[tuple[str, int, "OpenTransaction"]]


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
@json_option("one JSON object per transaction, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    selection: tuple[Selected, ...],
    abort: int | None,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """List the open transactions in LOG_DIRS, or only in the named topics and partitions, with
    producer, offset of the first record, and time of the last record. Consumers with
    read_committed cannot read beyond the first record of an open transaction.

    With --abort, abort the transactions of one producer and print them. kafkafs cannot tell whether
    the producer is still running. No broker may be running on LOG_DIRS.
    """
    if abort is None:
        found, code = _open_transactions(log_dirs, selection, configs)
    else:
        found, code = _abort(log_dirs, selection, configs, abort)
    out = output.binary()
    if as_json:
        out.writelines(output.json_line(_json(*each)) for each in found)
    elif found:
        out.writelines(map(output.line, output.aligned(list(_rows(found)), right=range(1, 5))))
    return code


def _open_transactions(
    log_dirs: tuple[str, ...], selection: Sequence[Selected], configs: Iterable[Config]
) -> tuple[Found, int]:
    """Finds open transactions from the newest snapshots and later records, without a lock."""
    from kafkafs.storage.io.retry import look_again
    from kafkafs.storage.log_dirs.selection import choose

    from ..support.opening import for_each_partition, open_engine
    from .recover import plan_for

    engine = open_engine(log_dirs, configs)
    found: Found = []

    def look(key: tuple[str, int]) -> None:
        producers = look_again(lambda: plan_for(engine, *key, is_clean=True)).producers
        found.extend((*key, each) for each in producers.open_transactions())

    keys = output.progress(choose(engine.topics(), selection), "reading partitions")
    return found, for_each_partition(keys, look, are_named=bool(selection))


def _abort(
    log_dirs: tuple[str, ...],
    selection: Sequence[Selected],
    configs: Iterable[Config],
    producer_id: int,
) -> tuple[Found, int]:
    """Returns the aborted transactions and the exit code. Raises Failure if none is open."""
    from kafkafs.storage.log_dirs.selection import choose
    from kafkafs.storage.transactions.producer import abort_transaction

    from ..support.opening import for_each_partition, writing

    found, code = _open_transactions(log_dirs, selection, configs)
    if not code and all(each.producer_id != producer_id for *_, each in found):
        # Invalid arguments must fail before anything is changed.
        raise failures.Failure(_none_open(producer_id))
    found = []
    with writing(log_dirs, configs) as engine:

        def abort(key: tuple[str, int]) -> None:
            writer = engine.writer(*key)
            for each in writer.producers.open_transactions():
                if each.producer_id == producer_id:
                    abort_transaction(writer, producer_id)
                    found.append((*key, each))

        code = for_each_partition(choose(engine.topics(), selection), abort)
    if not found and not code:
        raise failures.Failure(_none_open(producer_id))
    return found, code


def _none_open(producer_id: int) -> str:
    return f"producer {producer_id} has no transaction open there"


def _json(topic: str, number: int, found: OpenTransaction) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": number,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "coordinatorEpoch": found.coordinator_epoch,
        "firstOffset": found.first_offset,
        "lastTimestamp": found.last_timestamp,
    }


def _rows(found: Found) -> Iterator[tuple[str, ...]]:
    yield "TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "FIRST OFFSET", "LAST RECORD"
    for topic, number, each in found:
        yield (
            output.shown(topic),
            str(number),
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.first_offset),
            output.time_text(each.last_timestamp),
        )
