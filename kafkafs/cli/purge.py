"""`kafkafs purge`: removes what brokers and other processes have left in log directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from . import output
from .params import (
    Choice,
    Setting,
    choice_argument,
    dry_run_option,
    human_option,
    json_option,
    log_dirs_argument,
    settings_option,
)
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.purging import FoundLeftover

    from .mounted_engine import MountedEngine


@click.command(
    cls=Verb,
    short_help="Remove leftover files: .deleted, .cleaned, -delete directories.",
    examples=[
        ("kafkafs purge --dry-run /data", "what is left over; a broker may be running"),
        ("kafkafs purge /data", "remove it; what was deleted cannot be brought back then"),
        ("kafkafs purge --dry-run --stray /data", "also the directories of stray partitions"),
    ],
)
@log_dirs_argument
@choice_argument
@dry_run_option
@click.option(
    "--stray", "strays", is_flag=True, help="Also stray partitions, which hold whole logs."
)
@human_option
@settings_option
@json_option("one JSON object a line for each leftover")
def command(
    log_dirs: tuple[str, ...],
    chosen: tuple[Choice, ...],
    dry_run: bool,
    strays: bool,
    human: bool,
    settings: tuple[Setting, ...],
    as_json: bool,
) -> None:
    """Remove from LOG_DIRS, or from what is named, the files and directories that belong to no log,
    and print them.

    These are segments that were deleted (.deleted), unfinished output of a cleaning (.cleaned, and
    .swap beside it), small files that were being written (.tmp), and the directories of deleted
    partitions (-delete). A broker removes them by itself; kafkafs leaves them until this verb, or a
    mount with --maintain, removes them. The directories of stray partitions (-stray) hold records
    that are nowhere else: they are only removed with --stray.
    """
    from .mounted_engine import holding

    mounted = holding(log_dirs, settings)
    if mounted is not None:
        found = _of_mount(mounted, chosen, strays, dry_run)
    else:
        found = _purge(log_dirs, settings, chosen, strays, dry_run)
    if as_json:
        output.binary().writelines(output.json_line(each.as_json()) for each in found)
    elif found:
        lines = output.aligned(list(_rows(found, human)), right=(1,))
        output.binary().writelines(map(output.line, lines))


def _purge(
    log_dirs: tuple[str, ...],
    settings: tuple[Setting, ...],
    chosen: Sequence[Choice],
    strays: bool,
    dry_run: bool,
) -> list[FoundLeftover]:
    """What is removed, or would be."""
    from kafkafs.storage.purging import find_leftovers, select

    from .mounted_engine import change
    from .opening import open_engine

    with closing(open_engine(log_dirs, settings)) as looking:
        found = select(looking, find_leftovers(looking.log_dirs, strays=strays), chosen)
    if dry_run or not found:
        return found
    return change(
        log_dirs,
        settings,
        lambda engine: engine.purge(select(engine, engine.leftovers(strays=strays), chosen)),
        lambda mounted: _of_mount(mounted, chosen, strays, dry_run),
    )


def _of_mount(
    mounted: MountedEngine, chosen: Sequence[Choice], strays: bool, dry_run: bool
) -> list[FoundLeftover]:
    """What a mount removes, or would: not what it deleted itself, which can be brought back."""
    from kafkafs.storage.purging import FoundLeftover

    from .mounted_engine import words

    options = f"{' stray' if strays else ''}{' dry-run' if dry_run else ''}"
    return [FoundLeftover.of_json(row) for row in mounted.ask(f"purge {words(chosen)}{options}")]


def _rows(found: Iterable[FoundLeftover], human: bool) -> Iterator[tuple[str, ...]]:
    yield "KIND", "SIZE", "PATH"
    for each in found:
        yield str(each.kind), output.size_text(each.size, human), output.shown(each.path)
