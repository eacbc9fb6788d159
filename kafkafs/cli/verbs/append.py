"""`kafkafs append`: appends lines as records to a partition."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Final

import click

from kafkafs.storage import TopicPartition

from ..params.arguments import log_dirs_argument, partition_argument
from ..params.configs import configs_option
from ..params.flags import json_option
from ..params.paths import LocalFile
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import (
        AppendedLines,
        AppendLines,
        Engine,
        LogAppendInfo,
        ProgressListener,
        RecordColumns,
    )

    from ..support.mounted_engine import MountedEngine

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_READ_BYTES: Final = 1 << 20
# Longer than any record. Without this limit, input without line breaks would fill the memory.
_MAX_LINE_BYTES: Final = 256 << 20


@click.command(
    cls=Verb,
    short_help="Append lines or JSON lines to a partition as records.",
    examples=[
        (
            "echo hello | kafkafs append /data orders/0",
            "append one record with this value and no key",
        ),
        (
            "kafkafs append --key-separator = --compression zstd /data orders/0 < FILE",
            "append a record for each line KEY=VALUE, in zstd batches",
        ),
        (
            "kafkafs cat /old a/0/records.jsonl | kafkafs append --format jsonl /data a/0",
            "copy a partition, including timestamps and headers",
        ),
    ],
)
@log_dirs_argument
@partition_argument
@click.argument("file", type=LocalFile("rb"), default="-", metavar="[FILE]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    show_default=True,
    help="Read each line as a value, or as a record in JSON.",
)
@click.option("--key-separator", metavar="TEXT", help="Split each line into key and value at TEXT.")
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default=CODECS[0],
    show_default=True,
    help="Compress batches, unless the topic's compression.type overrides it.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=16384,
    show_default=True,
    metavar="BYTES",
    help="Limit the uncompressed size of a batch.",
)
@click.option(
    "--linger-ms",
    type=click.IntRange(0, 3_600_000),
    default=5,
    show_default=True,
    metavar="MS",
    help="Wait at most this long for more lines to fill a batch.",
)
@click.option(
    "--transaction",
    "in_transaction",
    is_flag=True,
    help="Append all lines, or none if one is invalid.",
)
@configs_option
@json_option("the result as a JSON object")
def command(
    log_dirs: tuple[str, ...],
    partition: TopicPartition,
    file: IO[bytes],
    form: str,
    key_separator: str | None,
    compression: str,
    batch_size: int,
    linger_ms: int,
    in_transaction: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Append the lines of FILE (default: standard input) to a partition and print their offsets.

    Records without a timestamp get the current time. At the first line that is not a valid record,
    or that Kafka would reject, the command reports its number and exits with code 1: the lines
    before it are kept, the lines after it are not read. All appended records are on disk when the
    command exits. No broker may be running on LOG_DIRS.
    """
    from kafkafs.storage import SILENT, AppendLines, append_lines

    from ..support.driver import perform

    _refuse_separator(form, key_separator)
    request = AppendLines(*partition, form, key_separator or "", compression, batch_size)
    done = AppendSummary(*partition)
    linger = linger_ms / 1000

    def here(
        engine: Engine, _: AppendLines, listener: ProgressListener = SILENT, /
    ) -> Iterator[AppendSummary]:
        with _appender(engine, request, in_transaction) as append:
            _append_file(file, partial(append_lines, append), request, done, linger, listener)
        return iter((done,))

    def through(
        mounted: MountedEngine, _: AppendLines, listener: ProgressListener
    ) -> Iterator[AppendSummary]:
        if in_transaction:
            why = "is mounted; a transaction needs exclusive access: unmount it first"
            raise failures.Failure(f"{','.join(log_dirs)}: {why}")
        append = partial(_append_through, mounted)
        append(request, b"")  # fails now, not when the first line arrives
        try:
            _append_file(file, append, request, done, linger, listener)
        finally:
            append(replace(request, sync=True), b"")
        return iter((done,))

    try:
        return perform(
            log_dirs, configs, request, here, lambda row: row.show(as_json), through=through
        )
    except BadInput:
        if not in_transaction:
            done.show(as_json)
        raise


def _append_through(mounted: MountedEngine, request: AppendLines, data: bytes) -> AppendedLines:
    from kafkafs.storage import PartitionFailed

    row: AppendedLines | PartitionFailed
    (row,) = mounted.ask(replace(request, size=len(data)), data)
    if isinstance(row, PartitionFailed):
        raise failures.failure_of(row)
    return row


class BadInput(failures.Failure):
    """A line that is not a valid record, or that the topic does not accept."""


@dataclass(slots=True)
class AppendSummary:
    """What was appended so far. Offsets are -1 if nothing was appended."""

    topic: str
    partition: int
    first: int = -1
    last: int = -1
    records: int = 0
    lines: int = 0

    def add(self, row: AppendedLines) -> None:
        if not self.records:
            self.first = row.first_offset
        if row.records:
            self.last = row.last_offset
        self.records += row.records
        self.lines = row.lines

    def show(self, as_json: bool) -> None:
        out = output.binary()
        if as_json:
            out.write(output.json_line(self._json()))
        elif self.records:
            place = output.shown(f"{self.topic}/{self.partition}")
            offsets = f"{self.first} to {self.last}" if self.last > self.first else f"{self.first}"
            out.write(output.line(f"{place}: {self.records} records, offsets {offsets}"))

    def _json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "records": self.records,
            "firstOffset": self.first if self.records else None,
            "lastOffset": self.last if self.records else None,
        }


def _append_file(
    file: IO[bytes],
    append: Callable[[AppendLines, bytes], AppendedLines],
    request: AppendLines,
    done: AppendSummary,
    linger: float,
    listener: ProgressListener,
) -> None:
    """Appends every line of `file` within `linger` seconds of its arrival. Raises BadInput at an
    invalid line, after adding the lines before it to `done`."""
    what = f"appending to {done.topic}/{done.partition}"
    shows_progress = not file.isatty()  # where lines may be typed
    size, total = 0, _size(file)
    if shows_progress:
        listener.report(what, size, total)
    for data in whole_lines(file, linger):
        row = append(replace(request, lines=done.lines), data)
        done.add(row)
        if row.bad_line:
            raise BadInput(f"{_name(file)}: {row.bad_line}")
        size += len(data)
        if shows_progress:
            listener.report(what, size, total)


def whole_lines(file: IO[bytes], linger: float) -> Iterator[bytes]:
    """Yields `file` in parts of whole lines; only the last part may lack its line break. A part is
    complete when it is large, or when no more input is ready `linger` seconds after it began."""
    waiting = bytearray()
    end = 0  # of the last whole line in `waiting`
    since = 0.0
    read = getattr(file, "read1", file.read)  # returns what is available instead of blocking
    while data := read(_READ_BYTES):
        if not waiting:
            since = time.monotonic()
        newline = data.rfind(b"\n")
        if newline >= 0:
            end = len(waiting) + newline + 1
        waiting += data
        if len(waiting) < _READ_BYTES and _more_comes(file, since + linger - time.monotonic()):
            continue
        if end:
            with memoryview(waiting) as view:  # slicing the bytearray would copy once more
                part = bytes(view[:end])
            del waiting[:end]
            yield part
            end, since = 0, time.monotonic()
        elif len(waiting) > _MAX_LINE_BYTES:
            raise failures.Failure(f"{_name(file)}: a line is longer than {_MAX_LINE_BYTES} bytes")
    if waiting:
        yield bytes(waiting)


def _more_comes(file: IO[bytes], seconds: float) -> bool:
    """Returns whether data, or end of file, can be read from `file` within `seconds`."""
    try:
        ready, _, _ = select.select([file], [], [], max(seconds, 0))
    except (OSError, ValueError, TypeError):  # not backed by a file descriptor
        return True
    return bool(ready)


def _name(file: IO[bytes]) -> str:
    return str(getattr(file, "name", "<stdin>"))


def _size(file: IO[bytes]) -> int:
    """Returns the size of a regular file in bytes, 0 for anything else."""
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, ValueError):
        return 0


@contextmanager
def _appender(
    engine: Engine, request: AppendLines, in_transaction: bool
) -> Iterator[Callable[[RecordColumns], LogAppendInfo]]:
    """Yields a function that appends records, with the current time where they have no timestamp.
    In a transaction all of them are appended or, if the block raises, none."""
    from kafkafs.storage import TransactionalProducer, writable

    partition, plan = (request.topic, request.partition), request.plan
    manager = writable(engine)
    writer = manager.writer(*partition)
    if not in_transaction:
        yield lambda records: writer.append_records(records.stamped(manager.clock.now_ms()), plan)
        return
    producer = TransactionalProducer(manager)
    with producer.transaction():
        yield lambda records: producer.append(
            *partition, records.stamped(manager.clock.now_ms()), plan
        )


def _refuse_separator(form: str, key_separator: str | None) -> None:
    if key_separator is None:
        return
    if form == "jsonl":
        raise click.UsageError(
            "--key-separator requires --format lines; JSON lines name their keys"
        )
    if not key_separator or "\n" in key_separator:
        raise click.UsageError("--key-separator must be a non-empty text without line breaks")
