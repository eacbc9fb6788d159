"""`kafkafs cat`: prints the bytes of files in the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ..params.arguments import log_dirs_argument, paths_argument
from ..params.configs import reading_options, schema_option
from ..params.times import as_of_option
from ..support import failures
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.mount.vfs.handles import Handle

    from ..support.output import Output

_READ_BYTES: Final = 1 << 20


@click.command(
    cls=Verb,
    short_help="Print records, streams and other files in the tree.",
    examples=[
        ("kafkafs cat /data orders/0/offset/600", "print a record's value, byte for byte"),
        (
            "kafkafs cat /data orders/0/offset/600.json",
            "print the whole record as one line of JSON",
        ),
        ("kafkafs cat /data orders/0/key/order-7", "print the latest value of a key"),
        (
            "kafkafs cat /data orders/0/time/2018-05-15T11:45:18.288Z",
            "print the first record at or after a time",
        ),
        (
            "kafkafs cat /data orders/{0,1,2}/records.jsonl | jq -r .key | sort | uniq -c",
            "count the records of each key",
        ),
        (
            "kafkafs cat /data orders/0/decoded.jsonl | jq .value.total",
            "print a field of values that name a schema of the registry",
        ),
        (
            "kafkafs cat --schema orders=order.avsc /data orders/0/decoded.jsonl",
            "decode values with a schema given as a file",
        ),
        (
            "kafkafs cat --at 2030-01-01 /data orders/0/compacted/summary.json",
            "show what compaction would retain and discard at that time, by reason",
        ),
        (
            "kafkafs cat --at 2026-09-03T12:00 /data orders/0/key/order-7",
            "print the value that a key had at a time",
        ),
        ("kafkafs cat /data orders/0/follow", "print records as they arrive, until Ctrl-C"),
    ],
)
@log_dirs_argument
@paths_argument(required=True)
@reading_options
@schema_option
@as_of_option
def command(
    log_dirs: tuple[str, ...],
    paths: tuple[str, ...],
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
) -> int:
    """Print the file at each PATH, byte for byte as a mount shows it. On a terminal, control
    characters and bytes that are not UTF-8 are escaped.

    If a log is damaged, report the damage on stderr, continue after it, and exit with code 1.

    With --at, print what a mount of that time would show: every partition ends before the first
    record that is later.
    """
    from kafkafs.mount.node import File

    from ..support.opening import for_each, open_tree, resolve
    from ..support.output import of_records

    tree = open_tree(log_dirs, configs, isolation, at)

    def print_file(path: str, out: Output) -> int:
        node = resolve(tree, path)
        if not isinstance(node, File):
            raise failures.Failure(f"{path or '/'}: is a directory; list it with `kafkafs ls`")
        handle = node.open()
        try:
            return copy(handle, out, path)
        finally:
            handle.close()

    with of_records() as out:
        code = for_each(paths, lambda path: print_file(path, out))
    return failures.report_configs(tree.catalog.engine) or code


def copy(handle: Handle, out: Output, path: str) -> int:
    """Writes everything in `handle` to `out`, skipping damage, and returns the exit code."""
    from kafkafs.mount.vfs.errnos import ReadInterrupted
    from kafkafs.storage import CorruptError

    position = code = 0
    while True:
        try:
            data = handle.read(position, _READ_BYTES)
        except ReadInterrupted:
            continue
        except CorruptError as error:
            # A handle raises once at the damage and then continues after it.
            code = failures.report(error, path)
            continue
        if not data:
            return code
        out.write(data)
        out.flush()
        position += len(data)
