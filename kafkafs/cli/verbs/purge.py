"""`kafkafs purge`: removes leftover files of brokers and other processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from ..support import output
from ..support.params import (
    Config,
    Selected,
    configs_option,
    dry_run_option,
    human_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log_dirs.purging import FoundLeftover

    from ..support.mounted_engine import MountedEngine


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
    selection: tuple[Selected, ...],
    dry_run: bool,
    strays: bool,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> None:
    """Remove the files and directories in LOG_DIRS, or only of the named topics and partitions,
    that belong to no log, and print them.

    These are deleted segments (.deleted), unfinished output of the log cleaner (.cleaned, and .swap
    beside it), partly written small files (.tmp), and directories of deleted partitions (-delete).
    A broker removes them by itself; kafkafs keeps them until you run this command or mount with
    --maintain. Stray partitions (-stray) may hold the only copy of their records; they are removed
    only with --stray.
    """
    from ..support.mounted_engine import holding

    mounted = holding(log_dirs, configs)
    if mounted is not None:
        found = _of_mount(mounted, selection, strays, dry_run)
    else:
        found = _purge(log_dirs, configs, selection, strays, dry_run)
    if as_json:
        output.binary().writelines(output.json_line(each.as_json()) for each in found)
    elif found:
        lines = output.aligned(list(_rows(found, human)), right=(1,))
        output.binary().writelines(map(output.line, lines))


def _purge(
    log_dirs: tuple[str, ...],
    configs: tuple[Config, ...],
    selection: Sequence[Selected],
    strays: bool,
    dry_run: bool,
) -> list[FoundLeftover]:
    """Removes the leftovers unless `dry_run` is true, and returns them."""
    from kafkafs.storage.log_dirs.purging import find_leftovers, select

    from ..support.mounted_engine import change
    from ..support.opening import open_engine

    with closing(open_engine(log_dirs, configs)) as looking:
        found = select(looking, find_leftovers(looking.log_dirs, strays=strays), selection)
    if dry_run or not found:
        return found
    return change(
        log_dirs,
        configs,
        lambda engine: engine.purge(select(engine, engine.leftovers(strays=strays), selection)),
        lambda mounted: _of_mount(mounted, selection, strays, dry_run),
    )


def _of_mount(
    mounted: MountedEngine, selection: Sequence[Selected], strays: bool, dry_run: bool
) -> list[FoundLeftover]:
    """Has a mount do the same; it keeps what it deleted itself, which can still be restored."""
    from kafkafs.storage.log_dirs.purging import FoundLeftover

    from ..support.mounted_engine import words

    options = f"{' stray' if strays else ''}{' dry-run' if dry_run else ''}"
    return [FoundLeftover.of_json(row) for row in mounted.ask(f"purge {words(selection)}{options}")]


def _rows(found: Iterable[FoundLeftover], human: bool) -> Iterator[tuple[str, ...]]:
    yield "KIND", "SIZE", "PATH"
    for each in found:
        yield str(each.kind), output.size_text(each.size, human), output.shown(each.path)
