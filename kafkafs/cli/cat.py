"""`kafkafs cat`: the bytes of files in the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import click

from . import failures
from .params import Setting, as_of_option, log_dirs_argument, paths_argument, reading_options
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.mount.handles import Handle

_READ_BYTES: Final = 1 << 20


@click.command(
    cls=Verb,
    short_help="Print records, streams and other files of the tree.",
    examples=[
        ("kafkafs cat /data orders/0/offset/600", "the value of a record, byte for byte"),
        ("kafkafs cat /data orders/0/offset/600.json", "the whole record as one line of JSON"),
        ("kafkafs cat /data orders/0/key/order-7", "the latest value of a key"),
        (
            "kafkafs cat /data orders/0/time/2018-05-15T11:45:18.288Z",
            "the first record from then or later",
        ),
        (
            "kafkafs cat /data orders/{0,1,2}/records.jsonl | jq -r .key | sort | uniq -c",
            "how many records each key has",
        ),
        (
            "kafkafs cat --at 2030-01-01 /data orders/0/compacted/summary.json",
            "what compaction would leave then, and what goes, by reason",
        ),
        ("kafkafs cat /data orders/0/follow", "records as they come, until Ctrl-C"),
    ],
)
@log_dirs_argument
@paths_argument(required=True)
@reading_options
@as_of_option
def command(
    log_dirs: tuple[str, ...],
    paths: tuple[str, ...],
    settings: tuple[Setting, ...],
    isolation: str,
    at: int | None,
) -> int:
    """Print the files at PATHS one after the other, byte for byte as a mount shows them.

    Where bytes of the log are damaged the error goes to stderr, the output goes on behind the
    damage, and the exit code is 1.
    """
    from kafkafs.mount.nodes.node import File

    from .opening import for_each, open_tree, resolve
    from .output import binary

    tree = open_tree(log_dirs, settings, isolation, at)
    out = binary()

    def print_file(path: str) -> int:
        node = resolve(tree, path)
        if not isinstance(node, File):
            raise failures.Failure(f"{path or '/'}: a directory; `kafkafs ls` shows what is in it")
        handle = node.open()
        try:
            return copy(handle, out, path)
        finally:
            handle.close()

    return for_each(paths, print_file)


def copy(handle: Handle, out: BinaryIO, path: str) -> int:
    """Writes everything in `handle` to `out`, past damage; the exit code."""
    from kafkafs.mount.errnos import Idle
    from kafkafs.storage.errors import CorruptError

    position = code = 0
    while True:
        try:
            data = handle.read(position, _READ_BYTES)
        except Idle:
            continue
        except CorruptError as error:
            # A handle refuses at the damage once, and then goes on with what follows.
            code = failures.tell(error, path)
            continue
        if not data:
            return code
        out.write(data)
        out.flush()
        position += len(data)
