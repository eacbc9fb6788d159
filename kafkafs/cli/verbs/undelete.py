"""`kafkafs undelete`: restores recently deleted records and topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from ..support import failures, output
from ..support.params import (
    Config,
    Selected,
    configs_option,
    human_option,
    json_option,
    log_dirs_argument,
    selection_argument,
)
from ..support.verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.log.delete.deletions import Deletion
    from kafkafs.storage.log_dirs.engine import Engine
    from kafkafs.storage.log_manager import LogManager

    from ..support.mounted_engine import MountedEngine

Found = tuple[list["Deletion"], int]


@click.command(
    cls=Verb,
    short_help="Restore recently deleted records and topics.",
    examples=[
        ("kafkafs undelete --list /data", "list what can be restored, and until when"),
        ("kafkafs undelete /data orders/0", "restore all deleted records of a partition"),
        ("kafkafs undelete --offset 600 /data orders/0", "restore the records from offset 600 on"),
        (
            "kafkafs undelete /data orders",
            "restore a deleted topic, or all deleted records of an existing one",
        ),
    ],
)
@log_dirs_argument
@selection_argument
@click.option(
    "-l", "--list", "lists", is_flag=True, help="List what can be restored; restore nothing."
)
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="With one partition: restore records from offset N on.",
)
@human_option
@configs_option
@json_option("one JSON object per deletion, one per line; times are in ms since 1970")
def command(
    log_dirs: tuple[str, ...],
    selection: tuple[Selected, ...],
    lists: bool,
    offset: int | None,
    human: bool,
    configs: tuple[Config, ...],
    as_json: bool,
) -> int:
    """Restore the deleted records of the named topics and partitions in LOG_DIRS, and print what
    was restored. It does not matter whether rm, retention, DeleteRecords or the deletion of the
    topic deleted them.

    Deleted files are kept for file.delete.delay.ms (by default one minute). Because a log has no
    gaps, the records deleted last are restored first. A topic is restored as it was when it was
    deleted; records deleted before that, as by rm -r, are reported, and a second undelete restores
    them. Retention spares restored records for the same time; to keep them longer, change the
    topic's configs.

    If the directories are mounted with --rw, the mount restores the records. If not, deletions by
    processes that have exited can be undone, too, and are then kept for that time again. The exit
    code is 1 if something named could not be restored.
    """
    if not selection and not lists:
        raise click.UsageError("name a topic or TOPIC/PARTITION; --list shows what can be restored")
    if offset is not None and (lists or len(selection) != 1 or selection[0][1] is None):
        raise click.UsageError("--offset requires exactly one TOPIC/PARTITION and excludes --list")
    found, code = _do(log_dirs, selection, lists, offset, configs)
    if as_json:
        output.binary().writelines(output.json_line(each.as_json()) for each in found)
    elif lists and found:
        lines = output.aligned(list(_rows(found, human)), right=(1, 2, 3))
        output.binary().writelines(map(output.line, lines))
    elif not lists:
        output.binary().writelines(output.line(_is_back(each)) for each in found)
    return code


def _do(
    log_dirs: tuple[str, ...],
    selection: Sequence[Selected],
    lists: bool,
    offset: int | None,
    configs: tuple[Config, ...],
) -> Found:
    """Returns what can be restored (with `lists`) or was restored, and the exit code."""
    from kafkafs.storage.topics.undeleting import found_deletions

    from ..support.mounted_engine import change, holding
    from ..support.opening import open_engine

    def here(engine: LogManager) -> Found:
        found, code = _each(engine, selection, offset)
        _tell_more(found, engine.deleted())
        return found, code

    def there(mounted: MountedEngine) -> Found:
        return _of_mount(mounted, selection, lists, offset)

    mounted = holding(log_dirs, configs)
    if mounted is not None:
        return there(mounted)
    with closing(open_engine(log_dirs, configs)) as looking:
        if lists:
            return _listed(found_deletions(looking), selection), 0
        refused = _refused(looking, selection, offset)
    if len(refused) == len(selection):  # invalid arguments must change nothing
        return [], max(map(failures.tell, refused))
    return change(log_dirs, configs, here, there, finds_deleted=True)


def _refused(engine: Engine, selection: Sequence[Selected], offset: int | None) -> list[Exception]:
    """Returns an error for each named topic or partition that cannot be restored."""
    from kafkafs.storage.errors import StorageError
    from kafkafs.storage.topics.undeleting import refuse_undelete

    refused: list[Exception] = []
    for topic, number in selection:
        try:
            refuse_undelete(engine, topic, number, offset)
        except (StorageError, OSError) as error:
            refused.append(error)
    return refused


def _listed(deletions: Iterable[Deletion], selection: Sequence[Selected]) -> list[Deletion]:
    return [
        each
        for each in deletions
        if not selection
        or (each.topic, each.partition) in selection
        or (each.topic, None) in selection
    ]


def _each(engine: LogManager, selection: Sequence[Selected], offset: int | None) -> Found:
    """Restores each; an error in one does not stop the others."""
    from kafkafs.storage.errors import StorageError

    found: list[Deletion] = []
    code = 0
    for topic, number in selection:
        try:
            found += engine.undelete(topic, number, offset)
        except (StorageError, OSError) as error:
            code = failures.tell(error)
    return found, code


def _of_mount(
    mounted: MountedEngine, selection: Sequence[Selected], lists: bool, offset: int | None
) -> Found:
    from kafkafs.storage.log.delete.deletions import Deletion

    from ..support.mounted_engine import words

    if lists:
        rows, code = mounted.each(f"deleted {words(selection)}")
        return [Deletion.of_json(row) for row in rows], code
    found: list[Deletion] = []
    code = 0
    for choice in selection:
        start = "" if offset is None else f" {offset}"
        try:
            rows, failed = mounted.each(f"undelete {words([choice])}{start}")
        except failures.Failure as failure:
            rows, failed = [], failures.tell(failure)
        found += [Deletion.of_json(row) for row in rows]
        code = failed or code
    _tell_more(found, map(Deletion.of_json, mounted.each("deleted")[0]))
    return found, code


def _tell_more(back: Sequence[Deletion], deletions: Iterable[Deletion]) -> None:
    """Warns if records of a restored topic had been deleted before the topic itself."""
    topics = {each.topic for each in back if each.partition < 0}
    for each in deletions:
        if each.topic in topics:
            offsets = f"offsets {each.start_offset} to {each.end_offset - 1}"
            failures.warn(
                f"{each.path}: {offsets} were deleted before; run undelete again to restore them"
            )


def _is_back(deletion: Deletion) -> str:
    """Formats a restored deletion as a line of text."""
    if deletion.partition < 0:
        count = len(deletion.partitions)
        what = f"topic, with {count} partition{'' if count == 1 else 's'}, restored"
    else:
        what = f"offsets {deletion.start_offset} to {deletion.end_offset - 1} restored"
    when = _when(deletion)
    return f"{output.shown(deletion.path)}: {what} (deleted {when}: {deletion.cause})"


def _when(deletion: Deletion) -> str:
    known = deletion.deleted_at_ms >= 0
    return output.time_text(deletion.deleted_at_ms) if known else "at an unknown time"


def _until(deletion: Deletion) -> str:
    from kafkafs.storage.log.delete.deletions import NEVER_MS

    never = deletion.until_ms == NEVER_MS
    return "purge" if never else output.time_text(deletion.until_ms)


def _rows(found: Iterable[Deletion], human: bool) -> Iterator[tuple[str, ...]]:
    yield "WHAT", "FIRST OFFSET", "LAST", "SIZE", "DELETED", "BY", "UNTIL"
    for each in found:
        is_topic = each.partition < 0
        yield (
            output.shown(each.path),
            "-" if is_topic else str(each.start_offset),
            "-" if is_topic else str(each.end_offset - 1),
            output.size_text(each.size, human),
            output.time_text(each.deleted_at_ms),
            str(each.cause),
            _until(each),
        )
