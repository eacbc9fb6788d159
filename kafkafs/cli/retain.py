"""`kafkafs retain`: one pass of retention, done or only told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    time_option,
)
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log.retention import Outlook


@click.command(
    cls=Verb,
    short_help="Delete the segments that retention deletes now, or tell which.",
    examples=[
        ("kafkafs retain /data", "what retention.ms, retention.bytes and log starts say"),
        ("kafkafs retain --dry-run --all /data orders", "each segment, and why it stays or goes"),
        (
            "kafkafs retain --dry-run --at 2030-01-01 -c retention.ms=86400000 /data orders/0",
            "what would go at another time, by another setting",
        ),
    ],
)
@log_dirs_argument
@choice_argument
@click.option("-n", "--dry-run", is_flag=True, help="Change nothing, and take no lock.")
@time_option
@click.option("-a", "--all", "everything", is_flag=True, help="Also the segments that stay.")
@click.option("-h", "--human-readable", "human", is_flag=True, help="Sizes like 7.5K, 12M, 3.0G.")
@settings_option
@json_option("one JSON object a line for each segment; times are milliseconds since 1970")
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    dry_run: bool,
    at: int | None,
    everything: bool,
    human: bool,
    settings: tuple[Setting, ...],
    as_json: bool,
) -> int:
    """Delete the segments in LOG_DIRS, or of what is named, that Kafka would delete now, and print
    them.

    A deleted segment's files are renamed to .deleted, and removed when file.delete.delay.ms has
    passed or by the next verb that writes after that. With --dry-run nothing is changed, and a
    broker may be running.
    """
    if at is not None and not dry_run:
        raise click.UsageError("--at only goes with --dry-run")
    if dry_run:
        futures, code = _foretell(log_dirs, chosen, settings, at)
    else:
        futures, code = _retain(log_dirs, chosen, settings)
    shown = [future for future in futures if everything or future.outlook.rule is not None]
    if as_json:
        output.binary().writelines(output.json_line(future.as_json()) for future in shown)
    elif shown:
        lines = output.aligned(list(_rows(shown, human)), right=(1, 2, 3))
        output.binary().writelines(map(output.line, lines))
    return code


@dataclass(frozen=True, slots=True)
class Future:
    """What becomes of a segment. `largest_timestamp` and `size` are those before it went."""

    topic: str
    partition: int
    base_offset: int
    size: int
    largest_timestamp: int
    outlook: Outlook

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "baseOffset": self.base_offset,
            "size": self.size,
            "largestTimestamp": self.largest_timestamp,
            "rule": self.outlook.rule and str(self.outlook.rule),
            "hold": self.outlook.hold and str(self.outlook.hold),
            "expiresAt": self.outlook.expires_at_ms,
            "bytesToCome": self.outlook.bytes_to_come,
        }


Futures = tuple[list[Future], int]


def _foretell(
    log_dirs: tuple[str, ...],
    chosen: Sequence[Choice],
    settings: Iterable[Setting],
    at: int | None,
) -> Futures:
    """What would become of every segment, and the exit code."""
    from kafkafs.storage.clock import SystemClock
    from kafkafs.storage.errors import StorageError
    from kafkafs.storage.log.retention import outlook, state_of

    from .opening import choose, open_engine

    engine = open_engine(log_dirs, settings)
    now_ms = SystemClock().now_ms() if at is None else at
    futures: list[Future] = []
    code = 0
    for topic, number in output.progress(choose(engine.topics(), chosen), "reading partitions"):
        try:
            state = state_of(engine.log(topic, number).view())
            config = engine.topic_config(topic).config
            futures += _futures(topic, number, outlook(state, config, now_ms))
        except (StorageError, OSError) as error:
            code = failures.tell(error, f"{topic}-{number}")
    return futures, code


def _retain(
    log_dirs: tuple[str, ...], chosen: Sequence[Choice], settings: Iterable[Setting]
) -> Futures:
    """What became of every segment, and the exit code."""
    from kafkafs.storage.errors import StorageError
    from kafkafs.storage.log.retention import outlook

    from .opening import choose, open_writable

    futures: list[Future] = []
    code = 0
    with open_writable(log_dirs, settings) as engine:
        for topic, number in output.progress(choose(engine.topics(), chosen), "deleting segments"):
            try:
                writer = engine.writer(topic, number)
                now_ms = engine.clock.now_ms()
                expected = outlook(writer.retention_state(), writer.config, now_ms)
                found = list(_futures(topic, number, expected))
                writer.retain(now_ms)
                futures += found
            except (StorageError, OSError) as error:
                code = failures.tell(error, f"{topic}-{number}")
    return futures, code


def _futures(topic: str, number: int, outlooks: Iterable[Outlook]) -> Iterator[Future]:
    for each in outlooks:
        segment = each.segment
        yield Future(
            topic, number, segment.base_offset, segment.size, segment.largest_timestamp, each
        )


def _rows(futures: Iterable[Future], human: bool) -> Iterator[tuple[str, ...]]:
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
    """The rule that a segment goes by, or what keeps it and until when."""
    if future.rule is not None:
        return str(future.rule)
    when = []
    if future.expires_at_ms is not None:
        when.append(f"goes at {output.time_text(future.expires_at_ms)}")
    if future.bytes_to_come is not None:
        when.append(f"goes when {future.bytes_to_come} bytes follow it")
    return "; ".join([f"stays: {future.hold}", *when])
