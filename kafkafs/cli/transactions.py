"""`kafkafs transactions`: those that are open, and an end for those that nobody will end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

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
    from kafkafs.storage.log.producers import OpenTransaction

Found = list[tuple[str, int, "OpenTransaction"]]


@click.command(
    cls=Verb,
    short_help="List open transactions, or abort those of a producer.",
    examples=[
        ("kafkafs transactions /data", "who keeps readers of committed records from going on"),
        (
            "kafkafs transactions --json /data | jq 'select(.lastTimestamp < now*1000 - 9e5)'",
            "those without a record for a quarter of an hour",
        ),
        ("kafkafs transactions --abort 4711 /data orders/0", "ends one that nobody will end"),
    ],
)
@log_dirs_argument
@choice_argument
@click.option(
    "--abort",
    type=click.IntRange(min=0),
    metavar="PRODUCER_ID",
    help="Abort what this producer has open.",
)
@settings_option
@json_option("one JSON object a line for each transaction; times are milliseconds since 1970")
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    abort: int | None,
    settings: tuple[Setting, ...],
    as_json: bool,
) -> int:
    """List the transactions in LOG_DIRS, or in what is named, that no marker has ended: the
    producer, the offset of the first record, which nobody gets past who reads committed records,
    and the time of the last one.

    With --abort those of one producer are aborted, and listed as they were. Nothing tells whether
    the producer is still alive; no broker may be running on LOG_DIRS.
    """
    if abort is None:
        found, code = _open_transactions(log_dirs, chosen, settings)
    else:
        found, code = _abort(log_dirs, chosen, settings, abort)
    out = output.binary()
    if as_json:
        out.writelines(output.json_line(_json(*each)) for each in found)
    elif found:
        out.writelines(map(output.line, output.aligned(list(_rows(found)), right=range(1, 5))))
    return code


def _open_transactions(
    log_dirs: tuple[str, ...], chosen: Sequence[Choice], settings: Iterable[Setting]
) -> tuple[Found, int]:
    """As the newest snapshots and the records behind them tell; nothing is locked or changed."""
    from kafkafs.storage.again import look_again
    from kafkafs.storage.choice import choose

    from .opening import for_each_partition, open_engine
    from .recover import plan_for

    engine = open_engine(log_dirs, settings)
    found: Found = []

    def look(key: tuple[str, int]) -> None:
        producers = look_again(lambda: plan_for(engine, *key, is_clean=True)).producers
        found.extend((*key, each) for each in producers.open_transactions())

    keys = output.progress(choose(engine.topics(), chosen), "reading partitions")
    return found, for_each_partition(keys, look, are_named=bool(chosen))


def _abort(
    log_dirs: tuple[str, ...],
    chosen: Sequence[Choice],
    settings: Iterable[Setting],
    producer_id: int,
) -> tuple[Found, int]:
    """Those that were aborted, and the exit code: 1 also when there was none."""
    from kafkafs.storage.choice import choose
    from kafkafs.storage.transactional import abort_transaction

    from .opening import for_each_partition, writing

    found, code = _open_transactions(log_dirs, chosen, settings)
    if not code and all(each.producer_id != producer_id for *_, each in found):
        # A command that fails on its arguments changes nothing.
        raise failures.Failure(_none_open(producer_id))
    found = []
    with writing(log_dirs, settings) as engine:

        def abort(key: tuple[str, int]) -> None:
            writer = engine.writer(*key)
            for each in writer.producers.open_transactions():
                if each.producer_id == producer_id:
                    abort_transaction(writer, producer_id)
                    found.append((*key, each))

        code = for_each_partition(choose(engine.topics(), chosen), abort)
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
