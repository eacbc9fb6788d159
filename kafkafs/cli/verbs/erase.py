"""`kafkafs erase`: erases the records of a key from all files of a partition."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import click

from ..support import failures, output
from ..support.params import (
    LocalFile,
    configs_option,
    dry_run_option,
    human_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import ErasedFile, Selection

_ELSEWHERE = (
    "copies may exist elsewhere: on replicas, in tiered storage, in backups and file system"
    " snapshots, in staging directories of Spark jobs, at consumers, and in blocks that the disk"
    " has not overwritten yet"
)


@click.command(
    cls=Verb,
    short_help="Erase the records of a key from all files of a partition.",
    examples=[
        (
            "kafkafs erase --dry-run --key customer-7 /data orders",
            "list the files with records of a key, even while a broker runs",
        ),
        ("kafkafs erase --key customer-7 /data orders payments", "erase them from two topics"),
        (
            "kafkafs erase --json --key-prefix customer-7: /data orders > report.json",
            "erase several keys, and keep the SHA-256 of each segment before and after",
        ),
        ("kafkafs erase --offset 600 /data orders/0", "erase one record"),
    ],
)
@log_dirs_argument
@selection_argument
@click.option("--key", metavar="K", help="Erase the records with this key.")
@click.option(
    "--key-file",
    type=LocalFile("rb"),
    metavar="FILE",
    help="Erase the records whose key is the content of FILE, byte for byte; - is stdin.",
)
@click.option(
    "--key-prefix", metavar="P", help="Erase the records whose key begins with this prefix."
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="With one partition: erase the record at offset N.",
)
@dry_run_option
@human_option
@configs_option
@json_option("one JSON object per file, one per line, with its SHA-256 before and after")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    key: str | None,
    key_file: BinaryIO | None,
    key_prefix: str | None,
    offset: int | None,
    dry_run: bool,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Erase records from the named topics and partitions in LOG_DIRS, and print each file that held
    one: all records with a key, those whose key begins with a prefix, or the one at an offset.

    Each segment with such a record, also the active one, is written again without it, as compaction
    does, and replaces the old file. All other records keep their offsets, timestamps and headers.
    The largest segment comes first; it needs as much free space as it has bytes. If the disk is
    full, nothing is changed. Deleted segments and deleted partitions that hold such a record are
    removed, and so is unfinished output of the cleaner; they can no longer be restored. The command
    can be stopped at any moment; run it again to erase the rest.

    If a file of a partition is damaged, nothing is erased from that partition. The exit code is 1
    if there is no such record, or if one remains: in a replica that is not served, or in a stray
    partition.
    """
    from kafkafs.storage import Erase, erase

    from ..support.driver import perform

    keys = None if key is None else os.fsencode(key)
    if key_file is not None:
        if key is not None:
            raise click.UsageError("--key and --key-file exclude each other")
        keys = key_file.read()
    prefix = None if key_prefix is None else os.fsencode(key_prefix)
    try:
        request = Erase(selection, keys, prefix, offset, dry_run)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    found: list[ErasedFile] = []
    code = perform(log_dirs, configs, request, erase, found.append)
    found.sort(key=lambda each: each.file)
    if as_json:
        output.json_rows(found)
    elif found:
        output.table(_rows(found, human, dry_run), right=(1, 2, 3))
    if found:
        failures.warn(_ELSEWHERE)
    return code


def _rows(found: Iterable[ErasedFile], human: bool, dry_run: bool) -> Iterator[tuple[str, ...]]:
    yield "FILE", "RECORDS", "BYTES", "AFTER", "DONE"
    for each in found:
        after = "-" if each.new_size is None else output.size_text(each.new_size, human)
        done = "removed" if each.is_removed else "rewritten"
        yield (
            output.shown(each.file),
            str(each.records),
            output.size_text(each.size, human),
            after,
            f"to be {done}" if dry_run else done,
        )
