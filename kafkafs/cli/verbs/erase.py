"""`kafkafs erase`: erases the records of some keys from all files of a partition."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from kafkafs.storage import printable

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import dry_run_option, human_option, json_option
from ..params.paths import LocalFile
from ..support import failures, output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import ErasedFile, Selection

_DECODERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "text": bytes,
    "base64": partial(b64decode, validate=True),
    "hex": lambda text: bytes.fromhex(text.decode("ascii")),
}
_ELSEWHERE: Final = (
    "copies may exist elsewhere: on replicas, in tiered storage, in backups and file system"
    " snapshots, where Spark jobs stage in other places, at consumers, and in blocks that the disk"
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
        (
            "kafkafs erase --key-file - /data orders < leavers.txt",
            "erase all keys that a file lists",
        ),
        (
            "kafkafs erase --key-encoding hex --key 00000007cafe /data orders",
            "erase a key that is not text",
        ),
        ("kafkafs erase --offset 600 /data orders/0", "erase one record"),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "--key", "keys", metavar="K", multiple=True, help="Erase the records with this key; repeatable."
)
@click.option(
    "--key-file",
    type=LocalFile("rb"),
    metavar="FILE",
    help="Erase the records with one of the keys in FILE, one per line; - is stdin.",
)
@click.option(
    "--key-prefix", metavar="P", help="Erase the records whose key begins with this prefix."
)
@click.option(
    "--key-encoding",
    type=click.Choice(list(_DECODERS)),
    default="text",
    show_default=True,
    help="How keys and prefix are written, such as keys with any bytes.",
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
    keys: tuple[str, ...],
    key_file: BinaryIO | None,
    key_prefix: str | None,
    key_encoding: str,
    offset: int | None,
    dry_run: bool,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Erase records from the named topics and partitions in LOG_DIRS, and print each file that held
    one: all records with some keys, those whose key begins with a prefix, or the one at an offset.

    Each segment with such a record, also the active one, is written again without it, as compaction
    does, and replaces the old file. All other records keep their offsets, timestamps and headers.
    The largest segment comes first; it needs as much free space as it has bytes. If the disk is
    full, nothing is changed. Deleted segments and deleted partitions that hold such a record are
    removed, and so is unfinished output of the cleaner and of Spark's compaction; they can no
    longer be restored. The command can be stopped at any moment; run it again to erase the rest.

    If a file of a partition is damaged, nothing is erased from that partition. The exit code is 1
    if there is no such record, or if one remains, and each such file is named: in a replica that is
    not served, in a stray partition, or where a Spark job has staged it beside LOG_DIRS. It is also
    1 if a topic has remote storage, which is not searched.
    """
    from kafkafs.storage import Erase, erase

    from ..support.driver import perform

    selected = frozenset(_keys(keys, key_file, key_encoding))
    if key_file is not None and not selected:
        raise click.UsageError(f"{key_file.name} has no key")
    prefix = None if key_prefix is None else _decoded(os.fsencode(key_prefix), key_encoding)
    try:
        request = Erase(selection, selected, prefix, offset, dry_run)
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


def _keys(keys: Iterable[str], file: BinaryIO | None, encoding: str) -> Iterator[bytes]:
    """Yields the keys of the options, and those in a file, whose empty lines count for nothing."""
    for key in keys:
        yield _decoded(os.fsencode(key), encoding)
    for number, line in enumerate(file or (), 1):
        key_ = line.removesuffix(b"\n")
        if key_:
            yield _decoded(key_, encoding, f"line {number}: ")


def _decoded(key: bytes, encoding: str, where: str = "") -> bytes:
    try:
        return _DECODERS[encoding](key)
    except ValueError:
        what = printable(key.decode("utf-8", "backslashreplace"))
        raise click.UsageError(f"{where}{what} is not {encoding}") from None


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
