"""`kafkafs explain`: prints every step of the lookup that `offset/N` or `time/T` makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ..params.arguments import log_dirs_argument
from ..params.completion import complete_tree_path
from ..params.configs import reading_options
from ..params.flags import json_option
from ..params.times import as_of_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config, plain_path

if TYPE_CHECKING:
    from kafkafs.storage import Explain

_LINKS: Final = ("first", "last")


@click.command(
    cls=Verb,
    short_help="Show how a record is found, step by step.",
    examples=[
        (
            "kafkafs explain /data orders/0/offset/600   # or offset/first, offset/last",
            "show the segment, index entry, file position, batches walked and record",
        ),
        (
            "kafkafs explain /data orders/0/time/2018-05-15T11:45:18.288Z",
            "look up by time; also show a broker's answer if it differs",
        ),
        (
            "kafkafs explain --json /data orders/0/offset/600 | jq '.steps[] | .position?'",
            "print the file positions, for programs",
        ),
    ],
)
@log_dirs_argument
@click.argument(
    "path",
    callback=lambda ctx, parameter, value: plain_path(value or ""),
    shell_complete=complete_tree_path,
)
@reading_options
@as_of_option
@json_option("the steps as one JSON object")
def command(
    log_dirs: tuple[str, ...],
    path: str,
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
    as_json: bool,
) -> int:
    """Show how the record at PATH is found. PATH is TOPIC/PARTITION/offset/N, where N may also be
    "first" or "last", or TOPIC/PARTITION/time/T.

    A lookup by offset finds the segment with the greatest base offset at or below N and the
    greatest entry at or below N in its .index, and walks the batches from the position there.

    A lookup by time finds the first segment whose largest timestamp is at or after T and the
    greatest entry before T in its .timeindex, looks up that entry's offset in the .index, and walks
    the batches from there.

    A missing, stale or wrong index only makes the walk longer. The exit code is 1 if there is no
    such record; the steps show why.
    """
    from kafkafs.storage import ExplainedLookup, explain

    from ..support.driver import perform
    from ..support.lookup_report import lines_of

    rows: list[ExplainedLookup] = []
    code = perform(log_dirs, configs, parse(path, isolation), explain, rows.append, at=at)
    if as_json:
        output.json_rows(rows)
    else:
        output.binary().writelines(output.line(text) for row in rows for text in lines_of(row))
    return code if all(row.found for row in rows) else 1


def parse(path: str, isolation: str) -> Explain:
    """Parses a path of the tree. Raises click.BadParameter if it has neither of the two forms."""
    from kafkafs.storage import Explain, Isolation, milliseconds

    level = Isolation(isolation)
    match path.split("/"):
        case [topic, partition, "offset", name] if _is_number(partition):
            number = name.removesuffix(".json").removesuffix(".key")
            if _is_number(number):
                return Explain(topic, int(partition), offset=int(number), isolation=level)
            if name in _LINKS:
                return Explain(topic, int(partition), link=name, isolation=level)
        case [topic, partition, "time", name] if _is_number(partition):
            try:
                timestamp = milliseconds(name)
            except ValueError as error:
                raise click.BadParameter(str(error)) from None
            return Explain(topic, int(partition), timestamp=timestamp, isolation=level)
    raise click.BadParameter(
        f"{path!r} is neither TOPIC/PARTITION/offset/N nor TOPIC/PARTITION/time/T"
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
