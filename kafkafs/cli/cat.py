"""`kafkafs cat`: the bytes of files in the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from . import failures
from .params import Setting, as_of_option, log_dirs_argument, paths_argument, reading_options
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.mount.handles import Handle

    from .output import Output

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
    """Print the files at PATHS one after the other, byte for byte as a mount shows them. On a
    terminal, control characters and bytes that are not UTF-8 are escaped.

    Where bytes of the log are damaged the error goes to stderr, the output goes on behind the
    damage, and the exit code is 1.

    --at is for what depends on the time: why.json, and compacted/ without latest/.
    """
    from kafkafs.mount.nodes.node import File

    from .opening import for_each, open_tree, refuse_at, resolve
    from .output import of_records

    if at is not None:
        refuse_at(paths)
    tree = open_tree(log_dirs, settings, isolation, at)

    def print_file(path: str, out: Output) -> int:
        node = resolve(tree, path)
        if not isinstance(node, File):
            raise failures.Failure(f"{path or '/'}: a directory; `kafkafs ls` shows what is in it")
        handle = node.open()
        try:
            return copy(handle, out, path)
        finally:
            handle.close()

    with of_records() as out:
        return for_each(paths, lambda path: print_file(path, out))


def copy(handle: Handle, out: Output, path: str) -> int:
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
