"""`kafkafs purge`: removes leftover files of brokers and other processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..params.arguments import log_dirs_argument, selection_argument
from ..params.configs import configs_option
from ..params.flags import dry_run_option, human_option, json_option
from ..support import output
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import FoundLeftover, Selection


@click.command(
    cls=Verb,
    short_help="Remove leftover files, such as .deleted and .cleaned.",
    examples=[
        ("kafkafs purge --dry-run /data", "list leftovers, even while a broker runs"),
        ("kafkafs purge /data", "remove them; deletions can no longer be undone"),
        ("kafkafs purge --dry-run --stray /data", "include the directories of stray partitions"),
    ],
)
@log_dirs_argument
@selection_argument
@dry_run_option
@click.option(
    "--stray", "strays", is_flag=True, help="Include stray partitions, which hold whole logs."
)
@human_option
@configs_option
@json_option("one JSON object per leftover, one per line")
def command(
    log_dirs: tuple[str, ...],
    selection: Selection,
    dry_run: bool,
    strays: bool,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Remove the files and directories in LOG_DIRS, or only of the named topics and partitions,
    that belong to no log, and print them.

    These are deleted segments (.deleted), unfinished output of the log cleaner (.cleaned, and .swap
    beside it), partly written small files (.tmp), and directories of deleted partitions (-delete).
    A broker removes them by itself; kafkafs keeps them until you run this command or mount with
    --maintain. Stray partitions (-stray) may hold the only copy of their records; they are removed
    only with --stray.
    """
    from kafkafs.storage import Purge, purge

    from ..support.driver import perform

    found: list[FoundLeftover] = []
    request = Purge(selection, strays, dry_run=True)
    code = perform(log_dirs, configs, request, purge, found.append, asks_mount=True)
    if found and not dry_run:  # without leftovers nothing need be locked
        found.clear()
        code = perform(log_dirs, configs, replace(request, dry_run=False), purge, found.append)
    if as_json:
        output.json_rows(found)
    elif found:
        output.table(_rows(found, human), right=(1,))
    return code


def _rows(found: Iterable[FoundLeftover], human: bool) -> Iterator[tuple[str, ...]]:
    yield "KIND", "SIZE", "PATH"
    for each in found:
        yield str(each.kind), output.size_text(each.size, human), output.shown(each.path)
